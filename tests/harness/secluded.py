"""A control plane in a network namespace of its own, which has loopback and no route anywhere: the kernel refuses to send to any other address, so nothing
leaves. It is asked over the operator socket, which serves every path."""

from machine import missing, need, tool
from plane import Answer, ControlPlane

SCRIPT = 'ip link set lo up && exec "$0" "$@"'
NOWHERE = {"ipv4": "198.51.100.1", "port": 51820}
"""Of TEST-NET-2 (RFC 5737)."""


class Secluded(ControlPlane):
    def __init__(self):
        super().__init__()
        if tool("unshare", "--net", "true", check=False).code != 0:
            missing("the right to unshare the network namespace")
        self.prefix = (need("unshare"), "--net", "sh", "-c", SCRIPT)

    def https(self, method: str, path: str, body=None, headers=None, certificate=None, **named) -> Answer:
        assert certificate is None, "nobody connects to it"
        return self.api(method, path, body, headers)

"""Nodes that are known and nothing more, by the score, and operators who may see some of them."""

from machine import ENLIST, run, scratch
from operators import make_key


def known(plane, *names: str, vcluster: str | None = None, **fields) -> list[str]:
    """Nodes that are registered, without hardware and without a certificate."""
    for name in names:
        answer = plane.api("POST", "/v1/nodes", {"node_id": name, **fields})
        assert answer.status == 201, answer
        if vcluster:
            answer = plane.api("POST", f"/v1/nodes/{name}/assign", {"vcluster": vcluster})
            assert answer.status == 200, answer
    return list(names)


def label(plane, name: str, **labels) -> None:
    answer = plane.api("POST", f"/v1/nodes/{name}/label", {"set": labels})
    assert answer.status == 200, answer


class Operator:
    """One with an API key, on the command line and over REST."""

    def __init__(self, plane, role: str, *options: str):
        self.plane, self.key = plane, make_key(plane, role, *options)["key"]
        self.file = scratch("key") / "key"
        self.file.touch(mode=0o600)
        self.file.write_text(self.key)

    def cli(self, *arguments, ok: bool = True, stdin: bytes = b""):
        reach = ("--server", self.plane.url, "--ca", self.plane.dir / "ca" / "bundle.pem", "--api-key-file", self.file)
        done = run(ENLIST, *arguments, *reach, "--json", stdin=stdin)
        assert not ok or done.code == 0, done
        return done

    def api(self, method: str, path: str, body=None):
        return self.plane.https(method, path, body, {"Authorization": f"Bearer {self.key}"})

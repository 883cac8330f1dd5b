"""A data directory as an older version leaves it, packed for the versions after it to start on.

`ENLIST_BIN_DIR=DIR python old_directory.py FILE.tar.gz` makes one with the programs in DIR: everything that changes the
registry is done at least once, and then the process is killed, so that the whole log is applied again at the next start.
Made once for each version that changes what is stored; what was made stays as it is.
"""

import json
import sys
import tarfile
import time
from pathlib import Path

KEK = {"ENLIST_KEK": "5e" * 32}
#: What is packed beside the directory: the nodes, and the head of the trail, as they were at the end.
FACTS = "facts.json"


def lived() -> "ControlPlane":
    """A control plane with a history."""
    import hosts
    from daemons import Daemon
    from machine import until
    from plane import ControlPlane

    plane = ControlPlane("old.example", kek="env:ENLIST_KEK", env=KEK).found().start()
    for key, value in [
        ("profile.quick.lifetime", "60s"),
        ("profile.quick.renew_before", "55s"),
        ("liveness.grace", "2s"),
        ("renew.drain", "1s"),
        ("token.default_ttl", "10s"),
    ]:
        plane.policy(key, value)
    plane.cli("tenant", "create", "blue")
    for name, role in [("ann", "platform-admin"), ("bob", "viewer")]:
        plane.cli("operator", "add", name, "--role", role, "--out", plane.base / name)
    plane.cli("operator", "remove", "bob")
    key = plane.cli("operator", "key", "create", "cron", "--role", "operator", "--expires", "1h").json()
    plane.cli("operator", "key", "revoke", key["key_id"])
    unused = [plane.mint(expires="1h") for _ in range(2)]
    plane.cli("token", "revoke", unused[0]["token_id"])
    renewing = Daemon(plane, plane.token(profile="quick", node="renewing")).start().wait_connected()
    first = renewing.serial()
    until(lambda: renewing.serial() != first, "it has renewed")
    for act in (["drain", "--within", "1h"], ["undrain"], ["quarantine"], ["release"], ["rotate"]):
        plane.cli("node", act[0], "renewing", *act[1:])
    for node in ("revoked", "gone", "again", "kept"):
        enroll(plane, node)
    plane.cli("node", "revoke", "revoked", "--reason", "stolen")
    plane.cli("node", "decommission", "gone")
    plane.cli("node", "revoke", "again")
    plane.cli("node", "reinstate", "again")
    enroll(plane, "again")
    hosts.active(plane)
    hosts.active(plane)
    plane.cli("token", "create", "--tenant", "blue", "--expires", "10s")
    renewing.stop()
    until(lambda: plane.node("renewing")["state"] == "inactive", "silence was noticed")
    until(lambda: plane.audit("enrollment_token.expired"), "a token has expired")
    return plane


def enroll(plane, node: str) -> None:
    import agents
    from machine import scratch

    done = agents.enroll(plane, scratch("old"), token=plane.token(node=node, expires="1h"))
    assert done.code == 0, done


def pack(plane, file: Path) -> None:
    facts = {
        "nodes": {node["node_id"]: [node["state"], node["generation"], node["cert_serial"]] for node in plane.nodes()},
        "policy": plane.api("GET", "/v1/policy").json(),
    }
    plane.kill()
    (plane.base / FACTS).write_text(json.dumps(facts, indent=1))
    with tarfile.open(file, "w:gz") as archive:
        archive.add(plane.base / FACTS, FACTS)
        for path in sorted(plane.dir.rglob("*")):
            if path.is_file():
                archive.add(path, Path("d") / path.relative_to(plane.dir))


if __name__ == "__main__":
    began = time.monotonic()
    pack(lived(), Path(sys.argv[1]).resolve())
    print(f"made in {time.monotonic() - began:.0f} s")

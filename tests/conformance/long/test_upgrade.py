"""A directory that an older version left starts under this one, and says the same."""

import json
import tarfile

import evidence
import pytest
from machine import ROOT
from old_directory import FACTS, KEK
from plane import ControlPlane

ARCHIVES = sorted((ROOT / "tests" / "fixtures").glob("directory-*.tar.gz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name)
def old(request):
    """The archive's directory, and what was true of it when it was packed."""
    plane = ControlPlane("old.example", kek="env:ENLIST_KEK", env=KEK)
    with tarfile.open(request.param) as archive:
        archive.extractall(plane.base, filter="data")
    for path in (plane.dir, *plane.dir.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    evidence.key("kek", bytes.fromhex(KEK["ENLIST_KEK"]))
    yield plane, json.loads((plane.base / FACTS).read_text())
    plane.close()


def told(plane) -> dict:
    return {node["node_id"]: [node["state"], node["generation"], node["cert_serial"]] for node in plane.nodes()}


def test_there_is_an_old_directory_to_start_on():
    assert ARCHIVES


def test_an_old_directory_starts_and_nothing_in_it_has_changed(old):
    """The process was killed, so every entry is applied again by today's rules: they must lead to the same lines."""
    plane, facts = old
    plane.start("--accept-clock")
    nodes = told(plane)
    for node, (state, generation, serial) in facts["nodes"].items():
        # Its hosts are not there any more, which is all that may be noticed since.
        assert nodes[node] == [state, generation, serial] or nodes[node] == ["inactive", generation, serial]
    policy = plane.api("GET", "/v1/policy").json()["items"]
    assert all(item in policy for item in facts["policy"]["items"])
    assert plane.cli("audit", "verify").json()["ok"]


def test_an_old_directory_is_used_and_starts_again(old):
    plane, facts = old
    plane.start("--accept-clock")
    minted = plane.mint(node="revoked-anew")
    plane.kill()
    plane.start("--accept-clock")
    assert plane.token_state(minted["token_id"]) == "unused"
    assert plane.cli("audit", "verify").json()["ok"]
    assert set(told(plane)) == set(facts["nodes"])

"""A data directory edited, cut, put back and swapped in ways drawn at random, after a clean stop and after a kill.

A tenth of the ways in CI, all in `just soak`. The seed is printed, and ENLIST_SEED replays it.
"""

import os
import random
import re
import shutil
from collections import Counter
from pathlib import Path

import native
import pytest
import tampering
import ways
from machine import scratch, until
from plane import ControlPlane

COUNT = int(os.environ.get("ENLIST_TAMPER_WAYS", "20"))
SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
REVOKED = "SSLV3_ALERT_CERTIFICATE_REVOKED"
WORDS = {
    "anchor_unusable",
    "config_invalid",
    "directory_missing",
    "directory_rolled_back",
    "file",
    "kek_unavailable",
    "kek_wrong",
    "server_certificate",
    "store_too_new",
    "store_unusable",
    "store_unversioned",
}
"""The codes that a start may be refused with."""


class Base:
    """A domain with a revoked host and another, left in three states; and what was acknowledged, kept outside."""

    def __init__(self, anchored: bool):
        self.plane = ControlPlane().found()
        self.anchored = anchored
        self.arguments = ("--anchor", self.plane.base / "anchor.json") if anchored else ()
        self.states: dict[str, tuple[Path, list[dict], bytes]] = {}
        plane = self.plane.start(*self.arguments)
        self.bundle = plane.bundle
        self.revoked, self.well = native.enroll(plane), native.enroll(plane)
        for host in (self.revoked, self.well):
            host.confirm()
        plane.stop()
        self.old = tampering.copy(plane.dir, scratch("old") / "d")
        plane.start(*self.arguments)
        self.keep("killed", self.revoked)
        plane.start(*self.arguments)
        self.keep("stopped", None)
        plane.start(*self.arguments)
        late = native.enroll(plane)
        late.confirm()
        self.keep("killed, the log purged", late)

    def keep(self, name: str, revoke: native.Node | None) -> None:
        """Everything acknowledged is in the last checkpoint, which a revocation is in within seconds."""
        plane = self.plane
        plane.mint(), plane.mint()
        if revoke:
            before = (plane.dir / "checkpoint").read_bytes()
            plane.api("POST", f"/v1/nodes/{revoke.id}/revoke", {"reason": "stolen"})
            until(lambda: (plane.dir / "checkpoint").read_bytes() != before, "the checkpoint is kept")
            assert native.alert(plane, revoke.files) == REVOKED
        lines = plane.audit()
        (plane.kill if revoke else plane.stop)()
        anchor = (plane.base / "anchor.json").read_bytes() if self.anchored else b""
        self.states[name] = tampering.copy(plane.dir, scratch("state") / "d"), lines, anchor


class Start:
    """A start on a bent copy, and what comes of it."""

    def __init__(self, base: Base, state: str):
        self.base, (kept, self.lines, anchor) = base, base.states[state]
        self.plane = ControlPlane()
        self.plane.dir.parent.mkdir(exist_ok=True)
        tampering.copy(kept, self.plane.dir)
        self.arguments = ["--listen", "127.0.0.1:0"]
        if base.anchored:
            file = self.plane.base / "anchor.json"
            file.write_bytes(anchor)
            self.arguments += ["--anchor", file]

    def outcome(self, trail_bent: bool) -> str:
        """One word for it; whatever is not to be, fails."""
        plane = self.plane
        plane.launch(*self.arguments)
        said = lambda: plane.err.read_text(errors="replace")  # noqa: E731
        over = lambda: plane.process.poll() is not None or "ready https://" in plane.out.read_text()  # noqa: E731
        try:
            until(over, "it has started or ended")
        finally:
            if not over():
                plane.kill()
        self.no_panic()
        if plane.process.poll() is not None:
            code = re.findall(r"^error: ([a-z_]+): \S", said(), re.MULTILINE)
            assert plane.process.returncode in (1, 2) and set(code) <= WORDS and code, (plane.process.returncode, said()[-1500:])
            return f"refused: {code[0]}"
        try:
            return self.started(trail_bent)
        finally:
            plane.kill()
            self.no_panic()

    def no_panic(self) -> None:
        said = self.plane.err.read_text(errors="replace")
        if "panicked" in said:
            raise AssertionError(said[said.index("panicked") :][:600])

    def started(self, trail_bent: bool) -> str:
        plane = self.plane
        plane.url = plane.out.read_text().split()[1]
        # What the hosts know, whatever lies in the directory now.
        (plane.dir / "ca").mkdir(exist_ok=True)
        (plane.dir / "ca" / "bundle.pem").write_bytes(self.base.bundle)
        assert native.alert(plane, self.base.revoked.files) == REVOKED, "the revoked certificate works"
        assert native.alert(plane, self.base.well.files) is None
        host = plane.node(self.base.revoked.id)
        assert host["state"] == "revoked", host
        verified = plane.cli("audit", "verify", ok=False)
        answer = plane.api("GET", "/v1/audit?limit=1000")
        lines = answer.json()["items"] if answer.status == 200 else []
        if lines[: len(self.lines)] == self.lines:
            assert verified.code == 0 and verified.json()["ok"], verified
            native.enroll(plane).confirm()
            return "whole"
        # Lines that are older than the log are compared by `audit verify`, or were missed at the start.
        told = [line for line in lines if isinstance(line, dict)]
        gaps = [line for line in told if line.get("event_type") == "audit.gap" and not line["refilled"]]
        assert trail_bent and (verified.code != 0 or gaps), ("history is missing", len(lines), verified)
        return "named"


def bend(number: int, way, bases: list[Base], other: Path, chance: random.Random) -> str:
    """Until the way is one that can be gone in the directory that was drawn."""
    while True:
        base = chance.choice(bases)
        state = chance.choice(sorted(base.states))
        start = Start(base, state)
        try:
            stranger = start.plane.base / "stranger"
            bent = ways.Bent(start.plane.dir, base.old, other, chance, base.anchored, stranger)
            words = way(bent)
            if words is None:
                continue
            trail_bent = ways.trail(start.plane.dir) != ways.trail(base.states[state][0])
            what = f"{number}: {state}{', anchored' if base.anchored else ''}; {way.__name__}: {words}"
            try:
                outcome = start.outcome(trail_bent)
            except Exception as error:
                raise AssertionError(f"ENLIST_SEED={SEED} {what}: {error}") from error
            print(f"{outcome:30} {what}", flush=True)
            return outcome
        finally:
            shutil.rmtree(start.plane.base, ignore_errors=True)


@pytest.fixture(scope="module")
def other(programs) -> Path:
    with ControlPlane() as another:
        native.enroll(another).confirm()
        another.stop()
        return tampering.copy(another.dir, scratch("other") / "d")


@pytest.fixture(scope="module")
def bases(programs):
    made = [Base(anchored=False), Base(anchored=True)]
    yield made
    for base in made:
        base.plane.close()


def test_a_bent_directory_starts_with_its_whole_history_or_not_at_all(bases, other):
    """Never a revoked certificate that works, nor a line that is silently missing.

    Proves I3, I8.
    """
    print(f"ENLIST_SEED={SEED} ENLIST_TAMPER_WAYS={COUNT}")
    chance = random.Random(SEED)
    outcomes, wrong = Counter(), []
    for number, way in enumerate(ways.draw(COUNT, chance)):
        try:
            outcomes[bend(number, way, bases, other, random.Random(f"{SEED} {number}"))] += 1
        except AssertionError as error:
            print(f"{'WRONG':30} {error}", flush=True)
            wrong.append(str(error))
    print(f"\n{COUNT} ways: {dict(outcomes)}")
    assert not wrong, wrong
    assert outcomes["refused: store_unusable"] and outcomes["whole"], outcomes


def bent_by(base: Base, state: str, way) -> Start:
    start = Start(base, state)
    way(ways.Bent(start.plane.dir, base.old, base.old, random.Random(SEED), base.anchored, start.plane.base / "stranger"))
    return start


@pytest.mark.parametrize("state", ["killed", "stopped"])
def test_a_log_under_a_key_of_ones_own_is_refused(bases, state):
    """A note of a begun change of the key-encryption key names one of the attacker's, under which a log key is sealed that
    the attacker knows: the whole log is in its codes, without the revocation. Proves I3, I8."""
    start = bent_by(bases[0], state, lambda bent: ways.forged_log(bent, "log.key.sealed"))
    assert start.outcome(True) == "refused: store_unusable"
    assert "a log of their own" in start.plane.log()


@pytest.mark.parametrize("file, sql", ways.SCHEMAS)
def test_a_store_with_something_else_in_it_is_refused(bases, file, sql):
    """A trigger leaves out, or changes, what is written from then on, though it was acknowledged."""
    start = bent_by(bases[0], "killed", lambda bent: ways.change_schema(bent, file, sql))
    assert start.outcome(True) == "refused: store_unusable"
    assert "has not made" in start.plane.log()


@pytest.mark.parametrize("index", [-1, -ways.LAST, ways.LAST])
def test_an_entry_where_none_can_be_is_refused(bases, index):
    start = bent_by(bases[0], "killed", lambda bent: ways.double_entry(bent, index))
    assert start.outcome(True) == "refused: store_unusable"


@pytest.mark.parametrize("seq", [0, -1, ways.LAST])
def test_a_line_where_none_can_be_is_refused(bases, seq):
    start = bent_by(bases[0], "stopped", lambda bent: bent.ask("audit.db", "INSERT INTO lines VALUES (?, '{}')", seq))
    assert start.outcome(True) == "refused: store_unusable"


def test_a_line_that_the_log_still_holds_is_compared_at_start(bases):
    """Also if it is older than the snapshot that the start would be from."""

    def changed(bent: ways.Bent) -> None:
        bent.ask("audit.db", "UPDATE lines SET line = replace(line, 'source', 'sources') WHERE seq = 3")

    start = bent_by(bases[0], "killed", changed)
    assert start.outcome(True) == "refused: store_unusable"
    assert "not the line that the log produces" in start.plane.log()


def test_audit_verify_looks_at_the_checkpoint_beside_the_stores(plane_of_its_own):
    """One that was removed, changed or put back while the control plane runs would be missed at its next start."""
    plane = plane_of_its_own
    native.enroll(plane).confirm()
    file = plane.dir / "checkpoint"
    first = file.read_bytes()
    plane.restart()
    newest = file.read_bytes()
    assert first != newest and plane.cli("audit", "verify").json()["ok"]
    for wrong in (first, newest[:-1] + bytes([newest[-1] ^ 1]), b"", None):
        file.unlink()
        if wrong is not None:
            file.write_bytes(wrong)
        verified = plane.cli("audit", "verify", ok=False)
        assert verified.code != 0 and not verified.json()["ok"], wrong
        assert "checkpoint" in verified.json()["fault"]["what"], verified
    file.write_bytes(newest)
    assert plane.cli("audit", "verify").json()["ok"]

"""Runs the black-box suites a folder at a time, several at once, beside the Rust tests; then the search for secrets.

A shard is a folder of tests/conformance, or a part of a large one, in a pytest process of its own. Most of a test's time is
waiting, so more shards run at once than there are cores. Tests marked `alone` measure time or memory and run after all
others, by themselves; the search for secrets looks at what every shard has left, so it is the last.

    tests/shards.py [--jobs N] [SHARD...]      no name means all; `tests/shards.py --list` names them

The output of a shard is in target/test-logs/SHARD.log; a failed shard's is printed as well.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUITES = ROOT / "tests" / "conformance"
LOGS = ROOT / "target" / "test-logs"
SPLIT = {
    "faults": 3, "agent": 3, "doors": 2, "ca": 3, "edge": 2, "pact": 3, "cluster": 3, "attack": 2, "operator": 2, "overlay": 3, "interop": 2,
}
"""Folders that would take longer than the rest together could be waited for, in so many parts."""
FIRST = ("cluster", "rust", "overlay", "operator", "pact", "attack", "ca", "hsm", "agent", "faults", "interop", "long", "doors", "edge")
"""What takes longest begins first."""
LIMIT = 25 * 60
"""A shard that takes longer hangs: it is ended, and its log says where it was."""
TALLY = re.compile(r"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)


class Shard:
    """One process of tests: how it is started, what it printed, what came of it."""

    def __init__(self, name: str, command: list, stage: int = 0):
        self.name, self.command, self.stage = name, [str(part) for part in command], stage
        self.log, self.report = LOGS / f"{name}.log", LOGS / f"{name}.xml"
        self.process: subprocess.Popen | None = None
        self.passed = self.failed = self.skipped = self.took = 0
        self.hangs = False

    def start(self, evidence: pathlib.Path) -> None:
        # The shard's own name, so that two of them never write to one place.
        environment = {**os.environ, "ENLIST_EVIDENCE": str(evidence), "ENLIST_SHARD": self.name}
        self.began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )

    def end(self, number: int = signal.SIGINT) -> None:
        """With all that it has started in its group: cargo would leave its test behind."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def end_if_it_hangs(self) -> None:
        took = time.monotonic() - self.began
        if took > LIMIT + 60:
            self.end(signal.SIGKILL)
        elif took > LIMIT and not self.hangs:
            self.hangs = True
            print(f"{self.name} has taken over {span(LIMIT).strip()} and is ended", flush=True)
            self.end()

    def over(self) -> bool:
        if self.process.poll() is None:
            return False
        self.took = time.monotonic() - self.began
        self.count()
        return True

    def count(self) -> None:
        if self.name == "rust":
            for passed, failed, ignored in TALLY.findall(self.log.read_text(errors="replace")):
                self.passed += int(passed)
                self.failed += int(failed)
                self.skipped += int(ignored)
        elif self.report.exists():
            suite = xml.parse(self.report).getroot().find("testsuite")
            number = {name: int(suite.get(name, 0)) for name in ("tests", "errors", "failures", "skipped")}
            self.failed, self.skipped = number["errors"] + number["failures"], number["skipped"]
            self.passed = number["tests"] - self.failed - self.skipped

    @property
    def ok(self) -> bool:
        """A shard that ran nothing has shown nothing."""
        required = os.environ.get("ENLIST_REQUIRE_ALL") == "1"
        return self.process.returncode == 0 and not self.hangs and self.passed > 0 and not (required and self.skipped)

    def line(self) -> str:
        word = "ok" if self.ok else "FAILED"
        return f"{word:<6} {self.name:<10} {self.passed:>5} passed {self.failed:>3} failed {self.skipped:>3} skipped {span(self.took)}"


def span(seconds: float) -> str:
    return f"{int(seconds) // 60:>3} min {int(seconds) % 60:02} s"


def pytest(name: str, *arguments, stage: int = 0) -> Shard:
    command = [sys.executable, "-m", "pytest", "-q", "--durations=15", f"--junitxml={LOGS / name}.xml", *arguments]
    return Shard(name, command, stage)


def shards() -> list[Shard]:
    """Every folder, so that a new one is never forgotten."""
    found = [Shard("rust", rust())]
    for folder in sorted(path for path in SUITES.iterdir() if path.is_dir() and list(path.glob("test_*.py"))):
        parts = SPLIT.get(folder.name, 1)
        # The largest files are dealt out first, one to each part in turn.
        files = sorted(folder.glob("test_*.py"), key=lambda path: -path.stat().st_size)
        for part in range(parts):
            name = f"{folder.name}-{part + 1}" if parts > 1 else folder.name
            found.append(pytest(name, "-m", "not alone", *files[part::parts]))
    found.sort(key=lambda shard: rank(shard.name.split("-")[0]))
    found.append(pytest("alone", "-m", "alone", SUITES, stage=1))
    found.append(pytest("secrets", SUITES / "test_secrets.py", stage=2))
    return found


def rank(name: str) -> int:
    return FIRST.index(name) if name in FIRST else len(FIRST)


def rust() -> list[str]:
    """All Rust tests, those that need a tool included; but not those that would run all this again or write files."""
    skipped = ("the_programs_keep_their_promises", "write_seeds")
    return ["cargo", "test", "--workspace", "--locked", "--no-fail-fast", "--", "--include-ignored"] + [
        word for name in skipped for word in ("--skip", name)
    ]


def perform(waiting: list[Shard], jobs: int, evidence: pathlib.Path) -> None:
    """All of them, at most `jobs` at once, a stage after the other."""
    for stage in sorted({shard.stage for shard in waiting}):
        ahead = [shard for shard in waiting if shard.stage == stage]
        running: list[Shard] = []
        try:
            while ahead or running:
                while ahead and len(running) < jobs:
                    running.append(ahead.pop(0))
                    running[-1].start(evidence)
                for shard in running:
                    shard.end_if_it_hangs()
                for shard in [shard for shard in running if shard.over()]:
                    running.remove(shard)
                    print(shard.line(), flush=True)
                    if not shard.ok:
                        print(shard.log.read_text(errors="replace"), flush=True)
                time.sleep(0.2)
        finally:
            for shard in running:
                shard.end()
            for shard in running:
                shard.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the tests in shards, several at once.")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("ENLIST_JOBS", 6)), help="shards at once")
    parser.add_argument("--list", action="store_true", help="name the shards and end")
    parser.add_argument("shard", nargs="*", help="only these")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    LOGS.mkdir(parents=True, exist_ok=True)
    known = shards()
    if arguments.list:
        print("\n".join(shard.name for shard in known))
        return 0
    unknown = set(arguments.shard) - {shard.name for shard in known}
    if unknown:
        parser.error(f"no such shard: {', '.join(sorted(unknown))}; --list names them")
    wanted = [shard for shard in known if not arguments.shard or shard.name in arguments.shard]
    for old in (*LOGS.glob("*.log"), *LOGS.glob("*.xml")):
        old.unlink()
    evidence = pathlib.Path(tempfile.mkdtemp(prefix="enl-run-", dir="/tmp"))
    began = time.monotonic()
    perform(wanted, arguments.jobs, evidence)
    total = {word: sum(getattr(shard, word) for shard in wanted) for word in ("passed", "failed", "skipped")}
    broken = [shard.name for shard in wanted if not shard.ok]
    if broken:
        print(f"what the run left behind: {evidence}")
    else:
        shutil.rmtree(evidence, ignore_errors=True)
    counts = ", ".join(f"{number} {word}" for word, number in total.items())
    tail = f"; failed shards: {' '.join(broken)}" if broken else ""
    print(f"{counts} in {span(time.monotonic() - began).strip()}{tail}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

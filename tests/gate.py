"""Runs everything that has to be shown, several things at once: one queue of test files, with the builds beside them.

A task is a file of tests/conformance in a pytest process of its own, or a command of cargo. It begins when what it needs is
done and a place is free; what took longest in the last recorded run begins first. Most of a test's time is waiting, so more
tasks run at once than there are cores, and compilers run at a lower priority than the tests beside them. Tests marked `alone`
measure time or memory and run after all others, by themselves; the search for secrets looks at what all have left, so it is last.

A NAME is a folder (`pact`), a file (`test_vclusters`, `pact/test_vclusters.py`), `rust`, `lints`, `dependencies`, `neighbours` (what needs
step-ca and SPIRE, which are compiled from source) or `all`. Without one it is all but `lints`, `dependencies` and `neighbours`.
The output of a task is in target/test-logs/NAME.log; a failed one's is printed as well.
"""

import argparse
import json
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
RECORD = ROOT / "tests" / "durations.json"
"""Seconds and number of tests of every task in the last recorded run: `--record` writes it."""
LIMIT = 15 * 60
"""A file of tests that takes longer hangs: it is ended, and its log says where it was."""
BUILD_LIMIT = 45 * 60
NEIGHBOURS = re.compile(r"^(import step_cas|from spires import .*\bSpire\b)", re.MULTILINE)
ALONE = "pytest.mark.alone"
TALLY = re.compile(r"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)
NOTHING_SELECTED = 5


class Task:
    """One process: how it is started, what it waits for, what it printed, what came of it."""

    def __init__(self, name: str, command: list, needs: tuple = (), kind: str = "build", limit: int = BUILD_LIMIT):
        self.name, self.command, self.needs, self.kind, self.limit = name, [str(part) for part in command], needs, kind, limit
        self.log, self.report = LOGS / f"{name.replace('/', '.')}.log", LOGS / f"{name.replace('/', '.')}.xml"
        self.process: subprocess.Popen | None = None
        self.passed = self.failed = self.skipped = self.took = 0
        self.done = self.hangs = self.empty_is_fine = False

    def start(self, evidence: pathlib.Path) -> None:
        # A name of its own, so that two of them never write to one place.
        environment = {
            **os.environ,
            "ENLIST_EVIDENCE": str(evidence),
            "ENLIST_SHARD": self.name.replace("/", "."),
            # Compiled test files are kept, outside of the tree; the plugins of pytest that happen to be installed are not wanted.
            "PYTHONPYCACHEPREFIX": str(ROOT / "target" / "pycache"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
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
        if took > self.limit + 60:
            self.end(signal.SIGKILL)
        elif took > self.limit and not self.hangs:
            self.hangs = True
            print(f"{self.name} has taken over {span(self.limit)} and is ended", flush=True)
            self.end()

    def is_over(self) -> bool:
        if self.process.poll() is None:
            return False
        self.done, self.took = True, time.monotonic() - self.began
        if self.kind == "rust":
            for passed, failed, ignored in TALLY.findall(self.log.read_text(errors="replace")):
                self.passed += int(passed)
                self.failed += int(failed)
                self.skipped += int(ignored)
        elif self.report.exists():
            suite = xml.parse(self.report).getroot().find("testsuite")
            number = {name: int(suite.get(name, 0)) for name in ("tests", "errors", "failures", "skipped")}
            self.failed, self.skipped = number["errors"] + number["failures"], number["skipped"]
            self.passed = number["tests"] - self.failed - self.skipped
        return True

    @property
    def ok(self) -> bool:
        """Tests that ran nothing have shown nothing, unless the words of `-k` chose none of a file, or all of it is `alone`."""
        code = self.process.returncode if self.process else None
        if self.kind == "build":
            return code == 0 and not self.hangs
        if code == NOTHING_SELECTED and self.empty_is_fine:
            return True
        required = os.environ.get("ENLIST_REQUIRE_ALL") == "1"
        return code == 0 and not self.hangs and self.passed > 0 and not (required and self.skipped)

    def line(self) -> str:
        word = "ok" if self.ok else "FAILED"
        if self.kind == "build":
            return f"{word:<6} {self.name:<44} {'':>34} {span(self.took):>12}"
        counts = f"{self.passed:>5} passed {self.failed:>3} failed {self.skipped:>3} skipped"
        return f"{word:<6} {self.name:<44} {counts:>34} {span(self.took):>12}"


def span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def pytest(name: str, *arguments, needs: tuple = ("programs",), kind: str = "test") -> Task:
    report = LOGS / f"{name.replace('/', '.')}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--durations=5", f"--junitxml={report}", *arguments]
    return Task(name, command, needs, kind, LIMIT)


def lean(*command: str) -> list:
    """A compiler's turn comes after the tests that run beside it."""
    return ["nice", "-n", "10", *command]


def every(words: list) -> list[Task]:
    """All that there is, found anew each time, so that a new file is never forgotten."""
    cargo_test = ["cargo", "test", "--workspace", "--locked"]
    # Not those that would run all this again or write files.
    skipped = [word for name in ("the_programs_keep_their_promises", "write_seeds") for word in ("--skip", name)]
    found = [
        Task("programs", ["cargo", "build", "--workspace", "--locked"]),
        Task("test programs", lean(*cargo_test, "--no-run"), ("programs",)),
        Task("rust", [*cargo_test, "--no-fail-fast", "--", "--include-ignored", *skipped], ("test programs",), "rust"),
        Task("lints", lean("cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"), ("test programs",)),
        Task("dependencies", lean("bash", "-c", "bash tests/setup deny && target/tools/cargo-deny check bans licenses sources")),
        Task("tools of neighbours", lean("bash", "tests/setup", "neighbours")),
    ]
    alone = []
    for path in sorted(SUITES.glob("*/test_*.py")):
        text = path.read_text()
        needs = ("programs", "tools of neighbours") if NEIGHBOURS.search(text) else ("programs",)
        task = pytest(f"{path.parent.name}/{path.stem}", "-m", "not alone", path, *words, needs=needs)
        task.empty_is_fine = bool(words) or ALONE in text
        found.append(task)
        if ALONE in text:
            alone.append(path)
    last = pytest("alone", "-m", "alone", *alone, *words, kind="alone")
    last.empty_is_fine = bool(words)
    return [*found, last, pytest("secrets", SUITES / "test_secrets.py", kind="secrets")]


def chosen(tasks: list[Task], names: list[str]) -> list[Task]:
    """Those that are named, with all that they need."""
    neighbours = {task.name for task in tasks if "tools of neighbours" in task.needs}
    everything = {task.name for task in tasks}
    wanted: set[str] = set()
    for name in names or ["usual"]:
        match name:
            case "all":
                wanted |= everything
            case "usual":
                wanted |= everything - neighbours - {"lints", "dependencies", "tools of neighbours"}
            case "neighbours":
                wanted |= neighbours
            case _:
                plain = name.removeprefix("tests/conformance/").removesuffix(".py").rstrip("/")
                fitting = {other for other in everything if plain in (other, *other.split("/"))}
                if not fitting:
                    sys.exit(f"nothing is called {name}: name a folder or a file of tests/conformance, rust, lints, dependencies, neighbours or all")
                wanted |= fitting
    for task in reversed(tasks):
        if task.name in wanted:
            wanted |= set(task.needs)
    return [task for task in tasks if task.name in wanted]


class Progress:
    """How far the run is, from what the last recorded one took."""

    def __init__(self, tasks: list[Task]):
        self.known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        self.tasks, self.began, self.shown = tasks, time.monotonic(), False
        tasks.sort(key=lambda task: -self.seconds(task))

    def seconds(self, task: Task) -> float:
        return self.known.get(task.name, (60, 0))[0]

    def tests(self, task: Task) -> int:
        return task.passed + task.failed + task.skipped if task.done else self.known.get(task.name, (60, 10))[1]

    def text(self) -> str:
        over = [task for task in self.tasks if task.done]
        ran, failed = sum(map(self.tests, over)), sum(task.failed or not task.ok for task in over)
        text = f"{ran:,} of {sum(map(self.tests, self.tasks)):,}, {failed} failed"
        before, total = sum(map(self.seconds, over)), sum(map(self.seconds, self.tasks))
        if before > 60 and total > before:
            left = (time.monotonic() - self.began) * (total - before) / before
            text += f", about {max(1, round(left / 60))} min left"
        return text

    def line(self, text: str) -> None:
        self.clear()
        print(text, flush=True)

    def clear(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="")
            self.shown = False

    def show(self) -> None:
        if sys.stdout.isatty():
            print(f"\r\x1b[K{self.text()}", end="", flush=True)
            self.shown = True

    def record(self) -> None:
        for task in self.tasks:
            if task.ok:
                self.known[task.name] = (round(task.took, 1), self.tests(task))
        there = {task.name for task in every([])}
        rows = [f"  {json.dumps(name)}: {json.dumps(self.known[name])}" for name in sorted(self.known) if name in there]
        RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def perform(tasks: list[Task], jobs: int, evidence: pathlib.Path, progress: Progress) -> None:
    """All of them, at most `jobs` at once; what is `alone` by itself when all others are done, then the search for secrets."""
    running: list[Task] = []
    waiting = list(tasks)
    lines = 0

    def may_start(task: Task) -> bool:
        if task.kind == "alone":
            return not running and all(other.kind in ("alone", "secrets") for other in waiting)
        if task.kind == "secrets":
            return not running and len(waiting) == 1
        needed = [other for other in tasks if other.name in task.needs]
        return len(running) < jobs and all(other.done for other in needed)

    try:
        while waiting or running:
            for task in list(waiting):
                if not may_start(task):
                    continue
                waiting.remove(task)
                missing = [other.name for other in tasks if other.name in task.needs and other.done and not other.ok]
                if missing:
                    task.done = True
                    continue
                running.append(task)
                task.start(evidence)
            for task in running:
                task.end_if_it_hangs()
            for task in [task for task in running if task.is_over()]:
                running.remove(task)
                lines += 1
                if not task.ok:
                    progress.line(task.line())
                    progress.line(task.log.read_text(errors="replace"))
                elif not sys.stdout.isatty():
                    progress.line(task.line() + (f"   {progress.text()}" if lines % 20 == 0 else ""))
            progress.show()
            time.sleep(0.2)
    finally:
        progress.clear()
        for task in running:
            task.end()
        for task in running:
            task.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bash tests/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("ENLIST_JOBS", 6)), help="tasks at once (6, or ENLIST_JOBS)")
    parser.add_argument("--record", action="store_true", help="write tests/durations.json from what this run took")
    parser.add_argument("-k", dest="words", metavar="WORDS", help="only tests whose names fit these words, as pytest reads them")
    parser.add_argument("name", metavar="NAME", nargs="*", help="only these")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # In the background of a shell SIGINT is ignored, under nohup SIGHUP; the tests, which send both to programs, would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    LOGS.mkdir(parents=True, exist_ok=True)
    tasks = chosen(every(["-k", arguments.words] if arguments.words else []), arguments.name)
    for old in (*LOGS.glob("*.log"), *LOGS.glob("*.xml")):
        old.unlink()
    evidence = pathlib.Path(tempfile.mkdtemp(prefix="enl-run-", dir="/tmp"))
    progress = Progress(tasks)
    perform(tasks, arguments.jobs, evidence, progress)
    total = {word: sum(getattr(task, word) for task in tasks) for word in ("passed", "failed", "skipped")}
    broken = [task.name for task in tasks if not task.ok]
    if arguments.record:
        progress.record()
    if broken:
        print(f"what the run left behind: {evidence}")
    else:
        shutil.rmtree(evidence, ignore_errors=True)
    counts = ", ".join(f"{number:,} {word}" for word, number in total.items())
    tail = f"; failed: {', '.join(broken)}" if broken else ""
    print(f"{counts} in {span(time.monotonic() - progress.began)}{tail}")
    if not broken and not total["passed"] and arguments.words:
        sys.exit(f"no test fits {arguments.words}")
    if not broken and not arguments.name:
        print("what needs step-ca and SPIRE, which are compiled from source for about ten minutes: bash tests/run neighbours")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

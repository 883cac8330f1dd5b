"""`enlist dev --replicas 3` at a terminal: the lines that it prints, pasted as a newcomer would."""

import json
import os
import pathlib
import re
import signal
import subprocess

import evidence
from machine import ENLIST, PATIENCE, clean_env, run, scratch, until
from terminal import COLOUR, Terminal

LONG = 120


def commands(lines: list[str]) -> list[str]:
    """The command lines among what is shown, each as a shell reads it."""
    text = re.sub(r" \\\n +", " ", "\n".join(lines))
    return [line.strip() for line in text.split("\n") if line.startswith("  ")]


def pasted(line: str) -> subprocess.CompletedProcess:
    """In another terminal: another directory, nothing of this one's environment."""
    env = {k: v for k, v in clean_env().items() if not k.startswith("ENLIST")}
    return subprocess.run(["sh", "-c", line], cwd="/", env=env, capture_output=True, timeout=PATIENCE, check=False)


def remember(directory, text: str = "") -> None:
    """Secrets that this run has made, for the scan of logs and arguments."""
    for token in re.findall(r"enroll_[A-Za-z0-9_-]{43}", text):
        evidence.token(token)
    evidence.private_key("root", (directory / "root.key").read_bytes())
    for key in directory.glob("*/identity/*/key.pem"):
        evidence.private_key("agent", key.read_bytes())


def status(enlist: str, directory) -> dict | None:
    done = run(enlist, "--dir", directory, "cluster", "status", "--json")
    return done.json() if done.code == 0 else None


def is_alive(pid: int) -> bool:
    """A zombie has ended: whoever adopted it may take its time."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_leader_is_killed_and_started_again_as_dev_says(programs):
    """Three processes with a URL and a directory each. Killed by the printed line, the leader is replaced, and dev says in a line how
    to start it again; so started, it follows. Ctrl-C ends with 0 and leaves none of its processes behind; the replica that was
    started by hand is named and goes on. The printed line starts all of them again. Proves PACT-12."""
    directory = scratch("dev") / "d"
    by_hand = None
    with Terminal(ENLIST, "dev", "--replicas", "3", "--dir", directory, "--listen", "127.0.0.1:0", columns=80, rows=60) as dev:
        try:
            dev.until(f"rm -rf {directory}", patience=LONG)
            remember(directory, text := "\n".join(dev.lines()))
            assert len(dev.lines()) <= 45 and not dev.too_wide(), text
            assert COLOUR.search(dev.written), "at a terminal it is in colour"
            pids = [int(pid) for pid in re.findall(r"process (\d+)", text)]
            assert len(set(pids)) == 3 and all(map(is_alive, pids)), text
            assert all(str(directory / f"replica-{number}") in text for number in (1, 2, 3)), text
            assert len(set(re.findall(r"https://127\.0\.0\.1:\d+,", text))) == 3, text
            shown = commands(dev.lines())
            (watch,) = [line for line in shown if line.endswith("cluster status --watch")]
            (kill,) = [line for line in shown if line.startswith("kill -9")]
            (again,) = [line for line in shown if " server run --dir " in line]
            (enroll,) = [line for line in shown if line.startswith("echo enroll_")]
            assert pasted(enroll).returncode == 0
            remember(directory)

            follower = re.search(r"--dir (\S+) cluster", watch).group(1)
            leader = status(ENLIST, follower)["leader"]
            assert again.endswith(f"replica-{leader}"), again
            assert pasted(kill).returncode == 0
            dev.until(f"Replica {leader}, process {kill.split()[-1]}, was killed by signal 9")
            assert [line for line in commands(dev.lines()) if " server run --dir " in line] == [again, again]
            until(lambda: status(ENLIST, follower)["leader"] not in (None, leader), "another one leads", patience=LONG)

            by_hand = subprocess.Popen(["sh", "-c", f"exec {again}"], cwd="/", env=clean_env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

            def is_back() -> bool:
                seen = status(ENLIST, follower)
                return all(item["health"] == "ok" and item["lag"] == 0 for item in seen["replicas"])

            until(is_back, "it has caught up", patience=LONG)
            until(lambda: status(ENLIST, directory / f"replica-{leader}"), "it serves operators", patience=LONG)
            dev.interrupt()
            assert dev.end(patience=LONG) == 0
            ended = "\n".join(dev.lines())
            assert f"Replica {leader} was started from another terminal and still runs" in ended.replace("\n", " "), ended
            assert not any(map(is_alive, pids)), "nothing of it is left"
        finally:
            if by_hand:
                by_hand.terminate()
                by_hand.wait(PATIENCE)
    (again,) = [line for line in commands(dev.lines()) if " dev --dir " in line]
    done = pasted(f"{again} --once --json")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    evidence.token(told["token"]["token"])
    assert [item["replica_id"] for item in told["replicas"]] == ["1", "2", "3"], told
    assert sorted(item["role"] for item in told["replicas"]) == ["follower", "follower", "leader"], told
    assert not any(is_alive(item["pid"]) for item in told["replicas"]), "--once has stopped them"
    refused = run(ENLIST, "dev", "--replicas", "1", "--dir", directory)
    assert refused.code == 2 and "replicas" in refused.err, refused


def test_ctrl_c_while_the_replicas_start_leaves_nothing_behind(programs):
    """Interrupted before anything is printed: it ends with 0, its processes with it, and its temporary directory is gone."""
    base = scratch("tmp")
    with Terminal(ENLIST, "dev", "--replicas", "3", "--listen", "127.0.0.1:0", env={"TMPDIR": str(base)}) as dev:
        # By its command line: between fork and exec it would still be interrupted with its parent.
        until(lambda: re.search(rf"server run --dir {base}/", processes()), "the first one is started")
        dev.interrupt()
        assert dev.end(patience=LONG) == 0
    assert list(base.iterdir()) == []
    assert f"{base}/" not in processes(), processes()


def test_a_killed_dev_leaves_no_replica_running(programs):
    """SIGKILL, which it cannot answer: the replicas stop by themselves, and the directory starts again."""
    directory = scratch("killed") / "dev"
    with Terminal(ENLIST, "dev", "--replicas", "3", "--listen", "127.0.0.1:0", "--dir", directory, rows=60) as dev:
        dev.until(f"rm -rf {directory}", patience=LONG)
        pids = [int(pid) for pid in re.findall(r"process (\d+)", "\n".join(dev.lines()))]
        assert len(pids) == 3 and all(map(is_alive, pids)), dev.lines()
        remember(directory)
        os.kill(dev.pid, signal.SIGKILL)
        until(lambda: not any(map(is_alive, pids)), "the replicas have stopped", patience=LONG)
    done = run(ENLIST, "dev", "--dir", directory, "--once", "--json")
    assert done.code == 0, done
    evidence.token(done.json()["token"]["token"])


def processes() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_dev_refuses_other_numbers_of_replicas(programs):
    """An even number survives no more than the odd one below it."""
    for number in ("0", "2", "4", "7", "three"):
        done = run(ENLIST, "dev", "--replicas", number, "--once")
        assert done.code == 2 and "1, 3, 5" in done.err, done

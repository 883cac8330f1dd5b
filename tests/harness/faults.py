"""Hosts that something is done to: what they say about it, a disk of their own, names of their own."""

import json
import os
import pathlib
import shutil
import urllib.request

import certs
import evidence
from daemons import Daemon, lasting_port
from impostors import Authority
from machine import AGENT, PATIENCE, Done, missing, need, run, scratch, tool, until

CLASSES = (
    "endpoint_unreachable",
    "server_tls_untrusted",
    "cert_expired",
    "identity_revoked_or_fenced",
    "endpoint_profile_drift",
    "recovery_enrollment_blocked",
    "disk_full",
    "clock_skew",
)


class Patient(Daemon):
    """A running agent and every place in which it says what is wrong with it."""

    def __init__(self, plane, token: str | None = None, clock=None, prefix: tuple = (), **environment):
        self.metrics_port = lasting_port()
        environment.setdefault("ENLIST_AGENT_METRICS_LISTEN", f"127.0.0.1:{self.metrics_port}")
        super().__init__(plane, token, **environment)
        self.prefix, self.clock = prefix, clock
        if clock:
            self.environment |= clock.env

    def agent(self, command: str, *arguments, env: dict | None = None) -> Done:
        """Another command of the agent in the same directory, under the same circumstances."""
        given = (AGENT, command, "--dir", self.dir, "--json", *arguments)
        return run(*self.prefix, *given, env={**self.environment, **(env or {})})

    def doctor(self) -> dict:
        """Its report; the exit code agrees with it."""
        done = self.agent("doctor")
        report = done.json()
        assert done.code == (0 if report["ok"] else 1), done
        assert report["ok"] == all(check["ok"] for check in report["checks"]), done
        for check in report["checks"]:
            assert check["ok"] or (check["class"] and check["evidence"] and check["remedy"]), check
        return report

    def diagnosed(self) -> set:
        """The classes in which the doctor finds fault."""
        return {check["class"] for check in self.doctor()["checks"] if not check["ok"]}

    @property
    def diagnostics_path(self) -> pathlib.Path:
        return pathlib.Path(self.environment.get("ENLIST_AGENT_DIAGNOSTIC_PATH", self.dir / "diagnostics"))

    def diagnostics(self) -> list[dict]:
        """Every whole record of the ring, oldest first."""
        found = []
        # Hidden files are the doctor's trials whether it can write there; they are gone at once.
        for path in (path for path in self.diagnostics_path.glob("*") if not path.name.startswith(".")):
            try:
                text = path.read_text(errors="replace")
            except FileNotFoundError:
                continue  # given up meanwhile to make room for another
            for line in text.splitlines():
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue  # torn by a crash, or by our reading it as it is written
        return sorted((record for record in found if "class" in record), key=lambda record: record["at"])

    def metrics(self) -> str:
        address = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def figure(self, name: str) -> float:
        """The sum over all labels; `name` may name labels itself."""
        prefix = self.environment.get("ENLIST_AGENT_METRICS_PREFIX", "enlist_agent_")
        lines = [line.rsplit(" ", 1) for line in self.metrics().splitlines() if line.startswith(prefix + name)]
        return sum(float(value) for _, value in lines)

    def whole_log(self) -> str:
        return "".join(log.read_text(errors="replace") for log in self.logs)

    def log(self) -> str:
        """The end of what it said, without what libraries say."""
        said = [line for line in self.whole_log().splitlines() if " DEBUG " not in line]
        return "\n".join(said)[-4000:]

    def reasons(self) -> list:
        return (self.status() or {}).get("reasons") or []

    def told(self, word: str, patience: float = PATIENCE) -> None:
        """The class is in status, log and diagnostics."""
        silent: list = []

        def everywhere() -> bool:
            places = {
                "status": word in self.reasons(),
                "log": word in self.whole_log(),
                "diagnostics": any(record["class"] == word for record in self.diagnostics()),
            }
            silent[:] = [place for place, says in places.items() if not says]
            return not silent

        try:
            until(everywhere, f"{word} is told", patience)
        except AssertionError as error:
            raise AssertionError(f"{error}: not by {silent}\n{self.status()}\n{self.log()}") from None
        record = next(record for record in reversed(self.diagnostics()) if record["class"] == word)
        assert record["evidence"] and record["remedy"] and record["correlation_id"], record

    def well(self, patience: float = PATIENCE) -> None:
        """Connected, and nothing is wrong with it."""
        try:
            until(lambda: self.connected() and not set(self.reasons()) & set(CLASSES), "it is well again", patience)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status()}\n{self.log()}") from None

    def token_file(self) -> pathlib.Path:
        return self.dir / "recovery" / "token"

    def wait_token(self) -> str:
        """The recovery token that lies on its disk."""
        until(lambda: self.token_file().exists(), "it is given a recovery token")
        return evidence.token(self.token_file().read_text().strip())

    def note_secrets(self) -> None:
        for key in self.dir.glob("identity/*/key.pem"):
            if key.stat().st_size:
                evidence.private_key("agent", key.read_bytes())
        if self.token_file().exists():
            evidence.token(self.token_file().read_text().strip())

    def forget_trust(self, *names: str) -> Authority:
        """Puts somebody else's CA where a host's own was, as a restored disk image would."""
        stranger = Authority()
        for name in names:
            place = self.dir / name
            kept = place.stat()
            place.write_bytes(stranger.pem)
            os.chmod(place, kept.st_mode & 0o7777)
        return stranger


RUNTIME_TRUST = "identity/current/bundle.pem"
RECOVERY_TRUST = "recovery/ca.pem"


class Disk:
    """A small filesystem that can be filled to the last byte."""

    def __init__(self, size: str = "4m"):
        need("mount")
        self.path = scratch("disk") / "m"
        self.path.mkdir(mode=0o700)
        done = tool("mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", self.path, check=False)
        if done.code != 0:
            missing(f"the right to mount a filesystem ({done.err.strip()})")
        self.filler = self.path / "filler"

    def fill(self) -> None:
        """Takes every byte that is left, again if some was given back."""
        with self.filler.open("ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                try:
                    while file.write(b"\0" * size) == size:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        self.filler.unlink(missing_ok=True)

    def available(self) -> int:
        return shutil.disk_usage(self.path).free

    def close(self) -> None:
        tool("umount", "-l", self.path, check=False)

    def __enter__(self) -> "Disk":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Names:
    """Its own /etc/hosts for one process, and no other way to resolve a name. A reboot may bring the old one back."""

    def __init__(self, *entries: str):
        need("unshare")
        self.place = scratch("names")
        self.hosts = self.place / "hosts"
        (self.place / "nsswitch.conf").write_text("hosts: files\n")
        self.write(*entries)
        if tool("unshare", "-m", "true", check=False).code != 0:
            missing("the right to unshare the mount namespace")

    def write(self, *entries: str) -> None:
        """In place: the process sees this very file."""
        self.hosts.write_text("".join(f"{entry}\n" for entry in ("127.0.0.1 localhost", *entries)))

    @property
    def prefix(self) -> tuple:
        """What to put before a command line so that the process lives by these names."""
        script = (
            'mount --bind "$0/hosts" /etc/hosts && mount --bind "$0/nsswitch.conf" /etc/nsswitch.conf && exec "$@"'
        )
        return ("unshare", "-m", "sh", "-c", script, str(self.place))


def kinds(plane, node: str, *names: str) -> list[str]:
    """What is on record about a node, in order; only these kinds if any are named."""
    lines = [line["event_type"] for line in plane.audit() if line.get("node_id") == node]
    return [kind for kind in lines if not names or kind in names]


def asked(plane, node: str) -> int:
    """How often a certificate was asked for on behalf of a node, in whichever way and with whatever result."""
    wanted = ("certificate.renewed", "recovery.requested", "recovery.issued", "recovery.refused", "host.enrolled")
    return len(kinds(plane, node, *wanted))


def alerts(plane, node: str) -> dict[str, dict]:
    return {alert["kind"]: alert for alert in plane.items("/v1/alerts?limit=1000") if alert["node_id"] == node}


def serial_of(path: pathlib.Path) -> str:
    return certs.serial(certs.certificate(path.read_bytes()))

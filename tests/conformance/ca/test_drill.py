"""docs/ca.md as a drill: the commands of the page, word for word, with hosts connected. TASK-18, D12, D13."""

import re
import subprocess

import certs
import evidence
import pytest
from cryptography.exceptions import InvalidSignature
from faults import Patient
from impostors import Crossing
from machine import BIN, PATIENCE, ROOT, Done, clean_env, scratch, secret, until
from plane import ControlPlane
from rogue import Rogue, Thief
from rolls import issuers, roots, states, status

PAGE = ROOT / "docs" / "ca.md"
BLOCK = re.compile(r"<!-- drill: (\w+) -->\n```sh\n(.*?)```\n", re.DOTALL)
WAITED = ("enlist ca roll activate", "enlist ca roll retire")
"""What is refused until hosts have followed; the page says so."""
NOT_YET = ("not_adopted", "issuer_in_use", "root_in_use")
SAID = "on the revocation list of the root"
"""By which a host says that it refuses a server: its status may name the recovery that was refused next."""


def drills() -> dict[str, list[str]]:
    """The lines of every drill of the page, by its name."""
    return {name: lines.splitlines() for name, lines in BLOCK.findall(PAGE.read_text())}


class Place:
    """Where the operator works: the programs, the directory of the control plane, and what the page takes as given."""

    def __init__(self, plane):
        self.plane, self.dir = plane, scratch("drill")
        secret(self.dir / "root.key", plane.founded["root_key_pem"])
        (self.dir / "root.pem").write_bytes(plane.bundle)

    def run(self, line: str) -> Done:
        environment = clean_env({"ENLIST_DIR": str(self.plane.dir)})
        environment["PATH"] = f"{BIN}:{environment['PATH']}"
        command = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(
            command, cwd=self.dir, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
        evidence.log("drill").write_bytes(done.stderr)
        return Done(done.returncode, done.stdout, done.stderr, command)

    def works(self, line: str) -> bool:
        done = self.run(line)
        assert done.code == 0 or any(code in done.err for code in NOT_YET), done
        return done.code == 0

    def drill(self, name: str) -> None:
        for line in drills()[name]:
            if line in WAITED:
                until(lambda line=line: self.works(line), f"{line!r} succeeds", 120.0)
            else:
                done = self.run(line)
                assert done.code == 0, done


@pytest.fixture
def crossing():
    with Crossing() as made:
        yield made


@pytest.fixture
def plane(crossing):
    """Hosts know it by the crossing alone, renew every few seconds, and let go of what is superseded at once."""
    with ControlPlane(init=("--advertise", crossing.url)) as made:
        for key, value in (
            ("failures.per_minute", "0"),
            ("renew.drain", "2s"),
            ("profile.default.lifetime", "60s"),
            ("profile.default.renew_before", "55s"),
            ("liveness.interval", "1s"),
            ("liveness.grace", "5s"),
        ):
            made.policy(key, value)
        crossing.lead(made.port)
        yield made


@pytest.fixture
def hosts(plane, crossing):
    named = {"ENLIST_AGENT_SERVER": crossing.url, "ENLIST_AGENT_CHECK_INTERVAL": "1s"}
    made = [Patient(plane, plane.token(), **named) for _ in range(2)]
    for host in made:
        host.start()
    for host in made:
        host.wait_connected()
    yield made
    for host in made:
        host.stop()
        host.note_secrets()


def fingerprints(file) -> list[str]:
    return [certs.fingerprint(one) for one in certs.certificates(file.read_bytes())]


def leaf(host):
    return certs.certificate((host.current / "cert.pem").read_bytes())


def test_the_page_has_its_drills():
    """A drill that loses its mark would be proven by nobody."""
    assert list(drills()) == ["issuer", "root", "list"]
    assert all(lines and all(line.startswith("enlist ca ") for line in lines) for lines in drills().values())


def test_the_page_is_followed_word_for_word(plane, crossing, hosts):
    """A roll of an issuer, a roll of the root, and a list that denies an issuer: each does on the hosts what the page says.

    Proves TASK-18, D12, D13.
    """
    names = [host.node_id() for host in hosts]
    place = Place(plane)
    check_issuer(place, hosts)
    check_root(place, hosts)
    check_list(place, hosts, crossing)
    assert [host.node_id() for host in hosts] == names
    assert len(plane.audit("host.enrolled")) == len(hosts)
    assert plane.cli("audit", "verify").json()["ok"]


def check_issuer(place, hosts) -> None:
    """Certificates of hosts come from the new issuer, and the one before it has ended."""
    servers = issuers(place.plane, "server")
    place.drill("issuer")
    assert states(place.plane) == ["active", "retired"]
    assert [one["id"] for one in issuers(place.plane, "server")] == [one["id"] for one in servers]
    (new,) = certs.certificates((place.dir / "next.pem").read_bytes())
    for host in hosts:
        # It is retired, so nobody hangs on the old one; a host puts the new one to use when it was welcomed with it.
        until(lambda host=host: under(host, new), "its certificate is of the new one")


def check_root(place, hosts) -> None:
    """Hosts trust the new root and no longer the old one, and everything is below it."""
    (old,) = fingerprints(place.dir / "root.pem")
    place.drill("root")
    evidence.private_key("root", (place.dir / "new-root.key").read_bytes())
    root, cross, *below = certs.certificates((place.dir / "root-roll.pem").read_bytes())
    new = certs.fingerprint(root)
    assert new != old and certs.public_der(root) == certs.public_der(cross)
    assert roots(place.plane) == ["retired", "active"]
    for host in hosts:
        until(lambda host=host: fingerprints(host.current / "bundle.pem") == [new], "it trusts the new root alone")
        assert any(under(host, issuer) for issuer in below)
        host.wait_connected()
    until(lambda: fingerprints(place.plane.dir / "ca" / "bundle.pem") == [new], "the control plane hands out the new root alone")


def under(host, issuer) -> bool:
    """Whether this key has signed the host's certificate."""
    try:
        leaf(host).verify_directly_issued_by(issuer)
    except (ValueError, InvalidSignature):
        return False
    return True


def check_list(place, hosts, crossing) -> None:
    """Whoever has the denied issuer is believed before, and by no host after."""
    plane = place.plane
    # From here on no certificate ends while a host is led astray, which would be another fault than the one that is looked for.
    plane.policy("profile.default.lifetime", "24h")
    plane.policy("profile.default.renew_before", "off")
    for host in hosts:
        until(lambda host=host: certs.seconds(leaf(host)) > 3600, "it has a certificate for a day")
    # The keeper has the new root in the place of the old one.
    key = (place.dir / "new-root.key").read_text()
    secret(place.dir / "root.key", key)
    plane.founded["root_key_pem"] = key
    (place.dir / "root.pem").write_bytes(plane.bundle)
    thief = Thief(plane)
    (place.dir / "stolen.pem").write_bytes(certs.pem(thief.certificate))
    with Rogue(plane, thief) as rogue:
        crossing.lead(rogue.port)
        until(lambda: rogue.heard, "nothing tells it from the control plane")
        crossing.lead(plane.port)
        for host in hosts:
            host.wait_connected()
        place.drill("list")
        for host in hosts:
            until(lambda host=host: kept(host) == (place.dir / "denied.pem").read_bytes().strip(), "the list is on the host")
        until(lambda: not status(plane)["missing"], "hosts have said so")
        for host in hosts:
            assert host.whole_log().count("revocation list of a root stored") == 1, "and each has logged it, once"
        crossing.refuse()
        heard = len(rogue.heard)
        assert not any(SAID in host.whole_log() for host in hosts)
        crossing.lead(rogue.port)
        for host in hosts:
            until(lambda host=host: SAID in host.whole_log(), "it refuses the impostor")
        assert len(rogue.heard) == heard, "nothing was sent there"
    crossing.lead(plane.port)
    for host in hosts:
        host.well(120.0)


def kept(host) -> bytes:
    file = host.current / "root-crls.pem"
    return file.read_bytes().strip() if file.exists() else b""

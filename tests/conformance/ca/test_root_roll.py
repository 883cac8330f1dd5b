"""Rolling the root: told, stored, activated, retired; with agents connected, and with one that was away. D13.

40 nodes, 8 of them real agents; in `just soak` more (ENLIST_ROLL_NODES, ENLIST_ROLL_AGENTS).
"""

import contextlib
import os
import time

import certs
import native
import pytest
from daemons import Daemon
from fleets import Fleet
from machine import ENLIST, run, scratch, tool, until
from plane import ControlPlane
from rolls import issuers, keeper, prepare, prepare_root, roots, signed_root, states, status
from terminal import Terminal

NODES = int(os.environ.get("ENLIST_ROLL_NODES", "40"))
AGENTS = int(os.environ.get("ENLIST_ROLL_AGENTS", "8"))


def fingerprints(pem: bytes) -> list[str]:
    return [certs.fingerprint(one) for one in certs.certificates(pem)]


def issued_by(pem: bytes | str, certificates: list) -> bool:
    """Whether one of these CAs is the issuer."""
    return certs.certificate(pem).issuer in [one.subject for one in certificates]


def node_issuer(answer):
    """Of what the root's keeper sent back: the issuer for clients."""
    wanted = certs.x509.ExtendedKeyUsageOID.CLIENT_AUTH
    for one in certs.certificates(answer.read_bytes()):
        try:
            uses = one.extensions.get_extension_for_class(certs.x509.ExtendedKeyUsage).value
        except certs.x509.ExtensionNotFound:
            continue
        if list(uses) == [wanted]:
            return one
    raise AssertionError("no issuer for clients in the answer")


@pytest.fixture
def plane(programs):
    plane = ControlPlane().found().start()
    plane.policy("failures.per_minute", "0")
    plane.policy("renew.drain", "5s")
    yield plane
    plane.close()


def test_a_root_is_rolled_with_everybody_connected_and_one_away(plane):
    """Nobody loses its connection for longer than one reconnect, and the one that was away comes back by its recovery token,
    which leads it through the cross-certificate. Afterwards the old root is in no bundle, and what it vouches for is refused.

    Proves TASK-18.
    """
    plane.policy("profile.default.lifetime", "60s")
    plane.policy("profile.default.renew_before", "50s")
    lasting = native.enroll(plane, plane.token(profile="plfm"))
    lasting.confirm()
    fleet = Fleet(plane, NODES - AGENTS)
    began = time.monotonic()
    try:
        fleet.add_agents(AGENTS + 1)
        away = fleet.agents.pop()
        name = away.node_id()
        until(lambda: (away.status() or {}).get("recovery_ready"), "it has a recovery token")
        assert away.stop() == 0
        (old,) = fingerprints(plane.bundle)

        answer, key = prepare_root(plane)
        new = fingerprints(answer.read_bytes())[0]
        assert set(fingerprints(plane.cli("ca", "export", "--server").json()["pem"].encode())) == {old, new}
        early = plane.cli("ca", "roll", "retire", ok=False)
        assert (early.code, early.error()["code"]) == (3, "no_roll"), early
        live = lambda: [one for one in status(plane)["missing"] if one not in (name, lasting.id)]  # noqa: E731
        fleet.until(lambda: not live(), "everyone who is there has stored the new root")
        adopted = time.monotonic() - began
        refused = plane.cli("ca", "roll", "activate", ok=False)
        assert (refused.code, refused.error()["code"]) == (3, "not_adopted"), refused
        assert lasting.id in status(plane)["missing"]
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        assert roots(plane) == ["retiring", "active"]
        until(lambda: presented(plane)[-2:] == [old, new], "the listener presents both roots")

        for light in fleet.lights:
            assert plane.api("POST", f"/v1/nodes/{light.node.id}/rotate").status == 200
        issuer = node_issuer(answer)
        leaves = lambda: [light.node.answer.certificate for light in fleet.lights] + [  # noqa: E731
            agent.files[0].read_bytes() for agent in fleet.agents
        ]
        fleet.until(lambda: all(issued_by(leaf, [issuer]) for leaf in leaves()), "everyone is under the new root")
        moved = time.monotonic() - began
        # A node that was not seen since, with a certificate for months: the root is not taken from it unnoticed.
        refused = plane.cli("ca", "roll", "retire", ok=False)
        assert refused.code == 3 and refused.error()["code"] in ("issuer_in_use", "root_in_use"), refused
        assert lasting.id in refused.error()["message"], refused
        plane.api("POST", f"/v1/nodes/{lasting.id}/revoke", {"reason": "gone"})
        retired = lambda: plane.cli("ca", "roll", "retire", ok=False).code == 0  # noqa: E731
        fleet.until(retired, "nothing hangs on the old root any more")
        assert roots(plane) == ["retired", "active"]
        assert (states(plane), states(plane, "server")) == (["active", "retired"], ["active", "retired"])

        until(lambda: fingerprints(plane.bundle) == [new], "the old root is out of DIR/ca/bundle.pem")
        agents = lambda: [agent.current / "bundle.pem" for agent in fleet.agents]  # noqa: E731
        fleet.until(
            lambda: all(fingerprints(file.read_bytes()) == [new] for file in agents()), "it is out of every host's bundle"
        )
        assert native.alert(plane, lasting.files) is not None
        away.start().wait_connected(120.0)
        assert away.node_id() == name
        until(lambda: fingerprints((away.current / "bundle.pem").read_bytes()) == [new], "it trusts the new root alone")
        assert issued_by(away.files[0].read_bytes(), [issuer])

        assert not fleet.troubles(), fleet.troubles()
        lost = [fleet.reconnects(agent) for agent in fleet.agents]
        assert max(lost) <= 1, lost
        print(
            f"{NODES} nodes, {AGENTS} agents and one away: adopted after {adopted:.0f} s, moved after {moved:.0f} s, retired"
            f" after {time.monotonic() - began:.0f} s; {fleet.newcomers.count} newcomers, reconnects {lost}"
        )
        plane.founded["root_key_pem"] = key.read_text()
        assert plane.cli("audit", "verify").json()["ok"]
    finally:
        fleet.agents.append(away)
        fleet.close()
    plane.stop()
    plane.start()
    assert fingerprints(plane.bundle) == [new]
    # And the next roll is one of the new root's.
    prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")


def presented(plane) -> list[str]:
    """What the listener shows, in its order."""
    shown = tool("openssl", "s_client", "-connect", f"127.0.0.1:{plane.port}", "-showcerts")
    blocks = shown.out.split("-----BEGIN CERTIFICATE-----")[1:]
    pems = [f"-----BEGIN CERTIFICATE-----{block.split('-----END')[0]}-----END CERTIFICATE-----\n" for block in blocks]
    return fingerprints("".join(pems[:-1] if len(pems) > 4 and pems[-1] == pems[0] else pems).encode())


def verified(plane, ca: bytes) -> bool:
    """Whether openssl takes the listener for the control plane by these roots alone."""
    file = scratch("ca") / "ca.pem"
    file.write_bytes(ca)
    arguments = ("-connect", f"127.0.0.1:{plane.port}", "-CAfile", file, "-verify_return_error", "-verify_ip", "127.0.0.1")
    return "Verify return code: 0 (ok)" in tool("openssl", "s_client", *arguments, check=False).out


def test_who_trusts_either_root_reaches_the_control_plane_until_the_cross_certificate_is_withdrawn(plane):
    """It is presented for as long as recovery tokens live, counted from the retirement."""
    plane.policy("recovery.ttl", "20s")
    old = plane.bundle
    answer, _ = prepare_root(plane)
    new = certs.pem(certs.certificates(answer.read_bytes())[0])
    assert verified(plane, old) and not verified(plane, new)
    plane.cli("ca", "roll", "activate")
    until(lambda: verified(plane, new), "the certificate is below the new root")
    assert verified(plane, old)
    retired = lambda: plane.cli("ca", "roll", "retire", ok=False).code == 0  # noqa: E731
    until(retired, "nothing hangs on the old root any more")
    assert verified(plane, new) and verified(plane, old)
    until(lambda: plane.restart() and not verified(plane, old), "nobody is led from the old root any more", 60.0)
    assert verified(plane, new)


def test_what_is_wrong_with_a_new_root_is_said(plane):
    """The old key again, a wrong cross-signature, half an answer, another's, and steps out of order."""
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", "--new-root", "--csr-out", csr)
    assert csr.read_text().count("BEGIN CERTIFICATE REQUEST") == 2
    other = plane.cli("ca", "roll", "prepare", "--csr-out", scratch("csr") / "other.csr", ok=False)
    assert (other.code, other.error()["code"]) == (3, "roll_in_progress")
    for step in ("activate", "retire"):
        assert plane.cli("ca", "roll", step, ok=False).error()["code"] == "no_roll"
    answer, _ = signed_root(plane, csr)
    whole = certs.certificates(answer.read_bytes())
    root, cross, *below = whole
    assert certs.public_der(root) == certs.public_der(cross) and root.subject == cross.subject and len(below) == 2

    def submitted(certificates: list):
        file = scratch("answer") / "answer.pem"
        file.write_bytes(b"".join(certs.pem(one) for one in certificates))
        return plane.cli("ca", "roll", "prepare", "--new-root", "--cert", file, ok=False)

    stranger, _ = signed_root(ControlPlane(plane.domain).found(), csr)
    theirs = certs.certificates(stranger.read_bytes())
    old = certs.certificates(plane.bundle)
    for wrong in (
        [root, cross, below[0]],
        [root, *below],
        [cross, *below],
        [root, theirs[1], *below],
        theirs,
        [theirs[0], cross, *below],
        [*old, *below],
        below,
    ):
        refused = submitted(wrong)
        assert (refused.code, refused.error()["code"]) == (3, "bad_request"), refused
    assert status(plane)["stage"] == "requested" and roots(plane) == ["active"]
    key, certificate = keeper(plane)
    again = run(
        *(ENLIST, "ca", "sign-root", "--root-key", key, "--root-cert", certificate, "--csr", csr, "--new-root-key", key),
        *("--out", scratch("out") / "x.pem", "--json"),
    )
    assert again.code == 2, again
    assert submitted(whole).code == 0 and roots(plane) == ["active", "prepared"]
    assert submitted(whole).code == 0, "sent again it changes nothing"
    assert plane.cli("ca", "roll", "prepare", "--csr-out", csr, "--force", ok=False).error()["code"] == "roll_in_progress"
    version = status(plane)["bundle_version"]
    assert plane.cli("ca", "roll", "abandon", "--yes").json()["stage"] == "none"
    assert roots(plane) == ["active"] and status(plane)["bundle_version"] > version
    until(lambda: fingerprints(plane.bundle) == [certs.fingerprint(old[0])], "the new root is out of DIR/ca/bundle.pem")
    assert plane.cli("ca", "roll", "abandon", ok=False).error()["code"] == "no_roll"
    assert submitted(whole).error()["code"] == "no_roll"
    assert len(issuers(plane)) == len(issuers(plane, "server")) == 1


def test_a_forced_retirement_leaves_behind_whom_it_names(plane):
    """And whoever is left behind is refused as of an unknown issuer, never as revoked."""
    node = native.enroll(plane)
    node.confirm()
    prepare_root(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    until(lambda: all(i["other_leaves"] == 0 for i in issuers(plane, "server") if i["state"] == "retiring"), "it has moved")
    refused = plane.cli("ca", "roll", "retire", ok=False)
    assert refused.code == 3 and node.id in refused.error()["message"], refused
    asked = plane.cli("ca", "roll", "retire", "--force", ok=False)
    assert (asked.code, asked.error()["code"], asked.error()["affected"]) == (3, "confirmation_needed", 1), asked
    assert node.id in asked.error()["message"], asked
    with Terminal(ENLIST, "ca", "roll", "retire", "--force", "--dir", plane.dir) as terminal:
        question = " ".join(terminal.until("Continue? [y/N] ").split())
        assert "have to recover (1)" in question and node.id in question, question
        terminal.type("n\n")
        assert terminal.end() == 3
    assert roots(plane) == ["retiring", "active"] and plane.audit("ca.root_retired") == []
    other = plane.api("POST", "/v1/ca/roll/retire", {"force": True, "confirm": "sha256:" + "0" * 64})
    assert (other.status, other.code) == (409, "confirmation_needed"), other
    plane.cli("ca", "roll", "retire", "--force", "--yes")
    assert roots(plane) == ["retired", "active"]
    (line,) = plane.audit("ca.root_retired")
    assert line["forced"] and (line["left_behind"], line["without_new_root"]) == (1, 1), line
    assert native.alert(plane, node.files) == "TLSV1_ALERT_UNKNOWN_CA"


def test_a_forced_retirement_names_the_operators_that_it_cuts_off(plane):
    """And tells the one who asks that he is among them; nothing is said of nodes, and who renews first is not affected."""
    operators = {}
    for name, role in (("ann", "platform-admin"), ("bob", "viewer"), ("eve", "viewer")):
        operators[name] = place = scratch("op")
        plane.cli("operator", "add", name, "--role", role, "--out", place)

    def flags(name: str) -> tuple:
        place = operators[name]
        return ("--server", plane.url, "--cert", place / "cert.pem", "--key", place / "key.pem", "--ca", place / "ca.pem")

    prepare_root(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    until(lambda: all(i["other_leaves"] == 0 for i in issuers(plane, "server") if i["state"] == "retiring"), "it has moved")
    assert run(ENLIST, "operator", "renew", *flags("eve")).code == 0
    asked = run(ENLIST, "ca", "roll", "retire", "--force", "--json", *flags("ann"))
    message = asked.error()["message"]
    assert (asked.code, asked.error()["code"]) == (3, "confirmation_needed"), asked
    assert "(2): ann (you), bob; " in message and "`enlist operator renew`" in message and "node" not in message, message
    assert "(2): ann, bob; " in plane.cli("ca", "roll", "retire", "--force", ok=False).error()["message"]
    told = " ".join(run(ENLIST, "ca", "roll", "retire", "--force", "--yes", "--dir", plane.dir).out.split())
    assert "`enlist operator add NAME`" in told and "nodes whose certificates" not in told, told
    (line,) = plane.audit("ca.root_retired")
    assert (line["left_behind"], line["operators_left_behind"]) == (0, 2), line
    assert run(ENLIST, "ca", "show", *flags("ann")).code != 0 and run(ENLIST, "ca", "show", *flags("eve")).code == 0


def roll_root(plane, agent, old: str) -> str:
    """The whole roll with an agent connected; answers with the new root."""
    answer, key = prepare_root(plane)
    new = fingerprints(answer.read_bytes())[0]
    stored = lambda: fingerprints((agent.current / "bundle.pem").read_bytes())  # noqa: E731
    until(lambda: stored() == [old, new], "the agent trusts both roots")
    # Who is away has not stored it.
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    issuer = node_issuer(answer)
    until(lambda: issued_by(agent.files[0].read_bytes(), [issuer]), "the agent is under the new root")
    until(lambda: plane.cli("ca", "roll", "retire", ok=False).code == 0, "nothing hangs on the old root any more")
    plane.founded["root_key_pem"] = key.read_text()
    until(lambda: stored() == [new] and fingerprints(plane.bundle) == [new], "the old root is in no bundle")
    return new


def roll_issuer(plane, agent, usage: str) -> None:
    """An ordinary roll, to its end."""
    (issuer,) = certs.certificates(prepare(plane, usage).read_bytes())
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    if usage == "node":
        until(lambda: issued_by(agent.files[0].read_bytes(), [issuer]), "the agent is under the new issuer")
    else:
        until(lambda: certs.fingerprint(issuer) in presented(plane), "the control plane is under the new issuer")
    until(lambda: plane.cli("ca", "roll", "retire", ok=False).code == 0, "nothing hangs on the previous issuer any more")


@contextlib.contextmanager
def crowd(plane, count: int):
    """Agents that run and are connected."""
    agents = [Daemon(plane, plane.token()) for _ in range(count)]
    try:
        for agent in agents:
            agent.start().wait_connected()
        yield agents
    finally:
        for agent in agents:
            agent.stop()
            agent.note_secrets()


def test_hosts_follow_two_rolls_of_the_root_and_then_those_of_the_issuers(plane):
    """The second while the cross-certificate of the first is still presented; a host that was away for all of it comes back too."""
    plane.policy("profile.default.lifetime", "60s")
    plane.policy("profile.default.renew_before", "50s")
    with crowd(plane, 2) as (agent, away):
        until(lambda: (away.status() or {}).get("recovery_ready"), "it has a recovery token")
        assert away.stop() == 0
        oldest = plane.bundle
        (first,) = fingerprints(oldest)
        second = roll_root(plane, agent, first)
        third = roll_root(plane, agent, second)
        assert roots(plane) == ["retired", "retired", "active"]
        for usage in ("node", "server"):
            roll_issuer(plane, agent, usage)
        newest = lambda: agent.status()["trust"]["bundle_version"] == status(plane)["bundle_version"]  # noqa: E731
        until(newest, "the agent has taken every bundle")
        agent.wait_connected()
        assert fingerprints((agent.current / "bundle.pem").read_bytes()) == [third]
        assert verified(plane, oldest), "openssl follows both cross-certificates"
        name = away.node_id()
        away.start().wait_connected(120.0)
        until(lambda: fingerprints((away.current / "bundle.pem").read_bytes()) == [third], "it trusts the newest root alone")
        assert away.node_id() == name and plane.node(name)["state"] == "active"
        for one in (agent, away):
            assert "trust_refused" not in one.status()
            assert not any("is not kept" in log.read_text(errors="replace") for log in one.logs)

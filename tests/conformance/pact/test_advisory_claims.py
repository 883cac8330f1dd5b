"""Claims between domains: signed, advisory, and never in the way. PACT-25, PACT-24."""

import contextlib
import json

import certs
import pacts
import pytest
from board import Board, Neighbour, digest, opened
from machine import ENLIST, run, until
from pacts import hardware
from plane import ControlPlane
from subscriber import Subscriber


@pytest.fixture
def board():
    with Board() as running:
        yield running


def claiming(plane: ControlPlane, board_url: str, trust: str) -> None:
    file = plane.base / "trust.pem"
    file.write_text(trust)
    config = plane.dir / "enlist.toml"
    config.write_text(config.read_text() + f'\n[claims]\nurl = "{board_url}"\ntrust = "{file}"\ninterval = "1s"\n')


def prepare(plane: ControlPlane) -> None:
    pacts.allow_hardware(plane)
    plane.policy("liveness.interval", "1s")
    plane.policy("liveness.grace", "3s")


@contextlib.contextmanager
def beside(board: Board, neighbour: Neighbour):
    """A control plane that believes the neighbour, and an operator of it."""
    plane = ControlPlane(domain="home.example").found()
    claiming(plane, board.url, certs.pem(neighbour.root).decode())
    try:
        plane.start()
        pacts.allow_hardware(plane)
        with pacts.admin(plane) as operator:
            yield plane, operator
    finally:
        plane.close()


def warned(plane: ControlPlane) -> list[dict]:
    return plane.items("/v1/alerts?kind=claimed_elsewhere")


def ignored(plane: ControlPlane, reason: str) -> float:
    text = plane.api("GET", "/metrics").body.decode()
    line = next((line for line in text.splitlines() if f'claims_ignored_total{{reason="{reason}"}}' in line), "0")
    return float(line.split()[-1])


def rounds(board: Board, count: int = 2) -> None:
    """Waits until the board was read a few times more."""
    before = board.asked["GET"]
    until(lambda: board.asked["GET"] >= before + count, "the board was read again")


def test_two_domains_that_share_a_machine_both_warn_and_refuse_nothing(board):
    """Proves PACT-25 and PACT-24: it boots into the second while the first still holds it active; both warn; it ends by itself."""
    with contextlib.ExitStack() as running:
        planes = [ControlPlane(domain=name).found() for name in ("alpha.example", "beta.example")]
        roots = [plane.bundle.decode() for plane in planes]
        for plane, others in zip(planes, reversed(roots), strict=True):
            running.callback(plane.close)
            claiming(plane, board.url, others)
            plane.start()
            prepare(plane)
        alpha, beta = planes
        identity = hardware(bmc_serial="Shared-7")
        operators = [running.enter_context(pacts.admin(plane)) for plane in planes]
        for operator in operators:
            operator.register("shared-7", identity)
        first = pacts.boot(alpha, identity)
        with Subscriber(alpha, first):
            until(lambda: board.claimed("alpha.example"), "the first domain has published its claim")
            assert board.claimed("alpha.example") == {digest(f"mac:{identity.mac_address}"), digest("bmc_serial:Shared-7")}
            assert warned(alpha) == [] and warned(beta) == []

            second = pacts.boot(beta, identity)
            with Subscriber(beta, second):
                (here,) = until(lambda: warned(beta), "the second domain warns")
                (there,) = until(lambda: warned(alpha), "the first domain warns")
                assert here["node_id"] == there["node_id"] == "shared-7"
                since = alpha.node("shared-7")["enrolled_at"][:19]
                assert "alpha.example" in here["detail"] and since[:16] in here["detail"]
                assert "beta.example" in there["detail"]
                for plane in planes:
                    assert plane.node("shared-7")["state"] == "active"
                    assert plane.https("GET", "/readyz").status == 200
                rounds(board, 4)
                assert [alert["count"] for alert in (*warned(alpha), *warned(beta))] == [1, 1], "said once"
            until(lambda: beta.node("shared-7")["state"] == "inactive", "it has left the second domain")
            until(lambda: not warned(alpha) and not warned(beta), "neither warns any more")
            assert alpha.node("shared-7")["state"] == "active"
        assert {alert["kind"] for plane in planes for alert in plane.audit("alert.raised")} == {"claimed_elsewhere"}


@pytest.mark.parametrize(
    "behaviour", [(500, b"no"), (302, b""), (200, b"<html>\n{}\n[1]\nnull\n"), "garbage", "huge"], ids=str
)
def test_a_board_that_fails_changes_nothing(board, behaviour):
    """Proves PACT-25: machines boot, readiness stays, no alert is raised; claims that were read hold until they end."""
    neighbour = Neighbour("next.example")
    board.behave = lambda _method: behaviour
    with beside(board, neighbour) as (plane, operator):
        machine = pacts.machine(plane, operator, "n-1")
        rounds(board)
        assert plane.node(machine.id)["state"] == "active"
        assert plane.https("GET", "/readyz").status == 200
        assert warned(plane) == [] and plane.items("/v1/alerts") == []
        assert plane.status("VmHWM") < 400_000, "what it is sent is bounded"


def test_an_absent_or_silent_board_delays_nobody(board):
    """Proves PACT-25: an enrollment takes no part in it: with a board that hangs a machine boots, and the stop keeps its time."""
    board.behave = lambda _method: "hang"
    with beside(board, Neighbour("next.example")) as (plane, operator):
        for number in range(5):
            pacts.machine(plane, operator, f"n-{number}")
        plane.stop()
        plane.start()


def test_a_claim_holds_until_it_ends_and_a_restart_does_not_end_it(board):
    """The alert outlives a failing board and a restart; a newer document without the machine ends it."""
    neighbour = Neighbour("next.example")
    with beside(board, neighbour) as (plane, operator):
        identity = hardware()
        operator.register("n-1", identity)
        pacts.boot(plane, identity)
        board.more = [neighbour.signed(neighbour.document(f"mac:{identity.mac_address}"))]
        (alert,) = until(lambda: warned(plane), "it is claimed elsewhere")
        assert alert["node_id"] == "n-1" and "next.example" in alert["detail"] and alert["count"] == 1
        board.behave = lambda _method: (503, b"")
        rounds(board)
        assert [found["alert_id"] for found in warned(plane)] == [alert["alert_id"]]
        plane.restart()
        rounds(board)
        assert [found["alert_id"] for found in warned(plane)] == [alert["alert_id"]]
        board.behave = lambda _method: None
        rounds(board)
        assert [found["alert_id"] for found in warned(plane)] == [alert["alert_id"]]
        board.more = [neighbour.signed(neighbour.document())]
        until(lambda: not warned(plane), "the other claims it no more")


def test_a_claim_ends_with_its_time_or_with_the_node(board):
    """Who posts nothing any more claims nothing any more; a node that is decommissioned is warned of no more."""
    neighbour = Neighbour("next.example")
    with beside(board, neighbour) as (plane, operator):
        machines = [hardware(), hardware()]
        for number, identity in enumerate(machines):
            operator.register(f"n-{number}", identity)
            pacts.boot(plane, identity)
        addresses = [f"mac:{identity.mac_address}" for identity in machines]
        board.more = [neighbour.signed(neighbour.document(*addresses, life=12))]
        until(lambda: len(warned(plane)) == 2, "both are claimed elsewhere")
        assert plane.api("POST", "/v1/nodes/n-0/decommission", {}).status == 200
        until(lambda: {alert["node_id"] for alert in warned(plane)} <= {"n-1"}, "the one that is gone is warned of no more")
        until(lambda: not warned(plane), "the claim has ended")


def test_what_is_not_to_be_believed_is_ignored_and_counted(board):
    """Proves PACT-25: a bad signature, an unknown root, another's name, an old, a future and a replayed claim, one about ourselves."""
    neighbour, stranger = Neighbour("next.example"), Neighbour("evil.example")
    with beside(board, neighbour) as (plane, operator):
        identity = hardware()
        operator.register("n-1", identity)
        pacts.boot(plane, identity)
        target = f"mac:{identity.mac_address}"
        good = neighbour.document(target)

        def spoiled(line: bytes, field: str, value) -> bytes:
            return json.dumps({**json.loads(line), field: value}).encode()

        signed = neighbour.signed(good)
        wrong = {
            "bad_signature": neighbour.signed(good, message=b"enlist audit checkpoint v1\0"),
            "unknown_root": stranger.signed(stranger.document(target)),
            "wrong_domain": neighbour.signed(neighbour.document(target, domain="far.example")),
            "expired": neighbour.signed(neighbour.document(target, issued=-3600)),
            "future": neighbour.signed(neighbour.document(target, issued=3600)),
            "long_lived": neighbour.signed(neighbour.document(target, life=10 * 86400)),
            "impostor": neighbour.signed(
                neighbour.document(target, domain="home.example"), certificate=neighbour.audit_certificate("home.example")
            ),
            "malformed": spoiled(signed, "document", "!!"),
        }
        assert ignored(plane, "impostor") == 0
        for reason, line in wrong.items():
            board.more = [line]
            until(lambda reason=reason: ignored(plane, reason) > 0, f"{reason} is counted")
        board.more = [*wrong.values()]
        rounds(board, 3)
        assert warned(plane) == []

        # A certificate for something else, from the right root.
        server_auth = certs.x509.ExtendedKeyUsageOID.SERVER_AUTH
        board.more = [neighbour.signed(good, certificate=neighbour.audit_certificate("next.example", server_auth))]
        rounds(board, 3)
        assert warned(plane) == []

        # An old one again, after a newer one that claims nothing.
        older, newer = neighbour.document(target, issued=-30), neighbour.document()
        board.more = [neighbour.signed(newer)]
        rounds(board, 3)
        board.more = [neighbour.signed(older)]
        until(lambda: ignored(plane, "replayed") > 0, "the replay is counted")
        assert warned(plane) == []

        # Beside all of this, a good one still counts.
        board.more = [*wrong.values(), b"\xff\xfe nonsense", neighbour.signed(neighbour.document(target))]
        until(lambda: warned(plane), "the good one is believed")


def test_what_is_published_is_what_the_page_says(board):
    """The document verifies with the domain's own root alone, by software that shares no code with the control plane."""
    import base64

    from cryptography.hazmat.primitives.asymmetric import ec

    with beside(board, Neighbour("next.example")) as (plane, operator):
        identity = hardware(bmc_serial="Xyz-1", system_uuid="4c4c4544-0042-3510-8052-b4c04f4e5a31")
        operator.register("n-1", identity)
        pacts.boot(plane, identity)
        until(lambda: board.claimed("home.example"), "the claim is published")
        post = board.posts["home.example"]
        document = opened(post)
        assert set(post) == {"document", "signature", "chain"}
        assert set(document) == {"domain", "issued_at", "expires_at", "claims"}
        expected = [f"mac:{identity.mac_address}", "bmc_serial:xyz-1", "system_uuid:4c4c4544-0042-3510-8052-b4c04f4e5a31"]
        (claim,) = document["claims"]
        assert set(claim["hardware"]) == {digest(text) for text in expected}
        assert claim["active_since"] <= document["issued_at"] < document["expires_at"]
        chain = [certs.x509.load_der_x509_certificate(base64.b64decode(der)) for der in post["chain"]]
        message = b"enlist claims v1\0" + base64.b64decode(post["document"])
        chain[0].public_key().verify(base64.b64decode(post["signature"]), message, ec.ECDSA(certs.hashes.SHA256()))
        root = certs.certificates(plane.bundle)[-1]
        for child, parent in zip(chain, [*chain[1:], root], strict=True):
            child.verify_directly_issued_by(parent)
        # Nobody who is not a machine is in it.
        assert identity.mac_address not in json.dumps(document)
        assert plane.api("POST", "/v1/nodes/n-1/decommission", {}).status == 200
        until(lambda: board.claimed("home.example") == set(), "the claim is withdrawn")


def test_mistakes_are_told_at_once(programs):
    """`server check`: both keys are required, the file must hold certificates, plain http elsewhere is a warning."""
    plane = ControlPlane().found()
    config = plane.dir / "enlist.toml"
    written = config.read_text()
    config.write_text(written + '\n[claims]\nurl = "board.example"\ntrust = "/nonexistent"\ninterval = "2d"\ncolour = "red"\n')
    done = run(ENLIST, "server", "check", "--dir", plane.dir)
    said = done.out + done.err
    assert done.code == 2
    for key in ("claims.url", "claims.trust", "claims.interval", "claims.colour"):
        assert key in said, key
    config.write_text(written + f'\n[claims]\nurl = "http://board.example/"\ntrust = "{plane.dir}/ca/bundle.pem"\n')
    done = run(ENLIST, "server", "check", "--dir", plane.dir)
    assert done.code == 0 and "claims.url" in done.out + done.err
    plane.close()


def test_a_root_made_elsewhere_vouches_for_so_many_domains(board):
    """Whoever has a root that does not say which domain it is for can make up names: 64 of them are believed, and what they claim costs
    no more memory however often they say it."""
    neighbour = Neighbour("company.example")
    with beside(board, neighbour) as (plane, operator):
        machine = pacts.machine(plane, operator, "m-1").used()
        address = plane.node(machine.id)["hardware"]["macs"][0]
        names = [f"d-{number:02}.example" for number in range(66)]
        for name in names:
            document = neighbour.document(f"mac:{address}", domain=name)
            board.more.append(neighbour.signed(document, certificate=neighbour.audit_certificate(name)))
        until(lambda: warned(plane), "the machine is claimed elsewhere")
        until(lambda: ignored(plane, "too_many") >= 2, "the rest is ignored")
        (alert,) = warned(plane)
        assert all(name in alert["detail"] for name in names[:4]) and alert["detail"].endswith("and in others"), alert
        # One that is known is believed when it says something new.
        board.more[0] = neighbour.signed(
            neighbour.document(issued=1, domain=names[0]), certificate=neighbour.audit_certificate(names[0])
        )
        until(lambda: names[0] not in warned(plane)[0]["detail"], "the first has withdrawn its claim")

"""Issuer keys in an HSM. Proves TASK-02 (the CA's key in an HSM) and TASK-18 (HSM recommended) with SoftHSM, pkcs11-tool, p11-kit,
OpenSC's spy, openssl and a native gRPC client.
"""

import os
import pathlib
import signal
import time

import certs
import hsm
import native
from machine import ENLIST, run, secret, tool, until
from plane import STOP_LIMIT


def enrolled(plane):
    """Enrolls, and has openssl verify the leaf against the domain's root."""
    node = native.enroll(plane)
    chain = plane.cli("ca", "export").json()["pem"].encode()
    leaf = certs.pem(certs.certificates(node.files[0].read_bytes())[0])
    assert certs.verifies(leaf, chain, "-purpose", "sslclient"), leaf
    return node


def refusal(plane):
    """What an enrollment is told while the HSM is away; the token is not spent."""
    minted = plane.mint()
    with native.door(plane) as door:
        refused = door.refused(minted["token"], certs.good_csr())
    assert plane.token_state(minted["token_id"]) == "unused"
    return refused.code


def test_keys_are_made_in_the_token_and_cannot_be_extracted():
    """`server init` makes them; pkcs11-tool shows what they are, and a leaf verifies. Proves TASK-02."""
    token = hsm.Token()
    with hsm.control_plane(token) as plane:
        keys = token.private_keys()
        assert hsm.KEY in keys, keys
        for shown in keys.values():
            assert "never extractable" in shown and "sensitive" in shown and "always sensitive" in shown, shown
            assert shown.split("Usage:")[1].split("\n")[0].strip() == "sign", shown
        made = plane.founded["hsm_keys"]
        assert made == [{"label": label, "origin": "made"} for label in (hsm.KEY, f"{hsm.KEY}-server")], made
        assert "enlist_hsm_up 1" in plane.api("GET", "/metrics").body.decode()
        issuers = plane.api("GET", "/v1/ca").json()["issuers"]
        assert issuers and {issuer["kind"] for issuer in issuers} == {"pkcs11"}, issuers
        enrolled(plane)
        assert hsm.PIN.encode() not in b"".join(
            file.read_bytes() for file in plane.dir.rglob("*") if file.is_file()
        )
        plane.restart()
        enrolled(plane)
        crl = plane.cli("ca", "crl").json()["pem"].encode()
        assert crl.count(b"BEGIN X509 CRL") == 3, "of both issuers and of the root, whose key was never in the token"
        place = hsm.scratch("crl")
        (place / "crl.pem").write_bytes(crl)
        (place / "ca.pem").write_text(plane.cli("ca", "export").json()["pem"])
        shown = tool("openssl", "crl", "-in", place / "crl.pem", "-CAfile", place / "ca.pem", "-noout")
        assert "verify OK" in shown.err, shown


def test_an_existing_p384_key_is_used():
    token = hsm.Token()
    for label, number in ((hsm.KEY, "01"), (f"{hsm.KEY}-server", "02")):
        token.make_key("EC:secp384r1", label, number)
    with hsm.control_plane(token) as plane:
        assert {key["origin"] for key in plane.founded["hsm_keys"]} == {"found"}, plane.founded
        assert any(f"'{hsm.KEY}'" in warning for warning in plane.founded["warnings"]), plane.founded
        node = enrolled(plane)
        leaf = certs.certificates(node.files[0].read_bytes())[0]
        assert leaf.signature_hash_algorithm.name == "sha384"
        assert set(token.private_keys()) == {hsm.KEY, f"{hsm.KEY}-server"}, "none was made beside"


def test_init_names_what_is_wrong_and_leaves_nothing():
    token = hsm.Token()
    token.make_key("rsa:2048", "rsa", "01")
    token.make_key("EC:secp521r1", "large", "02")
    bad_pin = secret(token.base / "bad-pin", "0000-wrong")
    right = token.init()

    def refused(*changed) -> dict:
        flags = dict(zip(right[::2], right[1::2], strict=True)) | dict(zip(changed[::2], changed[1::2], strict=True))
        plane = hsm.ControlPlane(init=tuple(part for pair in flags.items() for part in pair), env=token.env)
        done = plane.init_command()
        assert done.code == 1 and not plane.dir.exists(), done
        error = done.error()
        assert error["code"] == "issuer_unavailable" and error["hint"], error
        return error["message"]

    assert "no token labelled 'other'" in refused("--pkcs11-token", "other")
    assert "cannot be loaded" in refused("--pkcs11-module", "/nonexistent.so")
    assert "cannot be loaded" in refused("--pkcs11-module", token.conf)
    assert "P-256 or P-384" in refused("--pkcs11-key", "rsa")
    assert "P-256 or P-384" in refused("--pkcs11-key", "large")
    assert "cannot be read" in refused("--pkcs11-pin", "file:/nonexistent")
    assert "CKR_PIN_INCORRECT" in refused("--pkcs11-pin", f"file:{bad_pin}")
    # The PIN itself in place of its source is not repeated.
    done = hsm.ControlPlane(init=(*right[:-1], hsm.PIN), env=token.env).init_command()
    assert done.code == 2 and hsm.PIN not in done.out + done.err, done
    assert set(token.private_keys()) == {"rsa", "large"}


def test_it_starts_without_the_hsm_and_finds_it_by_itself():
    """Also at the first start, when there is no server certificate yet. Proves TASK-18."""
    token = hsm.Token()
    remote = hsm.Remote(token).start()
    with hsm.control_plane(token, remote, start=False) as plane:
        remote.kill()
        # `ready` is a promise that TLS is served.
        plane.launch()
        until((plane.dir / "operator.sock").exists, "the operator socket is there")
        hsm.until_unavailable(plane)
        hsm.until_logged(plane, "the key in the HSM does not sign")
        assert "enlist_hsm_up 0" in plane.api("GET", "/metrics").body.decode()
        assert plane.ready_line() is None
        # One is asked after the other.
        shown = lambda: plane.cli("ca", "show").json()["issuers"]  # noqa: E731
        until(lambda: all("p11-kit-client.so" in issuer.get("unavailable", "") for issuer in shown()), "it is shown of both")
        remote.start()
        plane.url = until(plane.ready_line, "the ready line was written").split()[1]
        hsm.until_ready(plane)
        assert plane.err.read_text().count("waiting for the HSM") == 1, plane.log()
        assert "unavailable" not in plane.cli("ca", "show").json()["issuers"][0]
        plane.policy("failures.per_minute", "0")
        until(lambda: (plane.dir / "ca" / "server.pem").exists(), "the server certificate is there")
        enrolled(plane)
        plane.stop()
        remote.kill()
        plane.start()
        hsm.until_unavailable(plane)
        assert plane.https("GET", "/healthz").status == 200, "served with the certificate of before"
        assert refusal(plane) == "issuer_unavailable"
        assert plane.api("GET", "/v1/ca/crl").status == 503
        remote.start()
        hsm.until_ready(plane)
        enrolled(plane)
        plane.stop()
    remote.close()


def test_a_wrong_pin_is_tried_once_until_it_changes():
    """Counted by OpenSC's spy. A restart does not try it again; the right one in its place is noticed."""
    token = hsm.Token()
    spy = hsm.Spy(token)
    with hsm.control_plane(token, spy, start=False) as plane:
        plane.start()
        plane.policy("failures.per_minute", "0")
        hsm.until_ready(plane)
        sessions = hsm.sessions(plane)
        plane.stop()
        until(lambda: not any(map(hsm.is_alive, sessions)), "nobody logs in any more")
        began = spy.calls("C_Login")
        secret(token.pin_file, "0000-wrong")
        plane.start()
        hsm.until_unavailable(plane)
        hsm.until_logged(plane, "CKR_PIN_INCORRECT")
        checked = time.monotonic() + 5
        until(lambda: refusal(plane) == "issuer_unavailable" and time.monotonic() > checked, "five seconds pass")
        plane.restart()
        hsm.until_unavailable(plane)
        warnings = run(ENLIST, "server", "check", "--dir", plane.dir, "--json", env=spy.env).json()["warnings"]
        assert any("refused the PIN" in warning for warning in warnings), warnings
        assert spy.calls("C_Login") == began + 1
        secret(token.pin_file, hsm.PIN)
        hsm.until_ready(plane)
        plane.policy("failures.per_minute", "0")
        enrolled(plane)
        until_checked = run(ENLIST, "server", "check", "--dir", plane.dir, "--json", env=spy.env).json()
        assert until_checked["warnings"] == [], until_checked


def test_a_missing_key_a_wrong_one_and_the_right_one_again():
    """Each is named in the log; no certificate is signed by a key that is not the issuer's."""
    token = hsm.Token()
    with hsm.control_plane(token) as plane:
        node = enrolled(plane)
        saved = token.base / "saved"
        hsm.shutil.copytree(token.store, saved)
        token.remove_key(hsm.KEY)
        hsm.until_unavailable(plane)
        assert refusal(plane) == "issuer_unavailable"
        hsm.until_logged(plane, "holds no private key labelled 'issuer'")
        checked = run(ENLIST, "server", "check", "--dir", plane.dir, "--json", env=token.env).json()
        assert any("holds no private key" in warning for warning in checked["warnings"]), checked
        token.make_key("EC:prime256v1", hsm.KEY, "07")
        hsm.until_logged(plane, "is not the key of the issuer's certificate")
        assert refusal(plane) == "issuer_unavailable"
        assert len(plane.nodes()) == 1, "nothing was recorded"
        token.remove_key(hsm.KEY)
        token.make_key("rsa:2048", hsm.KEY, "08")
        hsm.until_logged(plane, "must be P-256 or P-384")
        assert plane.node(node.id)["node_id"] == node.id, "the rest is served"
        # What was saved is put back, as from the HSM's own backup.
        hsm.shutil.rmtree(token.store)
        saved.rename(token.store)
        hsm.until_ready(plane)
        enrolled(plane)


def test_a_token_that_is_taken_out_and_put_back():
    token = hsm.Token()
    with hsm.control_plane(token) as plane:
        enrolled(plane)
        token.take_out()
        hsm.until_unavailable(plane)
        assert refusal(plane) == "issuer_unavailable"
        token.put_back()
        hsm.until_ready(plane)
        enrolled(plane)


def test_an_hsm_that_hangs_blocks_nothing_else_and_not_the_end():
    token = hsm.Token()
    remote = hsm.Remote(token).start()
    with hsm.control_plane(token, remote) as plane:
        enrolled(plane)
        remote.freeze()
        with native.door(plane) as door:
            waiting, served = [door.begin(plane.token(), certs.good_csr()) for _ in range(20)], None
            for _ in range(20):
                assert plane.https("GET", "/healthz").status == 200
                plane.nodes()
                if served is None:
                    # Whoever waited for the HSM too would be served after those that wait.
                    served = not all(call.done() for call in waiting)
            assert served, "others are served meanwhile"
            for call in waiting:
                assert call.exception() is not None
        hsm.until_unavailable(plane)
        assert refusal(plane) == "issuer_unavailable"
        remote.thaw()
        hsm.until_ready(plane)
        enrolled(plane)
        remote.freeze()
        with native.door(plane) as door:
            waiting = [door.begin(plane.token(), certs.good_csr()) for _ in range(4)]
            until(lambda: not waiting[0].done(), "it waits")
            plane.process.send_signal(signal.SIGTERM)
            assert plane.process.wait(STOP_LIMIT + 5) == 0, plane.log()
    remote.close()


def test_a_session_that_is_killed_is_replaced_and_none_outlives_the_control_plane():
    """The module is loaded by processes of their own, and not by the control plane. Proves TASK-18."""
    token = hsm.Token()
    remote = hsm.Remote(token).start()
    with hsm.control_plane(token, remote) as plane:
        enrolled(plane)
        assert "p11-kit-client" not in (pathlib.Path("/proc") / str(plane.process.pid) / "maps").read_text()
        sessions = hsm.sessions(plane)
        assert 0 < len(sessions) <= 4, sessions
        for session in sessions:
            os.kill(session, signal.SIGKILL)
        enrolled(plane)
        assert not set(sessions) & set(hsm.sessions(plane))
        # One of them is in the module when the control plane is killed, and the module does not return.
        remote.freeze()
        with native.door(plane) as door:
            waiting = door.begin(plane.token(), certs.good_csr())
            sessions = until(lambda: hsm.sessions(plane), "there are sessions")
            plane.process.kill()
            plane.process.wait()
            waiting.exception()
        until(lambda: not any(map(hsm.is_alive, sessions)), "no session is left")
        remote.thaw()
        plane.start()
        hsm.until_ready(plane)
        enrolled(plane)
    remote.close()

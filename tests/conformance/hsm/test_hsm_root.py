"""Rolls whose keys are made in the HSM, and a root key in an HSM on the offline machine. Proves TASK-18 (HSM, rotation of the CA)."""

import certs
import hsm
import native
import rolls
from machine import ENLIST, run, scratch, secret, until
from plane import ControlPlane


def in_use(plane, usage: str) -> dict:
    """The issuer of a use that signs."""
    (found,) = [issuer for issuer in rolls.issuers(plane, usage) if issuer["state"] == "active"]
    return found


def verifies(plane, node) -> bool:
    leaf = certs.pem(certs.certificates(node.files[0].read_bytes())[0])
    return certs.verifies(leaf, plane.cli("ca", "export").json()["pem"].encode(), "-purpose", "sslclient")


def configure(plane, token: hsm.Token, through=None) -> None:
    """[pkcs11] by hand, as for a domain that exists; the token is reached directly or through something."""
    module = (through or token).module
    config = plane.dir / "enlist.toml"
    config.write_text(
        config.read_text() + f'\n[pkcs11]\nmodule = "{module}"\ntoken = "{token.label}"\nkey = "{hsm.KEY}"\n'
        f'pin = "file:{token.pin_file}"\n'
    )


def test_a_roll_makes_its_key_in_the_hsm_under_a_label_of_its_own():
    token = hsm.Token()
    with hsm.control_plane(token) as plane:
        before = set(token.private_keys())
        assert before == {hsm.KEY, f"{hsm.KEY}-server"}
        for usage in ("node", "server"):
            old = in_use(plane, usage)
            rolls.prepare(plane, usage)
            plane.cli("ca", "roll", "activate", "--force", "--yes")
            assert in_use(plane, usage)["id"] != old["id"] and in_use(plane, usage)["kind"] == "pkcs11"
            node = native.enroll(plane)
            assert verifies(plane, node)
            plane.cli("ca", "roll", "retire", ok=False)
        made = set(token.private_keys()) - before
        assert len(made) == 2 and {label.rsplit("-", 1)[0] for label in made} == {"issuer-node", "issuer-server"}, made
        for label in made:
            assert "never extractable" in token.private_keys()[label]
        plane.restart()
        hsm.until_ready(plane)
        assert verifies(plane, native.enroll(plane))


def test_a_domain_moves_into_the_hsm_and_survives_a_rewrap():
    """`ca migrate`; without [pkcs11] it is refused with a remedy, and nothing is begun. Proves TASK-18."""
    token = hsm.Token()
    with ControlPlane(env=token.env) as plane:
        plane.policy("failures.per_minute", "0")
        assert verifies(plane, native.enroll(plane))
        csr = scratch("csr") / "next.csr"
        refused = plane.cli("ca", "migrate", "--to", "pkcs11", "--csr-out", csr, ok=False)
        assert refused.code != 0 and "[pkcs11]" in refused.error()["hint"], refused
        assert not token.tool("--list-objects", "--type", "privkey").strip()
        plane.stop()
        configure(plane, token)
        plane.start()
        hsm.until_ready(plane)
        assert warnings(plane) == [], "no issuer uses the first label"
        plane.cli("ca", "migrate", "--to", "pkcs11", "--csr-out", csr)
        certificate = rolls.signed(plane, csr)
        plane.cli("ca", "roll", "prepare", "--cert", certificate)
        plane.cli("ca", "roll", "activate", "--force", "--yes")
        assert in_use(plane, "node")["kind"] == in_use(plane, "server")["kind"] == "pkcs11"
        plane.cli("ca", "migrate", "--to", "pkcs11", "--csr-out", scratch("csr") / "again.csr")
        assert rolls.status(plane)["stage"] == "retiring", "both are there, and nothing is begun"
        assert warnings(plane) == []
        assert verifies(plane, native.enroll(plane))
        plane.cli("ca", "rewrap", "--kek", f"file:{plane.base / 'kek2'}")
        plane.restart()
        hsm.until_ready(plane)
        assert verifies(plane, native.enroll(plane))


def test_why_the_key_of_a_prepared_issuer_does_not_sign_is_shown():
    """`issuer_unavailable` refers to `ca show`: there it stands, also if no active issuer is in the HSM. The domain stays ready."""
    token = hsm.Token()
    remote = hsm.Remote(token).start()
    with ControlPlane(env=remote.env) as plane:
        plane.policy("failures.per_minute", "0")
        plane.stop()
        configure(plane, token, remote)
        plane.start()
        hsm.until_ready(plane)
        csr = scratch("csr") / "next.csr"
        plane.cli("ca", "migrate", "--to", "pkcs11", "--csr-out", csr)
        assert rolls.status(plane)["kinds"] == ["pkcs11", "pkcs11"]
        assert "in the HSM" in run(ENLIST, "ca", "roll", "status", "--dir", plane.dir).out
        plane.cli("ca", "roll", "prepare", "--cert", rolls.signed(plane, csr))
        remote.kill()

        def shown() -> bool:
            found = {issuer["state"]: issuer.get("unavailable") for issuer in plane.cli("ca", "show").json()["issuers"]}
            return bool(found["prepared"]) and found["active"] is None

        until(shown, "`ca show` says why")
        refused = plane.cli("ca", "roll", "activate", "--force", "--yes", ok=False)
        assert refused.code != 0 and refused.error()["code"] == "issuer_unavailable", refused
        assert "`enlist ca show`" in refused.error()["hint"], refused
        assert "is prepared and could not sign" in " ".join(run(ENLIST, "ca", "show", "--dir", plane.dir).out.split())
        assert hsm.reasons(plane) == [], "what signs now is not in the HSM"
        remote.start()
        until(lambda: plane.cli("ca", "roll", "activate", "--force", "--yes", ok=False).code == 0, "it is activated")
        hsm.until_ready(plane)
        # A question that the watch asked while the HSM was away may be answered after it is back.
        issuers = lambda: plane.cli("ca", "show").json()["issuers"]
        until(lambda: all("unavailable" not in issuer for issuer in issuers()), "`ca show` has nothing to say any more")
        remote.kill()
        refused = plane.cli("ca", "roll", "prepare", "--csr-out", scratch("csr") / "none.csr", ok=False)
        assert refused.error()["code"] == "issuer_unavailable" and "HSM" in refused.error()["message"], refused
        plane.stop()
    remote.close()


def warnings(plane) -> list[str]:
    checked = run(ENLIST, "server", "check", "--dir", plane.dir, "--json", env=plane.env)
    assert checked.code == 0, checked
    return checked.json()["warnings"]


def uri(vault: hsm.Token, label: str, **changed) -> str:
    parts = {"token": vault.label, "object": label, "module": vault.module, "pin": f"file:{vault.pin_file}"} | changed
    return "pkcs11:token={token};object={object}?module-path={module}&pin-source={pin}".format(**parts)


def test_the_root_key_may_be_in_an_hsm_on_the_offline_machine():
    """A new root whose key is in an HSM signs issuers and a list there, and openssl verifies what came of it."""
    token = hsm.Token("vault")
    token.make_key("EC:secp384r1", "root", "01")
    with ControlPlane() as plane:
        place = scratch("offline")
        key, root = rolls.keeper(plane)
        csr, answer = place / "next.csr", place / "answer.pem"
        plane.cli("ca", "roll", "prepare", "--new-root", "--csr-out", csr)
        signing = ("--root-key", key, "--root-cert", root, "--csr", csr, "--out", answer)
        made = run(ENLIST, "ca", "sign-root", *signing, "--new-root-key", uri(token, "root"), env=token.env)
        assert made.code == 0, made
        plane.cli("ca", "roll", "prepare", "--new-root", "--cert", answer)
        certificates = certs.certificates(answer.read_bytes())
        new_root = next(ca for ca in certificates if ca.issuer == ca.subject and ca.signature_hash_algorithm.name == "sha384")
        new_root.verify_directly_issued_by(new_root)
        root_file = place / "root.pem"
        root_file.write_bytes(certs.pem(new_root))
        # An issuer below it, signed with the key in the token.
        request, out = place / "issuer.csr", place / "issuer.pem"
        request.write_text(certs.csr(certs.ec_key()))

        def sign(key_uri: str, target=out):
            flags = ("--root-key", key_uri, "--root-cert", root_file, "--csr", request, "--out", target, "--json")
            return run(ENLIST, "ca", "sign-intermediate", *flags, env=token.env)

        assert sign(uri(token, "root")).code == 0
        assert certs.verifies(out.read_bytes(), root_file.read_bytes())
        crl = place / "list.pem"
        flags = ("--root-key", uri(token, "root"), "--root-cert", root_file, "--issuer", out, "--out", crl)
        listed = run(ENLIST, "ca", "sign-crl", *flags, env=token.env)
        assert listed.code == 0, listed
        assert certs.x509.load_pem_x509_crl(crl.read_bytes()).is_signature_valid(new_root.public_key())
        # What is wrong is named, and nothing is written.
        other = place / "none.pem"
        bad_pin = secret(place / "pin", "0000-wrong")
        for wrong, word, remedy, exit_code in (
            (uri(token, "nothing"), "no private key labelled 'nothing'", "object=", 1),
            (uri(token, "root", token="other"), "no token labelled 'other'", "token=", 1),
            (uri(token, "root", module="/nonexistent.so"), "cannot be loaded", "module-path=", 1),
            (uri(token, "root", pin=f"file:{bad_pin}"), "refused the PIN", "tokens lock after a few", 1),
            (uri(token, "root", pin="file:/nonexistent"), "cannot be read", "pin-source=file:PATH", 1),
            ("pkcs11:token=vault;object=root?pin-value=5678", "pin-value", "pin-source", 2),
            ("pkcs11:token=vault", "is missing", "pkcs11:", 2),
        ):
            done = sign(wrong, other)
            assert done.code == exit_code and word in done.error()["message"] and remedy in done.error()["hint"], done
            assert not other.exists()
        token.make_key("EC:prime256v1", "another", "02")
        done = sign(uri(token, "another"), other)
        assert done.code == 2 and done.error()["code"] == "ca_unusable", done

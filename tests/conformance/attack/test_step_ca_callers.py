"""Whoever may ask for a certificate, before a domain whose certificates a step-ca signs: one host does not decide whether step-ca is well,
keeps no other host waiting, and leaves nothing behind.
"""

import collections
import concurrent.futures
import contextlib
import ipaddress
import json
import threading
import time

import pytest
import step_cas
from false_step_ca import FalseStepCa, ca, unpadded
from machine import secret, until
from plane import ControlPlane

import certs
import native
from certs import x509

def test_a_provisioner_key_that_others_may_read_is_refused(false):
    """Key and password file: whoever has them can have certificates signed by step-ca. No domain is made."""
    password = secret(false.base / "password", "open-sesame")
    for file in (false.key, password):
        for mode in (0o640, 0o604, 0o620):
            file.chmod(mode)
            plane = ControlPlane(init=(*false.init(), "--step-ca-password-file", password))
            done = plane.init_command()
            assert (done.code, done.error()["code"]) == (1, "key_exposed"), done
            assert f"chmod 600 {file}" in done.error()["hint"] and not plane.dir.exists(), done
        file.chmod(0o600)
    # Another file in its place is named as what it is.
    public = {name: value for name, value in json.loads(false.key.read_text()).items() if name != "d"}
    false.key.write_text(json.dumps(public))
    false.key.chmod(0o644)
    done = ControlPlane(init=false.init()).init_command()
    assert (done.code, done.error()["code"]) == (2, "step_ca_unusable") and "the public key" in done.error()["message"], done


REFUSES = "refuse-this.example"
"""A name that the stand-in refuses with 403, as step-ca does for reasons of its own."""


@pytest.fixture
def false(programs):
    standing_in = FalseStepCa()
    yield standing_in
    standing_in.close()


@contextlib.contextmanager
def behind(false):
    plane = ControlPlane(init=false.init()).found()
    try:
        plane.start()
        plane.policy("failures.per_minute", "0")
        step_cas.until_ready(plane)
        yield plane
    finally:
        plane.close()


@pytest.fixture
def plane(false):
    with behind(false) as running:
        yield running


def named(*names, key=None) -> str:
    """A CSR with subject alternative names."""
    return certs.csr(key or certs.ec_key(), "x", extensions=(x509.SubjectAlternativeName(list(names)),))


DNS, MAIL, URI = x509.DNSName, x509.RFC822Name, x509.UniformResourceIdentifier
MISREAD = {
    "an address as a DNS name": DNS("10.0.0.1"),
    "a mail address as a DNS name": DNS("a@b.example"),
    "a URI as a DNS name": DNS("https://x/y"),
    "no DNS name": DNS(""),
    "no mail address": MAIL("not-a-mail"),
    "no URI": URI("foo"),
    "half an address": URI("http://[::1"),
    "half an escape": URI("spiffe://%zz"),
}


def test_a_csr_whose_names_step_ca_would_misread_is_never_sent(programs):
    """`csr_invalid` to the one who sent it, no intent, and step-ca is as well as before. What it takes is signed, by a real one."""
    with step_cas.running() as real, step_cas.control_plane(real) as plane:
        step_cas.until_ready(plane)
        for what, name in MISREAD.items():
            minted = plane.mint()
            with native.door(plane) as door:
                refusal = door.refused(minted["token"], named(name))
            assert (refusal.code, refusal.status.name) == ("csr_invalid", "INVALID_ARGUMENT"), (what, refusal)
            assert plane.token_state(minted["token_id"]) == "unused"
        assert plane.audit("issuance.begun") == [] and step_cas.reasons(plane) == []
        taken = (
            DNS("host-1"),
            DNS("*.example.org"),
            MAIL("a@b.example"),
            URI("spiffe://a.example/x/%7Ey"),
            URI("urn:uuid:0-1"),
            URI("https://example.org:8443/x?y=%20#z"),
            x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
            x509.IPAddress(ipaddress.ip_address("2001:db8::1")),
        )
        for names in ((one,) for one in taken):
            with native.door(plane) as door:
                door.enroll(plane.token(), named(*names))


@pytest.mark.parametrize("status", [400, 403])
def test_a_refused_csr_says_nothing_of_step_ca(plane, false, status):
    """For the same with a CSR of the control plane's own is signed: `csr_invalid`, `/readyz` stays 200, what was signed instead is
    revoked, and nobody has its key."""
    refuses(false, status)
    minted = plane.mint()
    with native.door(plane) as door:
        assert door.refused(minted["token"], named(DNS(REFUSES))).code == "csr_invalid"
    assert plane.api("GET", "/readyz").status == 200 and step_cas.reasons(plane) == []
    assert plane.token_state(minted["token_id"]) == "unused" and plane.nodes() == []
    (ended,) = plane.audit("issuance.ended")
    assert ended["outcome"] == "not_recorded"
    until(lambda: certs.serial(false.last) in false.revoked, "what was signed instead is revoked")
    native.enroll(plane, minted["token"])


def refuses(false, status: int) -> None:
    """Requests whose CSR holds a certain name, as step-ca does."""
    sign = false.sign

    def signed(body: dict) -> tuple[int, bytes]:
        request = x509.load_pem_x509_csr(body["csr"].encode())
        with contextlib.suppress(x509.ExtensionNotFound):
            names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            if REFUSES in names.get_values_for_type(x509.DNSName):
                return status, b'{"message":"no"}'
        return sign(body)

    false.sign = signed


def test_one_credential_with_a_refused_csr_holds_up_nobody(plane, false):
    """Two requests at once and a rest after each: everybody else enrolls meanwhile, and the audit trail grows by a few lines."""
    refuses(false, 403)
    token, bad, stop = plane.token(), named(DNS(REFUSES)), threading.Event()
    seen = collections.Counter()

    def attack() -> None:
        with native.door(plane) as door:
            while not stop.is_set():
                seen[door.refused(token, bad).code] += 1

    began = time.monotonic()
    threads = [threading.Thread(target=attack, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            native.enroll(plane)
            assert plane.api("GET", "/readyz").status == 200
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    took = time.monotonic() - began
    assert set(seen) <= {"csr_invalid", "overloaded"}, seen
    begun = len(plane.audit("issuance.begun")) - 8
    assert begun <= took + 4, (begun, took)


def test_a_caller_that_goes_away_leaves_no_intent(plane, false):
    """The request is carried on without it: the intent has its result, and step-ca revokes nothing that it has not signed."""
    node = native.enroll(plane)
    node.confirm()
    false.behave = lambda order: time.sleep(0.2)
    with node.door() as door:
        for _ in range(40):
            call = door.stub.Renew.future(native.pb.RenewRequest(csr=certs.good_csr()), timeout=30)
            time.sleep(0.06)
            call.cancel()
    until(lambda: step_cas.metric(plane, "step_ca_intents") == 0, "every intent has ended", 20)
    false.behave = lambda order: None
    assert plane.audit("issuance.lapsed") == []
    signed = {format(int(order["enlist"]["serial"], 16), "x") for order in false.orders}
    assert set(false.revoked) <= signed
    node.renewed().confirm()


def test_what_is_signed_for_a_replay_is_revoked(plane, false):
    """Two callers with one token, one key and one idempotency key: one certificate is on record, and the other one is revoked."""
    signed, together = [], threading.Barrier(2)

    def behave(order) -> None:
        order.update(serial=x509.random_serial_number())
        signed.append(order["serial"])
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(5)

    false.behave = behave
    csr, token = certs.good_csr(), plane.token()

    def attempt(_) -> str:
        with native.door(plane) as door:
            return door.enroll(token, csr, "the-same").cert_serial

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        (answer,) = set(pool.map(attempt, range(2)))
    (other,) = set(signed) - {int(answer, 16)}
    until(lambda: [int(serial, 16) for serial in false.revoked] == [other], "what is not on record is revoked")
    assert step_cas.metric(plane, "step_ca_intents") == 0


UNWANTED = {
    "a second use": x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH]),
    "a key that signs certificates": x509.KeyUsage(True, False, False, False, False, True, False, False, False),
    "a key that signs lists": x509.KeyUsage(True, False, False, False, False, False, True, False, False),
    "9 KiB": x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x04\x82\x24\x00" + bytes(9216)),
}


@pytest.mark.parametrize("what", [*UNWANTED, "an organization"])
def test_a_certificate_for_more_than_was_asked_for_is_not_accepted(plane, false, what):
    build = false.build

    def built(public, subject, extensions, use, *rest):
        if what == "an organization":
            subject = x509.Name([*subject, x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "x")])
        else:
            use, extensions = (None if what == "a second use" else use), [*extensions, UNWANTED[what]]
        return build(public, subject, extensions, use, *rest)

    false.build = built
    with native.door(plane) as door:
        assert door.refused(plane.token(), certs.good_csr()).code == "issuer_misbehaved"
    assert plane.nodes() == []
    false.build = build
    native.enroll(plane)


def test_more_intermediates_than_are_kept_have_an_alert_that_says_so(plane, false):
    """Sixteen that have not ended; those that are known go on signing."""
    first = None
    for _ in range(16):
        false.issuing = ca("False Intermediate", false.root_ca, 0)
        first = first or false.issuing
        native.enroll(plane)
    false.issuing = ca("False Intermediate", false.root_ca, 0)
    with native.door(plane) as door:
        assert door.refused(plane.token(), certs.good_csr()).code == "issuer_misbehaved"
    (alert,) = [one for one in plane.items("/v1/alerts") if one["kind"] == "issuer_misbehaved"]
    assert "intermediate" in alert["detail"] and "wait until one has ended" in alert["detail"], alert
    false.issuing = first
    native.enroll(plane)


def test_a_look_at_step_ca_stands_for_nobody(false):
    """Whatever signs what the control plane asks only to see whether step-ca is well, gets a certificate for no identity."""
    looks, sign = [], false.sign

    def signed(body: dict) -> tuple[int, bytes]:
        if "notAfter" not in body:
            looks.append(body)
        return sign(body)

    false.sign = signed
    with behind(false):
        until(lambda: looks, "it is looked at")
    claims = [json.loads(unpadded(look["ott"].split(".")[1])) for look in looks]
    assert {one["enlist"]["spiffe_id"] for one in claims} == {"spiffe://test.example/health-check"}

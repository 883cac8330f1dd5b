"""Machines that have recovery tokens, and machines that need them."""

import hashlib

import certs
import evidence
import native


BUNDLE = {
    "version",
    "node_id",
    "domain",
    "recovery_token",
    "recovery_profile_id",
    "recovery_url",
    "recovery_ca_pem",
    "issued_by",
    "issued_at",
    "expires_at",
    "audit_seq",
    "audit_hash",
}
"""What a repair bundle holds, and nothing else."""


def noted(grant):
    """A grant whose secret must not be found anywhere at the end."""
    if grant.token:
        evidence.token(grant.token)
    return grant


def provided(plane, kept: bool = True):
    """A machine that is well and has a recovery token: the machine and what it was given."""
    node = native.enroll(plane)
    grant = noted(node.confirm(recovery_wanted=True).recovery)
    if kept:
        node.confirm(recovery_kept=grant.token_id, recovery_wanted=True)
    return node, grant


def recovered(plane, token: str, key=None, **named) -> native.Node:
    """The machine that a recovery token is for, with its new certificate, which nobody has seen yet."""
    key = key or certs.ec_key()
    with native.door(plane) as connection:
        answer = connection.recover(token, certs.csr(key), **named)
    return native.Node(plane, answer, key)


def refused(plane, token: str, csr: str | None = None, **named) -> native.Refused:
    with native.door(plane) as connection:
        return connection.recovery_refused(token, certs.good_csr() if csr is None else csr, **named)


def evidence_of(bundle: dict):
    """What a repair bundle says of itself, as the agent sends it."""
    return native.pb.BundleEvidence(
        expires_at=bundle["expires_at"],
        audit_seq=bundle["audit_seq"],
        audit_hash=bundle["audit_hash"],
        recovery_profile_id=bundle["recovery_profile_id"],
        domain=bundle["domain"],
        issued_by=bundle["issued_by"],
        issued_at=bundle["issued_at"],
        recovery_url=bundle["recovery_url"],
        recovery_ca_sha256="sha256:" + hashlib.sha256(bundle["recovery_ca_pem"].encode()).hexdigest(),
    )

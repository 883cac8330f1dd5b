"""Rolling the intermediate, with the root's keeper on another machine."""

from machine import ENLIST, run, scratch


def signed(plane, csr):
    """What the root's keeper does."""
    place = scratch("root")
    key, root, out = place / "root.key", place / "root.pem", place / "int.pem"
    key.write_text(plane.founded["root_key_pem"])
    key.chmod(0o600)
    root.write_bytes(plane.bundle)
    done = run(
        ENLIST, "ca", "sign-intermediate", "--root-key", key, "--root-cert", root, "--csr", csr, "--out", out
    )
    assert done.code == 0, done
    return out


def prepare(plane):
    """Request out, certificate in: the certificate's file."""
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", "--csr-out", csr)
    certificate = signed(plane, csr)
    assert plane.cli("ca", "roll", "prepare", "--cert", certificate).json()["stage"] == "prepared"
    return certificate


def status(plane) -> dict:
    return plane.api("GET", "/v1/ca/roll").json()


def states(plane) -> list[str]:
    return sorted(issuer["state"] for issuer in plane.cli("ca", "show").json()["issuers"])

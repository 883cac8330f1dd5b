"""Rolling issuers and the root, with the root's keeper on another machine."""

from machine import ENLIST, run, scratch


def keeper(plane) -> tuple:
    """What the root's keeper has: the key and the certificate of the root that is active, as files."""
    place = scratch("root")
    key, root = place / "root.key", place / "root.pem"
    key.write_text(plane.founded["root_key_pem"])
    key.chmod(0o600)
    root.write_bytes(plane.bundle)
    return key, root


def signed(plane, csr):
    """What the root's keeper does with the CSRs of issuers."""
    key, root = keeper(plane)
    out = key.parent / "int.pem"
    done = run(
        ENLIST, "ca", "sign-intermediate", "--root-key", key, "--root-cert", root, "--csr", csr, "--out", out, env=plane.env
    )
    assert done.code == 0, done
    return out


def signed_root(plane, csr) -> tuple:
    """What the root's keeper does for a new root: what it sends back, and the new root's key."""
    key, root = keeper(plane)
    out, new_key = key.parent / "new.pem", key.parent / "new.key"
    arguments = ("--root-key", key, "--root-cert", root, "--csr", csr, "--new-root-key-out", new_key, "--out", out)
    done = run(ENLIST, "ca", "sign-root", *arguments, env=plane.env)
    assert done.code == 0, done
    return out, new_key


def prepare(plane, usage: str = "node"):
    """Request out, certificate in: the certificate's file."""
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", "--use", usage, "--csr-out", csr)
    certificate = signed(plane, csr)
    assert plane.cli("ca", "roll", "prepare", "--cert", certificate).json()["stage"] == "prepared"
    return certificate


def prepare_root(plane):
    """The same with a new root, whose key is the keeper's from now on: the file with root, cross-certificate and issuers."""
    csr = scratch("csr") / "next.csr"
    plane.cli("ca", "roll", "prepare", "--new-root", "--csr-out", csr)
    answer, key = signed_root(plane, csr)
    done = plane.cli("ca", "roll", "prepare", "--new-root", "--cert", answer).json()
    assert (done["stage"], done["new_root"]) == ("prepared", True), done
    return answer, key


def status(plane) -> dict:
    return plane.api("GET", "/v1/ca/roll").json()


def issuers(plane, usage: str = "node") -> list[dict]:
    """Those of a use, and those for both."""
    return [issuer for issuer in plane.cli("ca", "show").json()["issuers"] if issuer["use"] in (usage, "both")]


def states(plane, usage: str = "node") -> list[str]:
    return sorted(issuer["state"] for issuer in issuers(plane, usage))


def roots(plane) -> list[str]:
    """The states of the roots, the oldest first."""
    return [root["state"] for root in plane.cli("ca", "show").json()["roots"]]

"""TLS clients of others: whether they take a server for the control plane, by a bundle that a client was given."""

import fcntl
import functools
import pathlib
import subprocess

from machine import ROOT, missing, scratch, tool

SOURCE = pathlib.Path(__file__).parent / "tls_client" / "main.go"


@functools.cache
def go_client() -> pathlib.Path:
    """Go's TLS library in a program of a few lines, built once for all processes of tests."""
    built = ROOT / "target" / "tools" / "tls_client"
    built.parent.mkdir(parents=True, exist_ok=True)
    with (built.parent / "tls_client.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists() or built.stat().st_mtime < SOURCE.stat().st_mtime:
            try:
                done = subprocess.run(["go", "build", "-o", str(built), str(SOURCE)], capture_output=True, text=True)
            except FileNotFoundError:
                missing("go")
            assert done.returncode == 0, done.stderr
    return built


def _file(ca: bytes) -> pathlib.Path:
    file = scratch("ca") / "ca.pem"
    file.write_bytes(ca)
    return file


def openssl(port: int, ca: bytes) -> bool:
    arguments = ("-connect", f"127.0.0.1:{port}", "-CAfile", _file(ca), "-verify_return_error", "-verify_ip", "127.0.0.1")
    return "Verify return code: 0 (ok)" in tool("openssl", "s_client", *arguments, check=False).out


def curl(port: int, ca: bytes) -> bool:
    """Exit code 60 is curl's word for a certificate that it does not trust; anything else is no answer to the question."""
    done = tool("curl", "--silent", "--cacert", _file(ca), "--max-time", "30", f"https://127.0.0.1:{port}/healthz", check=False)
    assert done.code in (0, 52, 56, 60), done
    return done.code != 60


def go(port: int, ca: bytes) -> bool:
    done = tool(go_client(), f"127.0.0.1:{port}", "127.0.0.1", _file(ca), check=False)
    assert done.out.startswith(("accepted", "refused: tls: failed to verify certificate")), done
    return done.code == 0


CLIENTS = {"openssl": openssl, "curl": curl, "go": go}

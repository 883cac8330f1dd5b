"""A private key given by mistake stays where it is: commands that send a file look into it first."""

import socket

import pytest

import certs
from machine import ENLIST, run, scratch

COMMANDS = {
    "ca import-crl": ("ca", "import-crl", "--file"),
    "ca roll prepare": ("ca", "roll", "prepare", "--cert"),
    "ca roll prepare --new-root": ("ca", "roll", "prepare", "--new-root", "--cert"),
    "node import": ("node", "import", "--cert"),
}


def files() -> dict[str, bytes]:
    """Keys in every form that people have them in."""
    key, encoding, form = certs.ec_key(), certs.serialization.Encoding, certs.serialization.PrivateFormat
    none, sealed = certs.serialization.NoEncryption(), certs.serialization.BestAvailableEncryption(b"hush")
    pkcs8 = key.private_bytes(encoding.PEM, form.PKCS8, none)
    return {
        "pkcs8": pkcs8,
        "sec1": key.private_bytes(encoding.PEM, form.TraditionalOpenSSL, none),
        "encrypted": key.private_bytes(encoding.PEM, form.PKCS8, sealed),
        "openssh": key.private_bytes(encoding.PEM, form.OpenSSH, none),
        "der": key.private_bytes(encoding.DER, form.PKCS8, none),
        "beside a request": certs.csr(key).encode() + pkcs8,
        "without its first line": pkcs8.partition(b"\n")[2],
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_with_a_private_key_is_never_sent(programs, command):
    """Refused before there is a connection, with the path and what to do; nothing of the key is in the message."""
    place = scratch("key")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "s"))
        listener.listen()
        listener.setblocking(False)
        for name, content in files().items():
            file = place / "root.key"
            file.write_bytes(content)
            done = run(ENLIST, *COMMANDS[command], file, "--socket", place / "s", "--json")
            assert done.code == 2 and done.out == "", (name, done)
            error = done.error()
            assert error["code"] == ("usage" if name == "der" else "private_key_refused"), error
            assert str(file) in error["message"] and "nothing was sent" in error["message"] and error["hint"], error
            assert not any(line in done.err for line in content.decode("latin-1").splitlines() if len(line) > 30), done
            with pytest.raises(BlockingIOError):
                listener.accept()

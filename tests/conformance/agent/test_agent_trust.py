"""`enlist-agent enroll`: trust first, then the token."""

import socket
import threading

import pytest

import certs
from agents import enroll, listed
from certs import x509
from recorder import Recorder


def presented(plane) -> list[x509.Certificate]:
    from machine import tool

    out = tool("openssl", "s_client", "-connect", f"127.0.0.1:{plane.port}", "-showcerts").out
    return certs.certificates(out[out.index("-----BEGIN") :])


@pytest.mark.parametrize(
    "kind", ["ca_file", "root_pin", "intermediate_pin", "leaf_pin", "bare_hex", "with_colons", "upper_case"]
)
def test_every_kind_of_trust_is_enough(plane, place, kind):
    """A CA file, or the hash of any certificate of the presented chain, leaf included, in any spelling.

    Proves PROBE-22.
    """
    leaf, middle, root = (certs.fingerprint(cert) for cert in presented(plane))
    colons = ":".join(root[i : i + 2] for i in range(0, 64, 2))
    trust = {
        "ca_file": ("--ca-file", plane.dir / "ca" / "bundle.pem"),
        "root_pin": ("--ca-pin", "sha256:" + root),
        "intermediate_pin": ("--ca-pin", "sha256:" + middle),
        "leaf_pin": ("--ca-pin", "sha256:" + leaf),
        "bare_hex": ("--ca-pin", root),
        "with_colons": ("--ca-pin", colons),
        "upper_case": ("--ca-pin", colons.upper()),
    }[kind]
    done = enroll(plane, place / "a", token=plane.token(), trust=trust)
    assert done.code == 0, done
    assert listed(plane, place / "a")["state"] == "active"


def test_the_name_counts_unless_the_leaf_itself_is_pinned(plane, place):
    """By another name than its certificate has: refused with a root pin, taken with a leaf pin."""
    other = plane.url.replace("127.0.0.1", "127.0.0.2")
    with socket.create_server(("127.0.0.2", plane.port)) as listener:
        forward(listener, plane.port)
        minted = plane.mint()
        refused = enroll(plane, place / "a", token=minted["token"], server=other)
        assert refused.code != 0, refused
        assert plane.token_state(minted["token_id"]) == "unused"
        leaf = certs.fingerprint(presented(plane)[0])
        done = enroll(plane, place / "a", token=minted["token"], server=other, trust=("--ca-pin", leaf))
        assert done.code == 0, done


def forward(listener: socket.socket, port: int) -> None:
    def pump(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=pump, args=(client, server), daemon=True).start()
            threading.Thread(target=pump, args=(server, client), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def refused_before_the_token_leaves(
    plane, place, recorder: Recorder, server: str, trust: tuple, code: int | None = None, heard: bytes = b""
):
    token = plane.token()
    done = enroll(plane, place / "a", token=token, server=server, trust=trust)
    assert done.code not in (0, None), done
    assert code is None or done.code == code, done
    assert done.error()["code"] and done.error()["hint"], done
    assert token.encode() not in recorder.heard
    assert recorder.heard == heard, recorder.heard[:200]
    assert not (place / "a" / "identity" / "current").exists()
    return done


def test_a_wrong_pin_is_refused_before_the_token_leaves(plane, place):
    """An impostor hears a handshake and nothing more. Proves PROBE-22."""
    with Recorder() as impostor:
        refused_before_the_token_leaves(plane, place, impostor, f"https://{impostor.address}", ("--ca-pin", plane.pin))
        assert impostor.connections > 0


def test_a_wrong_ca_file_is_refused_before_the_token_leaves(plane, place):
    """The same with a CA file that did not sign the server."""
    with Recorder() as impostor:
        trust = ("--ca-file", plane.dir / "ca" / "bundle.pem")
        refused_before_the_token_leaves(plane, place, impostor, f"https://{impostor.address}", trust)


def test_system_roots_do_not_make_an_impostor_good(plane, place):
    """Only when explicitly chosen, and then they are really checked."""
    with Recorder() as impostor:
        refused_before_the_token_leaves(plane, place, impostor, f"https://{impostor.address}", ("--system-roots",))


def test_an_expired_certificate_is_refused_even_when_pinned(plane, place):
    """A pin names the certificate; its dates count all the same. It is asked for the time, to tell whether it is this host's
    clock that is wrong, and for nothing else."""
    with Recorder(not_after_days=-2) as impostor:
        pin = certs.fingerprint(impostor.certificate)
        asked = f"GET /healthz HTTP/1.1\r\nhost: {impostor.address}\r\nconnection: close\r\n\r\n".encode()
        server = f"https://{impostor.address}"
        done = refused_before_the_token_leaves(plane, place, impostor, server, ("--ca-pin", pin), heard=asked)
        assert done.error()["code"] == "server_tls_untrusted", done


def test_plain_http_is_refused_and_nothing_is_sent(plane, place):
    """Not even a connection is made."""
    with Recorder(tls=False) as plain:
        refused_before_the_token_leaves(plane, place, plain, f"http://{plain.address}", ("--ca-pin", plane.pin), 2)
        assert plain.connections == 0


def test_no_trust_is_refused_and_nothing_is_sent(plane, place):
    """Never trust on first use."""
    with Recorder() as impostor:
        done = refused_before_the_token_leaves(plane, place, impostor, f"https://{impostor.address}", (), 2)
        assert impostor.connections == 0
        assert "--ca-pin" in done.err


@pytest.mark.parametrize("pin", ["sha256:abcd", "", "z" * 64, "sha1:" + "a" * 40])
def test_a_pin_that_is_none_is_usage(plane, place, pin):
    """Exit 2, and nothing leaves."""
    minted = plane.mint()
    assert enroll(plane, place / "a", token=minted["token"], trust=("--ca-pin", pin)).code == 2
    assert plane.token_state(minted["token_id"]) == "unused"


def test_a_wrong_agent_toml_is_refused_before_the_token_leaves(plane, place):
    """A misspelt key is named, exit 2."""
    directory = place / "a"
    directory.mkdir(mode=0o700)
    (directory / "agent.toml").write_text('servr = ["https://x"]\n')
    minted = plane.mint()
    done = enroll(plane, directory, token=minted["token"])
    assert done.code == 2 and "servr" in done.err, done
    assert plane.token_state(minted["token_id"]) == "unused"

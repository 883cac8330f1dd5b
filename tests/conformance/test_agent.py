"""`enlist-agent enroll`: trust before the token leaves, files that are whole, and what is left for the daemon."""

import datetime
import hashlib
import os
import random
import socket
import ssl
import subprocess
import threading
import time
import tomllib

import certs
import evidence
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from machine import AGENT, PATIENCE, clean_env, run, scratch, until

SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))


def enroll(plane, directory, *options, token: str | None = None, server: str | None = None, trust=None, env=None):
    """Runs the agent with a token on its standard input, unless the options say otherwise."""
    trust = ("--ca-pin", plane.pin) if trust is None else trust
    given = () if token is None else ("--token", "-")
    done = run(
        AGENT, "enroll", "--server", server or plane.url, "--dir", directory, "--json", *trust, *given, *options,
        stdin=(token or "").encode(), env=env,
    )
    current = directory / "identity" / "current" / "key.pem"
    if current.exists():
        evidence.private_key("agent", current.read_bytes())
    return done


def serial_on_disk(directory) -> str:
    return certs.serial(certs.certificate((directory / "identity" / "current" / "cert.pem").read_bytes()))


def listed(plane, directory) -> dict:
    (node,) = [n for n in plane.nodes() if n["cert_serial"] == serial_on_disk(directory)]
    return node


def status(directory) -> dict:
    done = run(AGENT, "status", "--dir", directory, "--json")
    assert done.code == 0, done
    return done.json()


def state_of(plane, minted: dict) -> str:
    return plane.api("GET", f"/v1/tokens/{minted['token_id']}").json()["state"]


def test_an_agent_enrolls_and_confirms(plane, place):
    """One command: enrolled, stored, confirmed; the node is `active`."""
    done = enroll(plane, place / "a", token=plane.token())
    assert done.code == 0, done
    assert listed(plane, place / "a")["state"] == "active"


@pytest.mark.parametrize("source", ["flag", "stdin", "file", "environment", "config_file"])
def test_a_token_may_come_from_many_places(plane, place, source):
    """Flag, standard input, file, environment, or a file named in agent.toml."""
    token, options, env, stdin = plane.token(), [], {}, None
    if source == "flag":
        evidence.on_command_line.add(token)
        options = ["--token", token]
    elif source == "stdin":
        stdin = token
    elif source == "file":
        (place / "token").write_text(token + "\n")
        options = ["--token-file", place / "token"]
    elif source == "environment":
        env = {"ENLIST_AGENT_TOKEN": token}
    else:
        (place / "token").write_text(token + "\n")
        (place / "a").mkdir(mode=0o700)
        (place / "a" / "agent.toml").write_text(f'token_file = "{place}/token"\n')
    done = enroll(plane, place / "a", *options, token=stdin, env=env)
    assert done.code == 0, done
    assert listed(plane, place / "a")["state"] == "active"


def test_the_flag_beats_the_environment_beats_the_file(plane, place):
    """Flag, then environment, then file: only the first one named is spent."""
    flag, variable, file = (plane.mint() for _ in range(3))
    (place / "token").write_text(file["token"])
    env = {"ENLIST_AGENT_TOKEN": variable["token"], "ENLIST_AGENT_TOKEN_FILE": str(place / "token")}
    assert enroll(plane, place / "a", token=flag["token"], env=env).code == 0
    assert [state_of(plane, minted) for minted in (flag, variable, file)] == ["used", "unused", "unused"]
    assert enroll(plane, place / "b", env=env).code == 0
    assert [state_of(plane, minted) for minted in (flag, variable, file)] == ["used", "used", "unused"]


def presented(plane) -> list[x509.Certificate]:
    from machine import tool

    out = tool("openssl", "s_client", "-connect", f"127.0.0.1:{plane.port}", "-showcerts").out
    return certs.certificates(out[out.index("-----BEGIN") :])


@pytest.mark.parametrize("kind", ["ca_file", "root_pin", "intermediate_pin", "leaf_pin", "bare_hex", "with_colons", "upper_case"])
def test_every_kind_of_trust_is_enough(plane, place, kind):
    """A CA file, or the hash of any certificate of the presented chain, leaf included, in any spelling (PROBE-22 on this door)."""
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
        assert state_of(plane, minted) == "unused"
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


class Recorder:
    """A server that is not ours, and keeps every byte that a client tells it; over TLS what was decrypted."""

    def __init__(self, tls: bool = True, not_after_days: int = 10):
        self.heard, self.connections = b"", 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.context = None
        if tls:
            place = scratch("rec")
            key = certs.ec_key()
            now = datetime.datetime.now(datetime.UTC)
            name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "impostor")])
            import ipaddress

            builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            builder = builder.serial_number(5).not_valid_before(now - datetime.timedelta(days=30))
            builder = builder.not_valid_after(now + datetime.timedelta(days=not_after_days))
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
            self.certificate = builder.add_extension(names, False).sign(key, hashes.SHA256())
            files = certs.identity(place, key, certs.pem(self.certificate).decode())
            self.ca_file = files[0]
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*files)
            self.context.set_alpn_protocols(["h2", "http/1.1"])
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                client.settimeout(5)
                if self.context:
                    client = self.context.wrap_socket(client, server_side=True)
                while data := client.recv(65536):
                    self.heard += data
            except (OSError, ssl.SSLError):
                pass
            client.close()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_) -> None:
        self.listener.close()


def refused_before_the_token_leaves(plane, place, recorder: Recorder, server: str, trust: tuple, code: int | None = None):
    token = plane.token()
    done = enroll(plane, place / "a", token=token, server=server, trust=trust)
    assert done.code not in (0, None), done
    assert code is None or done.code == code, done
    assert done.error()["code"] and done.error()["hint"], done
    assert token.encode() not in recorder.heard
    assert recorder.heard == b"", recorder.heard[:200]
    assert not (place / "a" / "identity" / "current").exists()
    return done


def test_a_wrong_pin_is_refused_before_the_token_leaves(plane, place):
    """An impostor hears a handshake and nothing more."""
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
    """A pin names the certificate; its dates count all the same."""
    with Recorder(not_after_days=-2) as impostor:
        pin = certs.fingerprint(impostor.certificate)
        refused_before_the_token_leaves(plane, place, impostor, f"https://{impostor.address}", ("--ca-pin", pin))


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
    assert state_of(plane, minted) == "unused"


def test_refusals_keep_their_code(plane, place):
    """Exit 3 and the code as on the wire; 4 when nobody is there."""
    minted = plane.mint()
    plane.api("DELETE", f"/v1/tokens/{minted['token_id']}")
    done = enroll(plane, place / "a", token=minted["token"])
    assert (done.code, done.error()["code"]) == (3, "token_revoked"), done
    assert minted["token"] not in done.err + done.out
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"https://127.0.0.1:{closed.getsockname()[1]}"
    done = enroll(plane, place / "a", token=plane.token(), server=address)
    assert done.code == 4, done


def test_an_enrolled_host_leaves_the_token_unspent(plane, place):
    """Exit 0, `already enrolled`, nothing changed."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    before = serial_on_disk(place / "a")
    minted = plane.mint()
    done = run(AGENT, "enroll", "--server", plane.url, "--ca-pin", plane.pin, "--dir", place / "a", "--token", "-",
               stdin=minted["token"].encode())
    assert done.code == 0, done
    assert "already enrolled" in (done.out + done.err)
    assert state_of(plane, minted) == "unused" and serial_on_disk(place / "a") == before


def test_replace_enrolls_anew(plane, place):
    """`--replace` gives a new identity; the old generation is not the current one any more."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    before = serial_on_disk(place / "a")
    done = enroll(plane, place / "a", "--replace", token=plane.token())
    assert done.code == 0, done
    assert serial_on_disk(place / "a") != before
    assert listed(plane, place / "a")["state"] == "active"


def test_a_failed_replace_keeps_what_was_there(plane, place):
    """A refused token does not cost the host the identity it has."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    before = serial_on_disk(place / "a")
    done = enroll(plane, place / "a", "--replace", token="enroll_" + "C" * 43)
    assert done.code == 3, done
    assert serial_on_disk(place / "a") == before
    assert status(place / "a")["node_id"] == listed(plane, place / "a")["node_id"]


def test_status_tells_who_the_host_is(plane, place):
    """`status --json` has the promised fields, true ones."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    shown = status(place / "a")
    node = listed(plane, place / "a")
    fields = (
        "node_id spiffe_id state cert_serial cert_not_after renew_at channel last_renewal last_recovery recovery_ready "
        "clock_offset_ms endpoint_profile disk overlay vcluster ready reasons"
    )
    assert set(fields.split()) <= shown.keys(), set(fields.split()) - shown.keys()
    for field in ("node_id", "spiffe_id", "cert_serial", "cert_not_after"):
        assert shown[field] == node[field]


def test_status_without_an_identity_says_so(place):
    """No identity is a state, not a crash."""
    done = run(AGENT, "status", "--dir", place / "a", "--json")
    assert done.code in (0, 1), done
    assert "panicked" not in done.err
    if done.code == 0:
        assert done.json()["node_id"] is None


def test_files_have_the_promised_names_and_modes(plane, place):
    """Directory 0700, key 0600, the rest 0644; `current` is a symlink; leaf and chain in their own files."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    directory = place / "a"
    mode = lambda path: path.stat().st_mode & 0o777
    assert mode(directory) == 0o700
    current = directory / "identity" / "current"
    assert current.is_symlink() and not os.path.isabs(os.readlink(current))
    assert mode(current / "key.pem") == 0o600
    assert [mode(current / name) for name in ("cert.pem", "chain.pem", "bundle.pem")] == [0o644] * 3
    leaf = certs.certificates((current / "cert.pem").read_bytes())
    chain = certs.certificates((current / "chain.pem").read_bytes())
    assert len(leaf) == 1 and len(chain) == 1
    assert certs.certificates((current / "bundle.pem").read_bytes()) == certs.certificates(plane.bundle)
    assert certs.verifies((current / "cert.pem").read_bytes(), (current / "bundle.pem").read_bytes(), "-untrusted", current / "chain.pem")
    key = serialization_key((current / "key.pem").read_bytes())
    assert certs.public_der(key) == certs.public_der(leaf[0].public_key())
    leftovers = [p for p in directory.rglob("*") if p.is_file() and evidence_token(p)]
    assert not leftovers, leftovers


def serialization_key(pem: bytes):
    from cryptography.hazmat.primitives import serialization

    return serialization.load_pem_private_key(pem, None)


def evidence_token(path) -> bool:
    text = path.read_bytes()
    return any(token.encode() in text for token in evidence.tokens)


def test_agent_toml_is_left_for_the_daemon(plane, place):
    """`server` and its trust are added, other keys and comments stay."""
    directory = place / "a"
    directory.mkdir(mode=0o700)
    (directory / "agent.toml").write_text('# mine\ncheck_interval = "30s"\n\n[hosts]\n"cp.example" = "10.0.0.1"\n')
    assert enroll(plane, directory, token=plane.token()).code == 0
    text = (directory / "agent.toml").read_text()
    config = tomllib.loads(text)
    assert plane.url in config["server"]
    assert config["check_interval"] == "30s" and config["hosts"] == {"cp.example": "10.0.0.1"}
    assert "# mine" in text
    assert config.get("ca_pin", "").endswith(plane.pin.removeprefix("sha256:")) or config.get("ca_file")
    assert not any(token in text for token in evidence.tokens)


def test_a_wrong_agent_toml_is_refused_before_the_token_leaves(plane, place):
    """A misspelt key is named, exit 2."""
    directory = place / "a"
    directory.mkdir(mode=0o700)
    (directory / "agent.toml").write_text('servr = ["https://x"]\n')
    minted = plane.mint()
    done = enroll(plane, directory, token=minted["token"])
    assert done.code == 2 and "servr" in done.err, done
    assert state_of(plane, minted) == "unused"


def test_the_environment_configures_too(plane, place):
    """Every key also as ENLIST_AGENT_<KEY>; the directory by ENLIST_AGENT_DIR."""
    env = {
        "ENLIST_AGENT_DIR": str(place / "a"), "ENLIST_AGENT_SERVER": plane.url, "ENLIST_AGENT_CA_PIN": plane.pin,
        "ENLIST_AGENT_TOKEN": plane.token(),
    }
    done = run(AGENT, "enroll", "--json", env=env)
    assert done.code == 0, done
    assert listed(plane, place / "a")["state"] == "active"


def test_a_second_server_is_tried(plane, place):
    """A dead address first does not stop an enrollment."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"https://127.0.0.1:{closed.getsockname()[1]}"
    done = run(AGENT, "enroll", "--server", dead, "--server", plane.url, "--ca-pin", plane.pin, "--dir", place / "a",
               "--token", "-", "--json", stdin=plane.token().encode())
    assert done.code == 0, done


def test_sigkill_in_the_middle_leaves_nothing_half_done(plane):
    """Killed at random moments: the next run with the same token ends enrolled, as one node, with whole files."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for number in range(8):
        directory, token = scratch("kill") / "a", plane.token()
        before = {node["node_id"] for node in plane.nodes()}
        command = [str(AGENT), "enroll", "--server", plane.url, "--ca-pin", plane.pin, "--dir", str(directory), "--token", "-"]
        with evidence.log("agent-killed").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=clean_env())
            process.stdin.write(token.encode())
            process.stdin.close()
            time.sleep(chance.uniform(0.0, 0.15))  # the moment of the fault
            process.kill()
            process.wait()
        current = directory / "identity" / "current"
        if current.exists():
            cert = certs.certificate((current / "cert.pem").read_bytes())
            key = serialization_key((current / "key.pem").read_bytes())
            assert certs.public_der(cert.public_key()) == certs.public_der(key)
        done = enroll(plane, directory, token=token)
        assert done.code == 0, (number, done)
        assert len({node["node_id"] for node in plane.nodes()} - before) == 1
        assert listed(plane, directory)["state"] == "active", number


def test_two_agents_in_one_directory_make_one_identity(plane, place):
    """Started at the same time with two tokens: whole files, and the one on disk is active."""
    tokens = [plane.mint() for _ in range(2)]
    with evidence.log("agent-two").open("wb") as log:
        command = [str(AGENT), "enroll", "--server", plane.url, "--ca-pin", plane.pin, "--dir", str(place / "a"), "--token", "-"]
        processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=clean_env()) for _ in tokens]
        for process, minted in zip(processes, tokens):
            process.stdin.write(minted["token"].encode())
            process.stdin.close()
        codes = [process.wait(PATIENCE) for process in processes]
    assert 0 in codes
    assert listed(plane, place / "a")["state"] == "active"
    key = serialization_key((place / "a" / "identity" / "current" / "key.pem").read_bytes())
    leaf = certs.certificate((place / "a" / "identity" / "current" / "cert.pem").read_bytes())
    assert certs.public_der(key) == certs.public_der(leaf.public_key())


def test_an_unwritable_directory_costs_no_token(plane, place):
    """What cannot be stored is noticed before the token is sent."""
    (place / "file").write_text("in the way")
    minted = plane.mint()
    done = enroll(plane, place / "file" / "a", token=minted["token"])
    assert done.code in (1, 2), done
    assert state_of(plane, minted) == "unused"

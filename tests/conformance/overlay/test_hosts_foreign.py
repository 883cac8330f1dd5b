"""A WireGuard that nobody here wrote, configured from what the plfm API answers, exchanges packets with an agent."""

import base64
import json
import signal
import subprocess

import pytest

import certs
import evidence
from machine import PATIENCE, need, scratch, until
from namespaces import Overlay, inside, outer, private_run, url


@pytest.fixture
def overlay():
    with Overlay(init=("--door", "plfm")) as made:
        yield made


class ForeignHost:
    """wireguard-go and curl in a namespace of the underlay, instead of an agent."""

    def __init__(self, overlay):
        self.overlay, self.dir = overlay, scratch("foreign")
        self.number = next(overlay.underlay.numbers)
        self.namespace = overlay.underlay.attach(self.number, "4")
        (self.dir / "ca.pem").write_bytes(overlay.plane.bundle)
        private = self.wg("genkey")
        self.private = self.dir / "private"
        self.private.touch(mode=0o600)
        self.private.write_text(private + "\n")
        evidence.key("wireguard", base64.b64decode(private))
        self.public = self.wg("pubkey", stdin=private)
        self.process: subprocess.Popen | None = None

    def wg(self, *words, stdin: str = "") -> str:
        return subprocess.run(["wg", *words], input=stdin, capture_output=True, text=True, check=True).stdout.strip()

    def curl(self, method: str, path: str, body=None, certificate: bool = False) -> dict:
        command = [*inside(self.namespace), "curl", "-sS", "--fail-with-body", "-X", method, "--cacert", self.dir / "ca.pem"]
        if certificate:
            command += ["--cert", self.dir / "cert.pem", "--key", self.dir / "key.pem"]
        if body is not None:
            command += ["-H", "Content-Type: application/json", "-d", "@-"]
        done = subprocess.run(
            [*map(str, command), url() + path], input=json.dumps(body), capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    def enroll(self) -> "ForeignHost":
        key, csr = self.dir / "key.pem", self.dir / "csr.pem"
        subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True)
        subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=foreign", "-out", csr], check=True)
        evidence.private_key("foreign", key.read_bytes())
        self.answer = self.curl(
            "POST",
            "/v1/hosts/enroll",
            {
                "enrollment_token": self.overlay.plane.token(),
                "underlay_endpoint": {"ipv4": outer(self.number, "4"), "port": 51820},
                "hardware_facts": {"cpu_cores": 1, "memory_bytes": 1, "disk_bytes": 1, "arch": "x86_64"},
                "wireguard_public_key": self.public,
                "mtls_csr": csr.read_text(),
            },
        )
        (self.dir / "cert.pem").write_text(self.answer["mtls_cert"])
        self.id = self.answer["host_id"]
        self.curl("POST", f"/v1/hosts/{self.id}/confirm-enrollment", {"status": "ok"}, certificate=True)
        return self

    def up(self) -> "ForeignHost":
        """The interface, from the answer and nothing else."""
        config = self.curl("GET", f"/v1/hosts/{self.id}/overlay", certificate=True)["overlay_config"]
        lines = ["[Interface]", f"PrivateKey = {self.private.read_text().strip()}", f"ListenPort = {config['listen_port']}"]
        for peer in config["peers"]:
            lines += ["[Peer]", f"PublicKey = {peer['public_key']}", f"AllowedIPs = {', '.join(peer['allowed_ips'])}"]
            lines += [f"Endpoint = {peer['endpoint']}"] if peer["endpoint"] else []
        file = self.dir / "wg.conf"
        file.touch(mode=0o600)
        file.write_text("\n".join(lines) + "\n")
        log = evidence.log("wireguard-go")
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [*inside(self.namespace), *private_run(), "wireguard-go", "-f", "wg7"], stdout=out, stderr=out
            )
        until(lambda: self.beside("wg", "show", "wg7").returncode == 0, f"wireguard-go runs: {log.read_text()}")
        mtu, address = str(config["mtu"]), config["host_overlay_ipv6"]
        for command in (
            ("wg", "setconf", "wg7", str(file)),
            ("ip", "link", "set", "wg7", "mtu", mtu, "up"),
            ("ip", "-6", "addr", "add", f"{address}/48", "dev", "wg7", "nodad"),
        ):
            done = self.beside(*command)
            assert done.returncode == 0, (command, done.stderr)
        self.address = address
        return self

    def beside(self, *command) -> subprocess.CompletedProcess:
        words = ["nsenter", "-t", str(self.process.pid), "-n", "-m", *command]
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def close(self) -> None:
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def test_wireguard_go_exchanges_packets_with_an_agent(overlay):
    """Proves PLFM-17, PLFM-19, PLFM-33. Both directions; and no more once the foreign host is revoked."""
    for command in ("wireguard-go", "wg", "curl", "openssl"):
        need(command)
    one, other = overlay.joined("4", "46")
    foreign = ForeignHost(overlay)
    try:
        foreign.enroll().up()
        for host in (one, other):
            host.wait_up(2)
            assert host.shown()[foreign.public]["allowed_ips"] == f"{foreign.address}/128"
            host.wait_pings(foreign.address)
            there = lambda: foreign.beside("ping", "-6", "-n", "-c", "1", "-W", "1", host.address).returncode == 0
            until(there, "the agent's host answers wireguard-go")
        assert certs.certificates(foreign.answer["mtls_cert"])
        overlay.plane.cli("node", "revoke", foreign.id, "--reason", "test")
        for host in (one, other):
            host.wait_up(1)
            assert not host.pings(foreign.address)
        assert foreign.beside("ping", "-6", "-n", "-c", "2", "-W", "1", one.address).returncode != 0
    finally:
        foreign.close()

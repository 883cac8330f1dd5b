"""A real step-ca beside the control plane: made by `step ca init`, with the provisioner that the commands and the template of
docs/step-ca.md make."""

import contextlib
import json
import os
import pathlib
import re
import subprocess

import evidence
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.keywrap import aes_key_unwrap
from daemons import lasting_port
from false_step_ca import unpadded
from machine import ROOT, clean_env, need, scratch, secret, until
from plane import ControlPlane

PROVISIONER = "enlist"
PASSWORD = "open-sesame-step-ca"


def given(fence: str) -> str:
    """What the documentation gives, word for word."""
    page = (ROOT / "docs" / "step-ca.md").read_text()
    (found,) = re.findall(rf"```{fence}\n(.*?)```", page, re.DOTALL)
    return found


class StepCa:
    """One that can be started, killed and brought back at the same address."""

    def __init__(self, **claims: str):
        self.base = scratch("step")
        self.port = lasting_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.password = secret(self.base / "password", PASSWORD)
        self.process: subprocess.Popen | None = None
        need("step-ca")
        made = self.step(
            *("ca", "init", "--name", "test", "--dns", "127.0.0.1", "--address", f"127.0.0.1:{self.port}"),
            *("--provisioner", "admin", "--password-file", self.password, "--deployment-type", "standalone"),
        )
        assert made.returncode == 0, made
        self.root = self.base / "certs" / "root_ca.crt"
        self.config = self.base / "config" / "ca.json"
        (self.base / "enlist.tpl").write_text(given("json template"))
        made = self.shell(given("sh provisioner"))
        assert made.returncode == 0, made
        self.key, self.key_password = self.base / "enlist.jwk", self.base / "pw"
        evidence.token(self.key_password.read_text().strip())
        evidence.key("provisioner", private_number(json.loads(self.key.read_text()), self.key_password.read_bytes().strip()))
        limits = {"minTLSCertDuration": "5s", **claims}
        self.edit(lambda provisioner: provisioner["claims"].update(limits))

    def shell(self, script: str) -> subprocess.CompletedProcess:
        """Commands of the documentation, run where step-ca's configuration is."""
        env = clean_env({"STEPPATH": str(self.base), "PATH": f"{pathlib.Path(need('step')).parent}:{os.environ['PATH']}"})
        command = ["sh", "-e", "-c", script]
        return subprocess.run(
            command, cwd=self.base, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False
        )

    def step(self, *arguments) -> subprocess.CompletedProcess:
        command = [need("step"), *map(str, arguments)]
        env = clean_env({"STEPPATH": str(self.base)})
        return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)

    def edit(self, change) -> None:
        """Changes the provisioner of the control plane, for the next start."""
        config = json.loads(self.config.read_text())
        (provisioner,) = [one for one in config["authority"]["provisioners"] if one["name"] == PROVISIONER]
        change(provisioner)
        self.config.write_text(json.dumps(config))

    def start(self, prefix: tuple = (), env: dict | None = None) -> "StepCa":
        self.err = evidence.log("step-ca")
        command = [*prefix, need("step-ca"), str(self.config), "--password-file", str(self.password)]
        with self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                env=clean_env({"STEPPATH": str(self.base), **(env or {})}),
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
            )
        until(lambda: "Serving HTTPS" in self.err.read_text(), "step-ca serves")
        return self

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def init(self, **changed) -> tuple:
        """The flags of `server init`."""
        given = {
            "url": self.url,
            "root": self.root,
            "provisioner": PROVISIONER,
            "key": self.key,
            "password-file": self.key_password,
            **changed,
        }
        flags = [part for name, value in given.items() if value for part in (f"--step-ca-{name}", value)]
        return ("--issuer", "step-ca", *flags)

    def log(self) -> str:
        return self.err.read_text(errors="replace")

    def signed_serials(self) -> list[str]:
        """What its log since the last start says that it signed."""
        return [format(int(number), "x") for number in re.findall(r'serial[" =:]+(\d{20,})', self.log())]


def private_number(jwe: dict, password: bytes) -> bytes:
    """Of a key as `step crypto jwk create` writes it: PBES2-HS256+A128KW around AES-GCM."""
    header = json.loads(unpadded(jwe["protected"]))
    salt = header["alg"].encode() + b"\0" + unpadded(header["p2s"])
    derived = PBKDF2HMAC(SHA256(), 16, salt, header["p2c"]).derive(password)
    content_key = aes_key_unwrap(derived, unpadded(jwe["encrypted_key"]))
    sealed = unpadded(jwe["ciphertext"]) + unpadded(jwe["tag"])
    jwk = json.loads(AESGCM(content_key).decrypt(unpadded(jwe["iv"]), sealed, jwe["protected"].encode()))
    return unpadded(jwk["d"])


@contextlib.contextmanager
def control_plane(step_ca: StepCa, start: bool = True, **changed):
    """A domain whose nodes have their certificates from this step-ca."""
    plane = ControlPlane(init=step_ca.init(**changed)).found()
    try:
        if start:
            plane.start()
            plane.policy("failures.per_minute", "0")
        yield plane
    finally:
        plane.close()


@contextlib.contextmanager
def running(**claims):
    step_ca = StepCa(**claims).start()
    try:
        yield step_ca
    finally:
        step_ca.kill()


def reasons(plane) -> list[str]:
    return plane.api("GET", "/readyz").json()["reasons"]


def until_ready(plane) -> None:
    until(lambda: reasons(plane) == [], "the control plane is ready")


def until_unavailable(plane) -> None:
    until(lambda: reasons(plane) == ["issuer_unavailable"], "the issuer is unavailable")


def shown(plane) -> dict:
    """The step-ca in `ca show`."""
    (issuer,) = [one for one in plane.api("GET", "/v1/ca").json()["issuers"] if one["kind"] == "step-ca"]
    return issuer


def metric(plane, name: str) -> float:
    text = plane.api("GET", "/metrics").body.decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"enlist_{name}"))


def scratch_file(name: str, text: str) -> pathlib.Path:
    place = scratch("stepf") / name
    place.write_text(text)
    return place

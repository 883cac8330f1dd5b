"""A control plane of its own for a test: founded, run, asked, stopped, killed."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess

import evidence
from machine import ENLIST, PATIENCE, Done, clean_env, run, scratch, until

STOP_LIMIT = 10.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the operator socket."""

    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    """A whole HTTP answer."""

    def __init__(self, response: http.client.HTTPResponse):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        try:
            return self.json()["error"]["code"]
        except (ValueError, KeyError, TypeError):
            return None

    def __repr__(self) -> str:
        return f"<{self.status} {dict(self.headers)} {self.body[:600]!r}>"


class ControlPlane:
    start_patience = PATIENCE

    def __init__(self, domain: str = "test.example", init: tuple = (), kek: str | None = None, env=None):
        self.base = scratch("cp")
        self.dir = self.base / "d"
        self.kek_file = self.base / "kek"
        self.kek = kek or f"file:{self.kek_file}"
        self.domain, self.init_arguments, self.env = domain, init, env or {}
        self.process: subprocess.Popen | None = None
        self.founded: dict = {}
        self.url = ""
        self.prefix: tuple = ()

    def found(self) -> "ControlPlane":
        done = self.init_command()
        assert done.code == 0, done
        self.founded = done.json()
        if self.founded.get("root_key_pem"):
            evidence.private_key("root", self.founded["root_key_pem"].encode())
        if self.kek_file.exists():
            evidence.key("kek", kek_bytes(self.kek_file.read_bytes()))
        return self

    def init_command(self) -> Done:
        return run(
            ENLIST,
            "server",
            "init",
            "--dir",
            self.dir,
            "--domain",
            self.domain,
            "--kek",
            self.kek,
            "--listen",
            "127.0.0.1:0",
            "--json",
            *self.init_arguments,
            env=self.env,
        )

    def start(self, *arguments, env: dict | None = None) -> "ControlPlane":
        self.launch(*arguments, env=env)
        until(self.ready_line, "the ready line was written", self.start_patience)
        self.url = self.ready_line().split()[1]
        return self

    def launch(self, *arguments, env: dict | None = None) -> None:
        """Starts it without waiting for anything."""
        self.out, self.err = evidence.log("server-out"), evidence.log("server-err")
        command = [*map(str, self.prefix), str(ENLIST), "server", "run", "--dir", str(self.dir), *map(str, arguments)]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command, env=clean_env({**self.env, **(env or {})}), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        evidence.note_arguments(self.process.pid)

    def ready_line(self) -> str | None:
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log()}"
        lines = self.out.read_text().splitlines(keepends=True)
        return next((line for line in lines if line.startswith("ready https://") and line.endswith("\n")), None)

    def log(self) -> str:
        return self.err.read_text(errors="replace")[-4000:]

    def run_to_end(self, *arguments, env: dict | None = None) -> Done:
        """For starts that must be refused."""
        return run(ENLIST, "server", "run", "--dir", self.dir, *arguments, env={**self.env, **(env or {})})

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def bundle(self) -> bytes:
        return (self.dir / "ca" / "bundle.pem").read_bytes()

    @property
    def pin(self) -> str:
        return self.founded["ca_pin"]

    # Asking.

    def cli(self, *arguments, ok: bool = True, stdin: bytes = b"", env: dict | None = None) -> Done:
        done = run(ENLIST, *arguments, "--dir", self.dir, "--json", stdin=stdin, env={**self.env, **(env or {})})
        assert not ok or done.code == 0, done
        return done

    def api(self, method: str, path: str, body=None, headers: dict | None = None) -> Answer:
        """One request on the operator socket, as the local platform-admin."""
        connection = UnixConnection(str(self.dir / "operator.sock"), PATIENCE)
        return ask(connection, method, path, body, headers)

    def https(self, method: str, path: str, body=None, headers=None, certificate=None, timeout=PATIENCE) -> Answer:
        """One request on the TLS port."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=timeout, context=self.context(certificate)
        )
        return ask(connection, method, path, body, headers)

    def context(self, certificate=None) -> ssl.SSLContext:
        """Trusts the domain and nothing else; `certificate` is (cert file, key file)."""
        context = ssl.create_default_context(cadata=self.bundle.decode())
        if certificate:
            context.load_cert_chain(*map(str, certificate))
        return context

    def pages(self, path: str):
        """The pages of a list, one after the other."""
        cursor = None
        while True:
            join = "&" if "?" in path else "?"
            page = self.api("GET", path + (f"{join}cursor={cursor}" if cursor else "")).json()
            yield page
            cursor = page["next_cursor"]
            if not cursor:
                return

    def items(self, path: str) -> list[dict]:
        return [item for page in self.pages(path) for item in page["items"]]

    def mint(self, **fields) -> dict:
        answer = self.api("POST", "/v1/tokens", fields)
        assert answer.status == 201, answer
        minted = answer.json()
        evidence.token(minted["token"])
        return minted

    def token(self, **fields) -> str:
        return self.mint(**fields)["token"]

    def token_state(self, token_id: str) -> str:
        return self.api("GET", f"/v1/tokens/{token_id}").json()["state"]

    def nodes(self) -> list[dict]:
        return self.items("/v1/nodes?limit=1000")

    def node(self, node_id: str) -> dict:
        answer = self.api("GET", f"/v1/nodes/{node_id}")
        assert answer.status == 200, answer
        return answer.json()

    def audit(self, event_type: str | None = None) -> list[dict]:
        wanted = f"&event_type={event_type}" if event_type else ""
        return self.items(f"/v1/audit?limit=1000{wanted}")

    def policy(self, key: str, value: str) -> None:
        answer = self.api("PUT", "/v1/policy", {"key": key, "value": value})
        assert answer.status == 200, answer

    def status(self, field: str) -> int:
        """A number of /proc/PID/status, in KiB for memory."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(field + ":"))

    # Ending.

    def stop(self) -> None:
        """SIGTERM: must end by itself with 0 in time."""
        self.keep_metrics()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_LIMIT + 5)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"SIGTERM did not end it: {self.log()}") from None
        assert code == 0, f"ended with {code}: {self.log()}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self, *arguments) -> "ControlPlane":
        self.stop()
        return self.start(*arguments)

    def keep_metrics(self) -> None:
        try:
            evidence.log("metrics").write_bytes(self.api("GET", "/metrics").body)
        except OSError:
            pass

    def close(self) -> None:
        """Ends it however it is, and keeps what it leaves."""
        if self.process and self.process.poll() is None:
            self.keep_metrics()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_LIMIT + 5)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.dir.exists():
            evidence.keep_directory("dir", self.dir)

    def __enter__(self) -> "ControlPlane":
        return self.found().start()

    def __exit__(self, *_) -> None:
        self.close()


def kek_bytes(text: bytes) -> bytes:
    """The key inside a key-encryption key file: hex, base64 or raw."""
    import base64

    stripped = text.strip()
    if len(text) == 32:
        return text
    if len(stripped) == 64:
        return bytes.fromhex(stripped.decode())
    return base64.b64decode(stripped)


def ask(connection: http.client.HTTPConnection, method: str, path: str, body, headers: dict | None) -> Answer:
    sent = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        sent.setdefault("Content-Type", "application/json")
    try:
        try:
            connection.request(method, path, body, sent)
        except (BrokenPipeError, ssl.SSLEOFError):
            pass  # answered and closed before the body was sent: the answer is still there to be read
        return Answer(connection.getresponse())
    finally:
        connection.close()


def free_files() -> int:
    """How many descriptors this process may still open, after asking for all that it may have."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - len(os.listdir("/proc/self/fd"))

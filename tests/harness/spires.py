"""SPIRE's own server and agent beside a control plane: a trust domain, short SVIDs, and the socket that agents ask."""

import json
import os
import signal
import subprocess

import evidence
from daemons import lasting_port
from machine import PATIENCE, ROOT, clean_env, missing, run, scratch, until

SERVER, AGENT = ROOT / "target" / "tools" / "spire-server", ROOT / "target" / "tools" / "spire-agent"
DOMAIN = "spire.example"

SERVER_CONF = """
server {{
    bind_address = "127.0.0.1"
    bind_port = "{port}"
    socket_path = "{base}/server.sock"
    trust_domain = "{domain}"
    data_dir = "{base}/server"
    log_level = "INFO"
    ca_ttl = "24h"
    default_x509_svid_ttl = "{ttl}"
    agent_ttl = "1h"
    ratelimit {{ attestation = false, signing = false }}
}}
plugins {{
    DataStore "sql" {{ plugin_data {{ database_type = "sqlite3", connection_string = "{base}/server/datastore.sqlite3" }} }}
    NodeAttestor "join_token" {{ plugin_data {{}} }}
    KeyManager "memory" {{ plugin_data {{}} }}
}}
"""

AGENT_CONF = """
agent {{
    data_dir = "{base}/agent"
    log_level = "INFO"
    server_address = "127.0.0.1"
    server_port = "{port}"
    socket_path = "{socket}"
    trust_bundle_path = "{base}/bundle.pem"
    trust_domain = "{domain}"
    insecure_bootstrap = false
    experimental {{ sync_interval = "1s" }}
}}
plugins {{
    NodeAttestor "join_token" {{ plugin_data {{}} }}
    KeyManager "memory" {{ plugin_data {{}} }}
    WorkloadAttestor "unix" {{ plugin_data {{}} }}
}}
"""


class Spire:
    """A trust domain. Its agent gives SVIDs to processes of this user."""

    def __init__(self, domain: str = DOMAIN, ttl: str = "1h"):
        if not SERVER.exists() or not AGENT.exists():
            missing("SPIRE's server and agent (tests/setup builds them)")
        self.base, self.domain, self.port = scratch("spire"), domain, lasting_port()
        self.bundle, self.socket = self.base / "bundle.pem", self.base / "api.sock"
        (self.base / "server").mkdir()
        (self.base / "agent").mkdir()
        fields = dict(base=self.base, port=self.port, domain=domain, ttl=ttl, socket=self.socket)
        (self.base / "server.conf").write_text(SERVER_CONF.format(**fields))
        (self.base / "agent.conf").write_text(AGENT_CONF.format(**fields))
        self.server: subprocess.Popen | None = None
        self.agent: subprocess.Popen | None = None

    def started(self, program, *arguments, name: str) -> subprocess.Popen:
        log = evidence.log(name)
        with log.open("wb") as out:
            return subprocess.Popen(
                [str(program), *map(str, arguments)], env=clean_env({}), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def command(self, *arguments) -> str:
        done = run(SERVER, *arguments, "-socketPath", self.base / "server.sock")
        assert done.code == 0, done
        return done.out

    def start_server(self) -> "Spire":
        self.server = self.started(SERVER, "run", "-config", self.base / "server.conf", name="spire-server")
        healthy = lambda: run(SERVER, "healthcheck", "-socketPath", self.base / "server.sock").code == 0
        until(healthy, "SPIRE's server is healthy", 60)
        self.write_bundle()
        return self

    def write_bundle(self) -> None:
        part = self.base / "bundle.part"
        part.write_text(self.command("bundle", "show"))
        os.replace(part, self.bundle)

    def start_agent(self) -> "Spire":
        made = json.loads(self.command("token", "generate", "-spiffeID", f"spiffe://{self.domain}/host", "-output", "json"))
        token = made["value"]
        self.agent = self.started(
            AGENT, "run", "-config", self.base / "agent.conf", "-joinToken", token, name="spire-agent"
        )
        return self

    def wait_agent(self) -> "Spire":
        healthy = lambda: run(AGENT, "healthcheck", "-socketPath", self.socket).code == 0
        until(healthy, "SPIRE's agent is healthy", 60)
        return self

    def entry(self, path: str, ttl: int | None = None) -> str:
        """Processes of this user are given this SPIFFE id."""
        life = ("-x509SVIDTTL", str(ttl)) if ttl else ()
        out = self.command(
            "entry", "create", "-parentID", f"spiffe://{self.domain}/host", "-spiffeID", f"spiffe://{self.domain}{path}",
            "-selector", f"unix:uid:{os.getuid()}", *life, "-output", "json",
        )
        return json.loads(out)["results"][0]["entry"]["id"]

    def remove(self, entry: str) -> None:
        self.command("entry", "delete", "-entryID", entry)

    def fetched(self) -> tuple:
        """An SVID as files, for clients that are not agents: certificate, key."""
        place = scratch("svid")

        def fetch() -> bool:
            return run(AGENT, "api", "fetch", "x509", "-socketPath", self.socket, "-write", place).code == 0

        until(fetch, "SPIRE gives an SVID", 60)
        return place / "svid.0.pem", place / "svid.0.key"

    def stop_agent(self) -> None:
        end(self.agent)
        self.socket.unlink(missing_ok=True)

    def close(self) -> None:
        for process in (self.agent, self.server):
            end(process)

    def __enter__(self) -> "Spire":
        return self.start_server()

    def __exit__(self, *_) -> None:
        self.close()


def end(process: subprocess.Popen | None) -> None:
    if process and process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def accepted(spire, bundle=None, map: str | None = None) -> str:
    """The `[[spire]]` of a control plane that accepts the SVIDs."""
    text = f'\n[[spire]]\ntrust_domain = "{spire.domain}"\nbundle = "{bundle or spire.bundle}"\n'
    return text + (f'map = "{map}"\n' if map else "")


def accepts(plane, spire, bundle=None, map: str | None = None) -> None:
    """Writes it into the configuration of a control plane that does not run."""
    config = plane.dir / "enlist.toml"
    config.write_text(config.read_text() + accepted(spire, bundle, map))

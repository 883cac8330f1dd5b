"""docs/proxies.md: nginx, HAProxy and PostgreSQL let in nodes and check the revocation lists, with the configurations as the page has them."""

import http.server
import os
import re
import signal
import subprocess
import threading

import pytest

import evidence
import native
import rolls
from daemons import free_port
from machine import BIN, ROOT, clean_env, need, run, tool, until

PAGE = ROOT / "docs" / "proxies.md"
NAMES = ("app.example.org", "db.example.org")


def block(name: str, page=PAGE) -> str:
    (found,) = re.findall(rf"(?ms)^```\w+ {re.escape(name)}\n(.*?)^```$", page.read_text())
    return found


class Backend(http.server.BaseHTTPRequestHandler):
    """Answers with the name that the proxy has passed on."""

    def do_GET(self):
        answer = self.headers.get("X-Node", "").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Service:
    """One of the programs, configured by the page, on a port of its own."""

    program: str
    reloads_by: int

    def __init__(self, plane, place):
        need(self.program)
        self.plane, self.place, self.port = plane, place, free_port()
        self.shell(block("files"))
        self.fetch()
        subject = ",".join(f"DNS:{name}" for name in NAMES)
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9")
        own = ("-keyout", place / "app.key", "-out", place / "app-ca.pem", "-subj", "/CN=app")
        tool("openssl", "req", "-x509", "-new", *curve, *own, "-addext", f"subjectAltName={subject}")
        self.backend = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
        threading.Thread(target=self.backend.serve_forever, daemon=True).start()
        self.log = evidence.log(self.program)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def shell(self, commands: str) -> None:
        """Commands of the page, with this test's files and control plane in the place of the page's."""
        commands = self.here(commands).replace("https://cp.example.org:8443", self.plane.url)
        env = clean_env({"ENLIST_DIR": str(self.plane.dir), "PATH": f"{BIN}:{os.environ['PATH']}"})
        done = subprocess.run(["bash", "-euc", commands], env=env, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done

    def here(self, text: str) -> str:
        text = re.sub(r"/etc/(enlist|nginx|haproxy|postgresql)/", f"{self.place}/", text)
        return text.replace("127.0.0.1:8080", f"127.0.0.1:{self.backend.server_port}") if "8080" in text else text

    def fetch(self) -> None:
        self.shell(block("lists"))

    def reload(self) -> None:
        self.fetch()
        self.process.send_signal(self.reloads_by)

    def ask(self, files=None) -> str | None:
        """The name by which a client was let in."""
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]
        certificate = ("--cert", files[0], "--key", files[1]) if files else ()
        reached = ("--resolve", f"{NAMES[0]}:{self.port}:127.0.0.1", f"https://{NAMES[0]}:{self.port}/")
        done = tool("curl", "-sSf", "--cacert", self.place / "app-ca.pem", *certificate, *reached, check=False)
        return re.sub("^CN=", "", done.out) if done.code == 0 else None

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.backend.shutdown()


class Nginx(Service):
    program, reloads_by = "nginx", signal.SIGHUP

    def command(self) -> list:
        (self.place / "app.pem").write_bytes((self.place / "app-ca.pem").read_bytes())
        server = self.here(block("nginx")).replace("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl")
        user = "user root;\n" if os.geteuid() == 0 else ""
        temporary = "".join(f"{kind}_temp_path {self.place}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.place / "nginx.conf").write_text(
            f"{user}daemon off;\npid {self.place}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{server}}}\n"
        )
        return [need("nginx"), "-e", "stderr", "-p", str(self.place), "-c", str(self.place / "nginx.conf")]


class HaProxy(Service):
    program, reloads_by = "haproxy", signal.SIGUSR2

    def command(self) -> list:
        (self.place / "app.pem").write_bytes((self.place / "app-ca.pem").read_bytes() + (self.place / "app.key").read_bytes())
        text = self.here(block("haproxy")).replace("bind :443", f"bind 127.0.0.1:{self.port}")
        (self.place / "haproxy.cfg").write_text(text)
        return [need("haproxy"), "-W", "-db", "-f", str(self.place / "haproxy.cfg")]


class PostgreSql(Service):
    program, reloads_by = "postgres", signal.SIGHUP

    def command(self) -> list:
        # It refuses to run as root, whom a user namespace gives another number.
        self.prefix = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
        (self.place / "app.pem").write_bytes((self.place / "app-ca.pem").read_bytes())
        (self.place / "app.key").chmod(0o600)
        data = self.place / "data"
        tool(*self.prefix, need("initdb"), "-D", data, "-U", "postgres", "--locale=C", "-E", "UTF8", "-N", "-A", "trust")
        with (data / "postgresql.conf").open("a") as config:
            config.write(self.here(block("postgresql.conf")))
        (data / "pg_hba.conf").write_text(block("pg_hba.conf") + "local all postgres trust\n")
        (data / "pg_ident.conf").write_text(block("pg_ident.conf"))
        where = ("-D", str(data), "-k", str(self.place), "-p", str(self.port), "-h", "127.0.0.1")
        return [*self.prefix, need("postgres"), *where]

    def ask(self, files=None) -> str | None:
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]
        if not hasattr(self, "has_role"):
            local = ("-h", self.place, "-p", self.port, "-U", "postgres", "-c", "create role node login")
            until(lambda: tool("psql", *local, check=False).code == 0, "the role is there")
            self.has_role = True
        (target,) = re.findall(r"`psql '(.*?)'`", PAGE.read_text())
        if files:
            files[1].chmod(0o600)
            target = target.replace("client.pem", str(files[0])).replace("sslkey=key.pem", f"sslkey={files[1]}")
        else:
            target = target.replace("sslcert=client.pem sslkey=key.pem", "sslcert=/nonexistent")
        target = target.replace("db-ca.pem", str(self.place / "app-ca.pem"))
        query = "select substr(client_dn, 5) from pg_stat_ssl where pid = pg_backend_pid()"
        done = tool("psql", f"{target} hostaddr=127.0.0.1 port={self.port}", "-tAXc", query, check=False)
        return done.out.strip() if done.code == 0 else None


@pytest.fixture(params=[Nginx, HaProxy, PostgreSql])
def service(request, plane_of_its_own, place):
    made = request.param(plane_of_its_own, place)
    try:
        yield made
    finally:
        made.close()


def revoke(plane, node) -> None:
    assert plane.api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": "stolen"}).status == 200


def test_nodes_are_let_in_until_they_are_revoked_and_after_an_issuer_was_rolled(service):
    """The page's configurations and commands as they stand there, but for paths, ports and addresses."""
    plane = service.plane
    good, stolen = native.enroll(plane), native.enroll(plane)
    out = service.place / "alice"
    plane.cli("operator", "add", "alice", "--role", "viewer", "--out", out)
    operator = service.place / "alice.pem", out / "key.pem"
    operator[0].write_bytes((out / "cert.pem").read_bytes() + certificate_of_issuer(plane))

    until(lambda: service.ask(good.files) == good.id, "a node gets in")
    assert service.ask(stolen.files) == stolen.id
    assert service.ask() is None, "nobody gets in without a certificate"
    assert service.ask(operator) is None, "an operator is no node"

    revoke(plane, stolen)
    service.reload()
    until(lambda: service.ask(stolen.files) is None, "the revoked node is refused")
    until(lambda: service.ask(good.files) == good.id, "the other node gets in")

    rolls.prepare(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    newcomer = native.enroll(plane)
    service.reload()
    until(lambda: service.ask(newcomer.files) == newcomer.id, "a node with a certificate of the new issuer gets in")
    assert service.ask(good.files) == good.id
    assert service.ask(stolen.files) is None


def certificate_of_issuer(plane) -> bytes:
    (active,) = [issuer["id"] for issuer in rolls.issuers(plane) if issuer["state"] == "active"]
    return plane.cli("ca", "export", "--issuer", active).json()["pem"].encode()


def test_without_the_list_of_the_root_nobody_would_get_in(plane, place):
    """Why the page asks for all lists: openssl's check of a whole chain, which these programs make."""
    node = native.enroll(plane)
    for name, query in (("all", "format=pem"), ("issuer", f"format=pem&issuer={rolls.issuers(plane)[0]['id']}")):
        (place / name).write_bytes(plane.https("GET", f"/v1/ca/crl?{query}").body)
    (place / "root.pem").write_bytes(plane.bundle)
    (place / "chain.pem").write_text(node.answer.chain)
    (place / "leaf.pem").write_text(node.answer.certificate)
    trust = ("-CAfile", place / "root.pem", "-untrusted", place / "chain.pem", place / "leaf.pem")
    check = lambda lists: tool("openssl", "verify", "-crl_check_all", "-CRLfile", place / lists, *trust, check=False)  # noqa: E731
    assert check("all").code == 0, check("all")
    assert "unable to get certificate CRL" in check("issuer").err


def test_the_api_is_asked_with_curl_as_the_page_says(plane, place):
    """docs/operations.md: an operator's certificate and key."""
    page = ROOT / "docs" / "operations.md"
    plane.cli("operator", "add", "carol", "--role", "operator", "--out", place / "alice")
    commands = block("curl", page).replace("https://cp.example.org:8443", plane.url)
    done = subprocess.run(["bash", "-euc", commands], cwd=place, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done
    assert b'"items"' in done.stdout and b'"token_id"' in done.stdout, done
    token = re.search(rb'"token":"([^"]+)"', done.stdout).group(1).decode()
    evidence.token(token)
    assert run(BIN / "enlist", "token", "list", "--dir", plane.dir).out.count("unused") == 1

"""Prometheus reads what both programs serve, and the rules and the configuration in docs/deploy hold with it."""

import json
import re
import shutil
import subprocess
import urllib.request

import certs
import evidence
import native
from daemons import Daemon, free_port
from machine import ROOT, need, tool, until
from operators import make_key
from plane import ControlPlane

DEPLOY = ROOT / "docs" / "deploy"
RULES = DEPLOY / "prometheus-alerts.yml"
UNIT_TESTS = ROOT / "tests" / "prometheus" / "alerts.test.yml"


def remote(config: str) -> str:
    """The configuration with the job over TLS, which is a comment in it, in place of the first."""
    config, found = re.subn(r"(?m)^  - job_name: enlist\n(    .*\n)+", "", config)
    assert found == 1
    begin = config.index("  # - job_name: enlist\n")
    end = config.index("\n\n", begin)
    return config[:begin] + re.sub(r"(?m)^  # ", "  ", config[begin:end]) + config[end:]


def installed(place, plane=None, agent: int | None = None, local: int | None = None):
    """A directory as the comments in the files say; with targets that exist where they are given."""
    config = (DEPLOY / "prometheus.yml").read_text()
    config = config if local else remote(config)
    (place / "enlist-ca.pem").write_text("")
    (place / "enlist-api-key").write_text("")
    for written, real in {
        "127.0.0.1:9464": local,
        "cp.example.org:8443": plane and plane.port,
        "host1.example.org:9100": agent,
    }.items():
        config = config.replace(f'"{written}"', f'"127.0.0.1:{real}"') if real else config
    (place / "prometheus.yml").write_text(config.replace("interval: 30s", "interval: 1s"))
    shutil.copy(RULES, place)
    return place / "prometheus.yml"


def test_the_configuration_is_accepted(place):
    need("promtool")
    for local in (9464, None):
        done = tool("promtool", "check", "config", installed(place, local=local))
        assert "rules found" in done.out, done


def test_every_rule_fires_on_what_it_is_for():
    need("promtool")
    for arguments in (("check", "rules", RULES), ("test", "rules", UNIT_TESTS)):
        tool("promtool", *arguments)
    rules = re.findall(r"- alert: (\w+)", RULES.read_text())
    tested = re.findall(r'alertname="(\w+)"', UNIT_TESTS.read_text())
    assert sorted(rules) == sorted(tested)


def wanted() -> set[str]:
    """The metrics that the rules are about, of a control plane of one replica; those of step-ca are served where there is one, and
    test_step_ca.py reads them."""
    names = {name for name in re.findall(r"\benlist_\w+", RULES.read_text()) if not name.startswith("enlist_step_ca_")}
    assert len(names) > 10
    # Of other replicas: test_raft_metrics.py.
    return names - {"enlist_raft_peer_reachable"}


class Prometheus:
    """A real one, on a port of its own, ended by its pid."""

    def __init__(self, config, data):
        self.port = free_port()
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}"]
        with evidence.log("prometheus").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--web.listen-address=127.0.0.1:{self.port}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str):
        assert self.process.poll() is None, f"Prometheus ended with {self.process.returncode}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=20) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None  # not there yet

    def targets(self) -> dict:
        found = self.ask("targets") or {"activeTargets": []}
        return {target["labels"]["job"]: target["health"] for target in found["activeTargets"]}

    def names(self) -> set:
        return set(self.ask("label/__name__/values") or ())

    def rules(self) -> list:
        groups = (self.ask("rules") or {"groups": []})["groups"]
        return [rule["health"] for group in groups for rule in group["rules"]]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def test_every_metric_of_the_rules_is_served(programs, place):
    """A real Prometheus over TLS with an API key: every target is up, every rule evaluates, every metric is there."""
    need("prometheus")
    plane = ControlPlane().found()
    config = plane.dir / "enlist.toml"
    others = f'[loki]\nurl = "http://127.0.0.1:9"\n[claims]\nurl = "http://127.0.0.1:9/"\ntrust = "{plane.dir}/ca/bundle.pem"\n'
    config.write_text(config.read_text() + '\n[alerts]\nwebhook = "http://127.0.0.1:9/"\n' + others)
    local, agent = free_port(), free_port()
    daemon = prometheus = None
    try:
        plane.start("--metrics", f"127.0.0.1:{local}")
        daemon = Daemon(plane, plane.token(), ENLIST_AGENT_METRICS_LISTEN=f"127.0.0.1:{agent}").start()
        daemon.wait_connected()
        make_counters_exist(plane, daemon)
        config = installed(place, plane, agent)
        (place / "enlist-ca.pem").write_bytes(plane.bundle)
        (place / "enlist-api-key").write_text(make_key(plane, "viewer")["key"])
        prometheus = Prometheus(config, place / "data")
        until(lambda: prometheus.targets() == {"enlist": "up", "node": "up"}, "both targets are up")
        until(lambda: wanted() <= prometheus.names(), "every metric of the rules is there")
        until(lambda: set(prometheus.rules()) == {"ok"}, "every rule was evaluated without an error")
        assert len(prometheus.rules()) == RULES.read_text().count("- alert: ")
        with urllib.request.urlopen(f"http://127.0.0.1:{local}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        assert "\nenlist_ready 1\n" in text
        served = set(re.findall(r"(?m)^(enlist_\w+)", text))
        assert {name for name in wanted() if not name.startswith("enlist_agent_")} <= served
    finally:
        for started in (prometheus, plane):
            if started:
                started.close()
        if daemon:
            daemon.stop()
            daemon.note_secrets()


def make_counters_exist(plane, daemon) -> None:
    """A counter with labels is served from its first count on: one of each."""
    with native.door(plane) as stranger:
        assert stranger.refused("enroll_" + "A" * 43, certs.good_csr()).code == "token_invalid"
    before = daemon.serial()
    assert plane.api("POST", f"/v1/nodes/{daemon.node_id()}/rotate", {}).status == 200
    until(lambda: daemon.serial() != before, "the node has renewed")
    revoked = native.enroll(plane)
    revoked.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="disk full")
    assert plane.api("POST", f"/v1/nodes/{revoked.id}/revoke", {"reason": "test"}).status == 200
    assert native.alert(plane, revoked.files)

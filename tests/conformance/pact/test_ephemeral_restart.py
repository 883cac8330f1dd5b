"""A restart with nodes connected: all of them come back with the certificates they have, and renew onto the new issuer.

Fifty streams and two agents in CI, five hundred and ten in `just soak`. Proves PACT-02, D12, D13.
"""

import os
import threading
import time

import certs
import ephemeral
import native
from daemons import Daemon, lasting_port
from ephemeral import anchor, current, issuers
from machine import until

NODES = int(os.environ.get("ENLIST_RESTART_NODES", "50"))
AGENTS = int(os.environ.get("ENLIST_RESTART_AGENTS", "2"))
AT_ONCE = 16
LONG = 300.0


class Streaming:
    """A node with a live stream, which it opens again with what it has."""

    def __init__(self, plane):
        self.node = native.enroll(plane)
        self.connect()

    def connect(self) -> "Streaming":
        self.door = self.node.door()
        self.live = self.door.live(self.node.id, instance="one-start")
        self.live.next("welcome")
        return self

    def again(self) -> None:
        self.close()
        self.connect()

    def renew(self) -> None:
        node = self.node.renewed()
        self.close()
        self.node = node
        self.connect()

    def close(self) -> None:
        self.live.close()
        self.door.close()


def all_at_once(work: list) -> None:
    """Each on a thread, some at a time; the first failure is the test's."""
    failed, place = [], threading.Semaphore(AT_ONCE)

    def one(act) -> None:
        with place:
            try:
                act()
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=one, args=(act,)) for act in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def leaf(agent: Daemon):
    return certs.certificate((agent.dir / "identity" / "current" / "cert.pem").read_bytes())


def test_a_restart_strands_nobody():
    """Proves PACT-02: SIGKILL and start: every stream and every agent is back with its old certificate, then has one of the new issuer."""
    listen = ("--listen", f"127.0.0.1:{lasting_port()}")
    streams: list[Streaming] = []
    agents: list[Daemon] = []
    with ephemeral.control_plane(*listen) as plane:
        try:
            all_at_once([lambda: streams.append(Streaming(plane)) for _ in range(NODES)])
            agents += [Daemon(plane, plane.token()).start() for _ in range(AGENTS)]
            for agent in agents:
                agent.wait_connected()
            old, leaves = current(plane), {agent: leaf(agent) for agent in agents}
            assert old["leaves"] == NODES + AGENTS
            plane.kill()
            for stream in streams:
                stream.live.wait_end()
            began = time.monotonic()
            plane.start(*listen)
            all_at_once([stream.again for stream in streams])
            back = time.monotonic() - began
            until(lambda: all(agent.connected() for agent in agents), "the agents are back", LONG)
            assert {agent: leaf(agent) for agent in agents} == leaves, "with the certificates they had"
            new = current(plane)
            shown = {issuer["id"]: issuer for issuer in issuers(plane)}
            assert new["id"] != old["id"] and shown[old["id"]]["state"] == "retiring"
            assert shown[old["id"]]["leaves"] == NODES + AGENTS and new["leaves"] == 0
            all_at_once([stream.renew for stream in streams])
            for agent in agents:
                plane.cli("node", "rotate", certs.uris(leaf(agent))[0].rsplit("/", 1)[1])
            until(lambda: all(leaf(agent) != leaves[agent] for agent in agents), "the agents have renewed", LONG)
            ca = anchor(plane)
            for certificate in [*map(leaf, agents), *(certs.certificate(s.node.answer.certificate) for s in streams)]:
                certificate.verify_directly_issued_by(ca)
            counted = f"{NODES} streams and {AGENTS} agents, streams back {back:.1f} s after the start"
            print(f"\n{NODES} renewals, {counted}")
        finally:
            for agent in agents:
                agent.stop()
            for stream in streams:
                stream.close()

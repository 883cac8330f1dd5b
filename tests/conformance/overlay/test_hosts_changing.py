"""Hosts that restart, move and replace their keys stay reachable, and those that were enrolled before join later."""

import time

import pytest

import evidence
from machine import PATIENCE, until
from namespaces import Overlay, outer, url


@pytest.fixture
def overlay():
    with Overlay() as made:
        yield made


def test_an_agent_that_was_killed_is_reachable_again_after_its_restart(overlay, capsys):
    """Killed, its interface is gone with the process; restarted, it begins the handshakes itself."""
    one, other = overlay.joined("4", "46")
    ping = overlay.ping(one, other.address).wait_answers(10)
    other.kill()
    assert not other.has_interface(), "a userspace interface ends with its process"
    ping.wait_silence(0.5)
    began = time.time()
    other.start()
    ping.wait_answers()
    back = next(at for at, _ in ping.answers() if at > began) - began
    with capsys.disabled():
        print(f"\nrestart after SIGKILL: reachable again after {back * 1000:.0f} ms")
    assert back < 30


def test_another_key_by_order_and_no_flow_is_silent_for_long(overlay, capsys):
    """The old key is out of use, the audit trail names the new one, and pings go on meanwhile."""
    hosts = overlay.joined("4", "46", "46")
    last = hosts[-1]
    before = last.overlay()["public_key"]
    node = last.node_id()
    pings = [overlay.ping(host, last.address) for host in hosts[:-1]]
    pings.append(overlay.ping(last, hosts[0].address))
    for ping in pings:
        ping.wait_answers(20)
    overlay.plane.cli("node", "rotate", "--overlay", node)
    until(lambda: last.overlay()["public_key"] != before, "the host has another key")
    for ping in pings:
        ping.wait_answers(50)
    silences = [ping.longest_silence() for ping in pings]
    with capsys.disabled():
        print(f"\nrekey: the longest silence of a flow was {max(silences) * 1000:.0f} ms")
    assert max(silences) < 10
    after = last.overlay()["public_key"]
    for host in hosts[:-1]:
        until(lambda: after in host.shown() and before not in host.shown(), "the new key alone is a peer")
    assert not (last.dir / "wireguard" / "next.key").exists()
    (line,) = overlay.plane.audit("host.rekeyed")
    assert line["host_id"] == node and line["wireguard_pubkey_fingerprint"].startswith("SHA256:")
    last.note_wireguard_key()


def test_a_key_that_was_ordered_survives_a_kill_before_the_answer(overlay):
    """The control plane is frozen, so that the claim is not answered; the next process claims the same key again."""
    import signal

    one, last = overlay.joined("4", "4")
    before, node = last.overlay()["public_key"], last.node_id()
    overlay.plane.cli("node", "rotate", "--overlay", node)
    until(lambda: (last.dir / "wireguard" / "next.key").exists() or last.overlay()["public_key"] != before, "it begins")
    overlay.plane.process.send_signal(signal.SIGSTOP)
    last.kill()
    overlay.plane.process.send_signal(signal.SIGCONT)
    last.start()
    until(lambda: last.overlay().get("public_key") not in (None, before), "the host has the new key")
    one.wait_pings(last.address)
    assert len(overlay.plane.audit("host.rekeyed")) == 1
    last.note_wireguard_key()


def test_a_host_that_moves_is_reachable_where_it_is_now(overlay, capsys):
    """Another address of its interface: told to the control plane, and distributed."""
    one, other = overlay.joined("4", "4")
    ping = overlay.ping(one, other.address).wait_answers(10)
    node, before = other.node_id(), outer(other.number, "4")
    new = next(overlay.underlay.numbers)
    moved = time.time()
    overlay.underlay.address(other.namespace, other.number, "4", "del")
    overlay.underlay.address(other.namespace, new, "4")
    until(lambda: any(at > moved + 0.05 for at, _ in ping.answers()), "it is reachable again")
    back = next(at for at, _ in ping.answers() if at > moved + 0.05) - moved
    with capsys.disabled():
        print(f"\nmoved: reachable again after {back:.1f} s")
    assert back < PATIENCE
    told = lambda: overlay.plane.node(node)["overlay"]["underlay_endpoint"]
    until(lambda: outer(new, "4") in str(told()), f"the registry knows the new endpoint: {told()}")
    assert before + ":" not in str(told())
    key = other.overlay()["public_key"]
    until(lambda: one.shown()[key]["endpoint"] == f"{outer(new, '4')}:51820", "the peer has the new endpoint")


def test_a_host_that_was_enrolled_without_an_overlay_joins_later(overlay):
    """Over its live stream, with a key that it makes then."""
    (one,) = overlay.joined("4")
    late = overlay.host("4").enroll(settings="").start()
    late.wait_connected()
    assert late.overlay()["state"] == "off" and not late.has_interface()
    assert not (late.dir / "wireguard").exists()
    assert late.stop() == 0
    (late.dir / "agent.toml").write_text((late.dir / "agent.toml").read_text() + "\n[overlay]\nenable = true\n")
    late.start().wait_up(1)
    late.note_wireguard_key()
    one.wait_pings(late.address)
    (line,) = overlay.plane.audit("host.overlay_joined")
    assert line["host_id"] == late.node_id()
    assert late.stop() == 0
    assert not late.has_interface(), "an agent that ends takes its interface along"


def test_hosts_of_other_kinds_are_in_the_overlay_too(overlay, names):
    """Proves PLFM-10, PLFM-12, PLFM-19. One enrolled and run as `plfm-agent`, with nothing said of an overlay, and one that keeps all in memory."""
    (one,) = overlay.joined("4")
    plfm = overlay.host("4")
    plfm.program = names.bin / "plfm-agent"
    plfm.dir.mkdir(mode=0o700)
    assert not plfm.has_interface()
    bundle = overlay.plane.dir / "ca" / "bundle.pem"
    (plfm.dir / "agent.toml").write_text(f'server = "{url()}"\nca_file = "{bundle}"\n')
    command = ("env", f"ENLIST_AGENT_DIR={plfm.dir}", plfm.program, "enroll", "--json", "--token", "-")
    done = plfm.run(*command, stdin=overlay.plane.token())
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert (plfm.dir / "wireguard" / "private.key").stat().st_mode & 0o7777 == 0o600
    plfm.start().wait_up(1)
    plfm.note_wireguard_key()
    evidence.private_key("agent", (plfm.dir / "certs" / "agent.key").read_bytes())
    memory = overlay.host("4", ENLIST_AGENT_TOKEN=overlay.plane.token())
    memory.dir.mkdir(mode=0o700)
    settings = f'storage = "memory"\nserver = "{url()}"\nca_pin = "{overlay.plane.pin}"\n[overlay]\nenable = true\n'
    (memory.dir / "agent.toml").write_text(settings)
    memory.start().wait_up(2)
    assert not list(memory.dir.rglob("*.key")), "the WireGuard key is on no disk"
    plfm.wait_up(2)
    overlay.all_reach_all([one, plfm, memory])

"""Hosts that cannot have an interface: each has its reason, stays enrolled and ready, and heals by itself."""

import os
import signal
import socket
import subprocess

import pytest

from machine import AGENT, PATIENCE, need, run, until
from namespaces import Overlay, inside, outer


@pytest.fixture
def overlay():
    with Overlay() as made:
        yield made


def unavailable(host, reason: str) -> None:
    """It says so everywhere, and nothing else is wrong with it."""
    until(lambda: host.overlay().get("reason") == reason, f"the overlay is unavailable: {reason}")
    status = host.status()
    assert status["overlay"]["state"] == "unavailable", status
    until(lambda: (host.status() or {}).get("ready"), "the host is ready all the same")
    text = run(AGENT, "status", "--dir", host.dir)
    assert f"\noverlay      unavailable ({reason}): " in text.out and "; remedy: " in text.out, text
    doctor = run(AGENT, "doctor", "--dir", host.dir, "--json").json()
    (check,) = [check for check in doctor["checks"] if check["name"] == "overlay"]
    assert not check["ok"] and check["class"] == "overlay_unavailable" and check["remedy"], check
    until(
        lambda: overlay_of(host).get("reason") == reason, f"the control plane knows the reason: {overlay_of(host)}"
    )


def overlay_of(host) -> dict:
    return host.plane.node(host.node_id()).get("overlay") or {}


def test_a_host_without_a_tun_device(overlay):
    """Proves PLFM-19 where it cannot hold: the reason is no_tun_device, and the interface comes once there is a device."""
    (one,) = overlay.joined("4")
    host = overlay.host("4").enroll()
    hide = "mount -t tmpfs none /dev/net && exec \"$@\""
    host.prefix = (*host.prefix, "sh", "-c", hide, "sh")
    host.start()
    unavailable(host, "no_tun_device")
    done = host.beside("umount", "/dev/net")
    assert done.returncode == 0, done.stderr
    host.wait_up(1)
    one.wait_pings(host.address)


def test_a_name_that_another_interface_has(overlay):
    """The other one is left alone."""
    host = overlay.host("4").enroll()
    host.run("ip", "link", "add", "wg0", "type", "bridge")
    host.start()
    unavailable(host, "interface_in_use")
    assert "bridge" in host.run("ip", "-d", "link", "show", "wg0").stdout
    host.run("ip", "link", "del", "wg0")
    host.wait_up(0)


def test_a_port_that_another_program_has(overlay):
    """Found before there is a first peer."""
    host = overlay.host("4").enroll()
    taken = subprocess.Popen(
        [*inside(host.namespace), "python3", "-c", "import socket, time; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(('::', 51820)); time.sleep(600)"]
    )
    try:
        until(lambda: ":51820" in host.run("ss", "-uln").stdout, "the port is taken")
        host.start()
        unavailable(host, "port_in_use")
        assert not host.has_interface(), "nothing is left of what was tried"
    finally:
        taken.kill()
        taken.wait()
    host.wait_up(0)


def test_a_kernel_without_wireguard(overlay):
    """Asked for by `overlay.backend = "kernel"`; `auto` takes the agent's own."""
    if subprocess.run(["ip", "link", "add", "wgprobe0", "type", "wireguard"], capture_output=True, check=False).returncode == 0:
        subprocess.run(["ip", "link", "del", "wgprobe0"], check=True)
        pytest.skip("this kernel has WireGuard")
    host = overlay.host("4").enroll(settings='[overlay]\nbackend = "kernel"\n').start()
    unavailable(host, "no_kernel_support")
    assert host.stop() == 0
    settings = (host.dir / "agent.toml").read_text().replace('"kernel"', '"auto"') + "enable = true\n"
    (host.dir / "agent.toml").write_text(settings)
    host.start().wait_up(0)


def test_a_user_without_the_right_to_make_interfaces(overlay):
    """And with it: CAP_NET_ADMIN alone is enough."""
    need("setpriv")
    (one,) = overlay.joined("4")
    host = overlay.host("4").enroll()
    for directory, _, files in os.walk(host.dir.parent):
        for name in (".", *files):
            os.chown(os.path.join(directory, name), 65534, 65534, follow_symlinks=False)
    device = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && exec \"$@\""
    host.prefix = (*host.prefix, "sh", "-c", device, "sh")
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all")
    everybody, alone = host.prefix, (*host.prefix, *user)
    host.prefix = (*alone, "--inh-caps=-all")
    host.start()
    unavailable(host, "no_permission")
    assert host.stop() == 0
    admin = ("--bounding-set=-all,+net_admin", "--inh-caps=-all,+net_admin", "--ambient-caps=-all,+net_admin")
    host.prefix = (*everybody, *user[:-1], *admin)
    host.start().wait_up(1)
    with open(f"/proc/{host.process.pid}/status") as file:
        held = {line.split(":")[0]: line.split()[1] for line in file if line.startswith("Cap")}
    assert int(held["CapEff"], 16) == 1 << 12 == int(held["CapBnd"], 16), held
    one.wait_pings(host.address)
    assert host.stop() == 0
    assert not host.has_interface()


def test_two_names_for_one_setting_that_differ(overlay):
    """`underlay` and `overlay.endpoint` are the same setting."""
    host = overlay.host("4")
    host.dir.mkdir(mode=0o700)
    for text, code in (("10.88.0.9", 0), ("10.88.0.8", 2)):
        settings = f'server = "https://127.0.0.1:1"\nunderlay = "10.88.0.9"\n[overlay]\nendpoint = "{text}"\n'
        (host.dir / "agent.toml").write_text(settings)
        done = run(AGENT, "enroll", "--dir", host.dir, "--token", "-", "--ca-pin", "ab" * 32, "--json", "--timeout", "1s", stdin=b"x")
        assert (done.code == 2) == (code == 2), done
        if code == 2:
            assert "overlay.endpoint" in done.err


def test_what_a_peer_sends_from_anothers_address_is_dropped(overlay):
    """A host that gives itself the address of another is not heard under it."""
    one, liar, other = overlay.joined("4", "4", "4")
    overlay.all_reach_all([one, liar, other])
    liar.run("ip", "-6", "addr", "add", f"{other.address}/128", "dev", "wg0", "nodad")
    address = one.address
    before = int(one.shown()[liar.overlay()["public_key"]]["received"])
    lied = liar.run("ping", "-6", "-n", "-c", "5", "-i", "0.05", "-W", "1", "-I", other.address, address)
    assert lied.returncode != 0 and "0 received" in lied.stdout, lied.stdout
    assert int(one.shown()[liar.overlay()["public_key"]]["received"]) > before, "it was sent"
    assert liar.pings(address, wait=5), "under its own it is heard"


def test_wg_shows_what_the_registry_has(overlay):
    """`wg show` reads the agent's interface by its control socket, which changes nothing and is gone with the agent."""
    need("wg")
    one, other, third = overlay.joined("4", "46", "46")
    shown = one.shown()
    assert one.shown_key == one.overlay()["public_key"] and one.shown_port == 51820
    expected = {}
    for host in (other, third):
        registered = overlay.plane.node(host.node_id())["overlay"]
        expected[registered["wireguard_public_key"]] = f"{registered['address']}/128"
        assert shown[registered["wireguard_public_key"]]["endpoint"] == f"{outer(host.number, '4')}:51820"
    assert {key: peer["allowed_ips"] for key, peer in shown.items()} == expected
    done = one.beside("wg", "set", "wg0", "peer", one.shown_key, "remove")
    assert done.returncode != 0, "the registry says who is a peer"
    assert one.shown().keys() == shown.keys()
    seen = one.beside("ls", "-l", "/run/wireguard/wg0.sock").stdout
    assert seen.startswith("srw-------"), seen
    watched = subprocess.Popen(["nsenter", "-t", str(one.process.pid), "-m", "sleep", "600"])
    try:
        until(lambda: os.readlink(f"/proc/{watched.pid}/ns/mnt") == os.readlink(f"/proc/{one.process.pid}/ns/mnt"), "it is there")
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(PATIENCE) == 0
        left = subprocess.run(["nsenter", "-t", str(watched.pid), "-m", "ls", "/run/wireguard"], capture_output=True, text=True)
        assert left.stdout == "", left.stdout
    finally:
        watched.kill()
        watched.wait()

"""`enlist dev --dir D`: agents that were enrolled there find the control plane again, or a person is told why not."""

import json
import socket
import subprocess

from machine import ENLIST, PATIENCE, clean_env, run


def once(place, *arguments) -> dict:
    done = run(ENLIST, "dev", "--once", "--no-agent", "--dir", place / "dev", "--json", *arguments)
    assert done.code == 0, done
    return json.loads(done.out.splitlines()[0])


def test_a_directory_keeps_its_port_and_says_so_when_it_is_taken(place):
    with socket.socket() as usual:
        usual.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            usual.bind(("127.0.0.1", 8443))
            usual.listen()
        except OSError:
            # Somebody else has it, which is as good.
            pass
        url = once(place)["server_url"]
    assert not url.endswith(":8443")
    assert once(place)["server_url"] == url
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(url.rsplit(":", 1)[1])))
        taken.listen()
        refused = subprocess.run(
            [str(ENLIST), "dev", "--once", "--no-agent", "--dir", str(place / "dev"), "--json"], env=clean_env({}), capture_output=True,
            text=True, timeout=PATIENCE, check=False)
        error = json.loads(refused.stderr.strip().splitlines()[-1])["error"]
        assert refused.returncode == 1 and error["code"] == "cannot_listen", refused
        assert "--listen 127.0.0.1:0" in error["hint"], error
        assert once(place, "--listen", "127.0.0.1:0")["server_url"] != url

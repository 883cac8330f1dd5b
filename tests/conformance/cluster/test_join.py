"""Replicas that join, are refused, are removed."""

import datetime
import time

import clusters
import evidence
import native
import pytest
from cluster_load import enroll
from cryptography import x509
from clusters import Cluster, Replica, cluster_token
from machine import scratch, until
from plane import ControlPlane


@pytest.fixture(scope="module")
def cluster(programs):
    with Cluster(3) as running:
        yield running


def test_every_replica_serves_what_another_has_acknowledged(cluster):
    """Enroll, confirm, renew, list and audit, each on another replica. Proves PACT-12, PACT-41."""
    one, two, three = cluster.replicas
    token = one.token()
    node = enroll(two, token)
    nodes = clusters.fresh(three, "/v1/nodes")["items"]
    assert [found["node_id"] for found in nodes] == [node.id], "read on a third one at once"
    with clusters.door(three, node.files) as door:
        door.confirm()
        assert door.renew(native.certs.csr(native.certs.ec_key())).cert_serial != node.serial
    assert clusters.fresh(one, f"/v1/nodes/{node.id}")["state"] == "active"
    trails = cluster.until_equal()
    assert trails[0] == trails[1] == trails[2]
    assert all(replica.cli("audit", "verify").json()["ok"] for replica in cluster.replicas)


def test_what_the_status_says(cluster):
    status = cluster.replicas[2].status()
    assert status["epoch"] == 1 and status["feature_level"] >= 1
    assert status["replica_id"] == "3" and len(status["replicas"]) == 3

    def agree() -> bool:
        """While no other is elected."""
        status = cluster.replicas[2].status()
        roles = {item["replica_id"]: item["role"] for item in status["replicas"]}
        health = {replica.id: replica.health() for replica in cluster.replicas}
        return (
            status["quorum"]
            and sorted(roles.values()) == ["follower", "follower", "leader"]
            and roles[status["leader"]] == "leader"
            and {one: said["role"] for one, said in health.items()} == roles
            and all(said["ready"] for said in health.values())
        )

    until(agree, "status and /readyz say the same of all")
    shown = cluster.replicas[0].cli("cluster", "status").json()
    assert [item["peer"] for item in shown["replicas"]] == [f"127.0.0.1:{r.peer_port}" for r in cluster.replicas]


def test_joins_that_are_refused_leave_nothing_behind(cluster):
    """Wrong pin, another key-encryption key, a token that is spent, of a node, revoked by nobody or made up: each with its reason, without a
    directory, and without a record. A directory that is there already is left as it was."""
    first = cluster.replicas[0]
    joined = len(first.audit("cluster.joined"))

    def refused(token: str, code: str, exit_code: int = 3, **changed) -> None:
        new = Replica(first)
        done = new.join_command(token, **changed)
        assert (done.code, done.error()["code"]) == (exit_code, code), done
        assert not new.dir.exists(), list(new.dir.iterdir())

    token = cluster_token(first)
    other = scratch("kek") / "other"
    other.write_text("ab" * 32)
    other.chmod(0o600)
    refused(first.token(), "token_invalid")
    refused(token[:-1], "token_invalid")
    refused("", "usage", 2)
    refused("join_" + "x" * 43, "token_invalid")
    refused(token, "kek_wrong", **{"--kek": f"file:{other}"})
    refused(token, "peer_address_in_use", **{"--peer-listen": f"127.0.0.1:{first.peer_port}"})
    spelled = {
        "token": token,
        "kek_id": (first.dir / "keys" / "kek.id").read_text().strip(),
        "csr_pem": native.certs.csr(native.certs.ec_key()),
        "urls": ["https://127.0.0.1:1"],
        "version": "0",
    }
    for host in ("127.0.0.1:0", "localhost:", "LocalHost.:", "[::ffff:127.0.0.1]:"):
        answer = first.https("POST", "/v1/cluster/join", {**spelled, "peer": f"{host}{first.peer_port}"})
        assert (answer.status, answer.code) == (409, "peer_address_in_use"), (host, answer)
    answer = first.https("POST", "/v1/cluster/join", {**spelled, "peer": "127.0.0.1:1", "token": first.token()})
    assert (answer.status, answer.code) == (401, "token_invalid"), answer
    new = Replica(first)
    done = new.join_command(token, **{"--ca-pin": "sha256:" + "0" * 64})
    assert done.code != 0 and "pin" in done.error()["message"] and not new.dir.exists(), done

    foreign = ControlPlane().found()
    kept = contents(foreign.dir)
    new.dir = foreign.dir
    done = new.join_command(token)
    assert done.code == 1 and contents(foreign.dir) == kept, done
    assert len(first.status()["replicas"]) == 3, "nobody has joined"

    # None of these has spent it: it lets one in, and no second one.
    spending = Replica(first)
    assert spending.join_command(token).code == 0
    refused(token, "token_used")
    lines = first.audit("cluster.joined")
    assert len(lines) == joined + 1, lines
    first.cli("cluster", "remove", lines[-1]["replica_id"])


def test_a_join_that_would_tell_others_of_their_own_machine_is_refused(cluster):
    """Before anything is sent: an address of loopback, for a cluster elsewhere."""
    new = Replica(cluster.replicas[0])
    done = new.join_command("join_" + "x" * 43, **{"--peer": "https://cp-1.example.org:8443"})
    assert (done.code, done.error()["code"]) == (2, "usage"), done
    assert new.peer_address in done.error()["message"] and "--name" in done.error()["hint"], done
    assert not new.dir.exists()
    asked = new.join_command("join_" + "x" * 43, **{"--peer": f"https://127.0.0.1:{cluster.replicas[0].peer_port}"})
    assert asked.code == 4 and not new.dir.exists(), asked


def contents(directory) -> dict:
    """Every file, and what is in it."""
    return {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def test_what_a_token_for_a_replica_comes_with(cluster):
    """Everything that the new machine needs, in one document; it ends when it was asked to."""
    first = cluster.replicas[0]
    minted = until(lambda: (done := first.cli("cluster", "token", "--expires", "15m", ok=False)).code == 0 and done.json(), "it is created")
    evidence.token(minted["token"])
    assert set(minted) == {"token_id", "token", "expires_at", "ca_pin", "peer_url", "join_command"}, set(minted)
    assert (minted["ca_pin"], minted["peer_url"]) == (first.pin, first.url)
    parts = (minted["token"], first.pin, first.url, "server join", "--name HOST")
    assert all(part in minted["join_command"] for part in parts), minted
    left = datetime.datetime.fromisoformat(minted["expires_at"]).timestamp() - time.time()
    assert 10 * 60 < left <= 15 * 60 + 60, minted["expires_at"]


def test_a_token_for_a_replica_lets_no_node_in(cluster):
    token = cluster_token(cluster.replicas[0])
    with clusters.door(cluster.replicas[1]) as door:
        assert door.refused(token, native.certs.csr(native.certs.ec_key())).code == "token_invalid"


def test_one_token_redeemed_on_three_replicas_at_once_lets_one_node_in(cluster):
    import concurrent.futures

    token = cluster.replicas[0].token()
    again = (None, "no_quorum", "outcome_unknown", "unavailable", "overloaded")

    def redeem(at: int):
        csr = native.certs.csr(native.certs.ec_key())

        def once() -> str | None:
            """Not of a busy moment, and the same machine when it asks again."""
            try:
                return door.enroll(token, csr, f"at-once-{at}").node_id
            except native.Refused as refused:
                return None if refused.code in again else refused.code

        with clusters.door(cluster.replicas[at % 3]) as door:
            return until(once, f"{at} is answered")

    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(redeem, range(60)))
    won = [answer for answer in answers if answer != "token_used"]
    nodes = clusters.fresh(cluster.replicas[1], "/v1/nodes?limit=1000")["items"]
    assert len(won) == 1 and won[0] in {node["node_id"] for node in nodes}, answers


def test_a_revoked_node_is_cut_off_by_every_replica(cluster):
    """Acknowledged on one replica, felt on the others. Proves PACT-30, PACT-41."""
    one, two, three = cluster.replicas
    node = enroll(two)
    with clusters.door(three, node.files) as door:
        stream = door.live(node.id)
        until(lambda: three.node(node.id)["state"] == "active", "it is there")
        one.revoke(node.id)
        until(lambda: stream.ended.is_set(), "its stream is closed")
    for replica in cluster.replicas:
        # One that has not heard of it yet may close the connection when it does.
        refused = lambda replica=replica: "REVOKED" in (native.alert(replica, node.files) or "")  # noqa: E731
        until(refused, "it is refused as revoked")


def test_nodes_learn_of_every_replica(cluster):
    urls = {replica.url for replica in cluster.replicas}
    enrolled = lambda: enroll(cluster.replicas[0])  # noqa: E731
    # Each announces its own when it has begun to serve.
    node = until(lambda: (node := enrolled()) and set(node.answer.servers) == urls and node, "all have announced themselves")
    assert node.answer.servers[0] == cluster.replicas[0].url, node.answer.servers
    assert set(node.renewed().answer.servers) == urls


def test_a_replica_that_is_removed_says_so_and_its_certificate_is_denied(programs):
    with Cluster(3) as cluster:
        leader, (_, gone) = cluster.roles()
        record = gone.dir / "ca" / "replica.pem"
        serial = native.certs.serial(x509.load_pem_x509_certificates(record.read_bytes())[0])
        gone.kill()
        left = [replica for replica in cluster.replicas if replica is not gone]
        done = left[0].cli("cluster", "remove", gone.id)
        assert len(done.json()["replicas"]) == 2, done
        (line,) = leader.audit("cluster.removed")
        assert line["replica_id"] == gone.id and serial in line["denied_serials"], line
        until(lambda: sum(item["voter"] for item in leader.status()["replicas"]) == 2, "two vote")
        for replica in left:
            until(lambda replica=replica: serial in listed_serials(replica), "it is on the list of revocations")
        assert enroll(left[1]).id
        gone.start()
        until(lambda: "replica_removed" in gone.health()["reasons"], "the others tell it", patience=120)
        # It knows by now from the registry or from the others, and says it by TLS and to whoever asks it for a change.
        gone.restart()
        until(lambda: "replica_removed" in gone.health()["reasons"], "it says it again", patience=120)
        told = gone.https("GET", "/readyz")
        assert told.status == 503 and "replica_removed" in told.json()["reasons"], told
        change = gone.cli("token", "create", ok=False).error()
        assert "replica_removed" in change["message"] and "bring back" not in change["hint"], change
        assert gone.status()["reasons"][0] == "replica_removed", gone.status()
        unknown = left[0].cli("cluster", "remove", "99", ok=False)
        assert (unknown.code, unknown.error()["code"]) == (3, "replica_not_found"), unknown


def test_a_removal_that_would_lose_the_majority_is_refused(programs):
    with Cluster(3) as cluster:
        leader, (alive, dead) = cluster.roles()
        dead.kill()
        until(lambda: health(leader, dead.id) == "unreachable", "it is known to be gone")
        refused = leader.cli("cluster", "remove", alive.id, ok=False)
        assert (refused.code, refused.error()["code"]) == (3, "would_lose_majority"), refused
        asked = leader.cli("cluster", "remove", dead.id, "--force", ok=False)
        assert (asked.code, asked.error()["code"]) == (3, "confirmation_needed"), asked
        leader.cli("cluster", "remove", dead.id, "--force", "--yes")
        until(lambda: sum(item["voter"] for item in leader.status()["replicas"]) == 2, "two vote")
        new = cluster.add()
        until(lambda: sum(item["voter"] for item in leader.status()["replicas"]) == 3, "three vote again", patience=120)
        until(lambda: new.health()["ready"], "it is ready")
        assert enroll(new).id


def test_from_three_replicas_to_one_and_a_new_key_encryption_key(programs):
    """Removed one by one while all run, the leader last but one; the one that is left goes on alone."""
    with Cluster(3) as cluster:
        leader, (last, gone) = cluster.roles()
        refused = last.cli("ca", "rewrap", "--kek", f"file:{last.base / 'kek2'}", ok=False)
        assert refused.code == 3 and "cluster remove" in refused.error()["hint"], refused
        last.cli("cluster", "remove", gone.id)
        until(lambda: sum(item["voter"] for item in last.status()["replicas"]) == 2, "two vote")
        last.cli("cluster", "remove", leader.id)
        until(lambda: last.health()["ready"] and last.health()["role"] == "leader", "the last one leads", patience=120)
        assert enroll(last).id
        for replica in (leader, gone):
            until(lambda replica=replica: "replica_removed" in replica.health()["reasons"], "it knows", patience=120)
        last.cli("ca", "rewrap", "--kek", f"file:{last.base / 'kek2'}")
        last.restart()
        assert enroll(last).id


def listed_serials(replica) -> set[str]:
    """What the list of revocations of the server issuer denies."""
    found = set()
    for issuer in replica.api("GET", "/v1/ca").json()["issuers"]:
        answer = replica.api("GET", f"/v1/ca/crl?issuer={issuer['id']}")
        assert answer.status == 200, answer
        found |= {f"{entry.serial_number:x}" for entry in x509.load_der_x509_crl(answer.body)}
    return found


def health(replica, other: str) -> str:
    return next(item["health"] for item in replica.status()["replicas"] if item["replica_id"] == other)

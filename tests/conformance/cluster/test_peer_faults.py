"""Clients of the port between replicas that are no replicas, by raw TLS: the cluster goes on, and they cost little."""

import os
import time

import certs
import clusters
import hostile_peers
import native
import pytest
from cluster_load import enroll
from clusters import Cluster, cluster_token
from cryptography import x509
from hostile_peers import Flood, Liar, connect, frame, hello, packed, read_to_end, said
from impostors import common_name
from machine import PATIENCE, scratch, until


@pytest.fixture(scope="module")
def cluster(programs):
    with Cluster(3) as running:
        yield running


@pytest.fixture(scope="module")
def thief(cluster):
    """The certificate and key of a follower, without the key of the log."""
    follower = cluster.followers()[0]
    return follower, hostile_peers.identity(follower)


def serves(cluster) -> None:
    """A write and a read on each replica."""
    for replica in cluster.replicas:
        node = enroll(replica)
        for other in cluster.replicas:
            assert other.node(node.id)["cert_serial"] == node.serial
        assert replica.health()["ready"], replica.health()


def files(replica) -> int:
    return len(os.listdir(f"/proc/{replica.process.pid}/fd"))


def memory(replica) -> int:
    """In KiB. The class's own `status` is that of the cluster."""
    with open(f"/proc/{replica.process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


GARBAGE = (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(64), b"\xff" * 64, os.urandom(4096))


def forged(cluster) -> tuple:
    """A replica certificate with the right name under a CA of somebody's own."""
    shown = certs.certificates((cluster.replicas[1].dir / "ca" / "replica.pem").read_bytes())[0]
    ca, key = certs.ec_key(), certs.ec_key()
    issuer = common_name("Forged")
    top = hostile_ca(issuer, ca)
    builder = x509.CertificateBuilder().subject_name(shown.subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(shown.serial_number)
    builder = builder.not_valid_before(shown.not_valid_before_utc).not_valid_after(shown.not_valid_after_utc)
    for extension in shown.extensions:
        if extension.oid != x509.OID_AUTHORITY_KEY_IDENTIFIER:
            builder = builder.add_extension(extension.value, extension.critical)
    leaf = builder.sign(ca, certs.SHA256)
    return certs.identity(scratch("forged"), key, certs.pem(leaf).decode(), certs.pem(top).decode())


def hostile_ca(name: x509.Name, key) -> x509.Certificate:
    from impostors import built

    ca = built(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    return ca.sign(key, certs.SHA256)


def test_only_a_replicas_certificate_comes_through_the_handshake(cluster):
    """None, a node's, an operator's, and one that was forged under another CA: nothing is answered, not even the greeting."""
    leader = cluster.leader()
    node = enroll(leader)
    place = scratch("op")
    leader.cli("operator", "add", "spy", "--role", "platform-admin", "--out", place / "spy")
    operator = tuple(next((place / "spy").glob(pattern)) for pattern in ("*cert*.pem", "*key*.pem"))
    greeting = frame(packed(hello(cluster.replicas[1], cluster.replicas[0])))
    for certificate in (None, node.files, operator, forged(cluster)):
        for replica in cluster.replicas:
            assert not said(replica, certificate, greeting), certificate
    serves(cluster)


def test_a_stolen_certificate_without_the_key_of_the_log_gets_nowhere(cluster, thief):
    """Its greeting is answered; a wrong proof ends it. Somebody else's name, another cluster and an older epoch are refused before
    that."""
    follower, identity = thief
    target = next(replica for replica in cluster.replicas if replica is not follower)

    def greeted(**changed) -> bytes:
        with connect(target, identity) as tls:
            tls.sendall(frame(packed(hello(follower, target, **changed))))
            tls.sendall(frame(packed({"proof": bytes(32)})))
            return read_to_end(tls)

    answer = greeted()
    assert b"welcome" in answer and b"no_proof" in answer and b"accepted" not in answer, answer
    for changed, refusal in (
        ({"from": int(target.id)}, b"other_cluster"),
        ({"to": 99}, b"other_cluster"),
        ({"cluster": "01M7PHJX6CK9QJ2BGXT12M4ATN"}, b"other_cluster"),
        ({"epoch": 0}, b"older_epoch"),
    ):
        answer = greeted(**changed)
        assert refusal in answer and b"welcome" not in answer, (changed, answer)
    # What it says of its starts and its log is believed only with the proof.
    assert greeted(starts={"count": 10**9, "recent": [1]}, last_log=0)
    assert target.health()["ready"] and follower.health()["ready"]
    serves(cluster)


def test_garbage_from_a_stolen_certificate_is_closed(cluster, thief):
    """Garbage, a length without end, a frame that is cut off: each connection is closed, at the latest when the greeting's time is
    over, and costs no memory."""
    follower, identity = thief
    target = next(replica for replica in cluster.replicas if replica is not follower)
    before = memory(target)
    for data in (*GARBAGE, frame(b"\xc1" * 100), b"\xff\xff\xff\xff" + bytes(100), (24 * 2**20).to_bytes(4, "big") + bytes(5000)):
        began = time.monotonic()
        assert not said(target, identity, data), data[:20]
        assert time.monotonic() - began < PATIENCE / 2
    with connect(target, identity) as tls:
        tls.sendall(frame(packed(hello(follower, target)))[:50])
        assert read_to_end(tls) == b"", "it was closed without an answer"
    assert memory(target) - before < 32 * 1024
    serves(cluster)


def test_a_byte_at_a_time_is_closed_in_time(cluster, thief):
    """A greeting of 200 bytes, one a second: the whole greeting has ten seconds."""
    follower, identity = thief
    target = next(replica for replica in cluster.replicas if replica is not follower)
    with connect(target, identity) as tls:
        greeting, began, sent = frame(packed(hello(follower, target))), time.monotonic(), 0
        tls.settimeout(1)
        with pytest.raises((ConnectionError, EOFError)):
            for byte in greeting:
                tls.sendall(bytes([byte]))
                sent += 1
                try:
                    if not tls.recv(1):
                        raise EOFError
                except TimeoutError:
                    pass
        assert sent < len(greeting) and time.monotonic() - began < PATIENCE / 2
    serves(cluster)


def test_silent_connections_keep_nobody_out(cluster, thief):
    """Thousands that say nothing, without a certificate and with a stolen one: the cluster serves meanwhile, and a replica that is
    restarted meanwhile finds its way back; memory and descriptors stay bounded, and afterwards all are closed."""
    follower, identity = thief
    others = [replica for replica in cluster.replicas if replica is not follower]
    before = {replica.id: (memory(replica), files(replica)) for replica in others}
    for certificate in (None, identity):
        with Flood(cluster.replicas, certificate) as flood:
            until(lambda flood=flood: flood.opened > 2000, "there are many", patience=240)
            serves(cluster)
            follower.restart()
            until(lambda: follower.health()["ready"], "it found its way back", patience=120)
            serves(cluster)
            for replica in others:
                assert files(replica) - before[replica.id][1] < 600, files(replica)
        for replica in others:
            grown = memory(replica) - before[replica.id][0]
            assert grown < 128 * 1024, f"{grown} KiB"
    for replica in others:
        until(lambda replica=replica: files(replica) - before[replica.id][1] < 60, "they are closed")


def test_who_never_reads_is_let_go(cluster, thief):
    """Greetings without end on one connection, and nothing read: it is closed when the first one is wrong."""
    follower, identity = thief
    target = next(replica for replica in cluster.replicas if replica is not follower)
    tls = connect(target, identity)
    tls.settimeout(PATIENCE)
    greeting = frame(packed(hello(follower, target)))
    with pytest.raises((ConnectionError, OSError)):
        for _ in range(100_000):
            tls.sendall(greeting)
    tls.close()
    serves(cluster)


LIES = ("rolled_back", "removed", "duplicate")


def refused_by_a_liar(port: int, certificate: tuple, called: list) -> None:
    """The replicas that are called hear each lie several times, and go on."""
    with Liar(port, certificate, *LIES) as liar:
        until(lambda: liar.answers > 8 * len(LIES), "it has lied to them", patience=120)
        for replica in called:
            node = enroll(replica)
            assert replica.node(node.id)["cert_serial"] == node.serial
            until(lambda replica=replica: replica.health()["ready"], "it serves")
            reasons = replica.health()["reasons"]
            assert not {f"replica_{lie}" for lie in LIES} & set(reasons), reasons


def test_refusals_of_a_stolen_certificate_are_not_believed(cluster, thief):
    """At the address of a replica that was stopped, somebody with its certificate and without the key of the log tells the others that
    they were removed, put back and copied. None of them believes it, and the replica comes back."""
    follower, identity = thief
    follower.stop()
    others = [replica for replica in cluster.replicas if replica is not follower]
    refused_by_a_liar(follower.peer_port, identity, others)
    follower.start()
    until(lambda: follower.health()["ready"], "it is back", patience=120)
    serves(cluster)


def test_refusals_of_one_that_joined_without_the_key_are_not_believed(cluster):
    """A stolen token and the id of the key-encryption key make it a member at its own address; without that key it has not the log's.
    It can be removed while it lies."""
    first, key, port = cluster.replicas[0], certs.ec_key(), clusters.free_port()
    request = {
        "token": cluster_token(first),
        "kek_id": (first.dir / "keys" / "kek.id").read_text().strip(),
        "csr_pem": certs.csr(key),
        "peer": f"127.0.0.1:{port}",
        "urls": ["https://127.0.0.1:1"],
        "version": "0",
    }
    joined = first.https("POST", "/v1/cluster/join", request).json()
    identity = certs.identity(scratch("joined"), key, joined["cert_pem"])
    refused_by_a_liar(port, identity, cluster.replicas)
    first.cli("cluster", "remove", joined["replica_id"])
    serves(cluster)


def test_a_stale_leader_that_wakes_does_not_answer_a_revoked_node(programs):
    """The leader is stopped (SIGSTOP), the others elect another one and revoke a node, whose requests wait in the sockets of the
    stopped one. When it wakes it must see the revocation before it answers: not one success. Decision D34, PACT-30."""
    with Cluster(3) as cluster:
        leader = cluster.leader()
        others = [replica for replica in cluster.replicas if replica is not leader]
        nodes = [enroll(leader) for _ in range(4)]
        doors = [clusters.door(leader, node.files) for node in nodes]
        for door in doors:
            door.confirm()
        streams = [door.live(node.id) for door, node in zip(doors, nodes, strict=True)]
        until(lambda: all(leader.node(node.id)["state"] == "active" for node in nodes), "they are there")
        leader.freeze()
        cluster.leader(others)
        calls = [door.stub.Confirm.future(native.pb.ConfirmRequest(status=native.pb.CONFIRM_STATUS_OK)) for door in doors[:2]]
        keys = [native.certs.ec_key() for _ in doors]
        calls += [
            door.stub.Renew.future(native.pb.RenewRequest(csr=native.certs.csr(key)))
            for door, key in zip(doors[2:], keys, strict=False)
        ]
        for node in nodes:
            revoked = lambda node=node: others[0].api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": "stolen"}).status == 200
            until(revoked, "it is revoked")
        for stream in streams:
            stream.heartbeat()
        leader.thaw()
        for call in calls:
            try:
                answer = call.result(timeout=PATIENCE)
            except native.grpc.RpcError as error:
                refused = native.Refused(error)
                assert refused.code in (None, "node_revoked", "unauthenticated", "stale", "unavailable"), refused
            else:
                raise AssertionError(f"was answered: {answer}")
        for stream in streams:
            stream.wait_end()
        until(lambda: leader.health()["ready"], "it follows", patience=120)
        trails = cluster.until_equal()
        assert trails[0] == trails[1] == trails[2]
        assert not [line for line in trails[0] if '"certificate.renewed"' in line]

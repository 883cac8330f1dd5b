"""Machines that enroll through every replica of a cluster, each step tried again until it is answered, as an agent would."""

import concurrent.futures
import http.client
import json
import threading
import time

import certs
import clusters
import evidence
import native
from plane import Answer

RETRIES = 120.0
"""After so many seconds of retries a client has seen an error."""
UNAVAILABLE = (native.grpc.StatusCode.UNAVAILABLE, native.grpc.StatusCode.DEADLINE_EXCEEDED)


class Again(Exception):
    """An answer after which a client tries another replica."""


def checked(answer: Answer, status: int) -> dict:
    """The document of an operator's request, unless it may be tried again."""
    if answer.status == 503:
        assert answer.json()["error"]["retryable"], answer
        raise Again(answer.code)
    assert answer.status == status, answer
    return answer.json()


def attempt(act):
    """What it answers; `Again` if a client would try again."""
    try:
        return act()
    except native.Refused as refused:
        assert refused.status in UNAVAILABLE, refused
        raise Again(refused.code or refused.status.name) from None
    except (OSError, http.client.HTTPException) as error:
        raise Again(type(error).__name__) from None


def patiently(act, patience: float = RETRIES):
    """The answer, however often it takes."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return attempt(act)
        except Again as again:
            assert time.monotonic() < deadline, f"a client saw an error: {again}"
        # Agents wait for longer; a client that does not wait at all would only keep the machine busy.
        time.sleep(0.05)


def enroll(replica, token: str | None = None) -> native.Node:
    """A new machine, through this replica."""
    token, key, idempotency = token or replica.token(), certs.ec_key(), f"patient-{time.monotonic_ns()}"
    return patiently(lambda: native.enroll(replica, token, key, idempotency, patience=10))


class Enrolled:
    """A certificate that came out of the door."""

    def __init__(self, answer):
        self.node_id, self.serial = answer.node_id, answer.cert_serial
        self.fingerprint = certs.fingerprint(certs.certificate(answer.certificate))


class Load:
    """So many clients. Each mints a token and redeems it, until the load ends; what has begun is brought to its end first."""

    def __init__(self, cluster, clients: int = 6):
        self.cluster, self.over = cluster, threading.Event()
        self.enrolled: list[Enrolled] = []
        self.written: list[float] = []
        self.again: dict[str, int] = {}
        self.lock = threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(clients)
        self.tasks = [self.pool.submit(self._work, at) for at in range(clients)]

    def _work(self, at: int) -> None:
        while not self.over.is_set():
            minted = self._until_answered(at, lambda replica: checked(replica.api("POST", "/v1/tokens", {}), 201))
            token = evidence.token(minted["token"])
            csr, idempotency = certs.csr(certs.ec_key()), f"load-{at}-{time.monotonic_ns()}"

            def enroll(replica, token=token, csr=csr, idempotency=idempotency):
                with clusters.door(replica) as door:
                    return door.enroll(token, csr, idempotency, patience=10)

            answer = self._until_answered(at + 1, enroll)
            with self.lock:
                self.enrolled.append(Enrolled(answer))
            # Long runs are to kill many leaders, not to grow the registry.
            self.over.wait(0.1)

    def _until_answered(self, at: int, act):
        """By one replica after the other."""
        deadline = time.monotonic() + RETRIES
        while True:
            replicas = [replica for replica in self.cluster.replicas if replica.url]
            replica = replicas[at % len(replicas)]
            try:
                answer = attempt(lambda replica=replica: act(replica))
            except Again as again:
                assert time.monotonic() < deadline, f"a client saw an error: {again}"
                with self.lock:
                    self.again[str(again)] = self.again.get(str(again), 0) + 1
                time.sleep(0.05)
                at += 1
                continue
            with self.lock:
                self.written.append(time.monotonic())
            return answer

    def goes_on(self, more: int = 5):
        """A condition: so many have got in since it was asked for. A client that failed fails the test."""
        before = len(self.enrolled)

        def condition() -> bool:
            for task in self.tasks:
                if task.done():
                    task.result()
            return len(self.enrolled) >= before + more

        return condition

    def pause(self, since: float) -> float:
        """The longest time without an acknowledged write, from this moment on."""
        with self.lock:
            moments = [since, *(moment for moment in self.written if moment > since)]
        return max(later - earlier for earlier, later in zip(moments, moments[1:]))

    def end(self) -> list[Enrolled]:
        self.over.set()
        for task in self.tasks:
            task.result()
        self.pool.shutdown()
        return self.enrolled

    def close(self) -> None:
        """However it ended."""
        self.over.set()
        self.pool.shutdown()


def check_on_record(cluster, enrolled: list[Enrolled], besides: frozenset | set = frozenset()) -> None:
    """Each is on record on every replica, once, with its certificate; nobody else is but those named; and all trails are equal."""
    certificates = {item.node_id: (item.serial, item.fingerprint) for item in enrolled}
    assert len(certificates) == len(enrolled), "no two clients were given one node"
    for replica in cluster.replicas:
        found = {node["node_id"]: node["cert_serial"] for node in replica.nodes() if node["node_id"] not in besides}
        assert found == {node: serial for node, (serial, _) in certificates.items()}
    replica = cluster.replicas[-1]
    for node, (serial, fingerprint) in certificates.items():
        kept = {item["serial"]: item["fingerprint"] for item in replica.node(node)["certificates"]}
        assert kept == {serial: f"sha256:{fingerprint}"}, node
    trails = cluster.until_equal()
    assert all(trail == trails[0] for trail in trails), "the trails differ"
    lines = [line for line in map(json.loads, trails[0]) if line["event_type"] == "host.enrolled"]
    lines = [line for line in lines if line["node_id"] not in besides]
    assert len(lines) == len(certificates), "none is enrolled twice"
    recorded = {line["node_id"]: (line["cert_serial"], line["mtls_cert_fingerprint"]) for line in lines}
    assert recorded == {node: (serial, f"SHA256:{digest}") for node, (serial, digest) in certificates.items()}


def spread(values: list[float], unit: str = "s") -> str:
    """As robustness.md says it."""
    ordered = sorted(values)

    def quantile(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return f"p50 {quantile(0.5):.2f}, p99 {quantile(0.99):.2f}, most {ordered[-1]:.2f} {unit}"

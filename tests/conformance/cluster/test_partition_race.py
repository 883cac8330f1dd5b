"""One token, redeemed through three replicas at once while partitions come and go.

Three rounds of 150 clients in CI, twenty of a thousand in `just soak`. ENLIST_SEED draws the same partitions again.
"""

import collections
import concurrent.futures
import os
import random
import threading
import time

import certs
import native
from cluster_load import UNAVAILABLE, patiently, spread
from machine import until
from partitions import CutCluster

ROUNDS = int(os.environ.get("ENLIST_PARTITION_ROUNDS", "3"))
CLIENTS = int(os.environ.get("ENLIST_PARTITION_CLIENTS", "150"))
SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
CONNECTIONS = 12
"""To each replica."""
CUTS = 3
"""Partitions of a round, one after the other."""
BURSTS, SPAN = 5, 8.0
"""Clients come in so many bursts within so many seconds: some when the token has long been used on the other side of a cut."""
LIMIT = 180.0


class Weather(threading.Thread):
    """Cuts links and heals them, as the seed says. Which replica leads is for chance as well."""

    def __init__(self, cluster, chance: random.Random):
        super().__init__(daemon=True)
        self.cluster, self.chance, self.seen = cluster, chance, []
        self.over = threading.Event()

    def cut(self) -> None:
        kind = self.chance.choice(("leader", "one", "pair"))
        direction = self.chance.choice(("both", "both", "out", "in"))
        one, other = self.chance.sample(self.cluster.replicas, 2)
        if kind == "pair":
            self.cluster.cut(one, other, direction)
        else:
            self.cluster.cut_off(leading(self.cluster, one) if kind == "leader" else one, direction)
        self.seen.append(f"{kind} {direction}")

    def run(self) -> None:
        """The first cut is there already."""
        for number in range(CUTS):
            if number:
                self.cut()
            self.over.wait(self.chance.uniform(0.5, 6))
            self.cluster.heal()
            self.over.wait(self.chance.uniform(0, 2))

    def end(self) -> None:
        self.over.set()
        self.join()


def leading(cluster, otherwise):
    """Who leads now, as far as anyone says."""
    for replica in cluster.replicas:
        status = replica.status()
        if status["leader"] == replica.id and status["quorum"]:
            return replica
    return otherwise


class Race:
    """Clients, each with a key of its own, that want to be let in by the same token."""

    def __init__(self, cluster, token: str, chance: random.Random):
        self.cluster, self.token = cluster, token
        self.requests = [(certs.csr(certs.ec_key()), f"race-{chance.random()}") for _ in range(CLIENTS)]
        self.granted: dict[int, object] = {}
        self.answers: collections.Counter = collections.Counter()
        self.delays = [0.0, *(chance.uniform(0, SPAN) for _ in range(BURSTS - 1))]
        self.lock = threading.Lock()
        self.doors = [[native.door(replica) for _ in range(CONNECTIONS)] for replica in cluster.replicas]

    def run(self) -> None:
        with concurrent.futures.ThreadPoolExecutor(BURSTS) as pool:
            for burst in [pool.submit(self.burst, at) for at in range(BURSTS)]:
                burst.result()

    def burst(self, number: int) -> None:
        """Many at once; whoever is told to try again does so on another replica."""
        time.sleep(self.delays[number])
        waiting, wave, deadline = list(range(number, CLIENTS, BURSTS)), 0, time.monotonic() + LIMIT
        while waiting:
            assert time.monotonic() < deadline, f"{len(waiting)} have had no answer: {self.answers}"
            calls = [(client, self.begin(client, client + wave)) for client in waiting]
            waiting = [client for client, call in calls if not self.is_final(client, call)]
            wave += 1
            time.sleep(0.1)

    def begin(self, client: int, at: int):
        csr, idempotency = self.requests[client]
        doors = self.doors[at % len(self.doors)]
        return doors[at // len(self.doors) % CONNECTIONS].begin(self.token, csr, idempotency, patience=15)

    def is_final(self, client: int, call) -> bool:
        try:
            granted, refused = call.result(), None
        except native.grpc.RpcError as error:
            granted, refused = None, native.Refused(error)
        with self.lock:
            self.answers["granted" if granted else refused.code or refused.status.name] += 1
            if granted:
                self.granted[client] = granted
        if granted or refused.code == "token_used":
            return True
        assert refused.status in UNAVAILABLE, refused
        return False

    def close(self) -> None:
        for doors in self.doors:
            for door in doors:
                door.close()


def one_round(cluster, chance: random.Random) -> collections.Counter:
    before = {node["node_id"] for node in cluster.replicas[0].nodes()}
    minted = chance.choice(cluster.replicas).mint()
    weather, race = Weather(cluster, chance), Race(cluster, minted["token"], chance)
    try:
        weather.cut()
        weather.start()
        race.run()
    finally:
        race.close()
        if weather.ident:
            weather.end()
        cluster.heal()
    print(f"{', '.join(weather.seen)}: {dict(race.answers)}", flush=True)
    assert len(race.granted) == 1, f"{len(race.granted)} were let in"
    (winner,) = race.granted.values()
    cluster.until_whole()
    for replica in cluster.replicas:
        new = {node["node_id"]: node["cert_serial"] for node in replica.nodes() if node["node_id"] not in before}
        assert new == {winner.node_id: winner.cert_serial}, new
        assert replica.token_state(minted["token_id"]) == "used"
    return race.answers


def test_one_token_lets_one_in_whatever_becomes_of_the_links(programs):
    """Every client gets a final answer: one is let in, all others are `token_used`; and after healing the registry of each replica has
    exactly this node, with this certificate. The trails are equal and verify. Proves PLFM-01, PACT-12, PACT-41."""
    print(f"\nENLIST_SEED={SEED} ENLIST_PARTITION_ROUNDS={ROUNDS} ENLIST_PARTITION_CLIENTS={CLIENTS}")
    answers: collections.Counter = collections.Counter()
    took = []
    with CutCluster(3) as cluster:
        for number in range(ROUNDS):
            began = time.monotonic()
            try:
                answers += one_round(cluster, random.Random(f"{SEED}/{number}"))
            except AssertionError as error:
                raise AssertionError(f"ENLIST_SEED={SEED}, round {number}: {error}") from None
            took.append(time.monotonic() - began)
        trails = cluster.until_equal()
        assert trails[0] == trails[1] == trails[2]
        lines = patiently(lambda: cluster.replicas[1].audit("host.enrolled"))
        assert len(lines) == ROUNDS and len({line["token_id"] for line in lines}) == ROUNDS
        for replica in cluster.replicas:
            until(lambda replica=replica: replica.cli("audit", "verify").json()["ok"], "its trail verifies")
    again = sum(count for code, count in answers.items() if code not in ("granted", "token_used"))
    assert again, "no partition was felt by anybody: this shows nothing"
    print(f"{ROUNDS} rounds, {CLIENTS} clients each, one let in each time, {again} attempts told to try again; a round took {spread(took)}")

"""Several replicas of one control plane on this machine, each a process with a directory of its own."""

import concurrent.futures
import os
import signal

import evidence
import native
from machine import ENLIST, Done, run, until
from plane import ControlPlane
from daemons import free_port


class Replica(ControlPlane):
    """One of them. The first is initialized; the others join through one that runs."""

    # A long log is applied again after SIGKILL, beside the load of the others.
    start_patience = 300.0

    def __init__(self, first: "Replica | None" = None, init: tuple = (), config: str = ""):
        super().__init__(init=init)
        self.first, self.peer_port, self.config = first, free_port(), config
        if first:
            self.kek, self.kek_file = first.kek, first.kek_file

    @property
    def peer_address(self) -> str:
        return f"127.0.0.1:{self.peer_port}"

    def init_command(self) -> Done:
        self.init_arguments = (*self.init_arguments, "--peer-listen", self.peer_address)
        return super().init_command()

    def launch(self, *arguments, env: dict | None = None) -> None:
        file = self.dir / "enlist.toml"
        if self.config not in (before := file.read_text()):
            file.write_text(before + self.config)
        super().launch(*arguments, env=env)

    def join_command(self, token: str, **changed) -> Done:
        """`server join`, with something changed."""
        flags = {
            "--peer": self.first.url,
            "--ca-pin": self.first.pin,
            "--kek": self.kek,
            "--listen": "127.0.0.1:0",
            "--peer-listen": self.peer_address,
        } | changed
        words = [word for pair in flags.items() for word in pair]
        return run(ENLIST, "server", "join", "--dir", self.dir, "--json", "--token", "-", *words, stdin=token.encode())

    def join(self) -> "Replica":
        def joined() -> Done | None:
            """While nobody leads it is asked for again, as the answer says."""
            done = self.join_command(cluster_token(self.first))
            assert done.code in (0, 4), done
            return done if done.code == 0 else None

        self.founded = {**self.first.founded, **until(joined, "it joins", patience=120).json()}
        return self

    @property
    def id(self) -> str:
        return self.founded.get("replica_id", "1")

    def status(self) -> dict:
        answer = self.api("GET", "/v1/cluster")
        assert answer.status == 200, answer
        return answer.json()

    def health(self) -> dict:
        return self.api("GET", "/readyz").json()

    def change(self, method: str, path: str, body: dict, *statuses: int):
        """A change, sent again as long as the answer says so: on a slow machine another leader may be elected at any moment. Only for
        what may be applied twice, with the statuses that the second time is answered with too."""
        answer = until(lambda: answered(self.api(method, path, body)), f"{method} {path} is answered", patience=120)
        assert answer.status in statuses, answer
        return answer

    def mint(self, **fields) -> dict:
        minted = self.change("POST", "/v1/tokens", fields, 201).json()
        evidence.token(minted["token"])
        return minted

    def policy(self, key: str, value: str) -> None:
        self.change("PUT", "/v1/policy", {"key": key, "value": value}, 200)

    def revoke(self, node: str) -> None:
        self.change("POST", f"/v1/nodes/{node}/revoke", {"reason": "test"}, 200)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.thaw()
        super().close()


def answered(answer):
    """None where nobody leads at the moment, or where nobody knows whether it was applied."""
    if answer.status != 503:
        return answer
    assert answer.json()["error"]["retryable"], answer
    return None


def cluster_token(replica, **fields) -> str:
    answer = until(lambda: answered(replica.api("POST", "/v1/cluster/tokens", fields)), "a leader answers", patience=120)
    assert answer.status == 201, answer
    evidence.token(answer.json()["token"])
    return answer.json()["token"]


class Cluster:
    """So many replicas, all of them voters."""

    def __init__(self, count: int = 3, init: tuple = (), config: str = ""):
        """`config` is added to the enlist.toml of each."""
        self.count, self.init, self.config = count, init, config
        self.replicas: list[Replica] = []

    def __enter__(self) -> "Cluster":
        try:
            first = self.replica()
            self.replicas.append(first)
            first.found().start()
            first.policy("failures.per_minute", "0")
            for _ in range(self.count - 1):
                self.add()
            self.until_voting(self.count)
        except BaseException:
            self.close()
            raise
        return self

    def replica(self) -> Replica:
        """One more, not yet initialized or joined."""
        first = self.replicas[0] if self.replicas else None
        return Replica(first, () if first else self.init, self.config)

    def add(self) -> Replica:
        new = self.replica()
        self.replicas.append(new)
        return new.join().start()

    def until_voting(self, count: int) -> None:
        """For each of them: one hears of the others later than another, and refuses what only the others could allow."""

        def all_vote(replica) -> bool:
            replicas = replica.status()["replicas"]
            return len(replicas) == count and all(item["voter"] and item["health"] == "ok" for item in replicas)

        until(lambda: all(map(all_vote, self.replicas)), f"{count} replicas vote", patience=120)

    def leader(self, among=None) -> Replica:
        """The one that leads with a majority behind it."""

        def found() -> Replica | None:
            for replica in among or self.replicas:
                if replica.process.poll() is None:
                    status = replica.status()
                    if status["leader"] == replica.id and status["quorum"]:
                        return replica
            return None

        return until(found, "one of them leads", patience=120)

    def followers(self) -> list[Replica]:
        return self.roles()[1]

    def roles(self) -> tuple:
        """The leader and the others, of one moment: on a slow machine another may be elected at any time. Whatever joins later does
        so through the first replica, so the last of the others is the one to do without."""
        leader = self.leader()
        return leader, [replica for replica in self.replicas if replica is not leader]

    def until_equal(self, among=None) -> list[list[str]]:
        """The trails of all of them, once they are as long as the longest; a leader writes lines of its own now and then."""
        among = among or self.replicas

        def trails() -> list[list[str]] | None:
            with concurrent.futures.ThreadPoolExecutor(len(among)) as pool:
                found = list(pool.map(trail, among))
            return found if len({len(lines) for lines in found}) == 1 else None

        return until(trails, "all trails are equally long", patience=120)

    def close(self) -> None:
        for replica in self.replicas:
            if replica.process and replica.process.poll() is None:
                replica.thaw()
        for replica in reversed(self.replicas):
            replica.close()

    def __exit__(self, *_) -> None:
        self.close()


def trail(replica) -> list[str]:
    """The lines as they are in the store, byte for byte."""
    import sqlite3

    copy = sqlite3.connect(f"file:{replica.dir / 'audit.db'}?mode=ro", uri=True)
    try:
        return [line for (line,) in copy.execute("SELECT line FROM lines ORDER BY seq")]
    finally:
        copy.close()


def fresh(replica, path: str) -> dict:
    """What a replica knows once it has asked the leader; while none can be asked, it answers with what it has, and says so."""

    def asked() -> dict | None:
        answer = replica.api("GET", path)
        assert answer.status == 200, answer
        return None if "x-state-age-ms" in answer.headers else answer.json()

    return until(asked, f"the leader is asked before {path} is read")


def door(replica, certificate=None) -> native.Door:
    return native.Door(replica.port, replica.bundle, certificate)


ROUNDS = int(os.environ.get("ENLIST_CLUSTER_ROUNDS", 5))
"""How often a leader dies; `just soak` asks for more."""

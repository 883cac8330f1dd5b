"""Control planes whose clocks can be set while they run."""

import time

from clocks import Clock, sweep
from clusters import Cluster, Replica
from machine import until
from plane import ControlPlane


class Jumping(ControlPlane):
    """Its clock is wrong whenever a test says so; the time that passes is everybody's."""

    def __init__(self, **named):
        self.clock = Clock()
        super().__init__(env=self.clock.env, **named)

    def ready(self):
        return self.api("GET", "/readyz")

    def jump(self, offset: str) -> None:
        """Sets the clock, and gives a wrong one something to stamp."""
        self.clock.set(offset)
        self.stamp()

    def stamp(self, _believed: bool = True) -> None:
        """An entry of the log that no state of the clock prevents."""
        answer = self.api("PUT", "/v1/policy", {"key": "enrolled.stuck_after", "value": f"{time.monotonic_ns() % 3000 + 600}s"})
        assert answer.status == 200, answer

    def ahead(self) -> float:
        """Seconds by which the newest line of its trail is ahead of the true time."""
        import datetime

        lines = self.api("GET", "/v1/audit?order=desc&limit=1").json()["items"]
        return datetime.datetime.fromisoformat(lines[0]["at"]).timestamp() - time.time()

    def wait_well(self) -> None:
        until(lambda: self.ready().status == 200, "it is ready again")

    def stop(self) -> None:
        super().stop()
        sweep(self.process.pid)

    def kill(self) -> None:
        super().kill()
        sweep(self.process.pid)

    def close(self) -> None:
        super().close()
        if self.process:
            sweep(self.process.pid)


class JumpingReplica(Replica):
    """Its clock can be set while it runs."""

    def __init__(self, first=None, init=()):
        super().__init__(first, init)
        self.clock = Clock()
        self.env = self.clock.env

    def kill(self) -> None:
        super().kill()
        sweep(self.process.pid)

    def close(self) -> None:
        super().close()
        if self.process:
            sweep(self.process.pid)


class JumpingCluster(Cluster):
    def replica(self) -> JumpingReplica:
        return JumpingReplica(self.replicas[0]) if self.replicas else JumpingReplica(init=self.init)

    def others(self, replica) -> list[JumpingReplica]:
        return [other for other in self.replicas if other is not replica]

    def until_well(self) -> None:
        for replica in self.replicas:
            until(lambda replica=replica: replica.health()["ready"], f"replica {replica.id} is ready", patience=120)

"""A control plane whose clock can be set while it runs."""

import time

from clocks import Clock, sweep
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

"""How a control plane sees one node, looked at all the time."""

import datetime
import threading
import time

from machine import until


class Presence(threading.Thread):
    """For how long the node was away at most, and when its identity was another: looked at every 20 ms, until it is left."""

    def __init__(self, plane, node: str):
        super().__init__(daemon=True)
        self.plane, self.node = plane, node
        self.longest, self.over, self.looks = 0.0, threading.Event(), 0
        self.changes: list[tuple[float, str]] = []
        """Since when it has been connected by which identity, by the wall clock."""
        self.ends: dict[str, float] = {}
        """When the last certificate that it showed of each identity ends."""
        self.failed: Exception | None = None

    def run(self) -> None:
        away = None
        try:
            while not self.over.wait(0.02):
                shown, now = self.plane.node(self.node), time.monotonic()
                if shown["connected"]:
                    away = None
                    if not self.changes or self.changes[-1][1] != shown["identity_provider"]:
                        self.changes.append((time.time(), shown["identity_provider"]))
                    if shown["cert_not_after"]:
                        end = datetime.datetime.fromisoformat(shown["cert_not_after"])
                        self.ends[shown["identity_provider"]] = end.timestamp()
                else:
                    away = away or now
                    self.longest = max(self.longest, now - away)
                self.looks += 1
        except Exception as error:  # a thread's failure is told, not raised
            self.failed = error

    def since(self, provider: str, patience: float) -> float:
        """When it came to be connected by this identity, once it is."""

        def found() -> float | None:
            assert not self.failed, self.failed
            return next((at for at, identity in reversed(self.changes) if identity == provider), None)

        return until(found, f"it is connected by {provider}", patience)

    def __enter__(self) -> "Presence":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        self.join()
        assert not self.failed and self.looks > 0, self.failed

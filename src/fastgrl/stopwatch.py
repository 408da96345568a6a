"""How long the parts of a computation take."""

from __future__ import annotations

import time


class Stopwatch:
    """Seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stop(self, name: str) -> None:
        """Give the time since the last stop a name."""
        now = time.perf_counter()
        self.seconds[name], self._last = round(now - self._last, 4), now

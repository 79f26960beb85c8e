"""The service's time: it never goes back, whatever the machine's clock does."""

from __future__ import annotations

import time


class Clock:
    """Seconds since 1970 as the machine had them at the start, and as many as went by since."""

    def __init__(self) -> None:
        self._start = time.time() - time.monotonic()

    def now(self) -> float:
        """Moves with the monotonic clock: setting the machine's clock ends no window."""
        return self._start + time.monotonic()

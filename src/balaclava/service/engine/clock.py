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

    def catch_up(self, moment: float) -> None:
        """Go on from that moment if it is later: the machine's clock was set back meanwhile, or
        that of another process is ahead.
        """
        self._start += max(moment - self.now(), 0.0)

"""Memory of a device for groups of games that run concurrently.

Freeing memory waits until the whole device is idle. So the arrays of a finished group are kept
until all groups are done, if the remaining games fit beside them.
"""

import threading
from typing import Any

_MEMORY_SHARE = 0.8  # of the free memory, for games; the rest is for temporary arrays

laying_out = threading.Lock()  # hold it from `share` until the games are allocated


class DeviceMemory:
    """The memory shared by concurrent groups, whose games together take `needed` bytes."""

    def __init__(self, needed: int) -> None:
        self._needed = needed  # bytes of the games not allocated yet
        self._kept: list[Any] = []

    def share(self, needed: int) -> float:
        """The share of a group's games, of `needed` bytes, that fits; 1 if all groups fit.

        Call while holding `laying_out`.
        """
        return min(1.0, _room() / max(self._needed, needed))

    def laid_out(self, needed: int) -> None:
        """Note that the last games of a group of `needed` bytes are allocated."""
        self._needed -= needed

    def keep(self, arrays: Any) -> None:
        """Keep arrays until `close`, if the remaining games fit beside them."""
        if _room() >= self._needed:
            self._kept.append(arrays)

    def close(self) -> None:
        self._kept.clear()


def _room() -> float:
    from numba import cuda

    free, _ = cuda.current_context().get_memory_info()
    return _MEMORY_SHARE * free

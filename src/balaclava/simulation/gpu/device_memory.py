"""The memory of a device for groups that are played side by side: what fits, and what is kept.

Giving memory back waits until nothing is played on the whole device. So what a group had is kept
until all of them are done, as long as the games that are still to come fit beside it.
"""

from __future__ import annotations

import threading
from typing import Any

_SHARE = 0.8  # of the free memory of the device, for all games that are to be played

laying_out = threading.Lock()  # of games: as many as the free memory holds


class DeviceMemory:
    """What all groups that are played side by side share.

    Args:
        needed: bytes of all their games.
    """

    def __init__(self, needed: int) -> None:
        self._needed = needed  # by the games that are still to be laid out
        self._kept: list[Any] = []

    def share(self, needed: int) -> float:
        """Of a group's games, which need so many bytes: 1 if those of all groups fit.

        Asked, as it is said that they are laid out, by who holds `laying_out`.
        """
        return min(1.0, _room() / max(self._needed, needed))

    def laid_out(self, needed: int) -> None:
        """The last games of a group have their place; all together need so many bytes."""
        self._needed -= needed

    def keep(self, arrays: Any) -> None:
        """Give them back with all others, if what is still to be laid out fits beside them."""
        if _room() >= self._needed:
            self._kept.append(arrays)

    def close(self) -> None:
        """Give back what was kept."""
        self._kept.clear()


def _room() -> float:
    from numba import cuda

    free, _ = cuda.current_context().get_memory_info()
    return _SHARE * free

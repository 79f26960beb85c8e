"""Rings: arrays whose size is a power of two, in which numbers have their place."""

from __future__ import annotations

from balaclava._core.kernels import kernel


@kernel(borrows=True)
def within(number: int, size: int) -> int:
    """The place of a number in a ring of that size."""
    # The constant says that it is not below 0: an index that may be is looked at for it each time.
    return int(number & ((size - 1) & (2**31 - 1)))

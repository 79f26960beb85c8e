"""Rows that repeat another row, as after an export or a join that ran twice."""

import numpy as np

# Share of a span's moments in use: fine times leave most of them empty. A guess.
_MOST_MOMENTS_USED = 0.1
# Fewer could each be there an even number of times by chance. A guess.
_FEWEST_DIFFERENT_ROWS = 10


def repeated_rows(
    columns: list[np.ndarray], times: np.ndarray | None, *, identified: bool = True
) -> int:
    """How many rows repeat another row in each column; 0 if that may be chance.

    Two rows of one participant on one day may be equal, so times must be fine enough to tell rows
    apart. If each row is there as often, such as twice, they need not be.

    Args:
        columns: that make two rows equal, `times` among them.
        times: of the rows.
        identified: whether a column tells participants apart.

    Example:
        >>> ids, times = np.arange(30), np.arange(30.0)
        >>> twice = [np.repeat(ids, 2), np.repeat(times, 2)]
        >>> repeated_rows([ids, times], times), repeated_rows(twice, twice[1])
        (0, 30)
    """
    order = np.lexsort(columns)
    equal = np.logical_and.reduce([part[order][1:] == part[order][:-1] for part in columns])
    copies = np.diff(np.flatnonzero(np.concatenate([[True], ~equal, [True]])))
    if equal.any() and (
        _all_alike(copies, times)
        or (identified and times is not None and _tell_rows_apart(times, copies.size))
    ):
        return int(equal.sum())
    return 0


def _all_alike(copies: np.ndarray, times: np.ndarray | None) -> bool:
    """Whether each of enough rows is there k times, or a multiple of it."""
    if times is not None and np.unique(times).size <= copies.size / 2:
        return False
    return bool(copies.size >= _FEWEST_DIFFERENT_ROWS and np.gcd.reduce(copies) > 1)


def _tell_rows_apart(times: np.ndarray, different: int) -> bool:
    """Whether times are fine enough, for so many different rows."""
    moments = np.unique(times)
    if moments.size > times.size / 2:
        return True
    if moments.size < 2 or moments.size <= different / 2:
        return False
    possible = float(np.ptp(moments)) / float(np.diff(moments).min()) + 1.0
    return moments.size <= _MOST_MOMENTS_USED * possible

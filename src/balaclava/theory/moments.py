"""Raw and central moments of order p = 1 + v, 1 <= p <= 2 (Tao, Wu, Zhao, Wang 2022, Lemma 10)."""

from __future__ import annotations


def raw_moment_bound(central: float, *, mean_range: float, order: float) -> float:
    """A bound on E|X|^p, if E|X - mu|^p <= central and |mu| <= mean_range.

    (central^(1/p) + mean_range)^p, by Minkowski's inequality. Lemma 10 has 2 central +
    2 mean_range^p, which is never less, since (a + b)^p <= 2^(p-1) (a^p + b^p).

    Example:
        >>> raw_moment_bound(1.0, mean_range=3.0, order=2.0)
        16.0
    """
    return float((central ** (1.0 / order) + mean_range) ** order)


def central_moment_bound(raw: float) -> float:
    """A bound on E|X - mu|^p, if E|X|^p <= raw: 4 times that, for p from 1 to 2.

    Example:
        >>> central_moment_bound(2.5)
        10.0
    """
    return 4.0 * raw

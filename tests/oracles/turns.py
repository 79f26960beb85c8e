"""The order of a permuted block, by fractions: what is left of a number serves for the next."""

from __future__ import annotations

from fractions import Fraction
from typing import Any


def shuffled(arms: list[int], rng: Any) -> list[int]:
    """The arms in the order of their turns; a number serves for 2^22 outcomes at most."""
    left, order = list(arms), []
    outcomes, number = 2**22, Fraction(0)
    while len(left) > 1:
        outcomes *= len(left)
        if outcomes > 2**22:
            outcomes, number = len(left), Fraction(rng.random())
        number *= len(left)
        turn = int(number)
        number -= turn
        order.append(left[turn])
        left[turn] = left[0]
        del left[0]
    return order + left

"""What may be spent: the check that every private policy makes when it is built."""

from __future__ import annotations

import math

from balaclava.errors import PrivacyError


def check_budget(epsilon: float, delta: float = 0.0, sensitivity: float = 1.0) -> None:
    """Refuse a privacy budget or a sensitivity that no mechanism can keep.

    Example:
        >>> check_budget(0.0, delta=0.01)
        >>> check_budget(0.0)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        balaclava.errors.PrivacyError: epsilon = 0 and delta = 0: nothing may depend on the data...
    """
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise PrivacyError(f"epsilon = {epsilon!r} is not allowed; give a finite number at least 0")
    if not 0 <= delta < 1:
        raise PrivacyError(f"delta = {delta!r} is not allowed; give a number in [0, 1)")
    if epsilon == 0 and delta == 0:
        raise PrivacyError(
            "epsilon = 0 and delta = 0: nothing may depend on the data; raise one of the two"
        )
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise PrivacyError(
            f"sensitivity = {sensitivity!r} is not allowed; give a finite number above 0: how far "
            "one reward can move the value (clip or truncate rewards if nothing bounds it)"
        )

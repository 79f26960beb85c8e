"""What may be spent: the check that every private policy makes when it is built."""

from __future__ import annotations

from balaclava._core.declared import ReleaseEpsilon, Sensitivity, check, check_claim
from balaclava.errors import ParameterError, PrivacyError


def check_budget(epsilon: float, delta: float = 0.0, sensitivity: float = 1.0) -> None:
    """Refuse a privacy budget or a sensitivity that no mechanism can keep.

    Example:
        >>> check_budget(0.0, delta=0.01)
        >>> check_budget(0.0)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        balaclava.errors.PrivacyError: epsilon = 0 with delta = 0 would mean decisions...
    """
    try:
        check_claim(epsilon, delta, ReleaseEpsilon)
        check("sensitivity", sensitivity, Sensitivity)
    except ParameterError as error:  # a policy's mistake, not a user's: audits report it
        raise PrivacyError(str(error)) from None

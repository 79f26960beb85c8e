"""A claim of privacy as an object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from balaclava.errors import PrivacyError

Model = Literal["none", "central", "local"]
Scope = Literal["none", "decision", "trajectory", "report"]

NEIGHBOURS = "reward streams that differ in one time step's reward"


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What an observer of the decisions cannot learn, and under which assumptions.

    `scope` says what the epsilon covers: one decision at a time ("decision"), all decisions of
    a run together ("trajectory"), or each reward as it leaves its owner ("report").
    """

    epsilon: float
    delta: float = 0.0
    model: Model = "central"
    scope: Scope = "trajectory"
    neighbours: str = NEIGHBOURS
    assumptions: tuple[str, ...] = ()
    reference: str = ""

    def __post_init__(self) -> None:
        if self.model not in get_args(Model) or self.scope not in get_args(Scope):
            raise PrivacyError(
                f"model {self.model!r} with scope {self.scope!r} is not a guarantee; models: "
                f"{', '.join(get_args(Model))}; scopes: {', '.join(get_args(Scope))}"
            )
        if (self.model == "none") != (self.scope == "none"):
            raise PrivacyError("model and scope are both 'none' or neither is")
        if self.model == "none":
            return
        if not (self.epsilon >= 0 and math.isfinite(self.epsilon)):
            raise PrivacyError(f"epsilon = {self.epsilon!r} is not allowed; give a number at least 0")
        if not 0 <= self.delta < 1:
            raise PrivacyError(f"delta = {self.delta!r} is not allowed; give a number in [0, 1)")

    @property
    def private(self) -> bool:
        """Whether anything is promised at all."""
        return self.model != "none"

    def __str__(self) -> str:
        if not self.private:
            return "not private"
        delta = f", δ={self.delta:g}" if self.delta else ""
        return f"ε={self.epsilon:g}{delta} per {self.scope}"


def not_private(reason: str, reference: str = "") -> Guarantee:
    """The guarantee of a policy that promises nothing, and why."""
    return Guarantee(
        epsilon=math.inf, model="none", scope="none", assumptions=(reason,), reference=reference
    )

"""What an audit says, in one screen."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from balaclava.auditing.exact import ExactAudit
from balaclava.auditing.replay import ReplayAudit
from balaclava.auditing.statistical import BettingAudit, StatisticalAudit
from balaclava.privacy.guarantee import Guarantee

Verdict = Literal["consistent", "violated", "not private"]
TIGHT = 0.8  # of the claimed epsilon


@dataclass(frozen=True)
class AuditReport:
    """Three attempts to refute a claim of privacy, and what came of them.

    A consistent verdict is no proof: the proof stands in the policy's docstring. A violated one is
    a counterexample.
    """

    policy: str
    parameters: dict[str, Any]
    claimed: Guarantee
    confidence: float
    replay: ReplayAudit | None
    exact: ExactAudit | None
    statistical: StatisticalAudit | BettingAudit | None
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Violated as soon as one of the three says so."""
        parts = [part for part in (self.replay, self.exact, self.statistical) if part is not None]
        if any(part.verdict == "violated" for part in parts):
            return "violated" if self.claimed.private else "not private"
        return "consistent" if self.claimed.private else "not private"

    @property
    def epsilon_lower(self) -> float:
        """What the games prove epsilon to be at least, with the stated confidence."""
        return getattr(self.statistical, "epsilon_lower", 0.0)

    @property
    def tight(self) -> bool:
        """Whether the lower bound comes near the claim, so that little could hide between them."""
        return self.claimed.private and self.epsilon_lower >= TIGHT * self.claimed.epsilon > 0

    def to_dict(self) -> dict[str, Any]:
        """The whole report as JSON-able values."""
        whole = dataclasses.asdict(self)
        whole |= {"verdict": self.verdict, "tight": self.tight, "epsilon_lower": self.epsilon_lower}
        if math.isinf(self.claimed.epsilon):
            whole["claimed"]["epsilon"] = None
        return whole

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        lines = [
            f"{self.policy}({given})",
            f"claims:      {self.claimed}",
            f"verdict:     {self.verdict.upper()}",
            f"replay:      {self.replay or 'does not apply'}",
            f"exact:       {self.exact or 'does not apply'}",
            f"statistical: {self.statistical or 'does not apply'}",
        ]
        if isinstance(self.statistical, StatisticalAudit) and self.claimed.private:
            share = self.epsilon_lower / self.claimed.epsilon if self.claimed.epsilon else 0.0
            lines.append(
                f"tightness:   {'tight' if self.tight else 'loose'}: the bound reaches "
                f"{share:.0%} of the claim"
                + ("" if self.tight else "; a smaller violation could go unseen by this part")
            )
        return "\n".join([*lines, *(f"note:        {note}" for note in self.notes)])

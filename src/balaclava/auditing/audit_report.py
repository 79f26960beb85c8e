"""The report of an audit."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from balaclava._core.number_format import rounded_down
from balaclava._core.text_tables import html_table
from balaclava.auditing.enumeration.exhaustive_audit import ExhaustiveAudit
from balaclava.auditing.games.statistical_audit import BettingAudit, StatisticalAudit
from balaclava.auditing.laws.exact_audit import ExactAudit
from balaclava.auditing.laws.mechanism_laws import LawAudit
from balaclava.auditing.replay.replay_audit import ReplayAudit
from balaclava.privacy.guarantee import Guarantee

Verdict = Literal["consistent", "violated", "unproved", "not examined", "not private"]
# Share of the claimed epsilon at which a lower bound is called tight; a convention.
_TIGHT_SHARE = 0.8


@dataclass(frozen=True)
class AuditReport:
    """The result of trying to refute a claim of privacy.

    - "violated": there is a counterexample.
    - "unproved": replay or small worlds have a loss above the claim; games refute nothing.
    - "not examined": no release or decision depended on a reward.
    - "consistent": within the claim wherever it was examined. The proof is in the policy's
      docstring.
    - "not private": the policy claims nothing.

    Attributes:
        policy: Name of the policy.
        parameters: Its parameters.
        claimed: Its guarantee.
        confidence: Confidence of the statistical lower bound.
        replay: The replay of neighbouring streams.
        exact: The exact audit of the index law, if it applies.
        statistical: The audit by games or bets, if it applies.
        laws: The test of the mechanisms' laws, if it applies.
        exhaustive: The exact law of all decisions in small worlds, if it applies.
        notes: Remarks on the audit.
    """

    policy: str
    parameters: dict[str, Any]
    claimed: Guarantee
    confidence: float
    replay: ReplayAudit | None
    exact: ExactAudit | None
    statistical: StatisticalAudit | BettingAudit | None
    laws: LawAudit | None = None
    exhaustive: ExhaustiveAudit | None = None
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all parts."""
        if not self.claimed.private:
            return "not private"
        parts = (self.replay, self.exact, self.exhaustive, self.laws, self.statistical)
        verdicts = {part.verdict for part in parts if part is not None}
        for verdict in ("violated", "unproved", "not examined"):
            if verdict in verdicts:
                return verdict
        return "consistent"

    @property
    def epsilon_lower(self) -> float:
        """The lower bound on epsilon from games, with the stated confidence; 0 without games."""
        return getattr(self.statistical, "epsilon_lower", 0.0)

    @property
    def tight(self) -> bool:
        """Whether the lower bound is at least 80 % of the claim."""
        return (
            self.claimed.private and self.epsilon_lower >= _TIGHT_SHARE * self.claimed.epsilon > 0
        )

    def to_dict(self) -> dict[str, Any]:
        """The whole report as values that JSON can hold."""
        whole = dataclasses.asdict(self)
        whole |= {"verdict": self.verdict, "tight": self.tight, "epsilon_lower": self.epsilon_lower}
        if math.isinf(self.claimed.epsilon):
            whole["claimed"]["epsilon"] = None
        return whole

    def _repr_html_(self) -> str:
        words, *lines = str(self).split("\n")
        return html_table(words, ("", self.verdict), (line.split(":", 1) for line in lines))

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        lines = [
            f"{self.policy}({values})",
            f"claims:      {self.claimed}",
            f"verdict:     {self.verdict.upper()}",
            f"replay:      {self.replay or 'does not apply'}",
            f"laws:        {self.laws or 'does not apply'}",
            f"exact:       {self.exact or 'does not apply'}",
            f"exhaustive:  {self.exhaustive or 'does not apply'}",
            f"statistical: {self.statistical or 'does not apply'}",
        ]
        if self.replay is not None and self.replay.reached:
            lines.append(f"reached:     {', '.join(self.replay.reached)}")
        if self.replay is not None and self.replay.missed:
            lines.append(f"not reached: {', '.join(self.replay.missed)}")
        if tightness := self._tightness():
            lines.append(f"tightness:   {tightness}")
        return "\n".join([*lines, *(f"note:        {note}" for note in self.notes)])

    def _tightness(self) -> str:
        """How close the lower bound is to the claim; "" unless the verdict is "consistent"."""
        if not isinstance(self.statistical, StatisticalAudit) or self.verdict != "consistent":
            return ""
        if self.epsilon_lower > self.claimed.epsilon:
            return ""
        share = self.epsilon_lower / self.claimed.epsilon if self.claimed.epsilon else 0.0
        percent = rounded_down(100 * share, ".0f") + "%"
        if self.tight:
            return f"tight: the bound reaches {percent} of the claim"
        return (
            f"loose: the bound reaches {percent} of the claim; a smaller violation could go "
            "unseen by this part"
        )

"""How rewards come back to a policy in a simulation: how late, and how long they are waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from balaclava._core.declared import brief
from balaclava.agents.settling import Settling, checked_settling
from balaclava.errors import ParameterError
from balaclava.frames.patience import FOUND, LEAST_REWARDS, LEAST_WAIT, MOST_TIMES
from balaclava.simulation.reward_delays import Delay, DelayLaw

_SCARCE = 5 * LEAST_REWARDS  # if so many are to be expected, fewer than 30 come once in 10^20
_MOST_OPEN = 2**27  # decisions that may be open at once: they are kept in memory


class FeedbackConstants(NamedTuple):
    """What the loop is given."""

    law: DelayLaw
    patience: int  # FOUND where it is found
    window: bool
    missing: float
    most_open: int


_AS_IT_COMES = Settling()


@dataclass(frozen=True)
class Feedback:
    """Delays, patience, and when a reward is handed to the policy."""

    delay: Delay | None = None
    settling: Settling = _AS_IT_COMES

    @classmethod
    def create(
        cls, delay: Any = None, patience: Any = None, settle: Any = "arrival", missing: Any = None
    ) -> Self:
        """The feedback that was asked for, or an error."""
        if isinstance(delay, dict):
            delay = Delay.create(delay)
        if delay is not None and not isinstance(delay, Delay):
            raise ParameterError(
                f"delay = {brief(delay)} is not a delay; give bl.Delay(mean=...) or None"
            )
        return cls(delay, checked_settling(patience, settle, missing))

    @property
    def prompt(self) -> bool:
        """Whether every reward comes at once and counts at once."""
        return self.delay is None and self.settling.settle == "arrival"

    @property
    def description(self) -> dict[str, Any]:
        """The same as plain values, without what is usual; `create` takes them."""
        parts = {
            "delay": None if self.delay is None else self.delay.parameters,
            **self.settling._asdict(),
        }
        usual = {"delay": None, **_AS_IT_COMES._asdict()}
        return {name: value for name, value in parts.items() if value != usual[name]}

    def constants(self, horizon: int) -> FeedbackConstants:
        """What the loop is given."""
        delay = self.delay or Delay(mean=0, law="fixed")
        patience, settle, missing = self.settling
        if patience is not None:
            most = patience
        else:
            # Nobody is given up before some rewards came, and then after patience, which is less
            # than MOST_TIMES the longest wait.
            scarce = 0 if delay.lost == 1.0 else int(_SCARCE / (1.0 - delay.lost))
            most = max(LEAST_WAIT, int(MOST_TIMES * delay.longest), delay.longest + scarce)
        most = min(most + 2, horizon + 1)
        if most > _MOST_OPEN:
            raise ParameterError(
                f"delay = {brief(delay)}: up to {most:,} decisions would be open at once, and "
                f"{_MOST_OPEN:,} is the most; shorten the delays, or set a shorter patience"
            )
        return FeedbackConstants(
            delay.constants(),
            FOUND if patience is None else patience,
            settle == "window",
            0.0 if missing is None else missing,
            most,
        )

    def __str__(self) -> str:
        patience, settle, missing = self.settling
        words = [] if self.delay is None else [str(self.delay)]
        if settle == "window":
            words.append(f"settled after a window of {patience:,}, missing counts {missing:g}")
        elif patience is not None and self.delay is not None:
            words.append(f"patience {patience:,}")
        return ", ".join(words)


PROMPT = Feedback()

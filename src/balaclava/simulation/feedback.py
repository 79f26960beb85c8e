"""When rewards reach a policy in a simulation: delays, patience, windows."""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from balaclava._core.declared import brief
from balaclava.agents.settling import Settling, checked_settling
from balaclava.errors import ParameterError
from balaclava.frames.patience import ESTIMATED, LEAST_REWARDS, LEAST_WAIT, MOST_TIMEOUT_FACTOR
from balaclava.simulation.reward_delays import Delay, DelayLaw

# Expected rewards at which LEAST_REWARDS = 30 have arrived: of 150 expected, fewer than 30 arrive
# with probability below 1e-30 (Chernoff).
_SURELY_ENOUGH = 5 * LEAST_REWARDS
_MOST_OPEN = 2**27  # open decisions: 4 GB of memory at 32 bytes each


class FeedbackConstants(NamedTuple):
    """The feedback as numbers, for the compiled loop."""

    law: DelayLaw
    patience: int  # ESTIMATED: estimated while playing
    window: bool
    missing: float
    most_open: int


_ON_ARRIVAL = Settling()


@dataclass(frozen=True)
class Feedback:
    """Delays, patience, and when the policy learns a reward."""

    delay: Delay | None = None
    settling: Settling = _ON_ARRIVAL

    @classmethod
    def create(
        cls, delay: Any = None, patience: Any = None, settle: Any = "arrival", missing: Any = None
    ) -> Self:
        """Check the arguments of `bl.simulate` that concern feedback."""
        if isinstance(delay, dict):
            delay = Delay.create(delay)
        if delay is not None and not isinstance(delay, Delay):
            raise ParameterError(
                f"delay = {brief(delay)} is not a delay; give bl.Delay(mean=...) or None"
            )
        return cls(delay, checked_settling(patience, settle, missing))

    def in_units(self, limits: tuple[float, float], *, losses: bool = False) -> Self:
        """The same for rewards as shares of a range, or for losses of 1 minus that."""
        missing, (low, high) = self.settling.missing, limits
        if missing is None:
            return self
        share = min(max((missing - low) / (high - low), 0.0), 1.0)
        settling = self.settling._replace(missing=1.0 - share if losses else share)
        return replace(self, settling=settling)

    @property
    def prompt(self) -> bool:
        """Whether every reward arrives at once and counts at once."""
        return self.delay is None and self.settling.settle == "arrival"

    @property
    def arrived(self) -> float:
        """Share of the rewards that arrive, within the patience if it is given."""
        if self.delay is None:
            return 1.0
        patience = self.settling.patience
        in_time = 1.0 if patience is None else self.delay.share_within(patience)
        return in_time * (1.0 - self.delay.lost)

    @property
    def longest_wait(self) -> int:
        """Further decisions after which a reward counts, at most."""
        longest, patience = 0 if self.delay is None else self.delay.longest, self.settling.patience
        if patience is None:
            return longest
        return patience if self.settling.settle == "window" else min(longest, patience)

    def wait_for(self, rewards: int) -> int:
        """Further decisions until the last of so many rewards counts; about, for random delays."""
        longest = self.longest_wait
        if self.delay is None or self.delay.law != "geometric" or self.settling.settle == "window":
            return longest
        assert self.delay.mean is not None  # of a geometric law
        return min(
            longest, math.ceil(self.delay.mean * (math.log(max(rewards, 1)) + np.euler_gamma))
        )

    @property
    def description(self) -> dict[str, Any]:
        """The values that are not the defaults, JSON-able; `create` takes them."""
        parts = {
            "delay": None if self.delay is None else self.delay.parameters,
            **self.settling._asdict(),
        }
        defaults = {"delay": None, **_ON_ARRIVAL._asdict()}
        return {name: value for name, value in parts.items() if value != defaults[name]}

    def constants(self, horizon: int) -> FeedbackConstants:
        """The feedback as numbers, for the compiled loop."""
        delay = self.delay or Delay(mean=0, law="fixed")
        patience, settle, missing = self.settling
        if patience is not None:
            most = patience
        else:
            # Nothing is given up before LEAST_REWARDS have arrived; then the patience is below
            # MOST_TIMEOUT_FACTOR the longest wait.
            scarce = 0 if delay.lost == 1.0 else int(_SURELY_ENOUGH / (1.0 - delay.lost))
            most = max(LEAST_WAIT, int(MOST_TIMEOUT_FACTOR * delay.longest), delay.longest + scarce)
        most = min(most + 2, horizon + 1)
        if most > _MOST_OPEN:
            raise ParameterError(
                f"delay = {brief(delay)}: up to {most:,} decisions could be open at once, and at "
                f"most {_MOST_OPEN:,} are allowed; shorten the delays or set a shorter patience"
            )
        return FeedbackConstants(
            delay.constants(),
            ESTIMATED if patience is None else patience,
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

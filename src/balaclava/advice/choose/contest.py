"""Playing the policies that fit, to see which does best and whether any beats playing at random."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from balaclava.advice.choose.plausible_problems import plausible_problems
from balaclava.errors import MomentWarning
from balaclava.policies.base import Policy
from balaclava.policies.base import policy as make_policy
from balaclava.simulation.analysis.statistics import NORMAL_REACH
from balaclava.simulation.engine import Progress, simulate
from balaclava.simulation.reward_delays import Delay

MAX_SIMULATED_ROUNDS = 1_000_000  # of a run; longer ones are judged by their beginning
RELEVANT_SHARE = 0.9  # of the regret of playing at random: more is no margin that matters
_ROUNDS_IN_ALL = 12_000_000  # of a heat: seconds
_REPETITIONS = (3, 200)
_FINALISTS = 2
_PROBE_ROUNDS = 2_000_000  # in all, for a look at a longer horizon or a larger epsilon
_MOST_EPSILON = 20.0


class RegretShare(NamedTuple):
    """How a policy did: its regret as a share of that of playing at random."""

    label: str
    policy: Policy
    share: float
    plus_minus: float  # half the width of the 95 % interval


@dataclass(frozen=True)
class Contest:
    """The candidates, best first. The first was measured on runs that took no part in its choice.

    `rounds` is how long the runs were: the horizon, or MOST_ROUNDS if that is less.
    """

    standings: tuple[RegretShare, ...]
    rounds: int

    @property
    def best(self) -> RegretShare:
        return self.standings[0]

    @property
    def pays(self) -> bool:
        """Whether the best beats playing at random by a margin that matters, beyond chance."""
        return self.best.share + self.best.plus_minus < RELEVANT_SHARE


@dataclass
class ContestRunner:
    """Where policies for such rewards are played."""

    rewards: str
    delay: Delay | None = None
    patience: int | None = None
    seed: int = 1
    progress: Progress | None = None
    played: int = 0

    def contest(self, candidates: Mapping[str, Policy], horizon: int) -> Contest:
        """Play all of them, and the best two once more, on fresh runs."""
        rounds = min(horizon, MAX_SIMULATED_ROUNDS)
        standings = self.heat(candidates, rounds, self.seed, _ROUNDS_IN_ALL)
        finalists = {each.label: each.policy for each in standings[:_FINALISTS]}
        final = self.heat(finalists, rounds, self.seed + 1, _ROUNDS_IN_ALL)
        return Contest((*final, *standings[_FINALISTS:]), rounds)

    def heat(
        self, candidates: Mapping[str, Policy], rounds: int, seed: int, in_all: int
    ) -> list[RegretShare]:
        """Each candidate on each problem, equally often; best first."""
        some = next(iter(candidates.values()))
        worlds = plausible_problems(self.rewards, some, rounds)
        losses = worlds[0][0].feedback == "loss"  # whose regret at random has to be measured
        baseline = {"random": make_policy("random", arms=some.arms)} if losses else {}
        low, high = _REPETITIONS
        repetitions = min(max(in_all // (len(candidates) * len(worlds) * rounds), low), high)
        shares: dict[str, list[np.ndarray]] = {label: [] for label in candidates}
        for world, _ in worlds:
            before = self.played
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MomentWarning)
                results = simulate(
                    {**candidates, **baseline},
                    world,
                    horizon=rounds,
                    repetitions=repetitions,
                    seed=seed,
                    checkpoints=1,
                    delay=self.delay,
                    patience=self.patience,
                    progress=lambda played, total, before=before: self._report(  # type: ignore[misc]
                        before + played, before + total
                    ),
                )
            self.played += rounds * repetitions * len(results.labels)
            random_regret = results.final_regret("random").mean() if losses else 0.0
            unit = max(float(random_regret), 1e-9) if losses else rounds * float(world.gaps.mean())
            for label, values in shares.items():
                values.append(results.final_regret(label) / unit)
        standings = [
            _standing(label, candidates[label], values) for label, values in shares.items()
        ]
        return sorted(standings, key=lambda standing: standing.share)

    def _report(self, rounds: int, total: int) -> None:
        if self.progress is not None:
            self.progress(rounds, total)

    def in_vain(
        self, contest: Contest, make: Callable[..., Policy], epsilon: float, horizon: int
    ) -> str:
        """What to say where nothing pays, and from which horizon or epsilon on `make()` would."""
        best = contest.best
        longer = self._first(
            _doubled(horizon, MAX_SIMULATED_ROUNDS),
            lambda value: (make(horizon=int(value)), int(value)),
        )
        larger = self._first(
            _doubled(epsilon, _MOST_EPSILON), lambda value: (make(epsilon=value), contest.rounds)
        )
        ways = []
        if longer is not None:
            ways.append(f"a horizon of about {int(longer):,}")
        if larger is not None:
            ways.append(f"an epsilon of about {larger:.2g}")
        when = (
            f"{make().name} would pay from {' or from '.join(ways)} on, all else equal"
            if ways
            else "neither a horizon up to 10^6 nor an epsilon up to 20 would change that"
        )
        return (
            f"{best.label}, the best of {len(contest.standings)}, has {best.share:.0%} ± "
            f"{best.plus_minus:.0%} of the regret of playing at random; {when}"
        )

    def _first(
        self, values: list[float], at: Callable[[float], tuple[Policy, int]]
    ) -> float | None:
        """The first value at which the policy beats playing at random by the margin."""
        for value in values:
            policy, rounds = at(value)
            (standing,) = self.heat({policy.name: policy}, rounds, self.seed + 2, _PROBE_ROUNDS)
            if Contest((standing,), rounds).pays:
                return value
        return None


def _doubled(start: float, most: float) -> list[float]:
    return [start * 2.0**k for k in range(1, 60) if start * 2.0**k <= most]


def _standing(label: str, policy: Policy, shares: list[np.ndarray]) -> RegretShare:
    """The mean over problems, and how far chance may have moved it."""
    error = math.sqrt(sum(each.var(ddof=1) / each.size for each in shares)) / len(shares)
    return RegretShare(label, policy, float(np.mean(shares)), NORMAL_REACH * error)

"""Playing the policies that fit, to find the best and whether it beats playing at random."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from balaclava.advice.choose.plausible_problems import Around, plausible_problems
from balaclava.advice.choose.scale_search import progress_after
from balaclava.errors import MomentWarning
from balaclava.policies.base import Policy
from balaclava.policies.base import policy as make_policy
from balaclava.simulation.analysis.statistics import NORMAL_REACH
from balaclava.simulation.engine import Progress, simulate
from balaclava.simulation.feedback import PROMPT, Feedback

MAX_SIMULATED_ROUNDS = 1_000_000  # of a run, for speed; a longer one is judged by its beginning
RELEVANT_SHARE = 0.9  # of the regret of playing at random, below which a policy pays; a guess
_CONTEST_ROUNDS = 12_000_000  # simulated rounds of all candidates together: seconds
_PROBE_ROUNDS = 2_000_000  # simulated rounds of a probe of a longer horizon or larger epsilon
_CONTEST_REPETITIONS = (3, 200)  # fewest for a standard error, most that sharpen the ranking
_CONTEST_FINALISTS = 2  # candidates played again on new runs
_MAX_PROBED_EPSILON = 20.0  # beyond it a guarantee means little


class RegretShare(NamedTuple):
    """The regret of a policy as a share of that of playing at random."""

    label: str
    policy: Policy
    share: float
    plus_minus: float  # half the width of the 95 % interval


@dataclass(frozen=True)
class Contest:
    """The candidates, best first; the first was measured on runs that took no part in its choice.

    `rounds` is the length of the runs: the horizon, at most MAX_SIMULATED_ROUNDS.
    """

    standings: tuple[RegretShare, ...]
    rounds: int

    @property
    def best(self) -> RegretShare:
        return self.standings[0]

    @property
    def pays(self) -> bool:
        """Whether the best beats playing at random by a relevant margin, beyond chance."""
        return self.best.share + self.best.plus_minus < RELEVANT_SHARE


@dataclass
class ContestRunner:
    """Plays policies on plausible problems with one kind of rewards."""

    rewards: str
    feedback: Feedback = PROMPT
    seed: int = 1
    progress: Progress | None = None
    around: Around | None = None
    played: int = 0

    def run(self, candidates: Mapping[str, Policy], horizon: int) -> Contest:
        """Play all candidates, and the best two again on new runs."""
        rounds = min(horizon, MAX_SIMULATED_ROUNDS)
        ranking = self.measure(candidates, rounds, self.seed, _CONTEST_ROUNDS)
        finalists = {each.label: each.policy for each in ranking[:_CONTEST_FINALISTS]}
        final = self.measure(finalists, rounds, self.seed + 1, _CONTEST_ROUNDS)
        return Contest((*final, *ranking[_CONTEST_FINALISTS:]), rounds)

    def measure(
        self, candidates: Mapping[str, Policy], rounds: int, seed: int, total_rounds: int
    ) -> list[RegretShare]:
        """Play each candidate on each problem, equally often; best first."""
        first = next(iter(candidates.values()))
        problems = plausible_problems(self.rewards, first, rounds, self.around)
        losses = problems[0][0].feedback == "loss"  # then random play's regret must be simulated
        baseline = {"random": make_policy("random", arms=first.arms)} if losses else {}
        low, high = _CONTEST_REPETITIONS
        runs = total_rounds // (len(candidates) * len(problems) * rounds)
        repetitions = min(max(runs, low), high)
        shares: dict[str, list[np.ndarray]] = {label: [] for label in candidates}
        for world, _ in problems:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MomentWarning)
                results = simulate(
                    {**candidates, **baseline},
                    world,
                    horizon=rounds,
                    repetitions=repetitions,
                    seed=seed,
                    checkpoints=1,
                    delay=self.feedback.delay,
                    **self.feedback.settling._asdict(),
                    progress=progress_after(self.played, self.progress),
                )
            self.played += rounds * repetitions * len(results.labels)
            if losses:
                unit = max(float(results.final_regret("random").mean()), 1e-9)
            else:
                unit = rounds * float(world.gaps.mean())
            for label, values in shares.items():
                values.append(results.final_regret(label) / unit)
        ranking = [_regret_share(label, candidates[label], each) for label, each in shares.items()]
        return sorted(ranking, key=lambda entry: entry.share)

    def explain_failure(
        self, contest: Contest, make: Callable[..., Policy], epsilon: float, horizon: int
    ) -> str:
        """Explain that no policy pays, and from which horizon or epsilon on `make()` would."""
        best = contest.best
        longer = self._first_that_pays(
            *(horizon, MAX_SIMULATED_ROUNDS), lambda value: (make(horizon=int(value)), int(value))
        )
        larger = self._first_that_pays(
            *(epsilon, _MAX_PROBED_EPSILON), lambda value: (make(epsilon=value), contest.rounds)
        )
        ways = [f"a horizon of about {int(longer):,}"] if longer is not None else []
        ways += [f"an epsilon of about {larger:.2g}"] if larger is not None else []
        when = "neither a horizon up to 10^6 nor an epsilon up to 20 would change that"
        if ways:
            when = f"{make().name} would pay from {' or from '.join(ways)} on, all else equal"
        return (
            f"{best.label}, the best of {len(contest.standings)}, has {best.share:.0%} ± "
            f"{best.plus_minus:.0%} of the regret of playing at random; {when}"
        )

    def _first_that_pays(
        self, start: float, most: float, at: Callable[[float], tuple[Policy, int]]
    ) -> float | None:
        """The first doubling of `start` at which the policy beats playing at random."""
        for value in (start * 2.0**k for k in range(1, 60) if start * 2.0**k <= most):
            policy, rounds = at(value)
            probe = self.measure({policy.name: policy}, rounds, self.seed + 2, _PROBE_ROUNDS)
            if Contest(tuple(probe), rounds).pays:
                return value
        return None


def _regret_share(label: str, policy: Policy, shares: list[np.ndarray]) -> RegretShare:
    """The mean over problems, with its interval."""
    error = math.sqrt(sum(each.var(ddof=1) / each.size for each in shares)) / len(shares)
    return RegretShare(label, policy, float(np.mean(shares)), NORMAL_REACH * error)

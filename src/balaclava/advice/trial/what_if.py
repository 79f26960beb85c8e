"""`balaclava explore`: the comparison of a log, played again for each choice of settings."""

from typing import Any, NamedTuple

from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.trial.compare import Comparison, compare, default_rounds
from balaclava.advice.trial.log_trial import LogTrial
from balaclava.advice.trial.worlds import LogWorlds, log_environment
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy
from balaclava.simulation.engine import Progress
from balaclava.simulation.results import Results
from balaclava.simulation.reward_delays import Delay, LawName

_EPSILONS = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
_HORIZONS = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)  # seconds on two cores
_DELAYS = (0, 10, 30, 100, 300, 1_000, 3_000, 10_000)
_CHART_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_WARM_UP = 100  # rounds, too few to matter; what is compiled for them serves all
_REPETITIONS = 30  # worlds, as in `balaclava compare`


class WhatIf(NamedTuple):
    """Settings of a trial on the arms of a log."""

    epsilon: float
    horizon: int
    delay: int  # mean, in rounds, of a geometric law; 0: none
    arms: int  # those with the most rows


class WhatIfAnswer(NamedTuple):
    """What a trial with these settings costs."""

    comparison: Comparison
    best: str  # the policy with the least regret that protects the whole trajectory
    by_epsilon: Results  # that policy at several epsilons, and its baseline


class Explorer:
    """Compares policies on a log under settings of the caller's choice.

    Args:
        log: The log.
        workers: Threads; by default one per core.
        law: Of the delays, geometric by default.
        lost: Share of rewards that never arrive.
        settling: `patience`, `settle` and `missing`, as in `bl.simulate`.

    Attributes:
        stops: The values that each setting may have, by name, in ascending order.
        start: The settings to begin with.
    """

    def __init__(
        self,
        log: LogSummary,
        workers: int | None = None,
        *,
        law: LawName | None = None,
        lost: float | None = None,
        **settling: Any,
    ) -> None:
        self.log, self._workers, self._settling = log, workers, settling
        self._law, self._lost = law or "geometric", lost or 0.0
        usual, arms = default_rounds(log), len(log.labels)
        fewest = arms if log.propensities is not None else 2
        self.stops: dict[str, tuple[Any, ...]] = {
            "epsilon": _EPSILONS,
            "horizon": tuple(sorted({*_HORIZONS, usual})),
            "delay": _DELAYS,
            "arms": tuple(range(fewest, arms + 1)),
        }
        self.start = WhatIf(1.0, usual, 0, arms)

    def warm_up(self, progress: Progress | None = None) -> None:
        """Compile what answers without a delay need; the first one with a delay compiles more."""
        self._answer(self.start._replace(horizon=_WARM_UP), progress)

    def answer(self, settings: WhatIf) -> WhatIfAnswer:
        """Play a trial. Equal settings give equal answers, those of `balaclava compare`.

        Raises:
            ParameterError: a setting is not one of its stops.
        """
        for name, value in settings._asdict().items():
            if value not in self.stops[name]:
                allowed = ", ".join(f"{stop:g}" for stop in self.stops[name])
                raise ParameterError(f"{name} = {value} is not one of {allowed}")
        return self._answer(settings, None)

    def _answer(self, settings: WhatIf, progress: Progress | None) -> WhatIfAnswer:
        log = self.log.with_most_rows(settings.arms)
        delay = None
        if settings.delay or self._lost:
            law: LawName = self._law if settings.delay else "geometric"
            delay = Delay(mean=settings.delay, law=law, lost=self._lost)
        comparison = compare(
            log,
            epsilon=settings.epsilon,
            horizon=settings.horizon,
            delay=delay,
            **self._settling,
            repetitions=_REPETITIONS,
            workers=self._workers,
            progress=progress,
        )
        candidates = comparison.candidates
        best = next(
            row.label
            for row in comparison.standings
            if (candidate := candidates.get(row.label)) is not None
            and candidate.policy.guarantee.scope == "trajectory"
            and candidate.baseline  # the others were tuned
        )
        return WhatIfAnswer(comparison, best, self._by_epsilon(comparison, best))

    def _by_epsilon(self, comparison: Comparison, best: str) -> Results:
        """A policy at several epsilons, in the worlds of the comparison."""
        policy, _, baseline = comparison.candidates[best]
        results = comparison.results
        policies = {
            baseline: results.policies[baseline],
            **{
                f"{best}, ε={epsilon:g}": _with_epsilon(policy, epsilon)
                for epsilon in _CHART_EPSILONS
            },
        }
        log = comparison.log
        trial = LogTrial(
            LogWorlds(log).draw,
            log_environment(log),
            results.horizon,
            results.seed,
            results.feedback,
            self._workers,
        )
        return trial.play(policies, _REPETITIONS, None)[0]


def _with_epsilon(policy: Policy, epsilon: float) -> Policy:
    return type(policy).create({**policy.parameters, "epsilon": epsilon})

"""Search for a policy's scale: the cost of each scale in each environment, and which to take."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from balaclava._core.number_format import percent
from balaclava.advice.choose.calibration import CalibrationRow, ScaleFinalist, ScaleTrial
from balaclava.environments.base import Environment
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy
from balaclava.simulation.analysis.statistics import plus_minus
from balaclava.simulation.engine import Device, Progress
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.simulation_batches import Simulation, simulate_all

RADIUS_SCALE = "radius_scale"
SCALE_PARAMETERS = (RADIUS_SCALE, "learning_rate_scale")  # privacy does not depend on them
_WORST_RUN_WEIGHT = 0.1  # beside the mean: a run on a wrong arm is rare but costly; a guess
_MAX_GRID_EXTENSIONS = 8  # factors of 2 beyond the default grid
_BEST_FINALISTS, _CAREFUL_FINALISTS = 3, 2  # scales in the final, by cost and by caution


def with_scale(policy: Policy, parameter: str, scale: float) -> Policy:
    """A copy with another scale; ParameterError if that would change the guarantee."""
    copy = type(policy).create({**policy.parameters, parameter: scale})
    require_same_guarantee(policy, copy, parameter)
    return copy


def require_same_guarantee(policy: Policy, other: Policy, parameter: str) -> None:
    if other.guarantee != policy.guarantee:
        raise ParameterError(
            f"{policy.name}: {parameter} changes the guarantee from {policy.guarantee} to "
            f"{other.guarantee}; choose privacy yourself, and calibrate a scale"
        )


def progress_after(before: int, progress: Progress | None) -> Progress | None:
    """The progress of a simulation that begins after `before` rounds of others."""
    if progress is None:
        return None
    return lambda rounds, total: progress(before + rounds, before + total)


def regret_cost(final: np.ndarray) -> float:
    return float(final.mean() + _WORST_RUN_WEIGHT * final.max())


def least_proved_bound(
    policies: Iterable[Policy], environment: Environment | None, horizon: int
) -> tuple[Policy, float] | None:
    """The first policy with the least proved regret, and its bound; None if nothing is proved."""
    best: tuple[Policy, float] | None = None
    for policy in policies:
        bound = policy.proved_bound(environment, horizon)
        if bound is not None and (best is None or bound < best[1]):
            best = policy, bound
    return best


@dataclass
class ScaleSearch:
    """The final regret of every scale and environment played so far."""

    policy: Policy
    parameter: str
    worlds: dict[str, Environment]
    horizon: int
    seed: int
    feedback: Feedback
    workers: int | None
    progress: Progress | None
    device: Device = "cpu"
    risk: float | None = None
    played: int = 0
    refused: list[str] = dataclasses.field(default_factory=list)
    extended: int = 0
    finals: dict[tuple[int, float], list[np.ndarray]] = dataclasses.field(default_factory=dict)

    def play(
        self, scales: Sequence[float], repetitions: int, *, skip: bool = False, seed_offset: int = 0
    ) -> None:
        """Play scales that lack runs with so many repetitions; `skip` those the policy refuses."""
        seed = self.seed + seed_offset
        candidates: dict[str, Policy] = {}
        for scale in scales:
            if (repetitions, scale) in self.finals:
                continue
            try:
                candidates[repr(scale)] = with_scale(self.policy, self.parameter, scale)
            except ParameterError as error:
                if not skip or math.isclose(scale, getattr(self.policy, self.parameter)):
                    raise
                self.refused.append(f"{self.parameter} = {scale:.3g} was not tried: {error}")
        if not candidates:
            return
        kept: dict[str, list[np.ndarray]] = {label: [] for label in candidates}
        for finals in self.simulate(candidates, list(self.worlds.values()), repetitions, seed):
            for label, final in finals.items():
                kept[label].append(final)
        self.finals |= {(repetitions, float(label)): finals for label, finals in kept.items()}

    def simulate(
        self, policies: dict[str, Policy], worlds: list[Environment], repetitions: int, seed: int
    ) -> list[dict[str, np.ndarray]]:
        """The final regret of each run, by world and policy."""
        played = simulate_all(
            [Simulation(policies, world, self.horizon, repetitions) for world in worlds],
            seed=seed,
            checkpoints=1,
            workers=self.workers,
            feedback=self.feedback,
            device=self.device,
            progress=progress_after(self.played, self.progress),
            warn=False,  # `calibrate` has warned once
        )
        self.played += self.horizon * repetitions * len(policies) * len(worlds)
        return [{label: each.final_regret(label) for label in policies} for each in played]

    def extend(self, repetitions: int) -> None:
        """Extend the grid while the best scale is at its edge."""
        for _ in range(_MAX_GRID_EXTENSIONS):
            scales = sorted(scale for n, scale in self.finals if n == repetitions)
            best = self.best(repetitions)
            if len(scales) < 2 or best not in (scales[0], scales[-1]):
                return
            before = len(self.finals)
            self.play([best / 2.0 if best == scales[0] else best * 2.0], repetitions, skip=True)
            if len(self.finals) == before:
                return
            self.extended += 1

    def what_would_change(
        self, scale: float, repetitions: int, caution: float, current: float
    ) -> list[str]:
        """Which other settings would lead to another scale, in sentences."""
        best = self.ranking(repetitions)[0]
        notes = []
        if best.scale != scale:
            notes.append(
                f"with caution = 1 it would be {best.scale:.3g}, which did best here; caution = "
                f"{caution:g} stays nearer to the given scale, for environments harder than these"
            )
        if self.risk is not None:
            by_mean = dataclasses.replace(self, risk=None)
            cheapest = by_mean.careful(repetitions, caution, current)[0]
            notes.append(
                f"chosen by the {percent(self.risk, '.8g')} quantile of the regret; by the mean "
                f"and the worst run it would be {cheapest:.3g}"
            )
        notes.append(
            "closer arms, a longer horizon or a smaller epsilon need a larger scale. Calibrate on "
            "the hardest environments that you consider plausible"
        )
        return notes

    def trials(self, few: int, repetitions: int) -> tuple[ScaleTrial, ...]:
        """Every scale once: with all runs if it was a finalist, with few otherwise."""
        final = {trial.scale: trial for trial in self.ranking(repetitions)}
        rest = [trial for trial in self.ranking(few) if trial.scale not in final]
        return tuple(sorted([*final.values(), *rest]))

    def ranking(self, repetitions: int) -> list[ScaleTrial]:
        """The scales with so many repetitions, least cost first; among equals the larger one."""
        mine = {scale: finals for (n, scale), finals in self.finals.items() if n == repetitions}
        costs = np.array([[self.cost(final) for final in finals] for finals in mine.values()])
        least = costs.min(axis=0)
        # A least cost of 0 (one arm) or below (losses) cannot be a unit; then the largest is.
        unit = np.where(least > 0, least, np.maximum(np.abs(costs).max(axis=0), 1e-300))
        scores = (1.0 + (costs - least) / unit).mean(axis=1)
        trials = [
            ScaleTrial(scale, float(score), repetitions)
            for scale, score in zip(mine, scores, strict=True)
        ]
        return sorted(trials, key=lambda trial: (trial.cost, -trial.scale))

    def best(self, repetitions: int) -> float:
        return self.ranking(repetitions)[0].scale

    def careful(self, repetitions: int, caution: float, current: float) -> list[float]:
        """The scales that cost at most `caution` times the least, nearest to the current first.

        If the current scale is 0, the best is first.
        """
        ranking = self.ranking(repetitions)
        scales = [trial.scale for trial in ranking if trial.cost <= caution * ranking[0].cost]
        if current > 0:
            scales.sort(key=lambda scale: abs(math.log(max(scale, 1e-300) / current)))
        return scales

    def finalists(self, repetitions: int, caution: float, current: float) -> list[float]:
        """The best three, and the two nearest to the current scale."""
        best = [trial.scale for trial in self.ranking(repetitions)[:_BEST_FINALISTS]]
        careful = self.careful(repetitions, caution, current)[:_CAREFUL_FINALISTS]
        return list(dict.fromkeys([*best, *careful]))

    def final_rows(self, repetitions: int) -> tuple[ScaleFinalist, ...]:
        """The regret of each finalist in each environment."""
        rows = []
        for (count, scale), finals in sorted(self.finals.items()):
            for label, final in zip(self.worlds, finals, strict=True):
                if count == repetitions:
                    middle, high = np.quantile(final, [0.5, 0.95])
                    figures = (final.mean(), plus_minus(final), middle, high, final.max())
                    row = ScaleFinalist(scale, label, *map(float, figures))
                    rows.append(row._replace(risk=self.quantile(final)))
        return tuple(rows)

    def notes(self, scale: float, few: int) -> list[str]:
        """Which scales were refused, and whether the best is at the edge of the grid."""
        notes = list(self.refused)
        if self.extended:
            notes.append(
                f"the best scale was at the edge of the grid, which was extended {self.extended} "
                "times by a factor of 2"
            )
        scales = [trial.scale for trial in self.ranking(few)]
        if len(scales) > 1 and scale in (min(scales), max(scales)):
            side = "smallest" if scale == min(scales) else "largest"
            notes.append(
                f"the best scale is the {side} that was tried: a better one may lie beyond it; "
                "give more `scales`"
            )
        return notes

    def report(
        self, others: Mapping[str, Environment], calibrated: Policy, repetitions: int
    ) -> tuple[CalibrationRow, ...]:
        """The regret before and after, on runs that took no part in the choice."""
        policies = {"before": self.policy, "after": calibrated}
        worlds = {**self.worlds, **others}
        played = self.simulate(policies, list(worlds.values()), repetitions, self.seed + 2)
        rows = []
        for label, finals in zip(worlds, played, strict=True):
            before, after = finals["before"], finals["after"]
            figures = (before.mean(), before.max(), after.mean(), plus_minus(after), after.max())
            row = CalibrationRow(label, label in others, *map(float, figures))
            risk_before, risk = self.quantile(before), self.quantile(after)
            rows.append(row._replace(risk_before=risk_before, risk=risk))
        return tuple(rows)

    def quantile(self, final: np.ndarray) -> float | None:
        return None if self.risk is None else float(np.quantile(final, self.risk))

    def cost(self, final: np.ndarray) -> float:
        """The cost of a scale in an environment: the risk, or `regret_cost` without one."""
        risk = self.quantile(final)
        return regret_cost(final) if risk is None else risk

"""The search for a scale: what each of them cost in each environment, and which to take."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
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

_MOST_STEPS = 8  # by which the default grid is extended
_WORST_WEIGHT = 0.1  # a run that locks onto a wrong arm is rare and costs hundreds of good ones
_FINALISTS, _CAREFUL = 3, 2


def with_scale(policy: Policy, parameter: str, scale: float) -> Policy:
    """A copy with another scale; refused if that would change what is promised on privacy."""
    copy = type(policy).create({**policy.parameters, parameter: scale})
    require_same_guarantee(policy, copy, parameter)
    return copy


def require_same_guarantee(policy: Policy, other: Policy, parameter: str) -> None:
    if other.guarantee != policy.guarantee:
        raise ParameterError(
            f"{policy.name}: {parameter} changes the guarantee from {policy.guarantee} to "
            f"{other.guarantee}; privacy is for you to choose, not for a simulation"
        )


@dataclass
class ScaleSearch:
    """The final regret of every scale and environment that was played."""

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
        self, scales: Sequence[float], repetitions: int, *, skip: bool = False, fresh: int = 0
    ) -> None:
        """Play scales that were not played so often; `skip` those that the policy refuses."""
        seed = self.seed + fresh
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
        """In each world, the final regret of each policy in each run."""
        before = self.played

        def report(rounds: int, total: int) -> None:
            if self.progress is not None:
                self.progress(before + rounds, before + total)

        played = simulate_all(
            [Simulation(policies, world, self.horizon, repetitions) for world in worlds],
            seed=seed,
            checkpoints=1,
            workers=self.workers,
            feedback=self.feedback,
            device=self.device,
            progress=report,
            warn=False,  # said once, of the policy as it was
        )
        finals = [{label: each.final_regret(label) for label in policies} for each in played]
        self.played += self.horizon * repetitions * len(policies) * len(worlds)
        return finals

    def extend(self, repetitions: int) -> None:
        """Go on beyond the grid while the best is at its edge."""
        for _ in range(_MOST_STEPS):
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
        """What would lead to another scale."""
        best = self.ranking(repetitions)[0]
        notes = []
        if best.scale != scale:
            notes.append(
                f"with caution = 1 it would be {best.scale:.3g}, which did best here; caution = "
                f"{caution:g} stays nearer to the scale as given, for environments harder than "
                "these"
            )
        if self.risk is not None:
            cheapest = dataclasses.replace(self, risk=None).careful(repetitions, caution, current)[
                0
            ]
            notes.append(
                f"chosen by the {percent(self.risk, '.8g')} quantile of the regret; by the mean "
                f"and the worst run it would be {cheapest:.3g}"
            )
        notes.append(
            "closer arms, a longer horizon or a smaller epsilon would want a larger scale, arms "
            "that lie further apart a smaller one: calibrate on the hardest that you consider "
            "plausible"
        )
        return notes

    def trials(self, few: int, repetitions: int) -> tuple[ScaleTrial, ...]:
        """Every scale once: with all runs where it was a finalist, with few otherwise."""
        final = {trial.scale: trial for trial in self.ranking(repetitions)}
        rest = [trial for trial in self.ranking(few) if trial.scale not in final]
        return tuple(sorted([*final.values(), *rest]))

    def ranking(self, repetitions: int) -> list[ScaleTrial]:
        """The scales that were played so often, best first; of equals the larger, more careful."""
        mine = {scale: finals for (n, scale), finals in self.finals.items() if n == repetitions}
        costs = np.array([[self.cost(final) for final in finals] for finals in mine.values()])
        least = costs.min(axis=0)
        # A least cost of 0 (one arm, say) or below (losses) is no unit; then the largest is.
        unit = np.where(least > 0, least, np.maximum(np.abs(costs).max(axis=0), 1e-300))
        scores = (1.0 + (costs - least) / unit).mean(axis=1)
        trials = [
            ScaleTrial(scale, float(score), repetitions)
            for scale, score in zip(mine, scores, strict=True)
        ]
        return sorted(trials, key=lambda trial: (trial.cost, -trial.scale))

    def best(self, repetitions: int) -> float:
        """The scale of the lowest cost."""
        return self.ranking(repetitions)[0].scale

    def careful(self, repetitions: int, caution: float, current: float) -> list[float]:
        """The scales that cost at most `caution` times the least, nearest to the current first.

        Where the current scale is 0 there is no nearness; then the best is first.
        """
        ranking = self.ranking(repetitions)
        scales = [trial.scale for trial in ranking if trial.cost <= caution * ranking[0].cost]
        if current > 0:
            scales.sort(key=lambda scale: abs(math.log(max(scale, 1e-300) / current)))
        return scales

    def finalists(self, repetitions: int, caution: float, current: float) -> list[float]:
        """The best three, and the two most careful ones: fresh runs may find the others out."""
        best = [trial.scale for trial in self.ranking(repetitions)[:_FINALISTS]]
        return list(dict.fromkeys([*best, *self.careful(repetitions, caution, current)[:_CAREFUL]]))

    def final_rows(self, repetitions: int) -> tuple[ScaleFinalist, ...]:
        """How each finalist did in each environment."""
        rows = []
        for (count, scale), finals in sorted(self.finals.items()):
            for label, final in zip(self.worlds, finals, strict=True):
                if count == repetitions:
                    middle, high = np.quantile(final, [0.5, 0.95])
                    figures = (final.mean(), plus_minus(final), middle, high, final.max())
                    tail = self.quantile(final)
                    row = ScaleFinalist(scale, label, *map(float, figures))
                    rows.append(row._replace(risk=tail))
        return tuple(rows)

    def notes(self, scale: float, few: int) -> list[str]:
        """What was refused, and whether the best scale is at the edge of what was tried."""
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
        """Fresh runs, before and after: those that led to the choice flatter it."""
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
        """That of the risk, if there is one."""
        return None if self.risk is None else float(np.quantile(final, self.risk))

    def cost(self, final: np.ndarray) -> float:
        """What a scale costs in an environment: the risk, or the mean with a share of the worst."""
        tail = self.quantile(final)
        return float(final.mean() + _WORST_WEIGHT * final.max()) if tail is None else tail

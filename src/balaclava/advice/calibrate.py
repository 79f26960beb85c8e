"""Choosing a scale by simulation: what it gains in regret, and what proof it gives up."""

from __future__ import annotations

import dataclasses
import math
import typing
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Horizon, Range, brief, check, split
from balaclava.environments.base import Environment
from balaclava.errors import MomentWarning, ParameterError, nearest
from balaclava.policies.base import Policy
from balaclava.policies.settling import Settle
from balaclava.simulation.delays import Delay
from balaclava.simulation.engine import (
    Device,
    Progress,
    chosen_device,
    require_compatible,
    simulate,
)
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.moments import warn_of_moments
from balaclava.simulation.statistics import plus_minus

Environments = Environment | Sequence[Environment] | Mapping[str, Environment]

_DEFAULT_GRID = tuple(2.0**k for k in range(-7, 2))  # times the policy's own scale
_MOST_STEPS = 8  # by which the default grid is extended
_WORST_WEIGHT = 0.1  # a run that locks onto a wrong arm is rare and costs hundreds of good ones
_ENOUGH = 100  # repetitions
_BEYOND = 4  # runs that lie beyond the quantile of a risk, on average
_FINALISTS, _CAREFUL = 3, 2


class Trial(NamedTuple):
    """What a scale cost: 1 is the best scale in every environment."""

    scale: float
    cost: float
    repetitions: int


class CalibrationRow(NamedTuple):
    """The regret in an environment, on runs that took no part in the choice."""

    environment: str
    held_out: bool
    before: float  # the mean regret of the policy as it was given
    worst_before: float
    mean: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    worst: float
    risk_before: float | None = None  # the quantile that the scale was chosen by, if any
    risk: float | None = None


class Finalist(NamedTuple):
    """How a scale that was in the final did in an environment, on the final's fresh runs."""

    scale: float
    environment: str
    mean: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    median: float
    high: float  # the 95 % quantile
    worst: float
    risk: float | None = None  # the quantile that the scale was chosen by, if any


@dataclass(frozen=True)
class Calibration:
    """The policy with the scale that was chosen, and what the choice rests on."""

    policy: Policy
    parameter: str
    scale: float
    scale_before: float
    horizon: int
    repetitions: int
    seed: int
    trials: tuple[Trial, ...]
    finalists: tuple[Finalist, ...]
    rows: tuple[CalibrationRow, ...]
    notes: tuple[str, ...]
    risk: float | None = None

    @property
    def table(self) -> str:
        """The rows as text."""
        quantile = [] if self.risk is None else [_percent(self.risk)]
        before, after = ("before", *quantile, "worst run"), ("after", "± (95 %)", *quantile)
        cells: list[tuple[str, ...]] = [("environment", *before, *after, "worst run")]
        for row in self.rows:
            name = f"{row.environment} (held out)" if row.held_out else row.environment
            numbers_before = (row.before, row.risk_before, row.worst_before)
            numbers = (row.mean, row.plus_minus, row.risk, row.worst)
            cells.append((name, *_figures([*numbers_before, *numbers])))
        return _aligned(cells)

    @property
    def final_table(self) -> str:
        """The finalists as text."""
        header = ("scale", "environment", "mean", "± (95 %)", "median", "95 %", "worst run")
        cells: list[tuple[str, ...]] = [header]
        if self.risk is not None:
            cells = [(*header, _percent(self.risk))]
        for scale, environment, *numbers in self.finalists:
            cells.append((f"{scale:.3g}", environment, *_figures(numbers)))
        return _aligned(cells)

    def __str__(self) -> str:
        costs = ", ".join(f"{trial.scale:.3g}: {trial.cost:.3g}" for trial in self.trials)
        return "\n".join(
            [
                f"{self.policy.name}: {self.parameter} = {self.scale:.4g} instead of "
                f"{self.scale_before:.4g}",
                "",
                f"Regret after {self.horizon} rounds, {self.repetitions} fresh runs, before "
                "(as given) and after:",
                self.table,
                "",
                f"The final, {self.repetitions} other runs of each:",
                self.final_table,
                "",
                f"Tried (scale: cost, 1 is the best in every environment): {costs}",
                *(f"- {note}" for note in self.notes),
            ]
        )

    __repr__ = __str__


def _percent(share: float) -> str:
    return f"{100 * share:.8g} %"


def _figures(numbers: Iterable[float | None]) -> list[str]:
    return [f"{number:.4g}" for number in numbers if number is not None]


def _aligned(cells: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells
    )


def calibrate(
    policy: Policy,
    environments: Environments,
    *,
    horizon: int,
    repetitions: int,
    seed: int,
    held_out: Environments | None = None,
    scales: Sequence[float] | None = None,
    parameter: str = "radius_scale",
    caution: float = 2.0,
    risk: float | None = None,
    delay: Delay | None = None,
    patience: int | None = None,
    settle: Settle = "arrival",
    missing: float | None = None,
    workers: int | None = None,
    device: Device = "cpu",
    progress: Progress | None = None,
) -> Calibration:
    """Choose a policy's scale by simulation on environments that you consider plausible.

    Constants of proofs are large: a radius that always holds is often ten times as wide as one
    that nearly always does. This tries scales on a grid, first with half the runs and factors of
    two, then around the best. At least three scales reach a final, on fresh runs, in which the
    choice is made. All scales meet the same randomness.

    In an environment a scale costs mean + worst / 10 of the final regret of its runs, divided by
    the least such cost of all scales. The worst run counts because a scale that is too small fails
    rarely and then for good: the policy locks onto a wrong arm. Of the scales whose mean cost over
    the environments is at most `caution` times the least, the one nearest to the given scale is
    taken: it pays a little here so as not to fail in an environment that is harder than these. The
    runs in the report took no part in the choice, and `held_out` environments none either.

    With `risk`, such as 0.999, a scale costs that quantile of the final regret instead: what one
    run in 1 / (1 - risk) exceeds. It is for those who run the policy once.

    The scale never touches privacy, so the proof of privacy stands. The proof of regret holds for
    the given scale and is given up: in an environment unlike these the policy may do badly.

    Args:
        policy: what to calibrate; its own scale is where the default grid starts from.
        environments: one, a list, or a mapping from label to environment.
        horizon: rounds in a run: a scale for few rounds is too small for many.
        repetitions: runs of each finalist; take at least 100, as rare failures need many.
        seed: a whole number; the same seed gives the same choice.
        held_out: environments to report on only.
        scales: the scales to try; by default the policy's own times 2^-7 to 2, and further where
            the best is at the edge.
        parameter: the parameter to choose, such as `learning_rate_scale`.
        caution: how many times the least cost may be paid to stay near the given scale; 1 takes
            the scale that did best.
        risk: from 0.5 to below 1; takes at least 4 / (1 - risk) repetitions: 4,000 for 0.999.
        delay, patience, settle, missing: how late rewards come, as for `bl.simulate`.
        workers: threads; by default one for each core that this process may use.
        device: "cpu", "cuda" or "auto", as for `bl.simulate`.
        progress: called with the rounds played and the rounds in all (which may grow).

    Example:
        >>> import balaclava as bl
        >>> worlds = [bl.environment("bernoulli", means=[0.5, 0.5 + gap]) for gap in (0.1, 0.3)]
        >>> done = bl.calibrate(bl.policy("ucb1", arms=2), worlds, horizon=2000, repetitions=20,
        ...                     seed=1, scales=[0.03, 0.3, 1.0])
        >>> done.scale, done.policy.radius_scale
        (0.3, 0.3)
    """
    current = _current(policy, parameter)
    horizon = check("horizon", horizon, Horizon)
    repetitions = check("repetitions", repetitions, Annotated[int, Range(2)])
    seed = check("seed", seed, Annotated[int, Range(0)])
    caution = check("caution", caution, Annotated[float, Range(1)])
    _require_runs(risk, repetitions)
    feedback = Feedback.create(delay, patience, settle, missing)
    worlds, others = _label_apart(environments, held_out)
    _require_playable(policy, {**worlds, **others}, horizon, feedback, device)
    how = (feedback, workers, progress, device, risk)
    search = _Search(policy, parameter, worlds, horizon, seed, *how)
    few = max(2, repetitions // 2)
    notes = _first_notes(policy, parameter, {**worlds, **others}, horizon)
    if str(feedback):
        notes.append(f"rewards came late: {feedback}")
    _try_scales(search, scales, current, few)
    search.play(search.finalists(few, caution, current), repetitions, fresh=1)
    scale = search.careful(repetitions, caution, current)[0]
    notes += search.notes(scale, few)
    calibrated = with_scale(policy, parameter, scale)
    rows = tuple(
        search.report(label, world, calibrated, repetitions, label in others)
        for label, world in {**worlds, **others}.items()
    )
    notes += _last_notes(rows, repetitions)
    notes += search.what_would_change(scale, repetitions, caution, current)
    return Calibration(
        policy=calibrated,
        parameter=parameter,
        scale=scale,
        scale_before=current,
        horizon=horizon,
        repetitions=repetitions,
        seed=seed,
        trials=search.trials(few, repetitions),
        finalists=search.final_rows(repetitions),
        rows=rows,
        notes=tuple(notes),
        risk=risk,
    )


def _require_playable(
    policy: Policy,
    worlds: dict[str, Environment],
    horizon: int,
    feedback: Feedback,
    device: Device,
) -> None:
    """Refuse, before anything is played, what cannot be."""
    for label, world in worlds.items():
        require_compatible(f"{policy.name} on {label}", policy, world, horizon, feedback)
        chosen_device(device, feedback, environment=world)
        warn_of_moments(f"{policy.name} on {label}", policy, world)


def _require_runs(risk: float | None, repetitions: int) -> None:
    """Refuse a risk that so many runs say nothing about."""
    if risk is None:
        return
    check("risk", risk, Annotated[float, Range(0.5, 1.0, open_high=True)])
    enough = math.ceil(_BEYOND / (1.0 - risk) * (1.0 - 1e-9))
    if repetitions < enough:
        raise ParameterError(
            f"repetitions = {repetitions} is too few for risk = {risk:g}: one run in "
            f"{1.0 / (1.0 - risk):.4g} lies beyond that quantile; take at least {enough}"
        )


def _label_apart(
    environments: Environments, held_out: Environments | None
) -> tuple[dict[str, Environment], dict[str, Environment]]:
    """Those to choose on and those to report on only, by label: none is both."""
    worlds = label_environments("environments", environments)
    others = label_environments("held_out", held_out) if held_out is not None else {}
    for label in others:
        if label in worlds:
            raise ParameterError(f"held_out: {label!r} is in `environments` too; give another")
    return worlds, others


def _try_scales(search: _Search, scales: Sequence[float] | None, current: float, few: int) -> None:
    """The scales that are asked for, or a grid that follows the best."""
    if scales is None:
        search.play([current * factor for factor in _DEFAULT_GRID], few, skip=True)
        search.extend(few)
        best = search.best(few)
        search.play([best / math.sqrt(2.0), best * math.sqrt(2.0)], few, skip=True)
    else:
        if isinstance(scales, str) or not isinstance(scales, Iterable) or not list(scales):
            raise ParameterError(f"scales = {brief(scales)} is not allowed; give a list of numbers")
        search.play([float(check("scales", scale, float)) for scale in scales], few)


def _last_notes(rows: Iterable[CalibrationRow], repetitions: int) -> list[str]:
    """What the runs of the chosen scale give reason to warn of."""
    notes = [
        f"{row.environment}: the worst run is {row.worst / row.mean:.0f} times the mean; with this "
        "scale runs may lock onto a wrong arm"
        for row in rows
        if row.mean > 0 and row.worst > 10 * row.mean
    ]
    notes += [
        f"{row.environment}: the worst run, {row.worst:.4g}, is worse than any before, "
        f"{row.worst_before:.4g}; with this scale runs may lock onto a wrong arm"
        for row in rows
        if 0 < row.worst <= 10 * row.mean and row.worst > 1.5 * row.worst_before
    ]
    if repetitions < _ENOUGH:
        notes.append(
            f"{repetitions} repetitions are few: what fails more rarely than that was not seen; "
            f"take at least {_ENOUGH}"
        )
    return notes


def with_scale(policy: Policy, parameter: str, scale: float) -> Policy:
    """A copy with another scale; refused if that would change what is promised on privacy."""
    copy = type(policy).create({**policy.parameters, parameter: scale})
    _require_same_guarantee(policy, copy, parameter)
    return copy


def _require_same_guarantee(policy: Policy, other: Policy, parameter: str) -> None:
    if other.guarantee != policy.guarantee:
        raise ParameterError(
            f"{policy.name}: {parameter} changes the guarantee from {policy.guarantee} to "
            f"{other.guarantee}; privacy is for you to choose, not for a simulation"
        )


def label_environments(what: str, environments: Any) -> dict[str, Environment]:
    """Environments by label: the name, numbered where several have it."""
    if isinstance(environments, Environment):
        environments = [environments]
    if isinstance(environments, str) or not isinstance(environments, Iterable):
        raise ParameterError(
            f"{what}: {brief(environments)} is not an environment; make one with "
            "bl.environment(name, ...)"
        )
    if not isinstance(environments, Mapping):
        environments = list(environments)
        names = [getattr(world, "name", "") for world in environments]
        labels = [
            f"{name} {names[: i + 1].count(name)}" if names.count(name) > 1 else name
            for i, name in enumerate(names)
        ]
        environments = dict(zip(labels, environments, strict=True))
    if not environments:
        raise ParameterError(f"{what}: none given; give at least one bl.environment(name, ...)")
    for world in environments.values():
        if not isinstance(world, Environment):
            raise ParameterError(
                f"{what}: {brief(world)} is not an environment; make one with "
                "bl.environment(name, ...)"
            )
    return dict(environments)


def _current(policy: Policy, parameter: str) -> float:
    """The scale that the policy has, if the parameter is one."""
    if not isinstance(policy, Policy):
        raise ParameterError(
            f"policy: {brief(policy)} is not a policy; make one with bl.policy(name, ...)"
        )
    if parameter not in policy.annotations:
        raise ParameterError(
            f"{policy.name} has no parameter {parameter!r} to calibrate; "
            f"{nearest(parameter, policy.annotations)}"
        )
    base, _ = split(policy.annotations[parameter])
    value = getattr(policy, parameter)
    if float not in (base, *typing.get_args(base)) or not isinstance(value, float) or value <= 0:
        raise ParameterError(
            f"{policy.name}: {parameter} = {brief(value)} is not a scale; only a number above 0 "
            "can be calibrated"
        )
    for other in (value / 2.0, value * 2.0):
        try:
            copy = type(policy).create({**policy.parameters, parameter: other})
        except ParameterError:  # not allowed, so it will not be tried
            continue
        _require_same_guarantee(policy, copy, parameter)
    return value


def _first_notes(
    policy: Policy, parameter: str, worlds: dict[str, Environment], horizon: int
) -> list[str]:
    notes = [
        f"the proof of regret, where there is one, is for the {parameter} that the theory gives; "
        "it is given up",
        f"privacy does not depend on {parameter}: {policy.guarantee}",
    ]
    data = [label for label, world in worlds.items() if world.holds_data]
    if data:
        notes.append(
            f"{', '.join(data)}: real rewards were used without noise. The scale that was chosen, "
            "and this report, depend on them and are not private"
        )
    planned = getattr(policy, "horizon", None)
    if planned is not None and planned > horizon:
        notes.append(
            f"calibrated on {horizon} rounds, but the policy was made for {planned}: a scale for "
            "few rounds may be too small for many"
        )
    return notes


@dataclass
class _Search:
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
        for world in self.worlds.values():
            finals = self.simulate(candidates, world, repetitions, seed)
            for label, final in finals.items():
                kept[label].append(final)
        self.finals |= {(repetitions, float(label)): finals for label, finals in kept.items()}

    def simulate(
        self, policies: dict[str, Policy], world: Environment, repetitions: int, seed: int
    ) -> dict[str, np.ndarray]:
        """The final regret of each policy in each run."""
        before = self.played

        def report(rounds: int, total: int) -> None:
            if self.progress is not None:
                self.progress(before + rounds, before + total)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MomentWarning)  # said once, of the policy as it was
            results = simulate(
                policies,
                world,
                horizon=self.horizon,
                repetitions=repetitions,
                seed=seed,
                checkpoints=1,
                workers=self.workers,
                delay=self.feedback.delay,
                **self.feedback.settling._asdict(),
                device=self.device,
                progress=report,
            )
        self.played += self.horizon * repetitions * len(policies)
        return {label: results.final_regret(label) for label in policies}

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
                f"chosen by the {_percent(self.risk)} quantile of the regret; by the mean and the "
                f"worst run it would be {cheapest:.3g}"
            )
        notes.append(
            "closer arms, a longer horizon or a smaller epsilon would want a larger scale, arms "
            "that lie further apart a smaller one: calibrate on the hardest that you consider "
            "plausible"
        )
        return notes

    def trials(self, few: int, repetitions: int) -> tuple[Trial, ...]:
        """Every scale once: with all runs where it was a finalist, with few otherwise."""
        final = {trial.scale: trial for trial in self.ranking(repetitions)}
        rest = [trial for trial in self.ranking(few) if trial.scale not in final]
        return tuple(sorted([*final.values(), *rest]))

    def ranking(self, repetitions: int) -> list[Trial]:
        """The scales that were played so often, best first; of equals the larger, more careful."""
        mine = {scale: finals for (n, scale), finals in self.finals.items() if n == repetitions}
        costs = np.array([[self.cost(final) for final in finals] for finals in mine.values()])
        least = costs.min(axis=0)
        # A least cost of 0 (one arm, say) or below (losses) is no unit; then the largest is.
        unit = np.where(least > 0, least, np.maximum(np.abs(costs).max(axis=0), 1e-300))
        scores = (1.0 + (costs - least) / unit).mean(axis=1)
        trials = [
            Trial(scale, float(score), repetitions)
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

    def final_rows(self, repetitions: int) -> tuple[Finalist, ...]:
        """How each finalist did in each environment."""
        rows = []
        for (count, scale), finals in sorted(self.finals.items()):
            for label, final in zip(self.worlds, finals, strict=True):
                if count == repetitions:
                    middle, high = np.quantile(final, [0.5, 0.95])
                    figures = (final.mean(), plus_minus(final), middle, high, final.max())
                    tail = self.quantile(final)
                    row = Finalist(scale, label, *map(float, figures))
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
        self, label: str, world: Environment, calibrated: Policy, repetitions: int, held_out: bool
    ) -> CalibrationRow:
        """Fresh runs, before and after: those that led to the choice flatter it."""
        finals = self.simulate(
            {"before": self.policy, "after": calibrated}, world, repetitions, self.seed + 2
        )
        before, after = finals["before"], finals["after"]
        figures = (before.mean(), before.max(), after.mean(), plus_minus(after), after.max())
        row = CalibrationRow(label, held_out, *map(float, figures))
        return row._replace(risk_before=self.quantile(before), risk=self.quantile(after))

    def quantile(self, final: np.ndarray) -> float | None:
        """That of the risk, if there is one."""
        return None if self.risk is None else float(np.quantile(final, self.risk))

    def cost(self, final: np.ndarray) -> float:
        """What a scale costs in an environment: the risk, or the mean with a share of the worst."""
        tail = self.quantile(final)
        return float(final.mean() + _WORST_WEIGHT * final.max()) if tail is None else tail

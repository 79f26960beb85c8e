"""Choosing a policy's scale by simulation."""

import math
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from balaclava._core.declared import Horizon, Range, brief, check, split
from balaclava.advice.choose.calibration import Calibration, CalibrationRow
from balaclava.advice.choose.scale_search import ScaleSearch, require_same_guarantee, with_scale
from balaclava.agents.settling import Settle
from balaclava.environments.base import Environment
from balaclava.errors import ParameterError, nearest
from balaclava.policies.base import Policy
from balaclava.simulation.engine import Device, Progress, chosen_device, require_compatible
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.moment_warnings import warn_of_moments
from balaclava.simulation.reward_delays import Delay

Environments = Environment | Sequence[Environment] | Mapping[str, Environment]

_SCALE_FACTORS = tuple(2.0**k for k in range(-7, 2))  # default grid, times the policy's own scale
_ADVISED_REPETITIONS = 100  # with fewer, a failure in 1 % of runs is missed one time in three
_RUNS_BEYOND_RISK = 4  # on average: the probability beyond is then known within a factor of 2
_WORST_PER_MEAN, _WORST_PER_WORST_BEFORE = 10, 1.5  # above which a note warns; guesses


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
    that nearly always does. The search tries scales on a grid with half of the runs, then near the
    best. At least three scales reach a final on new runs, which decides. All scales see the same
    random draws.

    The cost of a scale is mean + worst / 10 of the final regret of its runs, relative to the least
    such cost. The worst run counts because too small a scale fails rarely but permanently: the
    policy locks onto a wrong arm. Of the scales that cost at most `caution` times the least on
    average, the search takes the one nearest to the given scale. That costs a little here, and
    guards against harder environments. The report uses runs that took no part in the choice.

    Note:
        Privacy does not depend on the scale. The proof of regret holds for the given scale only:
        in other environments the policy may do badly.

    Args:
        policy: the policy to calibrate; the default grid starts from its own scale.
        environments: one, a list, or a mapping from label to environment.
        horizon: rounds in a run; a scale for few rounds is too small for many.
        repetitions: runs of each finalist; take at least 100, as rare failures need many.
        seed: a whole number; the same seed gives the same choice.
        held_out: environments to report on only.
        scales: the scales to try; by default the policy's own times 2^-7 to 2, and beyond while
            the best is at the edge.
        parameter: the parameter to choose, such as `learning_rate_scale`.
        caution: multiple of the least cost that may be paid to stay near the given scale; 1 takes
            the scale that did best.
        risk: choose by this quantile of the final regret, from 0.5 to below 1, for a policy that
            runs once. It needs at least 4 / (1 - risk) repetitions: 4,000 for 0.999.
        delay, patience, settle, missing: how late rewards arrive, as in `bl.simulate`.
        workers: threads; by default one per core that this process may use.
        device: "cpu", "cuda" or "auto", as in `bl.simulate`.
        progress: called with the rounds played and the rounds in all, which may grow.

    Returns:
        The calibrated policy, with the cost of every scale and the regret before and after.

    Raises:
        ParameterError: a number is out of its range, or the parameter is not a scale.
        IncompatibleError: the policy cannot play in one of the environments.

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
    worlds, others = _label_both(environments, held_out)
    for label, world in (worlds | others).items():
        require_compatible(f"{policy.name} on {label}", policy, world, horizon, feedback)
        chosen_device(device, feedback, environment=world)
        warn_of_moments(f"{policy.name} on {label}", policy, world)
    how = (feedback, workers, progress, device, risk)
    search = ScaleSearch(policy, parameter, worlds, horizon, seed, *how)
    few = fewer(repetitions)
    notes = _first_notes(policy, parameter, worlds | others, horizon)
    if str(feedback):
        notes.append(f"rewards arrived late: {feedback}")
    scale = choose_scale(search, scales, current, repetitions, caution)
    notes += search.notes(scale, few)
    calibrated = with_scale(policy, parameter, scale)
    rows = search.report(others, calibrated, repetitions)
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


def choose_scale(
    search: ScaleSearch,
    scales: Sequence[float] | None,
    current: float,
    repetitions: int,
    caution: float = 2.0,
) -> float:
    """Search for a scale as `calibrate` does: `scales`, or a grid that follows the best."""
    few = fewer(repetitions)
    if scales is None:
        search.play([current * factor for factor in _SCALE_FACTORS], few, skip=True)
        search.extend(few)
        best = search.best(few)
        search.play([best / math.sqrt(2.0), best * math.sqrt(2.0)], few, skip=True)
    else:
        if isinstance(scales, str) or not isinstance(scales, Iterable) or not list(scales):
            raise ParameterError(f"scales = {brief(scales)} is not allowed; give a list of numbers")
        search.play([float(check("scales", scale, float)) for scale in scales], few)
    search.play(search.finalists(few, caution, current), repetitions, seed_offset=1)
    return search.careful(repetitions, caution, current)[0]


def fewer(repetitions: int) -> int:
    """Runs of a scale before the final: half, at least two."""
    return max(2, repetitions // 2)


def _require_runs(risk: float | None, repetitions: int) -> None:
    """Refuse a risk that so few runs cannot estimate."""
    if risk is None:
        return
    check("risk", risk, Annotated[float, Range(0.5, 1.0, open_high=True)])
    enough = math.ceil(_RUNS_BEYOND_RISK / (1.0 - risk) * (1.0 - 1e-9))
    if repetitions < enough:
        raise ParameterError(
            f"repetitions = {repetitions} is too few for risk = {risk:g}: one run in "
            f"{1.0 / (1.0 - risk):.4g} lies beyond that quantile; take at least {enough}"
        )


def _label_both(
    environments: Environments, held_out: Environments | None
) -> tuple[dict[str, Environment], dict[str, Environment]]:
    worlds = label_environments("environments", environments)
    others = {} if held_out is None else label_environments("held_out", held_out)
    for label in others:
        if label in worlds:
            raise ParameterError(f"held_out: {label!r} is in `environments` too; rename one")
    return worlds, others


def _last_notes(rows: Iterable[CalibrationRow], repetitions: int) -> list[str]:
    """Warnings from the runs of the chosen scale."""
    notes = [
        f"{row.environment}: the worst run has {row.worst / row.mean:.0f} times the mean regret; "
        "with this scale runs may lock onto a wrong arm"
        for row in rows
        if row.mean > 0 and row.worst > _WORST_PER_MEAN * row.mean
    ]
    notes += [
        f"{row.environment}: the worst run, {row.worst:.4g}, is worse than any before, "
        f"{row.worst_before:.4g}; with this scale runs may lock onto a wrong arm"
        for row in rows
        if 0 < row.worst <= _WORST_PER_MEAN * row.mean
        and row.worst > _WORST_PER_WORST_BEFORE * row.worst_before
    ]
    if repetitions < _ADVISED_REPETITIONS:
        notes.append(
            f"{repetitions} repetitions are few: rarer failures were not seen; "
            f"take at least {_ADVISED_REPETITIONS}"
        )
    return notes


def label_environments(what: str, environments: Any) -> dict[str, Environment]:
    """Environments by label: the name, numbered if several share it."""
    if isinstance(environments, str | Environment) or not isinstance(environments, Iterable):
        environments = [environments]
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
                f"{what}: {brief(world)} is not an environment; give bl.environment(name, ...)"
            )
    return dict(environments)


def _current(policy: Policy, parameter: str) -> float:
    """The policy's current scale, after checking that the parameter is one."""
    if not isinstance(policy, Policy):
        raise ParameterError(f"{brief(policy)} is not a policy; make one with bl.policy(name, ...)")
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
        except ParameterError:  # out of range: the search will not try it
            continue
        require_same_guarantee(policy, copy, parameter)
    return value


def _first_notes(
    policy: Policy, parameter: str, worlds: dict[str, Environment], horizon: int
) -> list[str]:
    notes = [
        f"a proof of regret holds for the proof's {parameter} only, and is given up",
        f"privacy does not depend on {parameter}: {policy.guarantee}",
    ]
    data = [label for label, world in worlds.items() if world.holds_data]
    if data:
        notes.append(
            f"{', '.join(data)}: the search used real rewards without noise. The chosen scale and "
            "this report are not private"
        )
    planned = policy.horizon
    if planned is not None and planned > horizon:
        notes.append(
            f"calibrated on {horizon} rounds, but the policy was made for {planned}: a scale for "
            "few rounds may be too small for many"
        )
    return notes

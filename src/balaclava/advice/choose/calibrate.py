"""Choosing a scale by simulation: what it gains in regret, and what proof it gives up."""

from __future__ import annotations

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
from balaclava.simulation.engine import (
    Device,
    Progress,
    chosen_device,
    require_compatible,
)
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.moment_warnings import warn_of_moments
from balaclava.simulation.reward_delays import Delay

Environments = Environment | Sequence[Environment] | Mapping[str, Environment]

_DEFAULT_GRID = tuple(2.0**k for k in range(-7, 2))  # times the policy's own scale
_ENOUGH = 100  # repetitions
_BEYOND = 4  # runs that lie beyond the quantile of a risk, on average


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
    search = ScaleSearch(policy, parameter, worlds, horizon, seed, *how)
    few = fewer(repetitions)
    notes = _first_notes(policy, parameter, {**worlds, **others}, horizon)
    if str(feedback):
        notes.append(f"rewards came late: {feedback}")
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
    """The scale that `calibrate` takes, as its documentation says."""
    few = fewer(repetitions)
    _try_scales(search, scales, current, few)
    search.play(search.finalists(few, caution, current), repetitions, fresh=1)
    return search.careful(repetitions, caution, current)[0]


def fewer(repetitions: int) -> int:
    """Runs of a scale before the final."""
    return max(2, repetitions // 2)


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


def _try_scales(
    search: ScaleSearch, scales: Sequence[float] | None, current: float, few: int
) -> None:
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
        require_same_guarantee(policy, copy, parameter)
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
    planned = policy.horizon
    if planned is not None and planned > horizon:
        notes.append(
            f"calibrated on {horizon} rounds, but the policy was made for {planned}: a scale for "
            "few rounds may be too small for many"
        )
    return notes

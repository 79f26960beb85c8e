"""`balaclava calibrate`: choose a policy's scale by simulation."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from balaclava.cli.options import delay_options, device_option, lateness
from balaclava.cli.prompts import (
    answer_options,
    ask_number,
    read_answers,
    read_kind,
    say,
    usual_answers,
)
from balaclava.cli.terminal import progress_bar

if TYPE_CHECKING:
    from balaclava.advice.choose.calibration import Calibration
    from balaclava.advice.choose.questions import Moments
    from balaclava.policies.base import Policy

_SCALES = ("radius_scale", "learning_rate_scale")  # that policies have
_FEW = 200  # repetitions, where no file says how many
_MOST_ROUNDS = 1_000_000
_AROUND = {
    "average": "What does a usual arm earn on average?",
    "difference": "How far ahead is the best arm, at least, if it is worth finding?",
}


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="[FILE.toml]", required=False)
@click.option("--policy", "label", metavar="LABEL", help="Which of the file's; or a policy's name.")
@click.option(
    "--held-out",
    multiple=True,
    metavar="LABEL",
    help="An environment of the file to report on only; may be repeated.",
)
@click.option("--parameter", help="What to choose; by default the policy's scale.")
@click.option(
    "--repetitions",
    type=click.IntRange(min=2),
    help=f"Runs of a finalist; by default the file's, or {_FEW}.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Threads; by default one a core.")
@click.option(
    "--risk",
    type=float,
    metavar="SHARE",
    help="Choose by this quantile of the regret, such as 0.999, instead of the mean.",
)
@click.option("--average", type=float, help="What a usual arm earns on average, without a file.")
@click.option("--difference", type=float, help="How far ahead the best arm is at least.")
@answer_options
@device_option
@delay_options
def calibrate(
    file: Path | None,
    label: str | None,
    held_out: tuple[str, ...],
    ask: bool | None,
    delay: float | None,
    law: str | None,
    lost: float | None,
    patience: int | None,
    **options: Any,
) -> None:
    """Choose a scale of a policy by simulation on problems that you consider plausible.

    They are the environments of FILE.toml, a file for `balaclava simulate` with one horizon and
    one seed; or they follow from answers to a few questions, which options give too. Privacy
    stays as it is; the proof of regret is given up.

    \b
    Example: balaclava calibrate plausible.toml --policy dp-se --held-out close
    Example: balaclava calibrate
    Example: balaclava calibrate --policy dp-se --arms 4 --horizon 20000 --average 0.05 \\
                 --difference 0.02
    """
    how = {name: options.pop(name) for name in ("parameter", "repetitions", "workers", "risk")}
    how["device"] = options.pop("device")
    late = lateness(delay, law, lost, patience)
    if file is not None:
        spare = [name for name, value in options.items() if value is not None]
        if spare or label is None:
            raise click.UsageError(
                f"--{spare[0].replace('_', '-')} is not for a file, which has its own environments"
                if spare
                else "give --policy: which of the file's policies to calibrate"
            )
        click.echo(str(_by_file(file, label, held_out, how, late)))
        return
    if held_out:
        raise click.UsageError("--held-out names an environment of a file; give FILE.toml")
    ask = sys.stdin.isatty() if ask is None else ask
    if not ask and label is None and all(value is None for value in options.values()):
        raise click.UsageError(
            "give FILE.toml, or answers such as --rewards heavy-tailed --typical 20 --largest 500 "
            "--one-in 10000; on a terminal they are asked for"
        )
    _by_answers(label, ask, options, how, late)


def _by_file(
    file: Path, label: str, held_out: tuple[str, ...], how: dict[str, Any], late: dict[str, Any]
) -> Calibration:
    """On the environments of a file."""
    from balaclava.advice.choose.calibrate import calibrate as choose
    from balaclava.errors import ExperimentFileError, nearest
    from balaclava.experiments.experiment_file import read_plan

    plan = read_plan(file)
    experiments = (plan.with_feedback(**late) if late else plan).experiments
    first = experiments[0]
    worlds = {each.environment_label: each.environment for each in experiments}
    if len(worlds) < len(experiments) or len({each.feedback for each in experiments}) > 1:
        raise ExperimentFileError(
            f"{file}: give one horizon, one seed and one delay to calibrate with"
        )
    if label not in first.policies:
        raise ExperimentFileError(
            f"{file} has no policy {label!r}; {nearest(label, first.policies)}"
        )
    for name in held_out:
        if name not in worlds:
            raise ExperimentFileError(
                f"{file} has no environment {name!r}; {nearest(name, worlds)}"
            )
    learning_worlds = {name: world for name, world in worlds.items() if name not in held_out}
    if not learning_worlds:
        raise ExperimentFileError(
            f"{file}: every environment is held out; leave one to calibrate on"
        )
    with progress_bar() as progress:
        return choose(
            first.policies[label],
            learning_worlds,
            horizon=first.horizon,
            repetitions=how["repetitions"] or first.repetitions,
            seed=first.seed,
            held_out={name: worlds[name] for name in held_out} or None,
            parameter=how["parameter"] or _scale_of(first.policies[label]) or _SCALES[0],
            risk=how["risk"],
            device=how["device"] or first.device,
            delay=first.feedback.delay,
            **first.feedback.settling._asdict(),
            workers=how["workers"] or first.workers,
            progress=progress,
        )


def _by_answers(
    name: str | None, ask: bool, options: dict[str, Any], how: dict[str, Any], late: dict[str, Any]
) -> None:
    """On problems that follow from answers."""
    from balaclava.advice.choose.calibrate import calibrate as choose
    from balaclava.advice.choose.questions import policy_for, problems_for
    from balaclava.advice.choose.recommend import code_of
    from balaclava.advice.choose.rules import find_rule
    from balaclava.policies.base import REGISTRY

    around = {key: options.pop(key) for key in _AROUND}
    kind = read_kind(options, ask)
    if name is None:
        name = find_rule(kind["rewards"], kind["trust"], kind.get("scope", "trajectory")).policy
    parameter = how["parameter"] or _scale_of(REGISTRY.get(name))
    if parameter is None:
        say("policy", f"{name} has no scale: there is nothing to calibrate, use it as it is")
        say("instead", "--policy calibrates another one, such as dp-se")
        return
    answers, moments = read_answers(kind, ask)
    policy = policy_for(answers, name)
    rounds = min(answers["horizon"], _MOST_ROUNDS)
    around = _around(around, answers, moments, ask)
    index = None if moments is None else moments.tail_index
    problems = problems_for(policy, answers, rounds, **around, index=index)
    say("policy", f"{policy.name}, {policy.guarantee}")
    if moments is not None:
        say("moment", moments.derivation)
    say("problems", problems.derivation)
    if not ask:
        for sentence in usual_answers(options, answers, moments):
            say("assumed", sentence)
    with progress_bar() as progress:
        calibration = choose(
            policy,
            problems.worlds,
            horizon=rounds,
            repetitions=how["repetitions"] or _FEW,
            seed=1,
            held_out=problems.held_out or None,
            parameter=parameter,
            risk=how["risk"],
            device=how["device"] or "cpu",
            workers=how["workers"],
            progress=progress,
            **late,
        )
    click.echo(f"\n{calibration}\n")
    click.echo(f"use:      {code_of(calibration.policy)}")


def _around(
    options: dict[str, Any], answers: dict[str, Any], moments: Moments | None, ask: bool
) -> dict[str, Any]:
    """An average and a difference, where problems can be made around them."""
    from balaclava._core.declared import Range, check

    direct = {name: value for name, value in options.items() if value is not None}
    if answers["rewards"] != "bounded" and moments is None:
        if direct:
            raise click.UsageError(
                "--average and --difference are for bounded rewards, or with --typical, --largest "
                "and --one-in"
            )
        return {}
    low, high = answers.get("reward_range", (0.0, 1.0))
    usual = (low + high) / 2
    limits = Range(low, math.inf if moments is not None else high, open_high=True)
    if moments is not None:
        if "average" in direct:
            raise click.UsageError("--average follows from --typical, --largest and --one-in")
        direct["average"] = float(f"{moments.average:.3g}")
    elif "average" not in direct and ask:
        direct["average"] = ask_number(_AROUND["average"], float, usual, limits)
    average = check("average", direct.setdefault("average", usual), Annotated[float, limits])
    room = average if moments is not None else high - average
    gap = float(f"{min(0.2 * room, 0.5 * abs(average - low) or room):.2g}")
    if "difference" not in direct:
        limits = Range(0, room, open_low=True)
        question = _AROUND["difference"]
        direct["difference"] = ask_number(question, float, gap, limits) if ask else gap
    return direct


def _scale_of(policy: Policy | type[Policy]) -> str | None:
    """The parameter of a policy that can be calibrated, if it has one."""
    return next((name for name in _SCALES if name in policy.annotations), None)

"""`balaclava calibrate`: choose a policy's scale by simulation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balaclava.cli import prompts
from balaclava.cli.options import delay_options, device_option, option, pop_delay, workers_option
from balaclava.cli.terminal import print_code, print_labelled, progress_bar

if TYPE_CHECKING:
    from balaclava.advice.choose.calibration import Calibration
    from balaclava.policies.base import Policy

_CALIBRATION_REPETITIONS = 200  # without a file: a failure in 1 % of runs is seen 87 % of the time


@click.command(short_help="Choose a policy's scale by simulation.")
@click.argument("file", type=click.Path(path_type=Path), metavar="[FILE.toml]", required=False)
@option("--policy label", "LABEL", "A policy of the file; without a file, the name of a policy.")
@option(
    "--held-out",
    "LABEL",
    "An environment of the file to report on only; may be repeated.",
    multiple=True,
)
@option("--parameter", str, "Parameter to choose; by default the policy's scale.")
@option(
    "--repetitions",
    click.IntRange(2),
    f"Runs of a finalist; by default as in the file, or {_CALIBRATION_REPETITIONS}.",
)
@workers_option
@option(
    "--risk",
    float,
    "Choose by this quantile of the regret, such as 0.999, instead of the mean.",
    metavar="SHARE",
)
@option("--average", float, "Without a file: what a usual arm earns on average.")
@option("--difference", float, "Without a file: how far ahead the best arm is at least.")
@prompts.answer_options
@device_option
@delay_options
def calibrate(
    file: Path | None,
    label: str | None,
    held_out: tuple[str, ...],
    ask: bool | None,
    **options: Any,
) -> None:
    """Choose the scale of a policy by simulation on plausible environments.

    They are those of FILE.toml, a file for `balaclava simulate` with one horizon and one seed.
    Without a file they follow from a few questions; options answer them in advance.

    Privacy does not change. The proof of regret is given up.

    \b
    Example: balaclava calibrate plausible.toml --policy dp-se --held-out close
    Example: balaclava calibrate
    Example: balaclava calibrate --policy dp-se --arms 4 --horizon 20000 --average 0.05 \\
                 --difference 0.02
    """
    names = ("parameter", "repetitions", "workers", "risk", "device")
    settings = {name: options.pop(name) for name in names}
    late = pop_delay(options)
    if file is not None:
        spare = [name for name, value in options.items() if value is not None]
        if spare or label is None:
            raise click.UsageError(
                f"--{spare[0].replace('_', '-')} is only for use without a file"
                if spare
                else "give --policy: the policy of the file to calibrate"
            )
        click.echo(str(_calibrate_file(file, label, held_out, settings, late)))
        return
    if held_out:
        raise click.UsageError("--held-out names an environment of a file; give FILE.toml")
    ask = sys.stdin.isatty() if ask is None else ask
    if not ask and label is None and all(value is None for value in options.values()):
        raise click.UsageError(
            "give FILE.toml, or answers such as --rewards heavy-tailed --typical 20 --largest 500 "
            "--one-in 10000; on a terminal this command asks for them"
        )
    _calibrate_answers(label, ask, options, settings, late)


def _calibrate_file(
    file: Path,
    label: str,
    held_out: tuple[str, ...],
    settings: dict[str, Any],
    late: dict[str, Any],
) -> Calibration:
    from balaclava.advice.choose.calibrate import calibrate as choose_scale
    from balaclava.errors import ExperimentFileError, nearest
    from balaclava.experiments.experiment_file import read_plan

    plan = read_plan(file)
    experiments = (plan.with_feedback(**late) if late else plan).settings
    first = experiments[0]
    worlds = {each.environment_label: each.environment for each in experiments}
    if len(worlds) < len(experiments) or len({each.feedback for each in experiments}) > 1:
        raise ExperimentFileError(
            f"{file} has several horizons, seeds or delays; give one of each to calibrate with"
        )
    policy = first.policies.get(label)
    if policy is None:
        hint = nearest(label, first.policies)
        raise ExperimentFileError(f"{file} has no policy {label!r}; {hint}")
    for name in held_out:
        if name not in worlds:
            hint = nearest(name, worlds)
            raise ExperimentFileError(f"{file} has no environment {name!r}; {hint}")
    learning_worlds = {name: world for name, world in worlds.items() if name not in held_out}
    if not learning_worlds:
        raise ExperimentFileError(f"{file}: every environment is held out; leave at least one")
    with progress_bar() as progress:
        return choose_scale(
            policy,
            learning_worlds,
            horizon=first.horizon,
            repetitions=settings["repetitions"] or first.repetitions,
            seed=first.seed,
            held_out={name: worlds[name] for name in held_out} or None,
            parameter=settings["parameter"] or _scale_parameter(policy) or "radius_scale",
            risk=settings["risk"],
            device=settings["device"] or first.device,
            delay=first.feedback.delay,
            **first.feedback.settling._asdict(),
            workers=settings["workers"] or first.workers,
            progress=progress,
        )


def _calibrate_answers(
    name: str | None,
    ask: bool,
    options: dict[str, Any],
    settings: dict[str, Any],
    late: dict[str, Any],
) -> None:
    """Calibrate on problems that follow from answers."""
    from balaclava.advice.choose.calibrate import calibrate as choose_scale
    from balaclava.advice.choose.contest import MAX_SIMULATED_ROUNDS
    from balaclava.advice.choose.questions import policy_for, problems_for
    from balaclava.advice.choose.recommend import policy_code
    from balaclava.advice.choose.rules import find_rule
    from balaclava.policies.base import POLICIES

    given_answers = {key: options.pop(key) for key in prompts.PROBLEM_QUESTIONS}
    kind = prompts.read_choices(options, ask)
    if name is None:
        name = find_rule(kind["rewards"], kind["trust"], kind.get("scope", "trajectory")).policy
    parameter = settings["parameter"] or _scale_parameter(POLICIES.get(name))
    if parameter is None:
        print_labelled("policy", f"{name} has no scale: there is nothing to calibrate")
        print_labelled("instead", "--policy calibrates another policy, such as dp-se")
        return
    answers, moment = prompts.read_answers(kind, ask)
    policy = policy_for(answers, name)
    rounds = min(answers["horizon"], MAX_SIMULATED_ROUNDS)
    around = prompts.average_and_difference(given_answers, answers, moment, ask)
    index = None if moment is None else moment.tail_index
    problems = problems_for(policy, answers, rounds, **around, index=index)
    print_labelled("policy", f"{policy.name}, {policy.guarantee}")
    if moment is not None:
        print_labelled("moment", moment.derivation)
    print_labelled("problems", problems.derivation)
    if not ask:
        for sentence in prompts.assumed_answers(options, answers, moment):
            print_labelled("assumed", sentence)
    with progress_bar() as progress:
        calibration = choose_scale(
            policy,
            problems.worlds,
            horizon=rounds,
            repetitions=settings["repetitions"] or _CALIBRATION_REPETITIONS,
            seed=1,
            held_out=problems.held_out or None,
            parameter=parameter,
            risk=settings["risk"],
            device=settings["device"] or "cpu",
            workers=settings["workers"],
            progress=progress,
            **late,
        )
    click.echo(f"\n{calibration}\n")
    print_code("use", policy_code(calibration.policy))


def _scale_parameter(policy: Policy | type[Policy]) -> str | None:
    from balaclava.advice.choose.scale_search import SCALE_PARAMETERS

    return next((name for name in SCALE_PARAMETERS if name in policy.annotations), None)

"""`balaclava calibrate`: choose a policy's scale by simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from balaclava.cli.delays import delay_options, lateness
from balaclava.cli.play import _progress, device_option

if TYPE_CHECKING:
    from balaclava.simulation.engine import Device


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml")
@click.option("--policy", "label", required=True, metavar="LABEL", help="Which of the file's.")
@click.option(
    "--held-out",
    multiple=True,
    metavar="LABEL",
    help="An environment of the file to report on only; may be repeated.",
)
@click.option("--parameter", default="radius_scale", show_default=True, help="What to choose.")
@click.option(
    "--repetitions", type=click.IntRange(min=2), help="Runs of a finalist; by default the file's."
)
@click.option("--workers", type=click.IntRange(min=1), help="Threads; by default one a core.")
@click.option(
    "--risk",
    type=float,
    metavar="SHARE",
    help="Choose by this quantile of the regret, such as 0.999, instead of the mean.",
)
@device_option
@delay_options
def calibrate(
    file: Path,
    label: str,
    held_out: tuple[str, ...],
    parameter: str,
    repetitions: int | None,
    workers: int | None,
    risk: float | None,
    device: Device | None,
    delay: float | None,
    law: str | None,
    lost: float | None,
    patience: int | None,
) -> None:
    """Choose a scale of a policy by simulation on the environments of FILE.toml.

    Privacy stays as it is; the proof of regret is given up. The file is one for `balaclava
    simulate` with one horizon and one seed.

    \b
    Example: balaclava calibrate plausible.toml --policy dp-se --held-out close
    """
    from balaclava.advice.calibrate import calibrate as choose
    from balaclava.errors import ExperimentFileError, nearest
    from balaclava.experiments.files import read_plan

    plan, late = read_plan(file), lateness(delay, law, lost, patience)
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
    with _progress() as progress:
        calibration = choose(
            first.policies[label],
            learning_worlds,
            horizon=first.horizon,
            repetitions=repetitions or first.repetitions,
            seed=first.seed,
            held_out={name: worlds[name] for name in held_out} or None,
            parameter=parameter,
            risk=risk,
            device=device or first.device,
            delay=first.feedback.delay,
            **first.feedback.settling._asdict(),
            workers=workers or first.workers,
            progress=progress,
        )
    click.echo(str(calibration))

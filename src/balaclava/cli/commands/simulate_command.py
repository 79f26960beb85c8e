"""The commands that play."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balaclava.cli.commands.summary_command import print_json, print_summary
from balaclava.cli.options import delay_options, device_option, lateness
from balaclava.cli.terminal import progress_bar

if TYPE_CHECKING:
    from balaclava.experiments.sweep import Sweep
    from balaclava.simulation.engine import Device


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the results; by default the file's name and '-results', in this folder.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Threads; by default one for each core."
)
@click.option(
    "--scheduler",
    envvar="DASK_SCHEDULER_ADDRESS",
    metavar="ADDRESS",
    help="Play on the workers of this dask scheduler [env: DASK_SCHEDULER_ADDRESS].",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds to wait for the scheduler and its first worker.",
)
@click.option("--extend", is_flag=True, help="Take over a folder of another experiment.")
@click.option("--json", "as_json", is_flag=True, help="Print the tables as JSON.")
@click.option("--list", "show", is_flag=True, help="List the cells, and play nothing.")
@click.option(
    "--winners", is_flag=True, help="Say how many runs name the right arm, and when, from releases."
)
@device_option
@delay_options
@click.pass_context
def simulate(
    context: click.Context,
    /,
    file: Path,
    out: Path | None,
    show: bool,
    winners: bool,
    as_json: bool,
    device: Device | None,
    delay: float | None,
    law: str | None,
    lost: float | None,
    patience: int | None,
    **how: Any,
) -> None:
    """Run the experiment that FILE.toml describes.

    Writes results.parquet (read it with bl.load), regret.png and summary.txt. A file may ask for
    several environments, horizons and grids of parameters: each combination is a cell, with a
    file of its own under cells. After Ctrl-C, or worse, the same command goes on where it was.

    \b
    Example: balaclava simulate quickstart.toml --out first-try
    with this in quickstart.toml:
    \b
        horizon = 10000
        repetitions = 20
        seed = 1
        [environment]
        name = "bernoulli"
        means = [0.3, 0.5, 0.7]
        [policies.ucb1]
        [policies.bolder]
        name = "ucb1"
        radius_scale = { grid = [0.25, 0.5] }

    Rewards come at once unless the file has a section [delay], or --delay, --law, --lost and
    --patience say otherwise; these replace what the file says.
    """
    from balaclava._core.atomic_files import require_folder
    from balaclava.experiments.experiment_file import read_plan
    from balaclava.experiments.sweep import SUMMARY, plan_sweep
    from balaclava.experiments.sweep_runner import run_sweep

    plan = read_plan(file)
    arguments = lateness(delay, law, lost, patience)
    if arguments:
        plan = plan.with_feedback(**arguments)
    plan = plan.with_winners() if winners else plan
    plan = plan.with_device(device) if device else plan
    out = Path(f"{file.stem}-results") if out is None else out
    sweep = plan_sweep(plan, out)
    if show:
        _list(sweep)
        return
    require_folder(out)
    try:
        with progress_bar() as progress:
            run_sweep(plan, out, progress=progress, **how)
    except KeyboardInterrupt:
        _tell_what_is_kept(sweep)
        context.exit(130)
    finished = (out / SUMMARY).exists()
    words = f"{out} was finished before; nothing was played"
    if not finished:
        words = f"\nwrote {_write(sweep, quiet=as_json)} to {out}"
    elif not as_json:
        _print_tables(sweep)
    if as_json:
        print_json([(setting[0], sweep.results(*setting)) for setting in sweep.settings()])
    click.echo(words, err=as_json)


def _list(sweep: Sweep) -> None:
    """A line for each cell, finished ones marked; those that cannot be read, too."""
    from balaclava.experiments.sweep_runner import cell_state

    cells = sweep.cells
    states = [cell_state(cell) for cell in cells]
    for cell, state in zip(cells, states, strict=True):
        click.echo(f"{state:7}  {cell.key[:12]}  {cell}, seed {cell.seed}")
    todo = [cell for cell, state in zip(cells, states, strict=True) if state != "done"]
    rounds = sum(cell.horizon * cell.repetitions for cell in todo)
    damage = ""
    if "damaged" in states:
        damage = f", {states.count('damaged')} damaged, which will be played again"
    click.echo(
        f"{len(cells) - len(todo)} of {len(cells)} cells are done{damage}; {rounds:.3g} rounds are "
        "to be played"
    )


def _tell_what_is_kept(sweep: Sweep) -> None:
    cells, parts = sweep.cells, sweep.parts()
    counts = [c.repetitions if c.done else len(sweep.kept(c, parts)) for c in cells]
    total = sum(cell.repetitions for cell in cells)
    if sum(counts) and len(sweep.settings()) == 1:
        _write(sweep)
    share = f"{sum(cell.done for cell in cells)} of {len(cells)} cells"
    where = f"they are kept in {sweep.folder} ({share})" if sum(counts) else "nothing was finished"
    click.echo(
        f"balaclava: interrupted after {sum(counts)} of {total} repetitions; {where}; run the same "
        "command again to go on",
        err=True,
    )


def _write(sweep: Sweep, *, quiet: bool = False) -> str:
    """Tables and pictures; says in words what was written."""
    from balaclava._core.atomic_files import atomically
    from balaclava.experiments.sweep import SUMMARY
    from balaclava.simulation.analysis.regret_plots import COLOURS, LINE_STYLES

    settings = sweep.settings()
    tables, pictures = [], []
    for setting in settings:
        results = sweep.results(*setting)
        if len(settings) == 1:
            results.save(sweep.folder / "results.parquet")
        tables.append(str(results.summary()))
        if len(settings) > 1:
            tables[-1] = f"{setting[0]}: {tables[-1]}"
        if len(results.labels) <= len(COLOURS) * len(LINE_STYLES):  # more cannot be told apart
            name = "regret.png" if len(settings) == 1 else f"regret-{_file_name(*setting)}.png"
            results.plot(sweep.folder / name)
            pictures.append(name)
    if not quiet:
        _print_tables(sweep)
    with atomically(sweep.folder / SUMMARY) as temporary:
        temporary.write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    if len(settings) == 1:
        return ", ".join(["results.parquet", *pictures]) + f" and {SUMMARY}"
    return f"{len(sweep.cells)} cells, {len(pictures)} pictures and {SUMMARY}"


def _print_tables(sweep: Sweep) -> None:
    """A table for each setting."""
    settings = sweep.settings()
    for i, setting in enumerate(settings):
        heading = f"{setting[0]}: " if len(settings) > 1 else ""
        click.echo("\n" * (i > 0) + heading, nl=False)
        print_summary(sweep.results(*setting))


def _file_name(environment: str, horizon: int, seed: int) -> str:
    plain = re.sub(r"[^\w.]+", "-", environment).strip("-")
    return f"{plain}-{horizon}-{seed}"

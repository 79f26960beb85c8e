"""`balaclava simulate`: run an experiment file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balaclava.cli.commands.summary_command import print_summaries, results_json
from balaclava.cli.options import (
    delay_options,
    device_option,
    option,
    pop_delay,
    wide_option,
    workers_option,
)
from balaclava.cli.terminal import INTERRUPTED_STATUS, print_json, progress_bar

if TYPE_CHECKING:
    from balaclava.experiments.sweep import Sweep
    from balaclava.simulation.engine import Device
    from balaclava.simulation.results import Results


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml")
@option("--out", Path, "Folder for the results; by default FILE-results in this folder.")
@workers_option
@option(
    "--scheduler",
    "ADDRESS",
    "Play on the workers of this dask scheduler [env: DASK_SCHEDULER_ADDRESS].",
    envvar="DASK_SCHEDULER_ADDRESS",
)
@option(
    "--timeout",
    click.FloatRange(min=0, min_open=True),
    "Seconds to wait for the scheduler and its first worker.",
    default=30.0,
)
@option("--extend", bool, "Add to the folder of another experiment.")
@option("--json as_json", bool, "Print the tables as JSON.")
@option("--list show", bool, "List the cells without playing them.")
@wide_option
@option("--winners", bool, "Report how many runs name the right arm, and when.")
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
    wide: bool,
    device: Device | None,
    **options: Any,
) -> None:
    """Run the experiment that FILE.toml describes.

    Writes results.parquet (read it with bl.load), regret.png and summary.txt. A file may have
    several environments, horizons and grids of parameters; each combination is a cell with its own
    file. After Ctrl-C or a crash, the same command continues where it stopped.

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

    Rewards arrive at once unless the file has a section [delay]. The options --delay, --law, --lost
    and --patience replace it.
    """
    from balaclava._core.atomic_files import require_writable_folder
    from balaclava._core.extras import require_extra
    from balaclava.experiments.experiment_file import read_plan
    from balaclava.experiments.sweep import SUMMARY_FILE, plan_sweep
    from balaclava.experiments.sweep_runner import run_sweep

    require_extra("pyarrow", "a results file")
    plan = read_plan(file)
    late = pop_delay(options)
    plan = plan.with_feedback(**late) if late else plan
    plan = plan.with_winners() if winners else plan
    plan = plan.with_device(device) if device else plan
    out = Path(f"{file.stem}-results") if out is None else out
    sweep = plan_sweep(plan, out)
    if show:
        _list_cells(sweep)
        return
    require_writable_folder(out)
    try:
        with progress_bar() as progress:
            run_sweep(plan, out, progress=progress, **options)
    except KeyboardInterrupt:
        _report_interruption(sweep)
        context.exit(INTERRUPTED_STATUS)
    finished = (out / SUMMARY_FILE).exists()
    words = f"{out} was finished before; nothing was played"
    if not finished:
        words = f"\nwrote {_write(sweep, quiet=as_json, wide=wide)} to {out}"
    elif not as_json:
        print_summaries(_results(sweep), wide)
    if as_json:
        print_json(results_json(_results(sweep)))
    click.echo(words, err=as_json)


def _list_cells(sweep: Sweep) -> None:
    from balaclava.experiments.sweep_runner import cell_state

    cells = sweep.cells
    states = [cell_state(cell) for cell in cells]
    for cell, state in zip(cells, states, strict=True):
        click.echo(f"{state:7}  {cell.key[:12]}  {cell}, seed {cell.setting.seed}")
    todo = [cell for cell, state in zip(cells, states, strict=True) if state != "done"]
    rounds = sum(cell.setting.horizon * cell.setting.repetitions for cell in todo)
    damage = ""
    if "damaged" in states:
        damage = f", {states.count('damaged')} damaged, which will be played again"
    click.echo(
        f"{len(cells) - len(todo)} of {len(cells)} cells are done{damage}; {rounds:.3g} rounds are "
        "left to play"
    )


def _report_interruption(sweep: Sweep) -> None:
    cells, parts = sweep.cells, sweep.parts()
    counts = [c.setting.repetitions if c.done else len(sweep.kept(c, parts)) for c in cells]
    total = sum(cell.setting.repetitions for cell in cells)
    if sum(counts) and len(sweep.settings()) == 1:
        _write(sweep)
    share = f"{sum(cell.done for cell in cells)} of {len(cells)} cells"
    where = f"they are kept in {sweep.folder} ({share})" if sum(counts) else "nothing was finished"
    click.echo(
        f"balaclava: interrupted after {sum(counts)} of {total} repetitions; {where}; run the same "
        "command again to continue",
        err=True,
    )


def _write(sweep: Sweep, *, quiet: bool = False, wide: bool = False) -> str:
    """Write tables and plots; return their names in words."""
    from balaclava._core.atomic_files import atomically
    from balaclava.experiments.sweep import SUMMARY_FILE
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
            environment, horizon, seed = setting
            plain = re.sub(r"[^\w.]+", "-", environment).strip("-")
            name = f"regret-{plain}-{horizon}-{seed}.png" if len(settings) > 1 else "regret.png"
            results.plot(sweep.folder / name)
            pictures.append(name)
    if not quiet:
        print_summaries(_results(sweep), wide)
    with atomically(sweep.folder / SUMMARY_FILE) as temporary:
        temporary.write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    if len(settings) == 1:
        return ", ".join(["results.parquet", *pictures]) + f" and {SUMMARY_FILE}"
    return f"{len(sweep.cells)} cells, {len(pictures)} pictures and {SUMMARY_FILE}"


def _results(sweep: Sweep) -> list[tuple[str, Results]]:
    return [(setting[0], sweep.results(*setting)) for setting in sweep.settings()]

"""The commands that play."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from balaclava.policies.base import Policy
    from balaclava.simulation.results import Results

_DEMO_MEANS = (0.3, 0.4, 0.5, 0.6, 0.75)
_DEMO_HORIZON = 20_000
_DEMO_REPETITIONS = 40
# Two yardsticks, then policies for each thing that epsilon can cover.
_DEMO_POLICIES: dict[str, dict[str, float]] = {
    "ucb1": {},
    "imed": {},
    "dp-imed": {"epsilon": 1.0},
    "dp-se": {"epsilon": 1.0, "horizon": _DEMO_HORIZON},
    "dp-ftpl-new": {"epsilon": 1.0, "delta": 1e-6, "horizon": _DEMO_HORIZON},
    "ldp-ucb-bernoulli": {"epsilon": 1.0},
}


@click.command(short_help="Play a few policies, print a table, draw demo.png.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("."), help="Where to write.")
def demo(out: Path) -> None:
    """Play a few policies against each other and draw their regret.

    \b
    Five arms that pay 0 or 1. Prints a table and writes demo.png.
    Example: balaclava demo --out pictures
    """
    from balaclava.environments.base import environment
    from balaclava.simulation.engine import simulate

    world = environment("bernoulli", means=_DEMO_MEANS)
    _make_folder(out)
    with _progress() as progress:
        results = simulate(
            _demo_policies(),
            world,
            horizon=_DEMO_HORIZON,
            repetitions=_DEMO_REPETITIONS,
            seed=1,
            progress=progress,
        )
    click.echo(str(results.summary()))
    results.plot(out / "demo.png", log_regret=True)  # private and not: orders of magnitude apart
    click.echo(f"\nwrote {out / 'demo.png'}")


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
@click.pass_context
def simulate(context: click.Context, file: Path, out: Path | None, workers: int | None) -> None:
    """Run the experiment that FILE.toml describes.

    Writes results.parquet (read it with bl.load), regret.png and summary.txt. After Ctrl-C the
    repetitions that were finished are kept.

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
        radius_scale = 0.5
    """
    from balaclava.simulation.engine import Interrupted
    from balaclava.simulation.experiment import read_experiment

    experiment = read_experiment(file)
    out = Path(f"{file.stem}-results") if out is None else out
    _make_folder(out)
    try:
        with _progress() as progress:
            results = experiment.run(workers=workers, progress=progress)
    except Interrupted as interruption:
        results = interruption.results
        finished = sum(len(runs) for runs in results.runs.values())
        asked = experiment.repetitions * len(results.labels)
        if finished:
            _write(results, out)
        kept = f"they are kept in {out}" if finished else "nothing was written"
        click.echo(
            f"balaclava: interrupted after {finished} of {asked} repetitions; {kept}", err=True
        )
        context.exit(130)
    _write(results, out)
    click.echo(f"\nwrote results.parquet, regret.png and summary.txt to {out}")


def _write(results: Results, out: Path) -> None:
    """The numbers first: they are what cannot be made again quickly."""
    from balaclava.simulation.storage import atomically

    results.save(out / "results.parquet")
    summary = str(results.summary())
    click.echo(summary)
    with atomically(out / "summary.txt") as temporary:
        temporary.write_text(summary + "\n", encoding="utf-8")
    results.plot(out / "regret.png")


def _make_folder(out: Path) -> None:
    from balaclava.errors import ResultsFileError

    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass  # hours of work must not end at a folder that may not be written to
    except OSError as error:
        raise ResultsFileError(
            f"--out {out} cannot be made or written to: {error.strerror}; choose another folder"
        ) from error


def _demo_policies() -> list[Policy]:
    from balaclava.policies.base import policy

    arms = len(_DEMO_MEANS)
    return [policy(name, arms=arms, **given) for name, given in _DEMO_POLICIES.items()]


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A line with the pace and the time left, where somebody can see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    class Pace(ProgressColumn):
        def render(self, task: Any) -> Any:
            from rich.text import Text

            return Text(f"{(task.finished_speed or task.speed or 0) / 1e6:.1f} M rounds/s")

    columns = (TextColumn("{task.description}"), BarColumn(), Pace(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=None)

        def report(played: int, total: int) -> None:
            bar.update(task, description="playing", completed=played, total=total)

        yield report

"""The data of a report: results of each environment and horizon, and how to run them again."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.extras import import_extra
from balaclava.errors import ResultsFileError
from balaclava.simulation.analysis.statistics import best_arm_share, plus_minus, proved_bound
from balaclava.simulation.analysis.winners import has_releases
from balaclava.simulation.engine import checkpoint_rounds
from balaclava.simulation.results import Results
from balaclava.simulation.results_file import load

CURVE_QUANTILES = (0.1, 0.9)  # of the repetitions, around a curve: readable with ten of them
FINAL_QUANTILES = (0.05, 0.95)  # of the final regret: its usual range


class FinalRegret(NamedTuple):
    """The regret of a policy at the horizon, over its repetitions."""

    label: str
    scope: str  # its guarantee, in a few words
    repetitions: int
    mean: float
    low: float  # of the confidence interval of the mean; NaN after one repetition
    high: float
    quantiles: tuple[float, float]
    best_arm_share: float
    bound: float | None  # the proved one


@dataclass(frozen=True)
class ResultsPanel:
    """Results of one environment and one horizon, under a heading."""

    heading: str
    results: Results
    worlds: bool = False  # each repetition has its own environment

    @cached_property
    def labels(self) -> list[str]:
        """The policies with at least one finished repetition."""
        return [label for label in self.results.labels if self.results.runs[label]]

    @cached_property
    def final(self) -> list[FinalRegret]:
        rows = [_final(self.results, label) for label in self.labels]
        return sorted(rows, key=lambda row: row.mean)

    @property
    def facts(self) -> str:
        world, results = self.results.environment, self.results
        family = world.family
        counts = sorted({len(results.runs[label]) for label in results.labels})
        repetitions = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        return (
            f"{family}, {world.arms} arms, {results.horizon:,} rounds, {repetitions} repetitions, "
            f"seed {results.seed}" + (f", {results.circumstances}" if results.circumstances else "")
        )


@dataclass(frozen=True)
class PageData:
    """All data of a report."""

    title: str
    panels: list[ResultsPanel]
    experiment_files: dict[str, str]  # TOML that gives the same results, by heading
    versions: dict[str, str]
    remarks: list[str] = field(default_factory=list)
    command: str = ""  # replaces `experiment_files` if a command gives the same results

    @cached_property
    def policies(self) -> dict[str, Any]:
        policies: dict[str, Any] = {}
        for panel in self.panels:
            for label in panel.labels:
                policies.setdefault(label, panel.results.policies[label])
        return policies

    @property
    def holds_data(self) -> bool:
        """Whether the results were computed from logged rewards."""
        return any(panel.results.environment.holds_data for panel in self.panels)


def confidence_interval(values: np.ndarray) -> tuple[float, float]:
    mean, reach = float(values.mean()), float(plus_minus(values))
    return mean - reach, mean + reach


def _final(results: Results, label: str) -> FinalRegret:
    final = results.final_regret(label)
    low, high = np.quantile(final, FINAL_QUANTILES)
    return FinalRegret(
        label,
        results.guarantee(label),
        final.size,
        float(final.mean()),
        *confidence_interval(final),
        (float(low), float(high)),
        best_arm_share(results, label),
        proved_bound(results, label, results.horizon),
    )


def read_page_data(source: str | os.PathLike[str]) -> PageData:
    """Read a results file, a folder that holds one, or the folder of a sweep."""
    path = Path(source)
    if not path.is_dir():
        return results_page_data(load(path), path.name)
    single = path / "results.parquet"
    if single.is_file() and not (path / "manifest.json").exists():
        return results_page_data(load(single), path.resolve().name)
    return _sweep_page_data(path)


def results_page_data(results: Results, name: str) -> PageData:
    return _page_data(name, [ResultsPanel(name, results)], dict(results.versions or {}), [])


def _page_data(
    title: str, panels: list[ResultsPanel], versions: dict[str, str], remarks: list[str]
) -> PageData:
    files = {
        panel.heading: experiment_toml(panel.results)
        for panel in panels
        if not _needs_rewards(panel.results)
    }
    return PageData(title, panels, files, versions, remarks)


def _sweep_page_data(path: Path) -> PageData:
    from balaclava.experiments.sweep import open_sweep

    sweep = open_sweep(path)
    cells = sweep.cells
    settings = sweep.settings()
    forms = ("{}", "{:,} rounds", "seed {}")
    # A heading names the environment, and the parts that differ between settings.
    named = [i == 0 or len({setting[i] for setting in settings}) > 1 for i in range(len(forms))]
    panels = []
    for setting in settings:
        words = [form.format(part) for form, part in zip(forms, setting, strict=True)]
        heading = ", ".join(word for word, use in zip(words, named, strict=True) if use)
        panels.append(ResultsPanel(heading, sweep.results(*setting)))
    panels = [panel for panel in panels if panel.labels]
    if not panels:
        raise ResultsFileError(
            f"{path}: no repetition of the sweep is finished; run the same command again"
        )
    finished = sum(cell.done for cell in cells)
    remarks = []
    if finished < len(cells):
        remarks.append(
            f"The sweep is incomplete: {finished} of {len(cells)} cells are finished. The others "
            "have fewer repetitions here, or none."
        )
    return _page_data(sweep.name, panels, dict(sweep.manifest["versions"]), remarks)


def _needs_rewards(results: Results) -> bool:
    """Whether only the logged rewards themselves would give the results again."""
    world = results.environment
    return world.holds_data and not world.public_parameters.get("path")


def experiment_toml(results: Results) -> str:
    """The experiment file that gives these results again."""
    rounds = results.checkpoints
    usual = np.array_equal(checkpoint_rounds(rounds.size, results.horizon), rounds)
    world = results.environment
    settling = results.feedback.description
    delay = settling.pop("delay", None)
    content: dict[str, Any] = {
        "horizon": results.horizon,
        "repetitions": max(len(runs) for runs in results.runs.values()),
        "seed": results.seed,
        "checkpoints": rounds.size if usual else rounds.tolist(),
        **settling,
        "winners": True if has_releases(results) else None,
        "device": "cuda" if results.device == "cuda" else None,
        "delay": delay or None,
        "environment": {"name": world.family, **world.public_parameters},
        "policies": {
            label: {"name": policy.name, **policy.parameters}
            for label, policy in results.policies.items()
        },
    }
    return str(import_extra("tomlkit", "a page").dumps(_without_none(content)))


def _without_none(value: Any) -> Any:
    """Tables without the keys that are None, which TOML cannot express."""
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value

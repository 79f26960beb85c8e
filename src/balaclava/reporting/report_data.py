"""What a page shows: results of one environment and one horizon, and where they come from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from balaclava.errors import ResultsFileError
from balaclava.simulation.analysis.statistics import best_arm_share, plus_minus, proved_bound
from balaclava.simulation.analysis.winners import recorded
from balaclava.simulation.engine import checkpoint_rounds
from balaclava.simulation.results import Results, load

CURVE_QUANTILES = (0.1, 0.9)  # quantiles of the repetitions around a curve
FINAL_QUANTILES = (0.05, 0.95)  # quantiles of the final regret


class FinalRegret(NamedTuple):
    """The regret of a policy at the horizon, over its repetitions."""

    label: str
    scope: str  # what it promises, in a few words
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
    worlds: bool = False  # each repetition was played in an environment of its own

    @cached_property
    def labels(self) -> list[str]:
        """The policies of which at least one repetition was finished."""
        return [label for label in self.results.labels if self.results.runs[label]]

    @cached_property
    def final(self) -> list[FinalRegret]:
        """One row for each policy, the lowest mean first."""
        rows = [_final(self.results, label) for label in self.labels]
        return sorted(rows, key=lambda row: row.mean)

    @property
    def facts(self) -> str:
        """What was played, in a line."""
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
    """All that a page is made from."""

    title: str
    panels: list[ResultsPanel]
    recipes: dict[str, str]  # experiment files that give the same results, by heading
    versions: dict[str, str]
    remarks: list[str] = field(default_factory=list)
    command: str = ""  # or what to type to have them again

    @cached_property
    def policies(self) -> dict[str, Any]:
        """Every policy that is shown, by label."""
        policies: dict[str, Any] = {}
        for panel in self.panels:
            for label in panel.labels:
                policies.setdefault(label, panel.results.policies[label])
        return policies

    @property
    def holds_data(self) -> bool:
        """Whether somebody's rewards were looked at."""
        return any(panel.results.environment.holds_data for panel in self.panels)


def confidence_interval(values: np.ndarray) -> tuple[float, float]:
    """Student's interval for the mean."""
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
    """What is in a results file, in a folder that holds one, or in the folder of a sweep."""
    path = Path(source)
    if not path.is_dir():
        return results_page_data(load(path), path.name)
    single = path / "results.parquet"
    if single.is_file() and not (path / "manifest.json").exists():
        return results_page_data(load(single), path.resolve().name)
    return _of_sweep(path)


def results_page_data(results: Results, name: str) -> PageData:
    """The story of one results file."""
    return _story(name, [ResultsPanel(name, results)], dict(results.versions or {}), [])


def _story(
    title: str, panels: list[ResultsPanel], versions: dict[str, str], remarks: list[str]
) -> PageData:
    recipes = {
        panel.heading: experiment_toml(panel.results)
        for panel in panels
        if not _is_withheld(panel.results)
    }
    return PageData(title, panels, recipes, versions, remarks)


def _of_sweep(path: Path) -> PageData:
    from balaclava.experiments.sweep import open_sweep

    sweep = open_sweep(path)
    cells = sweep.cells
    places = sweep.settings()
    forms = ("{}", "{:,} rounds", "seed {}")
    # A heading says what differs, and which environment it is.
    telling = [i == 0 or len({place[i] for place in places}) > 1 for i in range(len(forms))]
    panels = []
    for place in places:
        words = [form.format(part) for form, part in zip(forms, place, strict=True)]
        heading = ", ".join(word for word, differs in zip(words, telling, strict=True) if differs)
        panels.append(ResultsPanel(heading, sweep.results(*place)))
    panels = [panel for panel in panels if panel.labels]
    if not panels:
        raise ResultsFileError(
            f"{path}: no repetition of the sweep is finished; run it again with the same command"
        )
    finished = sum(cell.done for cell in cells)
    remarks = []
    if finished < len(cells):
        remarks.append(
            f"The sweep is not finished: {finished} of {len(cells)} cells are. What is shown of "
            "the others has fewer repetitions, or is left out."
        )
    return _story(sweep.name, panels, dict(sweep.manifest["versions"]), remarks)


def _is_withheld(results: Results) -> bool:
    """Whether the rewards would be needed to run it again."""
    world = results.environment
    return world.holds_data and not world.public_parameters.get("path")


def experiment_toml(results: Results) -> str:
    """The experiment file that gives these results again."""
    repetitions = max(len(runs) for runs in results.runs.values())
    rounds = results.checkpoints
    usual = np.array_equal(checkpoint_rounds(rounds.size, results.horizon), rounds)
    world = results.environment
    settling = results.feedback.description
    delay = settling.pop("delay", None)
    lines = [
        f"horizon = {results.horizon}",
        f"repetitions = {repetitions}",
        f"seed = {results.seed}",
        f"checkpoints = {rounds.size if usual else rounds.tolist()}",
        *_entries(settling),
        *(["winners = true"] if recorded(results) else []),
        *(['device = "cuda"'] if results.device == "cuda" else []),
        "",
        *(["[delay]", *_entries(delay), ""] if delay else []),
        "[environment]",
        f"name = {_toml(world.family)}",
        *_entries(world.public_parameters),
    ]
    for label, policy in results.policies.items():
        lines += ["", f"[policies.{_key(label)}]", f"name = {_toml(policy.name)}"]
        lines += _entries(policy.parameters)
    return "\n".join(lines) + "\n"


def _entries(parameters: dict[str, Any]) -> Iterable[str]:
    return [f"{_key(k)} = {_toml(v)}" for k, v in parameters.items() if v is not None]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # Strings, numbers and truth values are written as in JSON.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

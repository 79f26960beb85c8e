"""What the simulations of this paper share: instances, sizes and settings."""

from __future__ import annotations

from typing import NamedTuple

from balaclava.environments.base import Environment, environment
from balaclava.papers.harness.figure_run import FigureRun, RunSize

REFERENCE = (
    "Wang, Zhu. Optimal learning policies for differential privacy in multi-armed bandits. "
    "JMLR 2024"
)
INSTANCE_1 = tuple(round(0.3 + 0.05 * i, 2) for i in range(9))
INSTANCE_2 = tuple(round(0.3 + 0.004 * i, 3) for i in range(101))
SIZES = {"quick": RunSize(200_000, 5), "paper": RunSize(1_000_000, 100), "tiny": RunSize(300, 2)}
SEED = 2024


class WangSetting(NamedTuple):
    """One panel: where it is played, and what is promised."""

    instance: int
    epsilon: float
    delta: float = 0.0

    @property
    def world(self) -> Environment:
        means = INSTANCE_1 if self.instance == 1 else INSTANCE_2
        return environment("bernoulli", means=means)

    def __str__(self) -> str:
        delta = f", δ={self.delta:.3g}"
        return f"Instance {self.instance}, {self.world.arms} arms, ε={self.epsilon:g}{delta}"


def figure_title(run: FigureRun) -> str:
    """The title of a picture."""
    return f"Wang, Zhu 2024, Figure {run.name.removeprefix('wang2024-fig')}"


def scale_note(run: FigureRun) -> str:
    """Whether as much is played as in the paper."""
    size, paper = SIZES[run.scale], SIZES["paper"]
    if size == paper:
        return f"The scale is the paper's: {paper}."
    return f"The scale is smaller than the paper's: {size}, not {paper}."

"""The two Bernoulli instances of Wang and Zhu (2024), and the settings of their figures."""

from typing import NamedTuple

from balaclava.environments.base import Environment, environment
from balaclava.papers.harness.figure_registry import Paper, by_scale
from balaclava.papers.harness.figure_run import FigureRun, RunSize

WANG_2024 = Paper(
    reference="Wang, Zhu. Optimal learning policies for differential privacy in multi-armed "
    "bandits. JMLR 2024",
    seed=2024,
    sizes={"regret": by_scale(RunSize(200_000, 5), RunSize(1_000_000, 100), tiny=RunSize(300, 2))},
)
# Means as the paper prints them.
INSTANCE_1 = tuple(round(0.3 + 0.05 * i, 2) for i in range(9))
INSTANCE_2 = tuple(round(0.3 + 0.004 * i, 3) for i in range(101))


class WangSetting(NamedTuple):
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


def regret_size(run: FigureRun) -> RunSize:
    return WANG_2024.sizes["regret"][run.scale]


def figure_title(run: FigureRun) -> str:
    return f"Wang, Zhu 2024, Figure {run.name.removeprefix('wang2024-fig')}"


def scale_note(run: FigureRun) -> str:
    size, paper = regret_size(run), WANG_2024.sizes["regret"]["paper"]
    if size == paper:
        return f"The scale is the paper's: {paper}."
    return f"The scale is smaller than the paper's: {size}, not {paper}."

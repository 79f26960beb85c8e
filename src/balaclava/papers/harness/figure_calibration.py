"""Calibrated radius scales for the figures, next to the constants of the proofs."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from balaclava.advice.choose.calibrate import choose_scale
from balaclava.advice.choose.scale_search import ScaleSearch
from balaclava.environments.base import Environment
from balaclava.papers.harness.figure_run import RunSize
from balaclava.simulation.engine import Device
from balaclava.simulation.feedback import PROMPT
from balaclava.simulation.simulation_batches import tasks_at_once
from balaclava.simulation.task_threads import run_tasks

# Candidates for radius_scale, in powers of two. The range is a guess.
RADIUS_SCALES = tuple(2.0**-k for k in range(1, 9))
CALIBRATION_SEED = 2022  # arbitrary, but fixed: each figure finds the same scales

Name = TypeVar("Name")


class ScaleQuestion(NamedTuple):
    """The radius_scale of a policy to be found, on these environments."""

    policy: Any
    worlds: tuple[Environment, ...]
    size: RunSize


_answers: dict[tuple[ScaleQuestion, Device], float] = {}


def find_scales(
    questions: Mapping[Name, ScaleQuestion], workers: int | None, device: Device = "cpu"
) -> dict[Name, float]:
    """The scales that `bl.calibrate` would choose; the process caches them.

    On a GPU all of them are searched at once.
    """
    new = [q for q in dict.fromkeys(questions.values()) if (q, device) not in _answers]

    def search_for(question: ScaleQuestion) -> Callable[[Callable[[], None]], float]:
        def task(raise_if_stopped: Callable[[], None]) -> float:
            policy, worlds, size = question
            labelled = {str(number): world for number, world in enumerate(worlds)}
            how = size.horizon, CALIBRATION_SEED, PROMPT, workers
            search = ScaleSearch(
                policy, "radius_scale", labelled, *how, lambda *_: raise_if_stopped(), device
            )
            return choose_scale(search, RADIUS_SCALES, policy.radius_scale, size.repetitions)

        return task

    tasks = [search_for(question) for question in new]
    for number, scale in run_tasks(tasks, tasks_at_once(device, len(tasks))):
        _answers[new[number], device] = scale
    return {name: _answers[question, device] for name, question in questions.items()}


def scaled_label(label: str, scale: float) -> str:
    return f"{label} × {scale:.3g}"


def unscaled_label(label: str) -> str:
    return label.split(" × ")[0]


def list_scales(scales: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {scale:.3g}" for name, scale in scales.items())


def describe_calibration(worlds: str, size: RunSize, fewer: Mapping[str, int] | None = None) -> str:
    """How the scales were found; `fewer` limits the repetitions of slow policies."""
    scales = f"2^-1, 2^-2, ..., 2^-{len(RADIUS_SCALES)}"
    most = {name: min(runs, size.repetitions) for name, runs in (fewer or {}).items()}
    slow = "".join(f" ({name}: {runs})" for name, runs in most.items())
    return (
        f"Scales: bl.calibrate tried radius_scale {scales} on {worlds}. Those instances are not in "
        f"the figure. Each finalist had {size}{slow}. The privacy proof still holds; the regret "
        "bound does not."
    )

"""Several simulations in one go: one after the other on the CPU, all at once on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from balaclava.environments.base import Environment
from balaclava.simulation.engine import (
    Checkpoints,
    Device,
    Interrupted,
    Policies,
    Progress,
    available_cores,
    chosen_device,
    empty_results,
    label_policies,
    play,
)
from balaclava.simulation.feedback import PROMPT, Feedback
from balaclava.simulation.results import Results


class Simulation(NamedTuple):
    """Policies that are played on one environment, and how much."""

    policies: Policies
    environment: Environment
    horizon: int
    repetitions: int

    @property
    def rounds(self) -> int:
        """Those of all repetitions of all policies."""
        return self.repetitions * self.horizon * len(label_policies(self.policies))


def at_once(device: Device, tasks: int) -> int:
    """How many of so many tasks, each of which plays on the device, are best begun together."""
    return tasks if chosen_device(device, PROMPT) == "cuda" else 1


def simulate_all(
    simulations: Sequence[Simulation],
    *,
    seed: int,
    checkpoints: Checkpoints = 200,
    workers: int | None = None,
    feedback: Feedback = PROMPT,
    device: Device = "cpu",
    progress: Progress | None = None,
    warn: bool = True,
) -> Iterator[Results]:
    """The results of each, as `simulate` would give them.

    A few repetitions leave a GPU idle, so there all of them are played together, as far as it
    plays them; on the CPU each is played when its results are asked for.
    """
    plans = [
        empty_results(s.policies, s.environment, s.horizon, seed, checkpoints, feedback, warn=warn)
        for s in simulations
    ]
    whole, before = sum(each.rounds for each in simulations), 0

    def further(played: int) -> Progress | None:
        return None if progress is None else lambda rounds, _: progress(played + rounds, whole)

    places = [chosen_device(device, feedback, environment=s.environment) for s in simulations]
    on_gpu = [number for number, place in enumerate(places) if place == "cuda"]
    if on_gpu:
        from balaclava.simulation.gpu.launches import fill

        for number in on_gpu:
            plans[number].device = "cuda"
        try:
            fill([(plans[n], simulations[n].repetitions) for n in on_gpu], further(0))
        except KeyboardInterrupt:
            raise Interrupted(plans[on_gpu[0]]) from None
        before = sum(simulations[n].rounds for n in on_gpu)
    for simulation, results, place in zip(simulations, plans, places, strict=True):
        if place == "cpu":
            cores = workers or available_cores()
            play(results, simulation.repetitions, cores, False, "cpu", further(before))
            before += simulation.rounds
        yield results

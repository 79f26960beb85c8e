"""Play several simulations: one after the other on the CPU, all together on a GPU."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from balaclava.environments.base import Environment
from balaclava.simulation import engine
from balaclava.simulation.feedback import PROMPT, Feedback
from balaclava.simulation.results import Results


class Simulation(NamedTuple):
    """Arguments of one simulation."""

    policies: engine.Policies
    environment: Environment
    horizon: int
    repetitions: int

    @property
    def rounds(self) -> int:
        """The rounds of all repetitions of all policies."""
        return self.repetitions * self.horizon * len(engine.label_policies(self.policies))


def tasks_at_once(device: engine.Device, tasks: int) -> int:
    """How many tasks that play on the device to start together: all on a GPU, else one."""
    return tasks if engine.chosen_device(device, PROMPT) == "cuda" else 1


def simulate_all(
    simulations: Sequence[Simulation],
    *,
    seed: int,
    checkpoints: engine.Checkpoints = 200,
    workers: int | None = None,
    feedback: Feedback = PROMPT,
    device: engine.Device = "cpu",
    progress: engine.Progress | None = None,
    warn: bool = True,
) -> Iterator[Results]:
    """Yield the results of each simulation, the same as from `simulate`.

    A few repetitions leave a GPU idle, so it plays all simulations together. On the CPU each is
    played when the iterator reaches it.
    """
    plans = [
        engine.empty_results(
            s.policies, s.environment, s.horizon, seed, checkpoints, feedback, warn=warn
        )
        for s in simulations
    ]
    whole, before = sum(each.rounds for each in simulations), 0

    def further(played: int) -> engine.Progress | None:
        return None if progress is None else lambda rounds, _: progress(played + rounds, whole)

    places = [
        engine.chosen_device(device, feedback, environment=s.environment) for s in simulations
    ]
    on_gpu = [number for number, place in enumerate(places) if place == "cuda"]
    if on_gpu:
        from balaclava.simulation.gpu.launches import play_results

        for number in on_gpu:
            plans[number].device = "cuda"
        try:
            play_results([(plans[n], simulations[n].repetitions) for n in on_gpu], further(0))
        except KeyboardInterrupt:
            raise engine.Interrupted(plans[on_gpu[0]]) from None
        before = sum(simulations[n].rounds for n in on_gpu)
    for simulation, results, place in zip(simulations, plans, places, strict=True):
        if place == "cpu":
            cores = workers or engine.available_cores()
            engine.play(results, simulation.repetitions, cores, False, "cpu", further(before))
            before += simulation.rounds
        yield results

"""Playing policies on worlds drawn from a log, one world per repetition."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from balaclava.advice.trial.worlds import DrawnWorld
from balaclava.environments.base import Environment
from balaclava.policies.base import Policy
from balaclava.simulation import engine
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.results import Results

_CHECKPOINTS = 200  # of a curve; the default of `bl.simulate`


@dataclass(eq=False)
class _Game(engine.RepetitionJob):
    """A policy in a drawn world."""

    number: int = 0
    order: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass
class LogTrial:
    """Plays policies, all in the same worlds, which the seed determines."""

    worlds: Callable[[int], Iterator[DrawnWorld]]  # an endless iterator for a seed
    environment: Environment  # the log, which the results refer to
    rounds: int
    seed: int
    feedback: Feedback
    workers: int | None = None

    def play(
        self,
        policies: Mapping[str, Policy],
        count: int,
        progress: engine.Progress | None,
        stream: int = 1,
    ) -> tuple[Results, np.ndarray]:
        """Play in `count` worlds; return the runs, and the regret of random play in each world.

        Different streams draw different worlds.
        """
        results = Results.empty(
            policies,
            self.environment,
            horizon=self.rounds,
            seed=self.seed,
            checkpoints=engine.checkpoint_rounds(_CHECKPOINTS, self.rounds),
            feedback=self.feedback,
        )
        random_regret = np.empty(count)

        def games() -> Iterator[_Game]:
            worlds = itertools.islice(self.worlds(_derived_seed(self.seed, stream)), count)
            for i, (world, order, mean_gap) in enumerate(worlds):
                random_regret[i] = self.rounds * mean_gap
                seed = _derived_seed(self.seed, stream, i)
                for label, policy in policies.items():
                    how = (results.checkpoints, seed, self.feedback)
                    play = engine.repetition_player(label, policy, world, *how)
                    yield _Game(play, 0, self.rounds, number=i, order=order)

        total = count * len(policies) * self.rounds
        with engine.Pool(self.workers or engine.available_cores()) as pool:
            for game, run in pool.finished(games(), total, progress):
                pulls = np.empty_like(run.pulls)
                pulls[game.order] = run.pulls
                results.add(run._replace(repetition=game.number, pulls=pulls))
        return results, random_regret


def _derived_seed(*words: int) -> int:
    return int(np.random.SeedSequence(words).generate_state(1)[0])

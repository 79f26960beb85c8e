"""Playing policies on worlds that a log leaves possible: one world a repetition."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from balaclava.advice.log.worlds import DrawnWorld
from balaclava.environments.base import Environment
from balaclava.policies.base import Policy
from balaclava.simulation.engine import (
    Pool,
    Progress,
    RepetitionJob,
    available_cores,
    checkpoint_rounds,
    repetition_player,
)
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.results import Results


@dataclass(eq=False)
class _Game(RepetitionJob):
    """A policy in a drawn world."""

    number: int = 0
    order: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass
class LogTrial:
    """Where policies are played. All of them meet the same worlds, which follow from the seed."""

    worlds: Callable[[int], Iterator[DrawnWorld]]  # of a seed, without end
    shown: Environment  # what results are of
    rounds: int
    seed: int
    feedback: Feedback
    workers: int | None = None

    def play(
        self, policies: Mapping[str, Policy], count: int, progress: Progress | None, stream: int = 1
    ) -> tuple[Results, np.ndarray]:
        """The runs in that many worlds, and the expected regret at random in each."""
        results = Results.empty(
            policies,
            self.shown,
            horizon=self.rounds,
            seed=self.seed,
            checkpoints=checkpoint_rounds(200, self.rounds),
            feedback=self.feedback,
        )
        at_random = np.empty(count)

        def games() -> Iterator[_Game]:
            worlds = itertools.islice(self.worlds(_number(self.seed, stream)), count)
            for i, (world, order, loss) in enumerate(worlds):
                at_random[i] = self.rounds * loss
                seed = _number(self.seed, stream, i)
                for label, policy in policies.items():
                    play = repetition_player(
                        label, policy, world, results.checkpoints, seed, self.feedback
                    )
                    yield _Game(play, 0, self.rounds, number=i, order=order)

        total = count * len(policies) * self.rounds
        with Pool(self.workers or available_cores()) as pool:
            for game, run in pool.finished(games(), total, progress):
                pulls = np.empty_like(run.pulls)
                pulls[game.order] = run.pulls
                results.add(run._replace(repetition=game.number, pulls=pulls))
        return results, at_random


def _number(*words: int) -> int:
    """A seed that follows from others."""
    return int(np.random.SeedSequence(words).generate_state(1)[0])

"""Play a policy where each participant can get some arms only: by an agent, round by round.

A decision among some arms is made on a part of the state, as an agent does it. It is interpreted:
25 to 80 microseconds a round, some thousand times as long as compiled loops take.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava.environments.base import Environment
from balaclava.errors import DecisionError
from balaclava.policies.base import Policy
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.reward_delays import LOST, draw_delay

Record = tuple[np.ndarray, np.ndarray, np.ndarray]
_SEEDS = 2**62  # of agents


def masked_player(
    policy: Policy, environment: Environment, rounds: np.ndarray, feedback: Feedback
) -> Callable[..., Record]:
    """A function of the random streams that plays a game. See `repetition_player`."""

    def play(policy_rng: Any, environment_rng: Any, context_rng: Any, *rest: Any) -> Record:
        delay_rng, signals = rest[0], rest[-1]
        game = MaskedGame(policy, environment, int(policy_rng.integers(_SEEDS)), feedback)
        history = np.zeros((rounds.size, environment.arms), np.int64)
        totals, done = np.zeros(rounds.size), 0
        for t in range(1, int(rounds[-1]) + 1):
            if signals[1]:
                break
            game.play_round(t, environment_rng, context_rng, delay_rng)
            signals[0] = t
            if t == rounds[done]:
                history[done], totals[done] = game.pulls, game.total
                done += 1
        return history, totals, np.zeros((0, environment.arms, 3))

    return play


class MaskedGame:
    """An agent, and the participants who ask it."""

    def __init__(
        self, policy: Policy, environment: Environment, seed: int, feedback: Feedback
    ) -> None:
        offers, groups = environment.arms_on_offer, environment.groups
        assert offers is not None  # checked by the environment
        assert groups is not None
        self._environment = environment
        self._offers = {start: arms for start, arms in offers if start > 1}
        self._shares = np.cumsum([share for share, _ in groups])
        self._groups = [frozenset(arms) for _, arms in groups]
        self._arms = list(offers[0][1])  # of the environment, by number of the agent's arm
        self._numbers = {arm: number for number, arm in enumerate(self._arms)}  # on offer
        first = dataclasses.replace(policy, arms=len(self._arms))
        self._agent = first.agent(seed=seed, **feedback.settling._asdict())
        self._law = None if feedback.delay is None else feedback.delay.constants()
        self._due: dict[int, list[tuple[Any, float]]] = {}  # rewards by the round they come in
        self._scene = environment.scene.open(environment.constants())
        self.pulls, self.total = np.zeros(environment.arms, np.int64), 0.0

    def play_round(self, t: int, environment_rng: Any, context_rng: Any, delay_rng: Any) -> None:
        scene, (_, renew, gap) = self._scene, self._environment.scene
        if t in self._offers:
            self._change_arms(self._offers[t], t)
        renew(scene, t, context_rng)
        group = int(np.searchsorted(self._shares, context_rng.random(), side="right"))
        mask = self._groups[min(group, len(self._groups) - 1)].intersection(self._numbers)
        decision = self._agent.ask(available=[self._numbers[arm] for arm in sorted(mask)])
        arm = self._arms[decision.arm]
        reward = self._environment.draw(scene, t, arm, environment_rng)
        self.pulls[arm] += 1
        self.total += gap(scene, t, arm, reward) - min(gap(scene, t, a, reward) for a in mask)
        delay = 0 if self._law is None else draw_delay(self._law, delay_rng)
        if delay != LOST:
            self._due.setdefault(t + delay, []).append((decision, float(reward)))
        for late, value in self._due.pop(t, ()):
            with contextlib.suppress(DecisionError):  # it was given up, or its window has ended
                self._agent.tell(late, value)

    def _change_arms(self, on_offer: tuple[int, ...], t: int) -> None:
        for arm in on_offer:
            if arm not in self._numbers:
                self._numbers[arm] = self._agent.add_arm(f"{arm}, from round {t}")
                self._arms.append(arm)
        for arm in set(self._numbers).difference(on_offer):
            self._agent.retire_arm(self._numbers.pop(arm))

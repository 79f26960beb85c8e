"""Play a policy while arms come and leave at given rounds: a compiled loop for each segment.

Between two segments arms are added to the state and taken out of it (`frames.arm_slots`), as an
agent does it. With prompt rewards an arm that leaves has no open decision: its unfinished batch
ends, and its slot is dropped.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava._core.kernels import compiled, compiling
from balaclava.agents.roster import ArmRoster
from balaclava.environments.base import Environment
from balaclava.frames import arm_slots
from balaclava.frames.pools import closing_decision
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.loops import NO_SUCH_ARM, SIGNAL_ROUNDS

Record = tuple[np.ndarray, np.ndarray, np.ndarray]


def make_segment_play(
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    prepare: Callable[..., Any],
    draw: Callable[..., Any],
    renew: Callable[..., Any],
    score: Callable[..., Any],
) -> Callable[..., Any]:
    """Close the loop of a segment over the kernels of a policy and an environment.

    It continues from `last` to round `until`, and returns the total score and the number of
    checkpoints that are recorded.
    """

    def play(
        params: Any,
        state: Any,
        scene: Any,
        arm_in_slot: np.ndarray,
        last: int,
        until: int,
        checkpoints: np.ndarray,
        done: int,
        pulls: np.ndarray,
        history: np.ndarray,
        totals: np.ndarray,
        total: float,
        policy_rng: Any,
        environment_rng: Any,
        context_rng: Any,
        signals: np.ndarray,
    ) -> tuple[float, int]:
        t = last
        while t < until and signals[1] == 0:
            t += 1
            renew(scene, t, context_rng)
            slot, phase = choose(params, state, t, None, policy_rng)
            if slot < 0 or slot >= arm_in_slot.size:
                signals[0], signals[1] = t, NO_SUCH_ARM
                return total, done
            arm = arm_in_slot[slot]
            reward = draw(scene, t, arm, environment_rng)
            total += score(scene, t, arm, reward)
            learn(params, state, t, slot, prepare(params, reward), phase, policy_rng)
            pulls[arm] += 1
            if done < checkpoints.size and t == checkpoints[done]:
                totals[done] = total
                for each in range(pulls.size):
                    history[done, each] = pulls[each]
                done += 1
            if t % SIGNAL_ROUNDS == 0:
                signals[0] = t
        signals[0] = t
        return total, done

    return play


class ArmSegments:
    """A state whose slots are the arms on offer."""

    def __init__(self, policy: Policy, arms: tuple[int, ...]) -> None:
        self.policy = dataclasses.replace(policy, arms=len(arms))
        self.arms = list(arms)  # of the environment, by slot
        self.roster = ArmRoster(self.policy)
        self.params = self.policy.constants()
        self.begin = self.policy.kernels.begin
        self.state = self.begin(self.params)

    @property
    def policy_in_play(self) -> Policy:
        """The policy with as many arms as are on offer."""
        return dataclasses.replace(self.policy, arms=len(self.arms))

    def change(self, arms: tuple[int, ...], t: int, rng: Any) -> None:
        """Retire and add arms, before the round after t."""
        if set(arms) == set(self.arms):
            return
        stay = [slot for slot, arm in enumerate(self.arms) if arm in arms]
        come = [arm for arm in arms if arm not in self.arms]
        forget = self.policy.kernels.forget
        pools = arm_slots.find_pools(self.state)
        for slot in sorted(set(range(len(self.arms))).difference(stay)):
            phase = None if pools is None else closing_decision(pools, slot)
            if phase is not None:
                forget(self.params, self.state, t, slot, phase, rng)
            self.roster.retire(self.roster.arm_in_slot[slot], 0)
        for _ in come:  # before the others are dropped: an arm must stay
            self.state = arm_slots.with_new_slot(self.begin, self.params, self.state)
            self.params = self.params._replace(arms=self.params.arms + 1)
            self.roster.arm_in_slot.append(len(self.roster.labels))
            self.roster.labels.append(f"arm {len(self.roster.labels)}")
        whole = [*self.arms, *come]
        stay += range(len(self.arms), len(whole))
        if len(stay) < len(whole):
            self.state = arm_slots.kept_slots(self.begin, self.params, self.state, stay)
        self.arms = [whole[slot] for slot in stay]
        self.roster.arm_in_slot = [self.roster.arm_in_slot[slot] for slot in stay]
        self.params = self.policy.with_claims(self.params, self.roster.claims_by_slot())
        self.policy.renew_answer(self.params, self.state)


def segment_player(
    policy: Policy, environment: Environment, checkpoints: np.ndarray, *, interpreted: bool
) -> Callable[..., Record]:
    """The loop over all segments, with all arguments bound but its random streams."""
    offers = environment.arms_on_offer
    assert offers is not None  # checked by the caller
    choose, learn = policy.kernels.choose, policy.kernels.learn
    scene, world = environment.scene, environment.constants()
    kernels = (choose, learn, policy.prepare(), environment.draw, scene.renew, scene.score)
    segment = make_segment_play(*kernels) if interpreted else compiled(make_segment_play, *kernels)
    ends = [start - 1 for start, _ in offers[1:]]

    def play(
        rounds: np.ndarray, policy_rng: Any, environment_rng: Any, context_rng: Any, signals: Any
    ) -> Record:
        arms, game = environment.arms, ArmSegments(policy, offers[0][1])
        pulls, history = np.zeros(arms, np.int64), np.zeros((rounds.size, arms), np.int64)
        totals, total, done, last = np.zeros(rounds.size), 0.0, 0, 0
        horizon, opened = int(rounds[-1]) if rounds.size else 0, scene.open(world)
        for (_, on_offer), end in zip(offers, [*ends, horizon], strict=True):
            if last > horizon or signals[1]:
                break
            game.change(on_offer, last, policy_rng)
            until = min(end, horizon)
            total, done = segment(
                game.params, game.state, opened, np.array(game.arms), last, until, rounds, done,
                pulls, history, totals, total, policy_rng, environment_rng, context_rng, signals,
            )  # fmt: skip
            last = until
            if last == horizon:
                break
        return history, totals, np.zeros((0, arms, 3))

    if not interpreted:
        with compiling(f"{policy.name} on {environment.name}"):
            play(checkpoints[:0], seeded(0), seeded(1), seeded(2), np.zeros(2, np.int64))
    return functools.partial(play, checkpoints)

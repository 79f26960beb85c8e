"""DP sequential halving: the best answer after a fixed number of decisions (Karnin et al. 2013)."""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, Horizon
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults
from balaclava.frames import epochs
from balaclava.policies.base import Kernels, PrivateBoundedPolicy, register
from balaclava.policies.intervals import FROM_EPOCHS
from balaclava.policies.pooled_policies import PooledPolicy
from balaclava.policies.theorem_conditions import unit_gaps
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.theory.fixed_budget import halving_error

# Rounds of a stage over those of the one before. Of 1, .8, .7, .6, .5 and .35 it loses the least on
# its worst problem at epsilon .1 and .03; .8 errs about as often on average, 1 up to 35 times as
# often as the best (`python benchmarks/best_arm.py --stages`).
STAGE_RATIO = 0.7
OPEN_STAGES = 32  # a power of two: all stages of 2^30 arms, and what follows, may be open at once


class Params(NamedTuple):
    arms: int
    reward_range: tuple[float, float]
    epsilon: float
    in_turn: float  # share of the rounds that are not drawn evenly
    ends: np.ndarray  # [stage]: its last round
    keeps: np.ndarray  # [stage]: arms that stay after it
    explore: float
    holdout: float


class State(NamedTuple):
    epochs: epochs.Epochs  # one a stage
    clock: np.ndarray  # one element: the round of the last decision

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, clock=self.clock)


@kernel
def begin(params: Params) -> State:
    return State(epochs.begin_epochs(params.arms, OPEN_STAGES), np.zeros(1, np.int64))


@kernel(borrows=True)
def blocks_until(params: Params, stage: int, done: int, active: int) -> int:
    """Blocks of the arms in play until the end of the stage; after the last, without end."""
    if stage > params.ends.size:
        return MOST_PLANNED
    return int(params.in_turn * max(params.ends[stage - 1] - done, 0)) // active


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    stages = state.epochs
    if epochs.needs_epoch(stages):
        length = blocks_until(params, stages.number[0] + 1, t - 1, epochs.active_arms(stages))
        epochs.open_epoch(stages, length, -1)
    state.clock[0] = t
    return epochs.next_decision(params, stages, rng)


@kernel(borrows=True)
def release(params: Params, state: State, arm: int, row: int, rng: Any) -> None:
    released = laplace_release(rng, state.epochs.sums[arm, row], 1.0, params.epsilon)
    epochs.keep_release(state.epochs, arm, row, released, 0.0)


@kernel(borrows=True)
def extreme_arm(stages: epochs.Epochs, sign: float) -> int:
    """The arm in play with the highest mean, or the lowest if `sign` is -1; -1: none has one.

    An arm without rewards is below all others. Of equal arms the first is the highest.
    """
    extreme, highest, has_rewards = -1, -math.inf, False
    for arm in range(stages.active.size):
        if stages.active[arm]:
            mean = stages.pooled[arm] if stages.rewards[arm] > 0 else -math.inf
            has_rewards = has_rewards or stages.rewards[arm] > 0
            if extreme < 0 or sign * mean > highest or (sign < 0.0 and mean == -highest):
                extreme, highest = arm, sign * mean
    return extreme if has_rewards else -1


@kernel(borrows=True)
def finish(params: Params, state: State, row: int) -> None:
    """End a stage: the arms with the highest means stay. Without any reward all do."""
    stages = state.epochs
    keep = params.keeps[min(stages.oldest[0], params.keeps.size) - 1]
    while epochs.active_arms(stages) > keep and extreme_arm(stages, -1.0) >= 0:
        epochs.drop_arm(stages, extreme_arm(stages, -1.0))
    active = epochs.active_arms(stages)
    if active == 1:
        epochs.play_last_arm(stages, extreme_arm(stages, 1.0))
    more = blocks_until(params, stages.number[0], state.clock[0], active)
    epochs.end_epoch(stages, min(stages.blocks_done[0] + more, MOST_PLANNED))


learn, forget = epochs.learn_in_state(release, finish)


def halvings(arms: int) -> list[int]:
    """The arms that stay after each stage: half of them, rounded up, down to 1."""
    keeps = []
    while arms > 1:
        arms = (arms + 1) // 2
        keeps.append(arms)
    return keeps


@register
class DPSequentialHalving(PooledPolicy, PrivateBoundedPolicy):
    r"""Play all arms equally, drop the worse half, and again: one arm is left after the horizon.

    For a fixed number of participants, if an arm must be chosen at the end. The answer
    is `agent.finish().recommended`; it has no confidence of its own, but `error_bound` gives its
    chance of error on given means. To be told only what is sure, use dp-even for a fixed
    number, dp-top-two for an open one; for low regret dp-imed. With few arms and much noise
    (epsilon times an arm's share of the horizon below about 200) dp-even, whose `recommended` has
    the highest mean, errs slightly less often.

    With K arms there are log2(K) stages, rounded up. Each has 0.7 times the rounds of the one
    before, divided evenly over the arms in play. At its end S_a grows by the sum of the arm's new
    rewards + Lap(1/epsilon), and the half of the arms with the highest S_a/n_a stays. After the
    last stage, and beyond the horizon, the arm that is left is played. A mean uses the rewards of
    all stages, each with its noise; to forget them, as DP-BAI does, errs more often
    (docs/figures.md, The best arm).

    `agent.winner()` names that arm, or another, only if the releases show it at the confidence
    asked for, and often names none.

    If rewards are late, the next stage begins with the arms still in play, and drops arms as soon
    as the stage before has settled. Lost rewards do not count. After the last decision wait for
    the last rewards, then call `agent.finish()`. The bound is for rewards that arrive at once.

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward enters the sum of one
        stage, of sensitivity 1, which is released once, with noise of scale 1/epsilon. Stages end
        at fixed rounds; the arms in play follow from releases.

    Parameters:
        horizon: number of decisions before the answer.

    Example:
        >>> policy = bl.policy("dp-sequential-halving", arms=4, epsilon=1.0, horizon=800)
        >>> agent = policy.agent(seed=1)
        >>> for _ in range(800):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.3, 0.9, 0.5)[decision.arm])
        >>> agent.finish().recommended
        2
        >>> world = bl.environment("bernoulli", means=[0.4, 0.5, 0.75, 0.6])
        >>> round(policy.error_bound(world), 4)
        0.0016
    """

    name = "dp-sequential-halving"
    fixed_arms = "its budget is divided among the arms at the start"
    reference = "sequential halving (Karnin, Koren, Somekh 2013) with private sums"
    cites = "Karnin, Koren, Somekh 2013; Chen, Karthik, Chee, Tan 2024"
    see_also = "dp-even, dp-top-two, dp-imed"
    kernels = Kernels(begin, choose, learn, forget)
    estimation = FROM_EPOCHS
    plays_beyond_horizon = True
    pools = "epochs"
    winner_reason = "the best arms have more and more rounds until the horizon"
    epsilon: Epsilon
    horizon: Horizon
    examples = ({"horizon": 300}, {"horizon": 60, "arms": 5, "explore": 0.1})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arms < 2:
            raise self.refuse("arms", "leaves nothing to compare; give at least 2")
        if min(self.stage_pulls()) < 1:
            few = next(n for n in itertools.count(self.horizon) if min(self.stage_pulls(n)) >= 1)
            raise self.refuse(
                "horizon",
                f"is too short for any answer: {self.arms} arms have {len(halvings(self.arms))} "
                f"stages, each with a pull of every arm in play; it takes {few:,} decisions or "
                "more",
            )

    def constants(self, horizon: int | None = None) -> Params:
        keeps = np.array(halvings(self.arms), np.int64)
        left = STAGE_RATIO ** np.arange(1.0, keeps.size + 1.0)
        shares = (1.0 - left) / (1.0 - left[-1])
        ends = np.floor((horizon or self.horizon) * shares).astype(np.int64)
        in_turn = (1.0 - self.holdout) * (1.0 - self.explore)
        return self.fill(Params, in_turn=in_turn, ends=ends, keeps=keeps)

    def stage_pulls(self, horizon: int | None = None) -> list[int]:
        """Pulls of each arm in play, stage by stage, if rewards arrive at once.

        Args:
            horizon: In place of the policy's own.

        Returns:
            One number a stage.
        """
        params, active, done, pulls = self.constants(horizon), self.arms, 0, []
        for stage, keep in enumerate(params.keeps.tolist(), start=1):
            pulls.append(blocks_until(params, stage, done, active))
            done, active = done + pulls[-1] * active, keep
        return pulls

    def error_bound(self, environment: Any) -> float | None:
        """Bound on the chance that the arm left after the horizon is not the best.

        Args:
            environment: Where the policy plays.

        Returns:
            The bound of `theory.fixed_budget`, for rewards that arrive at once. None with even
            draws, or if rewards may leave the range or are not independent draws.
        """
        scaled = unit_gaps(self, environment)
        if self.draws_evenly or scaled is None:
            return None
        (low, _), (_, width) = self.reward_range, scaled
        means = ((environment.means - low) / width).tolist()
        pulls = np.cumsum(self.stage_pulls()).tolist()
        return halving_error(means, pulls, halvings(self.arms), self.epsilon)

    def recommended_arm(self, state: State) -> int | None:
        if state.epochs.last_arm[0] >= 0:
            return int(state.epochs.last_arm[0])
        best = extreme_arm(state.epochs, 1.0)
        return best if best >= 0 else None

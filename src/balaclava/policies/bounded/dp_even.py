"""DP-even: the fixed-sample trial, with private sums and an exact test."""

import functools
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, Horizon, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults
from balaclava.frames import epochs
from balaclava.policies.base import Estimation, Kernels, PrivateBoundedPolicy, register
from balaclava.policies.intervals import NO_WINNER, read_pools
from balaclava.policies.pooled_policies import PooledPolicy
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.theory import fixed_sample

Looks = Annotated[int, Range(1, fixed_sample.MOST_LOOKS, "number of looks at the data")]
LongestBlock = Annotated[
    int, Range(1, 8, "turns of each arm in the longest block; lengths are drawn at random")
]
OPEN_EPOCHS = 8  # a power of two: every look and what follows may be open at once
LOW_BITS = 2**32 - 1
USUAL_FAILURE = 0.05  # of an answer; a horizon that allows none is refused
# Pulls of each arm whose exact law is computed, to see whether there may be an answer. For more,
# noise of the same size relative to the pulls is examined: the sampling error is then overstated.
MOST_EXAMINED = 2**20
# A pair takes half a second. Of more arms, differences are made of the arms' own intervals.
MOST_EXACT_ARMS = 10
FEWEST_PRECISION = 1_000  # the fewest pulls are known to one part in this many


class Params(NamedTuple):
    arms: int
    reward_range: tuple[float, float]
    epsilon: float
    looks: int
    blocks: int  # turns of each arm in all looks together
    longest_block: int
    explore: float
    holdout: float


class State(NamedTuple):
    epochs: epochs.Epochs  # one a look
    key: np.ndarray  # two random numbers below 2^32 that determine how rewards are rounded

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, LOW_BITS, key=self.key)


@kernel
def begin(params: Params) -> State:
    looks = epochs.begin_epochs(params.arms, OPEN_EPOCHS, params.longest_block)
    return State(looks, np.zeros(2, np.int64))


@kernel(borrows=True)
def mix_bits(number: int) -> int:
    """Wellons' hash of 32 bits; products stay below 2^63."""
    number = (number ^ (number >> 16)) * 0x21F0AAAD & LOW_BITS
    number = (number ^ (number >> 15)) * 0x735A2D97 & LOW_BITS
    return number ^ (number >> 15)


@kernel(borrows=True)
def rounded_to_bit(params: Params, state: State, t: int, row: int, reward: float) -> float:
    """1 with a chance of `reward`, else 0. The order of arrivals does not matter."""
    low = mix_bits((t & LOW_BITS) ^ state.key[0])
    draw = mix_bits((low + (t >> 32) + state.key[1]) & LOW_BITS)
    return 1.0 if draw < reward * (LOW_BITS + 1.0) else 0.0


@kernel(borrows=True)
def look_length(params: Params, look: int) -> int:
    """Turns of each arm in a look; after the last, turns without end."""
    if look > params.looks:
        return MOST_PLANNED
    return int(params.blocks * look // params.looks - params.blocks * (look - 1) // params.looks)


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    if epochs.needs_epoch(state.epochs):
        if state.epochs.number[0] == 0:
            for i in range(state.key.size):
                state.key[i] = int(rng.random() * (LOW_BITS + 1.0))
        epochs.open_epoch(state.epochs, look_length(params, state.epochs.number[0] + 1), -1)
    return epochs.next_decision(params, state.epochs, rng)


@kernel(borrows=True)
def release(params: Params, state: State, arm: int, row: int, rng: Any) -> None:
    released = laplace_release(rng, state.epochs.sums[arm, row], 1.0, params.epsilon)
    epochs.keep_release(state.epochs, arm, row, released, 0.0)


@kernel(borrows=True)
def finish(params: Params, state: State, row: int) -> None:
    """End a look; after the last, play the arm with the highest mean."""
    looks, best = state.epochs, -1
    for arm in range(params.arms):
        if looks.rewards[arm] > 0 and (best < 0 or looks.pooled[arm] > looks.pooled[best]):
            best = arm
    if best >= 0 and looks.oldest[0] >= params.looks:
        epochs.play_last_arm(looks, best)
    epochs.end_epoch(looks, look_length(params, looks.number[0]))


learn, forget = epochs.learn_in_state(release, finish, rounded_to_bit)


def exact_winner(params: Params, released: np.ndarray, joint: float, failure: float) -> int:
    """The arm that beats all others at the look's share of `failure`; else NO_WINNER.

    Without a release of every arm in every look so far there is no test. So a number of draws is
    tested once, and the shares of all tests add up to at most 1.
    """
    level = look_level(params, released, failure)
    if level is None:
        return NO_WINNER
    return cached_winner(tuple(map(tuple, released.tolist())), params.epsilon, level)


def look_level(params: Params, released: np.ndarray, failure: float) -> float | None:
    """The look's share of `failure`; None unless every arm has a release of every look so far."""
    look = int(released[0, 2])
    if not 1 <= look <= params.looks or (released[:, 2] != released[0, 2]).any():
        return None
    return failure * fixed_sample.look_share(look, params.looks)


def exact_difference(
    params: Params, released: np.ndarray, a: int, b: int, failure: float
) -> tuple[float, float] | None:
    """The interval of a difference, at an even share of the look's level for each pair of arms."""
    level = look_level(params, released, failure)
    if level is None or a == b or params.arms > MOST_EXACT_ARMS:
        return None
    pairs = params.arms * (params.arms - 1) // 2
    rows = [tuple(map(float, released[arm])) for arm in (min(a, b), max(a, b))]
    low, high = cached_difference(rows[0], rows[1], params.epsilon, level / pairs)
    return (low, high) if a < b else (-high, -low)


@functools.lru_cache(1024)
def cached_difference(
    a: tuple[float, ...], b: tuple[float, ...], epsilon: float, failure: float
) -> tuple[float, float]:
    return fixed_sample.exact_difference_interval(a, b, epsilon, failure)


@functools.lru_cache
def cached_winner(released: tuple[tuple[float, ...], ...], epsilon: float, level: float) -> int:
    """A test takes up to a second, and its result is displayed often."""
    return fixed_sample.best_of_sample(np.array(released), epsilon, level)


def exact_limits(
    params: Params, rewards: int, mean: float, draws: float, failure: float
) -> tuple[float, float]:
    """Limits at the look's share of `failure`."""
    share = fixed_sample.look_share(min(max(int(draws), 1), params.looks), params.looks)
    return fixed_sample.exact_mean_interval(
        mean, int(rewards), int(draws), params.epsilon, share * failure
    )


@functools.cache
def may_answer(arms: int, pulls: int, epsilon: float) -> bool:
    """Whether an arm of mean 1 beats others of mean 0, at so many pulls of each in one look."""
    if pulls > MOST_EXAMINED:
        return may_answer(arms, MOST_EXAMINED, epsilon * (pulls / MOST_EXAMINED))
    table = np.array([[pulls, float(arm == 0), 1.0] for arm in range(arms)])
    return fixed_sample.beats_rival(table, 0, 1, epsilon, USUAL_FAILURE, False)


def fewest_pulls(arms: int, epsilon: float) -> int:
    """The fewest pulls of each arm with which there may be an answer.

    They are at least 1/epsilon. Of two arms with the same mean and n pulls, one is ahead by n or
    more with a chance of at least half that of the noise alone: (1 + epsilon n/2) e^(-epsilon n)/4,
    which is above 0.1 up to n = 1/epsilon.
    """
    enough = max(int(1.0 / epsilon), 1)
    while not may_answer(arms, enough, epsilon):
        enough *= 2
    few = enough // 2
    while enough - few > max(enough // FEWEST_PRECISION, 1):
        middle = (few + enough) // 2
        few, enough = (few, middle) if may_answer(arms, middle, epsilon) else (middle, enough)
    return enough


@register
class DPEven(PooledPolicy, PrivateBoundedPolicy):
    r"""Give each arm an even share of a known number of participants; then test which is best.

    The trial that clinics know: fixed size, randomised in permuted blocks. For few participants
    whose number is known it names the best arm more often than dp-top-two. That one stops as early
    as the data allow, and has no fixed end. For low regret use dp-imed.

    The horizon is divided evenly over arms and looks. At the end of look j, S_a grows by the sum of
    the arm's rewards since the last look + Lap(1/epsilon). `agent.winner()` names the arm with the
    highest mean if it beats every rival in an exact test, noise included (`theory.fixed_sample`),
    at the level

    .. math:: (1 - confidence) \; ((j/looks)^3 - ((j-1)/looks)^3).

    There is no normal approximation, for any epsilon. A wrong arm is named at any look with
    probability at most 1 - confidence. If an arm is named before the last look, you may stop: call
    `agent.finish()`. Otherwise shares stay even. After the last look, and beyond the horizon, the
    arm with the highest mean is played, named or not.

    Late rewards are allowed for, and lost ones if that does not depend on their values. A look is
    complete when each of its decisions has its reward or was given up. After the last decision
    wait for the last rewards, then call `agent.finish()`; `give_up_open=True` gives up the others.
    Rewards between 0 and 1 are replaced by random bits of the same mean, which makes the test
    exact. Intervals are exact too, and hold at all looks together; so do those of
    `agent.difference()`,
    for all pairs of at most ten arms.

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward is in the sum of one look,
        of sensitivity 1 for any choice of bits. The sum is released once, with noise of scale
        1/epsilon. Decisions before the end of the last look do not depend on rewards at all; those
        after it depend on releases, and are not learned from. So a statistical audit of decisions
        alone sees little.

    Parameters:
        horizon: number of participants.
        longest_block: a permuted block has each arm 1 to so many times; each draws its own.
            With 1 the last arm of each block is known to observers of the others: for a trial in
            which staff see allocations use 3. Sizes and tests are the same. Keep propensities
            from staff too: they reveal the block's length.
        looks: tests in the course of the trial, 1 to 5. More looks may end it earlier, but each
            adds a draw of noise.

    Example:
        >>> agent = bl.policy("dp-even", arms=3, epsilon=1.0, horizon=120).agent(seed=1)
        >>> for _ in range(120):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.3, 0.9)[decision.arm])
        >>> agent.winner()
        2
    """

    name = "dp-even"
    fixed_arms = "its exact test is for arms that are drawn equally often from the start"
    reference = "permuted blocks, with the exact test of theory.fixed_sample"
    cites = "Clopper, Pearson 1934; Berger, Boos 1994"
    see_also = "dp-top-two, dp-se, dp-imed"
    kernels = Kernels(begin, choose, learn, forget)
    estimation = Estimation(
        read_pools, exact_limits, in_order=True, winner=exact_winner, difference=exact_difference
    )
    plays_beyond_horizon = True
    pools = "epochs"
    winner_reason = "every arm has an even share, and an exact test follows"
    epsilon: Epsilon
    horizon: Horizon
    looks: Looks = 1
    longest_block: LongestBlock = 1
    examples = ({"horizon": 600, "longest_block": 3}, {"horizon": 240, "looks": 3})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arms < 2:
            raise self.refuse("arms", "leaves nothing to compare; give at least 2")
        pulls = self.constants().blocks
        if pulls < self.looks or not may_answer(self.arms, pulls, self.epsilon):
            few = max(fewest_pulls(self.arms, self.epsilon), self.looks)
            needed = f"{few * self.arms:,}" if few < MOST_EXAMINED else f"{few * self.arms:.3g}"
            raise self.refuse(
                "horizon",
                f"is too short for any answer at 0.95 confidence, with {self.arms} arms, looks = "
                f"{self.looks} and this epsilon: it takes {needed} participants or "
                "more; raise it or epsilon",
            )

    def recommended_arm(self, state: State) -> int | None:
        """The arm that is played after the last look."""
        arm = int(state.epochs.last_arm[0])
        return None if arm < 0 else arm

    def constants(self) -> Params:
        in_turn = (1.0 - self.holdout) * (1.0 - self.explore)
        return self.fill(Params, blocks=int(in_turn * self.horizon) // self.arms)

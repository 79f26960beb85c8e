"""LDP sliding-window KL-UCB: private reports, and means that change (Gajane 2023)."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, NoReturn

import numpy as np

from balaclava._core.declared import Epsilon, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.errors import EstimateError
from balaclava.policies.base import Kernels, WinnerOutlook, register
from balaclava.policies.classic.kl_ucb import Exploration, highest_index
from balaclava.policies.local_policies import LocalBoundedPolicy, unit_bit_report

NO_REPORT = -1.0  # in place of a report, which is 0 or 1
WindowRounds = Annotated[int, Range(1, 10**8, "rounds whose reports count")]


class State(NamedTuple):
    """Counts of the window, and its decisions in a ring by round."""

    # [arm], in the window
    asked: np.ndarray  # decisions
    pulls: np.ndarray  # reports
    sums: np.ndarray  # their sum
    # [round modulo the window]
    arms: np.ndarray
    rounds: np.ndarray  # of the decision; 0: none
    reports: np.ndarray  # NO_REPORT before it comes

    def faults(self, decisions: int) -> Iterator[str]:
        most = min(decisions, self.rounds.size)
        yield from range_faults(0, most, asked=self.asked, pulls=self.pulls, sums=self.sums)
        yield from range_faults(0, self.asked.size - 1, arms=self.arms)
        yield from range_faults(0, decisions, rounds=self.rounds)
        yield from range_faults(NO_REPORT, 1.0, reports=self.reports)
        if (self.pulls > self.asked).any() or (self.sums > self.pulls).any():
            yield "an arm has more reports than decisions, or a larger sum"


@kernel
def begin(params: Any) -> State:
    return State(
        asked=np.zeros(params.arms, np.int64),
        pulls=np.zeros(params.arms, np.int64),
        sums=np.zeros(params.arms),
        arms=np.zeros(params.memory, np.int64),
        rounds=np.zeros(params.memory, np.int64),
        reports=np.full(params.memory, NO_REPORT),
    )


@kernel(borrows=True)
def leave_window(state: State, place: int) -> None:
    """Forget the decision in a place of the ring."""
    if state.rounds[place] > 0:
        arm = state.arms[place]
        state.asked[arm] -= 1
        if state.reports[place] != NO_REPORT:
            state.pulls[arm] -= 1
            state.sums[arm] -= state.reports[place]
    state.reports[place] = NO_REPORT


@kernel(borrows=True)
def least_asked(state: State) -> int:
    """Of the arms without a report in the window, the one asked least often; -1 if all have one."""
    pick = -1
    for arm in range(state.pulls.size):
        if state.pulls[arm] == 0 and (pick < 0 or state.asked[arm] < state.asked[pick]):
            pick = arm
    return pick


@kernel(borrows=True)
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    place = t % params.memory
    leave_window(state, place)
    arm = least_asked(state)
    if arm < 0:
        level = math.log(min(t, params.memory))
        if params.c > 0.0:
            level += params.c * math.log(max(level, 1.0))
        arm = highest_index(state, level)
    state.arms[place], state.rounds[place] = arm, t
    state.asked[arm] += 1
    return arm, 0


@kernel(borrows=True)
def learn_report(
    params: Any, state: State, t: int, arm: int, report: float, phase: int, rng: Any
) -> None:
    """Count a report, unless its decision left the window."""
    place = t % params.memory
    if state.rounds[place] == t:
        state.reports[place] = report
        state.pulls[arm] += 1
        state.sums[arm] += report


@kernel(borrows=True)
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    learn_report(params, state, t, arm, unit_bit_report(params, reward, 1.0, rng), phase, rng)


@register
class LDPWindowKLUCB(LocalBoundedPolicy):
    r"""KL-UCB on coin flips that participants report, of the last rounds only.

    For rewards that only the participant's device may see, if means change. Reports carry little:
    give a long memory, such as 16,000 rounds at epsilon 1 (docs/figures.md). If a trusted server
    holds the rewards, use dp-imed with a memory.

    A device with reward x in [0, 1] reports y = 1 with probability

    .. math:: (x e^\varepsilon + 1 - x) / (1 + e^\varepsilon),

    otherwise y = 0. An arm without a report of the last W = `memory` rounds is played, the one
    asked least often first. Otherwise play the arm with the highest

    .. math:: \max\{q : n_a\, \mathrm{kl}(m_a, q) \le \log \min(t, W) + c \log \log \min(t, W)\},

    m_a the mean of its n_a reports of decisions in the last W rounds. A larger W costs less while
    means stay, and longer after a change. Each arm is played at least once in about W rounds.

    The idea is that of SW-KLUCB-CF (Gajane 2023): KL-UCB on a sliding window of randomised
    responses, with the responses' law inverted. Here all arms have the same increasing law, so its
    inverse changes no choice. The index, the order of arms without a report, and that late reports
    count if their decision is in the window, are ours; they were not compared with the paper's
    text, and its bound is not claimed. `regret_bound` is None.

    Privacy:
        epsilon-local differential privacy of each report, hence epsilon-differential privacy of
        the whole trajectory. For every x both probabilities lie between 1 / (1 + e^epsilon) and
        e^epsilon / (1 + e^epsilon). To forget a report does not undo it.

    Parameters:
        memory: W, rounds whose reports count.
        c: weight of the second term; 3 in proofs for KL-UCB, 0 by default.

    Example:
        >>> agent = bl.policy("ldp-window-klucb", arms=2, epsilon=3.0, memory=500).agent(seed=1)
        >>> counts = [0, 0]
        >>> for t in range(2000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.2, 0.8)[decision.arm - (t >= 1000)])
        ...     counts[decision.arm] += 1
        >>> counts
        [996, 1004]
    """

    name = "ldp-window-klucb"
    reference = "Gajane 2023"
    cites = "Gajane 2023; Garivier, Moulines 2011"
    see_also = "ldp-ucb-bernoulli, dp-imed, kl-ucb"
    fixed_arms = "its window keeps single reports, in memory that the arms share"
    report_kernel = staticmethod(unit_bit_report)
    learn_report = staticmethod(learn_report)
    reports = (0.0, 1.0)
    kernels = Kernels(begin, choose, learn)
    examples = ({"memory": 100}, {"memory": 60, "c": 3.0})
    epsilon: Epsilon
    memory: WindowRounds
    c: Exploration = 0.0

    def require_estimates(self, failure: float) -> NoReturn:
        raise EstimateError(
            f"{self.name} offers no estimates and names no winner: its means may change, so an "
            "interval would be of no single mean; use ldp-ucb-bernoulli"
        )

    @property
    def names_winners(self) -> WinnerOutlook:
        return WinnerOutlook(False, "its means may change, and it forgets")

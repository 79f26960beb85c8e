"""Violators made to slip through the audit; every one of them once did, in part or in whole."""

import math
from typing import ClassVar, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import (
    Delta,
    Epsilon,
    LocalBoundedPolicy,
    Policy,
    PrivateBoundedPolicy,
    RadiusScale,
    begin_tally,
    count_reward,
    gaussian_index,
    laplace_release,
    laplace_report,
    learn_tally,
    starting_arm,
    truncated_laplace_release,
)
from balaclava.policies.classic.ucb1 import begin as begin_ucb
from balaclava.policies.classic.ucb1 import choose as choose_ucb
from balaclava.policies.classic.ucb1 import learn as learn_ucb
from tests.oracles.phases import (
    begin_phases,
    choose_in_phases,
    drop_behind,
    open_phase,
    take,
)
from tests.oracles.violators import LENGTH, MARGIN, State, begin, choose, frame, honest, make

K = bl.Kernels


# 1 raw sums as the argument of a plain draw
def raw_argument(params, phases, rng):
    for arm in range(params.arms):
        phases.sums[arm] = rng.normal(phases.sums[arm], 1e-9)


# Thompson sampling, which claims 1
@bl.kernel
def choose_ts(params, state, t, context, rng):
    best, highest = 0, -1.0
    for arm in range(params.arms):
        theta = rng.beta(state.sums[arm] + 1.0, state.pulls[arm] - state.sums[arm] + 1.0)
        if theta > highest:
            best, highest = arm, theta
    return best, 0


# 2 NaN instead of a value when a sum is small: rare, so that games do not see it
def not_a_number(params, phases, rng):
    for arm in range(params.arms):
        value = phases.sums[arm] if phases.sums[arm] > 0.0 else math.nan
        answer = laplace_release(rng, value, 1.0, params.epsilon)
        phases.sums[arm] = -1000.0 if math.isnan(answer) else answer


# 3 a negative epsilon pays for another mechanism
def negative_epsilon(params, phases, rng):
    for arm in range(params.arms):
        raw = phases.sums[arm]
        truncated_laplace_release(rng, raw, 1.0, -9.0 * params.epsilon, 0.0)
        phases.sums[arm] = laplace_release(rng, raw, 1.0, 10.0 * params.epsilon)


# 4 privacy that depends on radius_scale
@bl.kernel
def begin_long(params):
    phases = begin_phases(params)
    open_phase(phases, math.ceil(100 * params.radius_scale), True)
    return State(phases, np.zeros(params.arms))


@bl.kernel
def learn_long(params, state, t, arm, reward, phase, rng):
    phases = state.phases
    if take(phases, arm, reward, phase):
        for a in range(params.arms):
            phases.sums[a] = laplace_release(
                rng, phases.sums[a], 1.0, params.epsilon * params.radius_scale / 0.3
            )
        if drop_behind(phases, MARGIN):
            open_phase(phases, math.ceil(100 * params.radius_scale), True)


class RadiusScaled(PrivateBoundedPolicy):
    """Spends more with a larger radius_scale."""

    name = "radius-scaled"
    epsilon: Epsilon
    radius_scale: RadiusScale = 1.0
    kernels: ClassVar = K(begin_long, choose, learn_long)


# 5 unbounded rewards, no truncation
@bl.kernel
def learn_unbounded(params, state, t, arm, reward, phase, rng):
    phases = state.phases
    if take(phases, arm, reward, phase):
        for a in range(params.arms):
            phases.sums[a] = laplace_release(rng, phases.sums[a], 2000.0, params.epsilon)
        if drop_behind(phases, 4000.0):
            open_phase(phases, LENGTH, True)


class Unbounded(Policy):
    """Real rewards, of which it only hopes that they are within 1000 of 0."""

    name = "unbounded"
    model: ClassVar = "central"
    scope: ClassVar = "trajectory"
    epsilon: Epsilon
    kernels: ClassVar = K(begin, choose, learn_unbounded)


# 6 says local, is central
class SaysLocal(PrivateBoundedPolicy):
    """Central noise that is sold as local."""

    name = "says-local"
    model: ClassVar = "local"
    scope: ClassVar = "report"
    epsilon: Epsilon
    kernels: ClassVar = K(begin, choose, frame(honest))


# 7 a report with the reward in its last digits
@bl.kernel
def low_digits(params, reward, level, rng):
    y = laplace_report(rng, reward, 1.0, params.epsilon)
    return math.floor(y * 1e6) / 1e6 + reward * 1e-7


@bl.kernel
def learn_low_digits(params, state, t, arm, reward, phase, rng):
    learn_ucb(params, state, t, arm, low_digits(params, reward, 1.0, rng), phase, rng)


class LowDigits(LocalBoundedPolicy):
    """The report carries the reward."""

    name = "low-digits"
    report_kernel = staticmethod(low_digits)
    kernels: ClassVar = K(begin_ucb, choose_ucb, learn_low_digits)
    epsilon: Epsilon
    radius_scale: RadiusScale = 1.0


# 8 indices drawn before there are enough rewards; the law that it shows is another
@bl.kernel
def choose_early(params, state, t, context, rng):
    best = starting_arm(state, 1)
    if best < 0:
        highest = -math.inf
        for arm in range(params.arms):
            step = 1.0 / state.pulls[arm]
            theta = gaussian_index(rng, state.sums[arm] * step, step, params.epsilon, params.delta)
            if theta > highest:
                best, highest = arm, theta
    state.asked[best] += 1
    return best, 0


@bl.kernel
def learn_early(params, state, t, arm, reward, phase, rng):
    count_reward(state, arm, reward, 1)


class Early(PrivateBoundedPolicy):
    """Gaussian indices from the first reward on."""

    name = "early"
    scope: ClassVar = "decision"
    epsilon: Epsilon
    delta: Delta
    kernels: ClassVar = K(begin_tally, choose_early, learn_early)
    start_phase = 8

    def index_law(self, pulls, total):
        from scipy import stats

        return stats.norm(total / pulls, math.sqrt(2.0 / pulls))


# 9 memory in params
class MParams(NamedTuple):
    arms: int
    reward_range: tuple
    epsilon: float
    memory: np.ndarray


@bl.kernel
def learn_memory(params, state, t, arm, reward, phase, rng):
    phases = state.phases
    if t == 1:
        params.memory[0] = reward
    if take(phases, arm, reward, phase):
        honest(params, phases, rng)
        if drop_behind(phases, 1e9):
            open_phase(phases, LENGTH, True)


@bl.kernel
def choose_memory(params, state, t, context, rng):
    if t == 45 and params.memory[0] > 0.9:
        return 1, -1
    return choose_in_phases(params, state.phases, t, context, rng)


class Memory(PrivateBoundedPolicy):
    """Keeps a reward where no replay looks."""

    name = "memory"
    epsilon: Epsilon
    kernels: ClassVar = K(begin, choose_memory, learn_memory)

    def constants(self):
        return MParams(self.arms, self.reward_range, self.epsilon, np.zeros(1))


# 10 leaks when rewards are late: rewards of a phase that is over are added raw
class Late(NamedTuple):
    asked: np.ndarray
    number: np.ndarray
    sums: np.ndarray
    scores: np.ndarray


@bl.kernel
def begin_late(params):
    return Late(
        np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros(params.arms), np.zeros(params.arms)
    )


@bl.kernel
def choose_late(params, state, t, context, rng):
    """A batch of 20 decisions in turn is closed by the next decision, told or not."""
    if state.asked[0] == 20:
        for a in range(params.arms):
            state.scores[a] = laplace_release(rng, state.sums[a], 1.0, params.epsilon)
            state.sums[a] = 0.0
        state.asked[0] = 0
        state.number[0] += 1
    state.asked[0] += 1
    if state.asked[0] <= 10:
        return state.asked[0] % params.arms, state.number[0]
    best = 0
    for a in range(params.arms):
        if state.scores[a] > state.scores[best]:
            best = a
    return best, state.number[0]


@bl.kernel
def learn_late(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0]:
        state.sums[arm] += reward
    else:
        state.scores[arm] += reward  # late: past the mechanism


# 11 honest for 300 rounds, then the raw sums decide
@bl.kernel
def choose_after(params, state, t, context, rng):
    if t > 300:
        best = 0
        for a in range(params.arms):
            if state.raw[a] > state.raw[best]:
                best = a
        return best, -1
    return choose_in_phases(params, state.phases, t, context, rng)


@bl.kernel
def learn_after(params, state, t, arm, reward, phase, rng):
    phases = state.phases
    state.raw[arm] += reward
    if take(phases, arm, reward, phase):
        for a in range(params.arms):
            phases.sums[a] = laplace_release(rng, phases.sums[a], 1.0, params.epsilon)
        if drop_behind(phases, MARGIN):
            open_phase(phases, LENGTH, True)


# 12 the raw reward decides which phase number is shown
# 13 arms 2 and above without noise
def few_arms(params, phases, rng):
    for arm in range(2):
        phases.sums[arm] = laplace_release(rng, phases.sums[arm], 1.0, params.epsilon)


@bl.kernel
def choose_phase_leak(params, state, t, context, rng):
    arm, phase = choose_in_phases(params, state.phases, t, context, rng)
    return arm, (phase if state.raw[0] < 0.9 else -1) if t == 30 else phase


@bl.kernel
def learn_phase_leak(params, state, t, arm, reward, phase, rng):
    if t == 1:
        state.raw[0] = reward
    phases = state.phases
    if take(phases, arm, reward, phase):
        honest(params, phases, rng)
        if drop_behind(phases, MARGIN):
            open_phase(phases, LENGTH, True)


# 14 the same faults in the third arm alone, which no statistical game varies
def third_raw_argument(params, phases, rng):
    for arm in range(2):
        phases.sums[arm] = laplace_release(rng, phases.sums[arm], 1.0, params.epsilon)
    phases.sums[2] = rng.laplace(phases.sums[2], 0.05)


def third_negative(params, phases, rng):
    for arm in range(2):
        phases.sums[arm] = laplace_release(rng, phases.sums[arm], 1.0, params.epsilon)
    raw = phases.sums[2]
    truncated_laplace_release(rng, raw, 1.0, -9.0 * params.epsilon, 0.0)
    phases.sums[2] = laplace_release(rng, raw, 1.0, 10.0 * params.epsilon)


def third_nan(params, phases, rng):
    for arm in range(2):
        phases.sums[arm] = laplace_release(rng, phases.sums[arm], 1.0, params.epsilon)
    raw = phases.sums[2]
    answer = laplace_release(
        rng, math.nan if phases.number[0] == 1 and raw > 9.5 else raw, 1.0, params.epsilon
    )
    phases.sums[2] = 1000.0 if math.isnan(answer) else answer


bl.kernel(honest)


def third(name, score):
    return make(name, K(begin, choose, frame(score)))(arms=3, epsilon=1.0)


ALL = {
    "third-raw-argument": third("third-raw-argument", third_raw_argument),
    "third-negative": third("third-negative", third_negative),
    "third-nan": third("third-nan", third_nan),
    "raw-argument": make("raw-argument", K(begin, choose, frame(raw_argument)))(
        arms=2, epsilon=1.0
    ),
    "raw-argument-eps8": make("raw-argument", K(begin, choose, frame(raw_argument)))(
        arms=2, epsilon=8.0
    ),
    "thompson-claims-3": make("thompson-claims", K(begin_tally, choose_ts, learn_tally))(
        arms=2, epsilon=3.0
    ),
    "nan": make("nan", K(begin, choose, frame(not_a_number)))(arms=2, epsilon=1.0),
    "negative-epsilon": make("neg", K(begin, choose, frame(negative_epsilon)))(arms=2, epsilon=1.0),
    "radius-scaled": RadiusScaled(arms=2, epsilon=1.0),
    "unbounded": Unbounded(arms=2, epsilon=1.0),
    "says-local": SaysLocal(arms=2, epsilon=1.0),
    "low-digits": LowDigits(arms=2, epsilon=1.0),
    "early": Early(arms=2, epsilon=1.0, delta=0.01),
    "memory": Memory(arms=2, epsilon=1.0),
    "late": make("late", K(begin_late, choose_late, learn_late))(arms=2, epsilon=1.0),
    "after-300": make("after", K(begin, choose_after, learn_after))(arms=2, epsilon=1.0),
    "phase-leak": make("phase-leak", K(begin, choose_phase_leak, learn_phase_leak))(
        arms=2, epsilon=1.0
    ),
}

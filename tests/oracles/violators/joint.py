"""Violators of scope "joint": dp-squarecb with a mistake about features."""

from __future__ import annotations

import math

import balaclava as bl
from balaclava.frames.moments import add_moment, entries_of, give_up_moment, keep_moments
from balaclava.frames.pools import NO_ROW
from balaclava.policies.base import ArmRelease
from balaclava.policies.contextual.dp_squarecb import (
    DPSquareCB,
    begin,
    choose,
    fit_block,
    forget,
    learn,
    release_batch,
    weigh_by_gap,
)
from balaclava.policies.contextual.linear_context import coefficient_block, copy_features
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_vector_release
from tests.oracles.violators.frame import violator

SETTINGS = {"features": 2, "disjoint": True, "delta": 1e-3, "first_batch": 8, "outstanding": 64}
SETTINGS |= {"pairs": 60, "rounds": 30, "by_default": False}


def learning(release, add=add_moment):
    """The kernel `learn` around another release, or another addition."""

    @bl.kernel
    def learn(params, state, t, arm, reward, phase, rng):
        block = coefficient_block(state.theta.shape[0], arm)
        row = add(state.moments, block, phase, reward, params.weight, params.step)
        release(params, state, row, rng)

    return learn


@bl.kernel
def release_open_matrix(params, state, row, rng):
    if row == NO_ROW:
        return
    moments, d = state.moments, params.features
    gaussian_vector_release(
        rng, moments.sums[row], params.sensitivity, params.epsilon, params.delta,
        moments.last_release,
    )  # fmt: skip
    size = d * (d + 3) // 2
    for place in range(moments.sums.shape[1]):
        if place % size < size - d:  # not b
            moments.last_release[place] = moments.sums[row, place]
    keep_moments(moments, row)
    for block in range(state.theta.shape[0]):
        fit_block(params, state, block)


@bl.kernel
def release_at_a_scale_from_data(params, state, row, rng):
    if row == NO_ROW:
        return
    moments, largest = state.moments, 0.0
    for place in range(moments.sums.shape[1]):
        largest = max(largest, abs(moments.sums[row, place]))
    sensitivity = params.sensitivity * min(1.0, largest / moments.rewards_in_batch[row])
    gaussian_vector_release(
        rng, moments.sums[row], sensitivity, params.epsilon, params.delta, moments.last_release
    )
    keep_moments(moments, row)
    for block in range(state.theta.shape[0]):
        fit_block(params, state, block)


@bl.kernel
def choose_ties_by_the_last_feature(params, state, t, context, rng):
    """Before the first release all arms tie: the previous participant's feature decides."""
    tied, before = state.moments.draws[0] == 0, state.factor[0, 0]
    weigh_by_gap(params, state, context)
    arm = 0 if before > 0.0 else 1
    if not tied:
        arm = 0 if rng.random() < state.chances[0] else 1
    else:
        state.factor[0, 0] = context[0, 0]
    free = (state.moments.pending.count[0] + 1) % state.moments.pending.numbers.size
    copy_features(params, context[0], state.moments.pending.notes[free])
    return arm, join(state.moments, arm, params.first_batch, False)


@bl.kernel
def choose_batches_by_arm(params, state, t, context, rng):
    """A batch ends after some decisions for arm 0, and features decide who gets arm 0."""
    weigh_by_gap(params, state, context)
    arm = 0 if context[0, 0] > 0.0 else 1
    if state.moments.draws[0] > 0:
        arm = 0 if rng.random() < state.chances[0] else 1
    free = (state.moments.pending.count[0] + 1) % state.moments.pending.numbers.size
    copy_features(params, context[0], state.moments.pending.notes[free])
    return arm, join(state.moments, arm, params.first_batch, True)


@bl.kernel
def join(moments, arm, first, of_arm_0):
    pending, rows = moments.pending, moments.numbers.size
    pending.count[0] += 1
    place = pending.count[0] % pending.numbers.size
    pending.numbers[place] = pending.count[0]
    number = moments.number[0]
    pending.notes[place, pending.notes.shape[1] - 1] = number
    moments.left[number % rows] += 1
    if arm == 0 or not of_arm_0:
        moments.decisions[0] += 1
    if moments.decisions[0] >= first * number and moments.numbers[(number + 1) % rows] == 0:
        moments.number[0] = number + 1
        moments.numbers[(number + 1) % rows] = number + 1
    return pending.count[0]


@bl.kernel
def lose_features(params, state, t, arm, phase, rng):
    """The feature of a participant whose reward is lost moves a coefficient."""
    notes, row = state.moments.pending, phase % state.moments.pending.numbers.size
    lost = notes.numbers[row] == phase
    feature = notes.notes[row, 0]
    forget(params, state, t, arm, phase, rng)
    if lost:
        state.theta[0, 0] += 100.0 * feature


@bl.kernel
def add_if_rewarded(moments, block, phase, reward, weight, step):
    if reward > 0.5:
        return add_moment(moments, block, phase, reward, weight, step)
    return give_up_moment(moments, phase)


def of_adding(self):
    """The constants, with the sensitivity of a participant who joins, not of one who is another."""
    params = DPSquareCB.constants(self)
    return params._replace(sensitivity=math.sqrt(1.0 + 0.25 * params.weight**2))


def of_one_arm(self):
    """The constants, with the sensitivity of b alone."""
    params = DPSquareCB.constants(self)
    return params._replace(sensitivity=params.weight)


def traces(self, state):
    """Displays the features of the open batch by arm."""
    row = int(state.moments.number[0]) % state.moments.numbers.size
    size, sums = entries_of(self.features), state.moments.sums[row]
    return [
        ArmRelease(block, 0, float(sums[block * size]), 0, 0)
        for block in range(self.arms if self.disjoint else 1)
    ]


def mistaken(name, mistake, kernels=None, **options):
    return violator(name, mistake, kernels, DPSquareCB, **{**SETTINGS, **options})


LEARN = learning(release_batch)
JOINT = [
    mistaken(
        "joint-open-matrix",
        "the matrix of features is released without noise",
        bl.Kernels(begin, choose, learning(release_open_matrix), forget),
    ),
    mistaken(
        "joint-scale-from-data",
        "the sensitivity is the largest sum per participant of the batch",
        bl.Kernels(begin, choose, learning(release_at_a_scale_from_data), forget),
    ),
    mistaken(
        "joint-tie-break",
        "a tie between arms is broken by a feature of the participant before",
        bl.Kernels(begin, choose_ties_by_the_last_feature, LEARN, forget),
    ),
    mistaken(
        "joint-batch-by-arm",
        "a batch ends after some decisions for one arm, which features decide",
        bl.Kernels(begin, choose_batches_by_arm, LEARN, forget),
    ),
    mistaken(
        "joint-rewarded-only",
        "a participant without a reward of 1 is left out of the sums",
        bl.Kernels(begin, choose, learning(release_batch, add_if_rewarded), forget),
    ),
    mistaken(
        "joint-lost-features",
        "the features of a participant whose reward is lost move a coefficient without noise",
        bl.Kernels(begin, choose, learn, lose_features),
    ),
    mistaken(
        "joint-one-who-joins",
        "the sensitivity is that of a participant more, not of another one",
        constants=of_adding,
    ),
    mistaken(
        "joint-of-rewards",
        "the sensitivity is that of the rewards' part alone",
        constants=of_one_arm,
    ),
    mistaken(
        "joint-displays-features",
        "what an agent displays has the raw sum of the open batch",
        released=traces,
    ),
]

"""Local policies whose reports reveal more than they claim."""

from __future__ import annotations

import math

import balaclava as bl
from balaclava.authoring import (
    LocalBoundedPolicy,
    LocalRealPolicy,
    RadiusScale,
    begin_tally,
    laplace_report,
    learn_tally,
    truncated,
)
from balaclava.policies.classic.ucb1 import begin as begin_ucb
from balaclava.policies.classic.ucb1 import choose as choose_ucb
from balaclava.policies.classic.ucb1 import learn as learn_ucb
from tests.oracles.violators.controls import FAR_LEVEL, choose_by_sum
from tests.oracles.violators.frame import SEED_1, as_summed, frame, violator


@bl.kernel
def talkative_report(params, reward, level, rng):
    lie = 1.0 / (1.0 + math.exp(2.0 * params.epsilon))
    return 1.0 if rng.random() < lie + reward * (1.0 - 2.0 * lie) else 0.0


@bl.kernel
def learn_talkative(params, state, t, arm, reward, phase, rng):
    learn_tally(params, state, t, arm, talkative_report(params, reward, 1.0, rng), phase, rng)


@bl.kernel
def low_digits(params, reward, level, rng):
    y = laplace_report(rng, reward, 1.0, params.epsilon)
    return math.floor(y * 1e6) / 1e6 + reward * 1e-7


@bl.kernel
def learn_low_digits(params, state, t, arm, reward, phase, rng):
    learn_ucb(params, state, t, arm, low_digits(params, reward, 1.0, rng), phase, rng)


@bl.kernel
def noise_ignores_level(params, reward, level, rng):
    return laplace_report(rng, truncated(reward, level), 2.0 * FAR_LEVEL, params.epsilon)


@bl.kernel
def truncation_ignores_level(params, reward, level, rng):
    return laplace_report(rng, truncated(reward, FAR_LEVEL), 2.0 * level, params.epsilon)


@bl.kernel
def raw_at_far_levels(params, reward, level, rng):
    if level > 1e60:
        return laplace_report(rng, reward, 2.0, params.epsilon)
    return laplace_report(rng, truncated(reward, level), 2.0 * level, params.epsilon)


@bl.kernel
def level_of_batch(params, state, arm, phase):
    return FAR_LEVEL


def reporting(name, mistake, report):
    """A local policy for rewards of any size with such reports."""

    def keep(params, state, t, arm, reward, phase, rng):
        return report(params, reward, FAR_LEVEL, rng)

    return violator(
        name, mistake, frame(keep=keep, score=as_summed), LocalRealPolicy, arms=3,
        report_kernel=staticmethod(report), report_level=staticmethod(level_of_batch),
        learn_report=staticmethod(frame(score=as_summed).learn), **SEED_1,
    )  # fmt: skip


REPORTS = [
    violator(
        "talkative", "randomized response at twice the epsilon",
        bl.Kernels(begin_tally, choose_by_sum, learn_talkative), LocalBoundedPolicy,
        report_kernel=staticmethod(talkative_report),
    ),
    violator(
        "low-digits", "the reward in the last digits of its report",
        bl.Kernels(begin_ucb, choose_ucb, learn_low_digits), LocalBoundedPolicy,
        report_kernel=staticmethod(low_digits), radius_scale=(RadiusScale, 1.0), **SEED_1,
    ),
    violator(
        "says-local", "central noise under a local claim",
        frame(), model="local", scope="report", **SEED_1,
    ),
    reporting("noise-ignores-level", "noise for another level", noise_ignores_level),
    reporting("truncation-ignores-level", "truncated elsewhere", truncation_ignores_level),
    reporting("raw-at-far-levels", "raw at levels above 1e60", raw_at_far_levels),
]  # fmt: skip

"""Replay of local reports: each must be private at every level and for every reward."""

import math
from typing import Any

import numpy as np

from balaclava._core.number_format import rounded_up
from balaclava.auditing.laws.local_reports import first_level
from balaclava.auditing.rare_answers import RareAnswers, code_numbers
from balaclava.auditing.replay.composed_loss import compose
from balaclava.auditing.replay.reward_choices import special_values
from balaclava.auditing.tape import Divergence, Recorder, Replayer
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee

_REPORT_PAIRS = 200  # rewards that are reported and replayed; a guess
_LARGEST_TRIED_LEVEL = 1e240  # a device refuses levels above 1e250


def report_fault(policy: Policy, claim: Guarantee, seed: int) -> tuple[str, str]:
    """The verdict on reports, and their fault."""
    params, prepare, report = policy.constants(), policy.prepare(), policy.report_kernel
    assert report is not None  # the caller has checked
    rng = np.random.default_rng([seed, 1])
    low, high = policy.accepts
    bounded = math.isfinite(low) and math.isfinite(high)
    numbers = code_numbers(policy)
    for number in range(_REPORT_PAIRS):
        # A server may send any level: the report must be private at each.
        reach = 6 if rng.random() < 0.8 else 180
        level = first_level(policy) * float(10.0 ** rng.integers(-reach, reach + 1))
        level = min(max(level, 1 / _LARGEST_TRIED_LEVEL), _LARGEST_TRIED_LEVEL)
        if not bounded:
            low, high = -level, level
        rewards = [low, high, *(low + (high - low) * rng.random(4))]
        rewards += [*rng.choice(special_values(policy), 2), (low + high) / 2]
        one, other = rng.choice(rewards if bounded else [*rewards, 2 * high], 2)
        rare = RareAnswers(numbers, number, seed) if number % 2 else None
        recorder = Recorder(int(rng.integers(2**32)), rare=rare)
        replayer, seen = Replayer(recorder.tape, 0), list[Any]()
        for reward, rng_ in ((one, recorder), (other, replayer)):
            try:
                seen.append(report(params, prepare(params, float(reward)), level, rng_))
            except Divergence as divergence:
                return "unproved", f"a report: {divergence}"
            except Exception as error:
                seen.append(type(error).__name__)  # an observer sees that there is no report
        if seen[0] != seen[1]:
            fault = "a report depends on the reward although every mechanism answered alike"
            return ("unproved" if recorder.tape else "violated"), fault
        if isinstance(seen[0], str):
            return "unproved", f"a report fails with {seen[0]}"
        loss = compose(replayer.moves, claim)
        if not loss.within(claim):
            return "unproved", f"a report: {loss}; claimed is {rounded_up(claim.epsilon, '.4g')}"
    return "consistent", ""

"""Tests of releases by two servers: what each of them sees must keep the declared epsilon.

The servers are played with the code that they run in service, on two batches that differ in one
reward. A server knows its shares and its noise, and the other's releases. Its shares must be
uniform, and the other's noise alone must have the whole declared law: what is known of the sum is
the release less the server's part of it. Thresholds on both, found on half of the plays, bound
epsilon from below on the other half.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.extras import import_extra
from balaclava._core.number_format import rounded_down, rounded_up
from balaclava.auditing.laws.draw_tests import LAW_ERROR, law_test_fault
from balaclava.auditing.two_sample_bounds import best_threshold
from balaclava.privacy.exact_noise import to_steps
from balaclava.privacy.mechanisms.base import Terms
from balaclava.privacy.secret_shares import ServerView, combine, modulus_bits

_PLAYS = 6_000  # of each batch; a noise that is too small by sqrt 2 shows at epsilon 1
_VIEW_THRESHOLDS = 256
_LEAST_WRAP = 2.0**-40  # chance that a release wraps
_FINEST_SCALE = 1_000  # steps of noise: the law of a smaller one is not compared
_SERVERS = ("the first server", "the second server")


class ViewFault(NamedTuple):
    """What is wrong with a server's view; refuted: it contradicts epsilon."""

    text: str = ""
    refuted: bool = False


def view_fault(views: Callable[..., tuple[ServerView, ServerView]], terms: Terms) -> ViewFault:
    """Play two neighbouring batches, and test the view of each server."""
    _, steps, _ = to_steps(0.0, terms.sensitivity)
    fixed = [steps // 3, steps]
    bits = modulus_bits(3, steps, terms.epsilon, _LEAST_WRAP)
    batches = [[first, *fixed] for first in (0, steps)]
    plays = [
        [views(values, steps, terms.epsilon, bits) for _ in range(_PLAYS)] for values in batches
    ]
    for server, name in enumerate(_SERVERS):
        mine = [[(pair[server], pair[1 - server]) for pair in side] for side in plays]
        if any(len(other.releases) != 1 for side in mine for _, other in side):
            again = len(mine[0][0][1].releases)
            return ViewFault(f"{name} sees {again} releases of the other for one batch", True)
        shares = [np.array([own.shares[0] for own, _ in side], float) for side in mine]
        sums = [np.array([known_sum(*pair, bits) for pair in side], float) for side in mine]
        for samples in (shares, sums):
            event = best_threshold([each[::2] for each in samples], _VIEW_THRESHOLDS, 0.0, 1e-3)
            bound = event.bound([each[1::2] for each in samples], 0.0, LAW_ERROR)
            if bound > terms.epsilon:
                low, declared = rounded_down(bound, ".3f"), rounded_up(terms.epsilon, ".4g")
                return ViewFault(
                    f"what {name} sees shows that epsilon is at least {low}, not {declared}", True
                )
        for values, share, total in zip(batches, shares, sums, strict=True):
            if not is_uniform(share, bits):
                return ViewFault(f"the shares that {name} gets are not uniform")
            if steps < _FINEST_SCALE * terms.epsilon:
                continue
            laplace: Any = import_extra("scipy.stats", "an audit").laplace
            law = laplace(sum(values), steps / terms.epsilon)
            if law_test_fault(total, law):
                return ViewFault(
                    f"given what {name} knows, the other's noise has not the law of epsilon"
                )
    return ViewFault()


def known_sum(own: ServerView, other: ServerView, bits: int) -> int:
    """The sum of the rewards with the other's noise, which a server knows from its shares."""
    return combine(sum(own.shares) % 2**bits, other.releases[0], bits)


def is_uniform(shares: np.ndarray, bits: int) -> bool:
    """Whether the high and the low bits of shares are as often any of sixteen values."""
    stats: Any = import_extra("scipy.stats", "an audit")
    for part in (np.floor(shares / 2.0 ** (bits - 4)), np.mod(shares, 16.0)):
        counts = np.bincount(part.astype(int), minlength=16)
        if stats.chisquare(counts).pvalue < LAW_ERROR:
            return False
    return True

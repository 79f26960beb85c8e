"""Mistakes of releases by two servers: what one of them sees shows rewards."""

from __future__ import annotations

import secrets

from balaclava.authoring import PrivateBoundedPolicy, mechanism
from balaclava.privacy.mechanisms.base import proportional_loss
from balaclava.privacy.mechanisms.split_laplace import (
    exact_split_laplace,
    split_laplace_release,
    two_laplace_law,
)
from balaclava.privacy.secret_shares import ServerView, noisy_sum, split
from tests.oracles.violators.frame import frame, violator


def shares_of(values, bits, random=secrets.randbits):
    pairs = [split(value, bits, random) for value in values]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def server(shares, steps, epsilon, bits):
    return ServerView(shares, [noisy_sum(shares, steps, epsilon, bits)])


def half_noise_each(values, steps, epsilon, bits):
    """Of half the scale, as if observers knew neither."""
    one, other = shares_of(values, bits)
    return server(one, steps, 2.0 * epsilon, bits), server(other, steps, 2.0 * epsilon, bits)


def half_variance_each(values, steps, epsilon, bits):
    """So that the sum has the variance of one noise for epsilon."""
    one, other = shares_of(values, bits)
    more = 2.0**0.5 * epsilon
    return server(one, steps, more, bits), server(other, steps, more, bits)


def noise_of_one(values, steps, epsilon, bits):
    """The first server adds it: it sees the sum."""
    one, other = shares_of(values, bits)
    bare = ServerView(other, [sum(other) % 2**bits])
    return server(one, steps, epsilon, bits), bare


def short_shares(values, steps, epsilon, bits):
    """A share as large as a reward, so that the other is not uniform."""
    one, other = shares_of(values, bits, lambda _: secrets.randbelow(steps + 1))
    return server(one, steps, epsilon, bits), server(other, steps, epsilon, bits)


def odd_shares(values, steps, epsilon, bits):
    """Shares whose low bit is fixed: the other share has that of the reward."""
    one, other = shares_of(values, bits, lambda size: secrets.randbits(size) | 1)
    return server(one, steps, epsilon, bits), server(other, steps, epsilon, bits)


def released_twice(values, steps, epsilon, bits):
    """As after a restart of a server that does not store its release first."""
    one, other = shares_of(values, bits)
    again = [noisy_sum(one, steps, epsilon, bits) for _ in range(2)]
    return ServerView(one, again), server(other, steps, epsilon, bits)


def mistaken(views):
    """The mechanism with such servers; its body and its law are right."""

    @mechanism(
        f"split Laplace, {views.__name__}", exact_split_laplace,
        loss=proportional_loss, law=two_laplace_law, views=views,
    )  # fmt: skip
    def release(rng, value, sensitivity, epsilon):
        scale = sensitivity / epsilon
        return value + rng.laplace(0.0, scale) + rng.laplace(0.0, scale)

    return release


def scored_by(release):
    def score(params, state, rng):
        for arm in range(params.arms):
            state.scores[arm] = release(rng, state.sums[arm], 1.0, params.epsilon)

    return frame(score=score)


def twice_each(params, state, rng):
    """A release for the mean, and one to be displayed."""
    for arm in range(params.arms):
        split_laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = split_laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


VIEWS = {
    "half-noise-each": half_noise_each,
    "half-variance-each": half_variance_each,
    "noise-of-one": noise_of_one,
    "short-shares": short_shares,
    "odd-shares": odd_shares,
    "released-twice": released_twice,
}


def split_violator(name, mistake, kernels, **options):
    return violator(
        name, mistake, kernels, PrivateBoundedPolicy, model="split", scope="view", **options
    )


SERVERS = [
    split_violator(name, views.__doc__ or "", scored_by(mistaken(views)), by_replay=False)
    for name, views in VIEWS.items()
] + [
    split_violator("says-split", "noise of one server under a claim of each view", frame()),
    split_violator("split-twice", "two releases of each sum", frame(score=twice_each)),
]
SPLIT_CONTROL = split_violator("split-once", "correct", scored_by(split_laplace_release)).policy

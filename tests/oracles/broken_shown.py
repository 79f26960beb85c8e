"""Policies that decide in private, and show raw sums beside their decisions."""

from __future__ import annotations

import numpy as np

import balaclava as bl
from balaclava.authoring import Estimation
from balaclava.policies.base import ArmRelease
from tests.oracles.broken_frame import LENGTH, claiming, frame


@bl.kernel
def raw_mean(params, state, arm):
    return LENGTH, state.raw[arm] / LENGTH, 0.0


@bl.kernel
def anything(params, rewards, mean, noise, failure):
    return 0.0, 1.0


def raw_chances(policy, state):
    """As if the arm had been drawn by raw sums."""
    shares = np.exp(state.raw - state.raw.max())
    return shares / shares.sum()


def raw_releases(policy, state):
    """Calls released what is not."""
    return [ArmRelease(arm, LENGTH, state.sums[arm], 1, 1) for arm in range(policy.arms)]


def policies():
    """The broken ones, by name."""
    return {
        policy.name: policy
        for policy in (
            claiming("estimates-raw", frame(), estimation=Estimation(raw_mean, anything)),
            claiming("chances-raw", frame(), chances=raw_chances),
            claiming("releases-raw", frame(), released=raw_releases),
        )
    }

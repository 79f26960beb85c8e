"""Audits of policies that decide by features: what is right passes, what is wrong is noticed."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import balaclava as bl
from balaclava._core.kernels import kernel
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.frames.episodes import add_reward, keep_release
from balaclava.frames.pools import NO_ROW
from balaclava.policies.base import Kernels
from balaclava.policies.contextual import dp_linucb
from balaclava.policies.contextual.dp_linucb import DPLinUCB
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_vector_release

SMALL = {"arms": 2, "features": 2, "epsilon": 1.0, "first_episode": 6, "outstanding": 64}


def replayed(policy: bl.Policy) -> Any:
    return audit_by_replay(policy, policy.guarantee, rounds=24, pairs=48, seed=1)


@pytest.mark.parametrize("name", ["dp-linucb", "dp-lin-ts"])
@pytest.mark.parametrize("delta", [1e-3, 0.0])
def test_the_proof_holds_on_real_runs(name: str, delta: float) -> None:
    """And the loss is the whole claim: practice contexts are as long as they may be."""
    replay = replayed(bl.policy(name, **SMALL, delta=delta))
    assert replay.verdict == "consistent"
    assert "changing contexts" in replay.reached
    assert replay.epsilon == pytest.approx(1.0, rel=1e-4)


@kernel(borrows=True)
def learn_half(
    params: Any, state: Any, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    """Noise for half of the sensitivity."""
    row = add_reward(state.episodes, 0, phase, reward, params.step)
    if row != NO_ROW:
        sums, answer = state.episodes.sums[0, row], state.episodes.answer
        gaussian_vector_release(rng, sums, 0.5, params.epsilon, params.delta, answer)
        keep_release(state.episodes, 0, row)


@kernel(borrows=True)
def learn_twice(
    params: Any, state: Any, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    """Every reward is counted in what is known at once, without noise."""
    state.episodes.theta[0, 0] += 0.01 * reward
    dp_linucb.learn(params, state, t, arm, reward, phase, rng)


class HalfNoise(DPLinUCB):
    """Half of the noise."""

    name = "half-noise"
    kernels: ClassVar[Kernels] = DPLinUCB.kernels._replace(learn=learn_half)


class RawTheta(DPLinUCB):
    """Coefficients that rewards reach without noise."""

    name = "raw-theta"
    kernels: ClassVar[Kernels] = DPLinUCB.kernels._replace(learn=learn_twice)


@pytest.mark.parametrize("broken", [HalfNoise, RawTheta])
def test_too_little_noise_and_a_leak_are_noticed(broken: type[DPLinUCB]) -> None:
    assert replayed(broken(**SMALL, delta=1e-3)).verdict in ("unproved", "violated")

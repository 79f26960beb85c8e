"""Runs of dp-top-two until it names an arm, on a GPU: one run a thread, whole batches at a time.

`python benchmarks/best_arm.py --wrong --device cuda` plays them. The policy's own kernels decide;
the rewards of a batch are drawn as one binomial number, which is exact if they come at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from balaclava.authoring import kernel
from balaclava.frames.pools import find_row
from balaclava.policies.base import Policy

THREADS = 64  # of a block
MOST_AT_ONCE = 1 << 20  # runs of a launch


@kernel(borrows=True)
def binomial(rng: Any, trials: float, chance: float) -> float:
    """A binomial draw: by inversion if few are expected, or by BTRS (Hoermann 1993)."""
    p = min(chance, 1.0 - chance)
    successes = 0.0
    if trials * p < 10.0:
        left = rng.random()
        term = math.exp(trials * math.log1p(-p))
        while left > term and successes < trials:
            left -= term
            successes += 1.0
            term *= (trials - successes + 1.0) * p / (successes * (1.0 - p))
    else:
        successes = _by_rejection(rng, trials, p)
    return successes if chance <= 0.5 else trials - successes


@kernel(borrows=True)
def _by_rejection(rng: Any, n: float, p: float) -> float:
    deviation = math.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * deviation
    a, c = -0.0873 + 0.0248 * b + 0.01 * p, n * p + 0.5
    mode, odds = math.floor((n + 1.0) * p), math.log(p / (1.0 - p))
    top = math.lgamma(mode + 1.0) + math.lgamma(n - mode + 1.0)
    while True:
        u = rng.random() - 0.5
        v, room = rng.random(), 0.5 - abs(u)
        if room <= 0.0:
            continue
        k = math.floor((2.0 * a / room + b) * u + c)
        if k < 0.0 or k > n:
            continue
        if room >= 0.07 and v <= 0.92 - 4.2 / b:
            return k
        v *= (2.83 + 5.1 / b) * deviation / (a / (room * room) + b)
        drop = top - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0) + (k - mode) * odds
        if v <= 0.0 or math.log(v) <= drop:
            return k


def make_device_runs(policy: Policy) -> Callable[..., None]:
    """Close the loop over the policy's kernels."""
    from numba import cuda, uint64

    from balaclava.simulation.gpu.device_loop import register_kernels
    from balaclava.simulation.gpu.device_states import state_access
    from balaclava.simulation.gpu.random_streams import device_random

    choose, learn = policy.kernels.choose, policy.kernels.learn
    view = state_access(origin_of(policy), THREADS).view
    register_kernels()

    def runs(
        key: Any, first: int, params: Any, means: Any, half: float, most: int, states: Any, out: Any
    ) -> None:
        run = cuda.grid(1)
        if run >= out.shape[0]:
            return
        memory, state = view(states, run)
        pools = state.pools
        rng = device_random(key, uint64(first + run), memory)
        t = 1
        while state.named[0] < 0 and t < most:
            arm, phase = choose(params, state, t, None, rng)
            k = 1 + pools.rest_of_batch[0]
            pools.rest_of_batch[0] = 0
            row = find_row(pools, arm, phase)
            halves = binomial(rng, float(k), half) if half > 0.0 else 0.0
            ones = binomial(rng, k - halves, (means[arm] - 0.5 * half) / (1.0 - half))
            last = 1.0 if ones > 0.0 else (0.5 if halves > 0.0 else 0.0)
            pools.left[arm, row] -= k - 1
            pools.sums[arm, row] += ones + 0.5 * halves - last
            learn(params, state, t, arm, last, phase, rng)
            t += k
        out[run, 0], out[run, 1] = t - 1, state.named[0]

    return runs


def origin_of(policy: Policy) -> Any:
    """A run before its first round: its stream and the policy's state."""
    from balaclava.simulation.gpu.philox_draws import new_stream

    return new_stream(), policy.kernels.begin(policy.constants())


_loops: dict[Any, Any] = {}  # compiled, by kernels and layout of the state


def device_runs(policy: Policy) -> Any:
    from balaclava.simulation.gpu.device_states import access_source

    from numba import cuda  # isort: skip (after numpy's repair in simulation.gpu)

    key = policy.kernels, access_source(origin_of(policy), THREADS)
    if key not in _loops:
        _loops[key] = cuda.jit(make_device_runs(policy), max_registers=128)
    return _loops[key]


def play_on_gpu(
    policy: Policy, means: Sequence[float], runs: int, seed: int, half: float, most: int
) -> np.ndarray:
    """Rounds and the named arm (-1: none) of each run."""
    from balaclava.simulation.gpu.device_loop import philox_key
    from balaclava.simulation.gpu.device_states import map_arrays, repeat_on_device

    from numba import cuda  # isort: skip (after numpy's repair in simulation.gpu)

    loop, params, parts = device_runs(policy), policy.constants(), []
    for first in range(0, runs, MOST_AT_ONCE):
        count = min(MOST_AT_ONCE, runs - first)
        states = map_arrays(
            origin_of(policy),
            lambda array, count=count: repeat_on_device(array[None], count, cuda.default_stream()),
        )
        out = cuda.to_device(np.zeros((count, 2)))
        loop[-(-count // THREADS), THREADS](
            philox_key(seed), first, params, cuda.to_device(np.array(means, float)), half, most,
            states, out,
        )  # fmt: skip
        parts.append(out.copy_to_host())
    return np.concatenate(parts)

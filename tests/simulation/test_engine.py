"""The simulator: what depends on what, and what is refused."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import IncompatibleError, ParameterError, PolicyError
from balaclava.frames.tally import begin_tally, learn_tally
from balaclava.simulation.engine import checkpoint_rounds, label_policies

WORLD = bl.environment("bernoulli", means=[0.2, 0.5, 0.8])
UCB = bl.policy("ucb1", arms=3)


def simulate(policies=UCB, environment=WORLD, **changes):
    return bl.simulate(
        policies, environment, **{"horizon": 400, "repetitions": 3, "seed": 5, **changes}
    )


def test_shapes_and_regret_is_the_sum_of_gaps():
    results = simulate(checkpoints=[10, 100, 400])
    assert results.labels == ["ucb1"]
    assert results.checkpoints.tolist() == [10, 100, 400]
    assert results.regret("ucb1").shape == (3, 3)
    np.testing.assert_allclose(
        results.final_regret("ucb1"), results.pulls("ucb1") @ np.array([0.6, 0.3, 0.0])
    )


def test_seed_decides_everything():
    assert np.array_equal(simulate().regret("ucb1"), simulate(workers=3).regret("ucb1"))
    assert not np.array_equal(simulate().regret("ucb1"), simulate(seed=6).regret("ucb1"))


def test_more_repetitions_keep_the_first_ones():
    more = simulate(repetitions=7).regret("ucb1")
    assert np.array_equal(more[:3], simulate().regret("ucb1"))
    assert len({tuple(row) for row in more}) == 7  # every repetition has its own stream


def test_policies_meet_the_same_rewards():
    """Two policies that pull the same arms see the same rewards: equal copies agree."""
    results = simulate({"one": UCB, "two": bl.policy("ucb1", arms=3)})
    assert np.array_equal(results.regret("one"), results.regret("two"))


def test_memory_does_not_grow_with_the_horizon():
    import tracemalloc

    peaks = []
    for horizon in (1_000, 1_000_000):
        simulate(horizon=horizon, repetitions=1)  # compile first
        tracemalloc.start()
        simulate(horizon=horizon, repetitions=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize(
    ("checkpoints", "horizon", "expected"),
    [
        (4, 100, [25, 50, 75, 100]),
        (200, 3, [1, 2, 3]),
        (1, 10, [10]),
        (3, 10, [4, 7, 10]),
        ([2, 10], 10, [2, 10]),
    ],
)
def test_checkpoints(checkpoints, horizon, expected):
    rounds = checkpoint_rounds(checkpoints, horizon)
    assert rounds.tolist() == expected
    assert rounds.dtype == np.int64


@pytest.mark.parametrize(
    "wrong", [0, -1, 1.5, "x", [], [0, 400], [5, 5, 400], [1, 399], [1.5, 400], True]
)
def test_bad_checkpoints(wrong):
    with pytest.raises(ParameterError, match="checkpoints"):
        simulate(checkpoints=wrong)


@pytest.mark.parametrize("name", ["horizon", "repetitions", "workers", "seed"])
@pytest.mark.parametrize("wrong", [-1, 2.5, math.nan, math.inf, "many", True])
def test_bad_numbers_are_named(name, wrong):
    with pytest.raises(ParameterError, match=name):
        simulate(**{name: wrong})


@pytest.mark.parametrize("name", ["horizon", "repetitions", "workers"])
def test_zero_is_refused(name):
    with pytest.raises(ParameterError, match=f"{name} = 0"):
        simulate(**{name: 0})


@pytest.mark.parametrize("wrong", [[], {}, "ucb1", [1], {"a": "ucb1"}, {1: UCB}, [UCB, UCB]])
def test_bad_policies(wrong):
    with pytest.raises(ParameterError, match="policies"):
        simulate(wrong)


def test_labels_tell_namesakes_apart():
    labels = list(label_policies([UCB, bl.policy("ucb1", arms=3, radius_scale=0.5)]))
    assert labels == ["ucb1(radius_scale=1.0)", "ucb1(radius_scale=0.5)"]


def test_pairs_that_do_not_fit():
    with pytest.raises(IncompatibleError, match="arms = 4"):
        simulate(bl.policy("ucb1", arms=4))
    with pytest.raises(IncompatibleError, match="reward_range"):
        simulate(bl.policy("kl-ucb", arms=2), bl.environment("gaussian", means=[0, 1]))
    table = bl.environment("table", rewards=np.zeros((5, 3)))
    with pytest.raises(IncompatibleError, match="only 5 rounds"):
        simulate(environment=table)
    with pytest.raises(ParameterError, match=r"bl\.environment"):
        simulate(environment="bernoulli")


def test_progress_reaches_the_end():
    seen = []
    simulate(horizon=200_000, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (600_000, 600_000)
    assert sorted(seen) == seen


@pytest.mark.crash
def test_interrupt_keeps_what_was_finished():
    """Ctrl-C while the third repetition would take minutes: the first ones are kept."""
    script = """
        import os, signal
        import balaclava as bl
        world = bl.environment("bernoulli", means=[0.2, 0.5, 0.8])
        policy = bl.policy("ucb1", arms=3)
        bl.simulate(policy, world, horizon=10, repetitions=1, seed=1)
        def progress(done, total):
            if done > 2.5 * 2_000_000:
                os.kill(os.getpid(), signal.SIGINT)
        # A run in the background hands down an ignored SIGINT.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            bl.simulate(policy, world, horizon=2_000_000, repetitions=10_000, seed=1,
                        workers=1, progress=progress)
        except bl.Interrupted as stop:
            print(2 <= stop.results.regret("ucb1").shape[0] < 10_000)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "True\n", done.stderr


def test_simulating_from_a_thread():
    found = []
    worker = threading.Thread(target=lambda: found.append(simulate().final_regret("ucb1")))
    worker.start()
    worker.join()
    assert np.array_equal(found[0], simulate().final_regret("ucb1"))


def test_signal_module_is_left_alone():
    before = signal.getsignal(signal.SIGINT)
    simulate()
    assert signal.getsignal(signal.SIGINT) is before


@bl.kernel
def choose_a_stranger(params, state, t, context, rng):
    return (t - 1) if t < 9 else -1, 0


class Stray(bl.Policy):
    """Leaves its arms in round 4."""

    name = "stray"
    kernels = bl.Kernels(begin_tally, choose_a_stranger, learn_tally)


def test_an_arm_that_does_not_exist_is_an_error_not_a_crash():
    policy = Stray(arms=3)
    with pytest.raises(PolicyError, match="stray chose an arm that does not exist in round 4"):
        simulate(policy)
    agent = policy.agent()
    for _ in range(3):
        agent.ask()
    with pytest.raises(PolicyError, match="round 4"):
        agent.ask()
    with pytest.raises(PolicyError, match="round 4"):
        bl.audit(policy, trials=100, pairs=10)


def test_an_environment_beyond_the_range_is_refused_unless_it_is_clipped() -> None:
    world = bl.environment("gaussian", means=[0.2, 0.8])
    strict = bl.policy("dp-imed", arms=2, epsilon=1.0)
    with pytest.raises(IncompatibleError, match='set reward_range or outside="clip"'):
        bl.simulate(strict, world, horizon=10, repetitions=1, seed=1)
    lenient = bl.policy("dp-imed", arms=2, epsilon=1.0, outside="clip")
    results = bl.simulate(lenient, world, horizon=2_000, repetitions=20, seed=1)
    assert results.final_regret("dp-imed").mean() < 0.3 * 2_000 * 0.3
    assert lenient.regret_bound(world, 2_000) is None  # nothing is proved of clipped rewards


@pytest.mark.parametrize(
    ("features", "disjoint", "message"),
    [
        (3, False, "disjoint = False, but linear has features per person; set disjoint=True"),
        (3, True, "features = 3, but linear has 2 per person; set features=2"),
    ],
)
def test_features_that_do_not_fit(features: int, disjoint: bool, message: str) -> None:
    people: Any = {"contexts": "disjoint", "table": [[0.6, 0.2], [0.3, 0.5]]}
    world = bl.environment("linear", theta=[0.5, 0.1, 0.1, 0.5], arms=2, **people)
    policy = bl.policy("linucb", arms=2, features=features, disjoint=disjoint)
    with pytest.raises(IncompatibleError, match=re.escape(message)):
        bl.simulate(policy, world, horizon=10, repetitions=1, seed=1)

"""The engine for a GPU, on a device that Python plays: what depends on what, errors, the end.

Everything but the compiler and the driver: how games are laid out, packed, cut into launches and
taken apart again. What is played is compared with a second loop, to the last bit.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

import balaclava as bl
from balaclava.authoring import begin_tally, learn_tally
from balaclava.errors import PolicyError
from balaclava.experiments import sweep_runner
from balaclava.experiments.experiment_file import ExperimentPlan, SimulationSetting
from balaclava.simulation.changing_arms.arm_segments import segment_player
from balaclava.simulation.gpu import launches
from balaclava.simulation.gpu.device_loop import philox_key
from balaclava.simulation.gpu.host_stream import HostStream
from balaclava.simulation.gpu.launches import game_batches, play_in_turn
from balaclava.simulation.gpu.philox_draws import new_stream
from balaclava.simulation.simulation_batches import Simulation, simulate_all
from balaclava.testing.examples import examples, matching_environment
from tests.simulation.gpu.interpreted import Bank, by_hand, install

CLASSES = {entry.name: entry.policy for entry in bl.list_policies()}
SHAPES = {
    "default": {},
    "short launches": {"_FIRST_LAUNCH_ROUNDS": 1, "_LAUNCH_SECONDS": 0.0},
    "one game after the other": {"_MOST_GAMES": 1},
    "no threads between games": {"_SPARSE_THREADS": 1},
}
ROUNDS = np.array([1, 3, 100])
WORLD = bl.environment("bernoulli", means=[0.2, 0.5, 0.9])


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    install(monkeypatch)


def requires_the_same(run, policy, world, seed):
    regret, pulls = by_hand(policy, world, ROUNDS, run.repetition, seed)
    assert np.array_equal(run.regret, regret)
    assert np.array_equal(run.pulls, pulls)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["ucb1", "dp-imed", "dp-ftpl-beta", "dp-exp3-experts"])
def test_a_game_depends_on_its_seed_alone(name, shape, monkeypatch):
    for what, value in SHAPES[shape].items():
        monkeypatch.setattr(launches, what, value)
    policy = examples(CLASSES[name])[0]
    world = matching_environment(policy)
    results = bl.simulate(
        policy, world, horizon=100, repetitions=2, seed=2**70 + 1, checkpoints=ROUNDS, device="cuda"
    )
    assert results.device == "cuda"
    assert [*results.runs[name]] == [0, 1]
    for run in results.runs[name].values():
        requires_the_same(run, policy, world, 2**70 + 1)


MOVING = {
    "changing": {"schedule": [(1, [0.2, 0.5, 0.9]), (41, [0.9, 0.5, 0.2])], "period": 60},
    "drifting": {"means": [0.2, 0.5, 0.8], "step": 0.05},
}


@pytest.mark.parametrize("memory", [None, "detect", 80])
@pytest.mark.parametrize("world", MOVING)
def test_means_that_move_are_played(world, memory):
    policy = bl.policy("dp-imed", arms=3, epsilon=5.0, first_batch=4, memory=memory)
    moving = bl.environment(world, **MOVING[world])
    results = bl.simulate(
        policy, moving, horizon=100, repetitions=2, seed=3, checkpoints=ROUNDS, device="cuda"
    )
    assert [*results.runs["dp-imed"]] == [0, 1]
    for run in results.runs["dp-imed"].values():
        requires_the_same(run, policy, moving, 3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("inner", ["bernoulli", *MOVING])
def test_arms_that_come_and_leave_are_played(inner, shape, monkeypatch):
    """As on the CPU, but for the streams; a checkpoint is at a change, and one is beside it."""
    for what, value in SHAPES[shape].items():
        monkeypatch.setattr(launches, what, value)
    own = MOVING.get(inner, {"means": [0.2, 0.5, 0.9]})
    offers = [(1, [0, 1]), (31, [0, 1, 2]), (71, [2]), (91, [2, 0])]
    world = bl.environment("offered-arms", inner={"name": inner, **own}, offers=offers)
    policies = {
        "imed": bl.policy("dp-imed", arms=3, epsilon=5.0, first_batch=4),
        "ts": bl.policy("lazy-dp-ts", arms=3, epsilon=5.0),
    }
    rounds = np.array([30, 72, 100])
    results = bl.simulate(
        policies, world, horizon=100, repetitions=2, seed=3, checkpoints=rounds, device="cuda"
    )
    key = philox_key(3)
    for label, policy in policies.items():
        for number, run in results.runs[label].items():
            places = (2 * number, 2 * number + 1, (1 << 63) + number)
            streams = [HostStream(key, place, new_stream()) for place in places]
            play = segment_player(policy, world, rounds, interpreted=True)
            history, totals, _ = play(*streams, np.zeros(2, np.int64))
            assert np.array_equal(run.pulls, history[-1])
            assert np.allclose(run.regret, totals)


def test_any_repetition_is_played_alone():
    policy, far = bl.policy("ucb1", arms=3), 2**33
    runs = list(play_in_turn(game_batches("it", policy, WORLD, ROUNDS, 5, [0, 1, far])))
    assert [run.repetition for run in runs] == [0, 1, far]
    for run in runs:
        requires_the_same(run, policy, WORLD, 5)


@pytest.mark.parametrize("arms", [1, 2, 200])
def test_one_round_and_any_number_of_arms(arms):
    world = bl.environment("bernoulli", means=np.linspace(0.3, 0.8, arms))
    policy = bl.policy("ucb1", arms=arms)
    results = bl.simulate(policy, world, horizon=1, repetitions=1, seed=1, device="cuda")
    assert results.pulls("ucb1").sum() == 1


def test_pairs_that_are_played_together_are_played_as_alone():
    """They differ in numbers and in the lengths of arrays, or in kernels."""
    policies = {
        **{f"imed {e}": bl.policy("dp-imed", arms=3, epsilon=e) for e in (0.5, 2.0)},
        **{f"se {h}": bl.policy("dp-se", arms=3, epsilon=1.0, horizon=h) for h in (100, 10**5)},
        "ucb1": bl.policy("ucb1", arms=3),
    }
    logs = [[0, 1], [1], [0, 0, 1, 1, 1]], [[1], [0, 1, 1, 0], [1, 0]]
    worlds = [WORLD, *(bl.environment("empirical", samples=log) for log in logs)]
    told = []
    results = simulate_all(
        [Simulation(policies, world, 100, 2) for world in worlds],
        seed=5,
        checkpoints=ROUNDS,
        device="cuda",
        progress=lambda rounds, whole: told.append((rounds, whole)),
    )
    for world, together in zip(worlds, results, strict=True):
        for label, policy in policies.items():
            assert [*together.runs[label]] == [0, 1]
            for run in together.runs[label].values():
                requires_the_same(run, policy, world, 5)
    assert told == sorted(told)
    assert told[-1] == (3_000, 3_000)


@pytest.mark.parametrize("names", [["ucb1"], ["ucb1", "imed", "kl-ucb"]])
def test_ctrl_c_ends_what_is_played(names):
    def progress(rounds, whole):
        raise KeyboardInterrupt

    threads = threading.active_count()
    policies = [bl.policy(name, arms=3) for name in names]
    with pytest.raises(bl.Interrupted) as stop:
        bl.simulate(
            policies, WORLD, horizon=9, repetitions=2, seed=1, device="cuda", progress=progress
        )
    assert stop.value.results.labels == names
    assert threading.active_count() == threads


@bl.kernel
def choose_a_stranger(params, state, t, context, rng):
    return t if t < 9 else -1, 0


@bl.kernel
def choose_beyond_the_state(params, state, t, context, rng):
    return int(0.0 * state.sums[t]), 0


@pytest.mark.parametrize(
    ("choose", "error", "words"),
    [
        (choose_a_stranger, PolicyError, "stray chose an arm that does not exist in round 3"),
        (choose_beyond_the_state, IndexError, "out of bounds"),
    ],
)
def test_a_policy_that_goes_astray_is_told_of(choose, error, words):
    kernels = bl.Kernels(begin_tally, choose, learn_tally)
    own = type("Own", (bl.Policy,), {"__doc__": "Of a user.", "name": "own", "kernels": kernels})
    policies = {"ucb1": bl.policy("ucb1", arms=3), "stray": own(arms=3)}
    with pytest.raises(error, match=words):
        bl.simulate(policies, WORLD, horizon=9, repetitions=2, seed=1, device="cuda")


MIX = {
    **{f"imed {e}": bl.policy("dp-imed", arms=3, epsilon=e) for e in (0.5, 2.0)},
    **{name: bl.policy(name, arms=3) for name in ("ucb1", "imed", "kl-ucb")},
}


def played_with(bank, monkeypatch, at_once):
    """Each group's runs, and what was given back when its games were done."""
    install(monkeypatch, bank)
    monkeypatch.setattr(launches, "DEVICE_STREAMS", at_once)
    counts = []
    results = bl.simulate(
        MIX,
        WORLD,
        horizon=9,
        repetitions=20,
        seed=1,
        device="cuda",
        progress=lambda rounds, whole: counts.append(bank.given_back),
    )
    return results, counts


@pytest.mark.parametrize("at_once", [1, 4])
def test_no_memory_is_given_back_while_others_play(monkeypatch, at_once):
    """That would wait for all of them; all is given back when they are done."""
    bank = Bank(1 << 20)
    _, counts = played_with(bank, monkeypatch, at_once)
    assert counts[-1] == 0
    assert bank.free == bank.total


def test_what_does_not_fit_at_once_is_played_in_parts(monkeypatch):
    """The same runs in a thirtieth of the memory, which is given back for the next part."""
    large, small = Bank(1 << 20), Bank(1 << 15)
    expected, _ = played_with(large, monkeypatch, 1)
    results, counts = played_with(small, monkeypatch, 1)
    assert large.total - large.least > small.total
    assert small.least >= 0
    assert counts[-1] > 0
    for label in MIX:
        assert np.array_equal(results.regret(label), expected.regret(label))


@pytest.mark.parametrize("games", [1, 1_000])
def test_a_sweep_plays_its_cells_concurrently_and_resumes(monkeypatch, tmp_path, games):
    """In batches of one cell, interrupted after two of them, or all cells at once."""
    monkeypatch.setattr(sweep_runner, "gpu_fault", lambda: "")
    monkeypatch.setattr(sweep_runner, "_GAMES_AT_ONCE", games)
    experiment = SimulationSetting(MIX, WORLD, 100, 2, 5, ROUNDS.tolist(), device="cuda")
    plan, finished = ExperimentPlan("gpu", (experiment,)), []

    def stop(rounds, whole, cells, all_cells):
        finished.append(cells)
        if rounds >= whole // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_runner.run_sweep(plan, tmp_path, progress=stop)
    assert games > 1 or finished[-1] == 2
    results = sweep_runner.run_sweep(plan, tmp_path).results("bernoulli", 100)
    for label, policy in MIX.items():
        for run in results.runs[label].values():
            requires_the_same(run, policy, WORLD, 5)

"""Games on a GPU: agreement in law with the CPU, and determinism. Run with `make test-gpu`.

Means are compared at 5 standard errors, and all quantiles by Kolmogorov and Smirnov's test at a
level of 1e-6: each of the comparisons fails by chance once in 10^6.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import balaclava as bl
from balaclava.errors import DeviceError
from balaclava.simulation.feedback import PROMPT
from balaclava.simulation.gpu.device import gpu_fault, gpu_refusal
from balaclava.testing.examples import examples, matching_environment
from tests.simulation.gpu.ptx import counter_of_tails

needs_gpu = pytest.mark.skipif(bool(gpu_fault()), reason=gpu_fault() or "there is a GPU")
POLICIES = {
    entry.name: entry.policy
    for entry in bl.list_policies()
    if not gpu_refusal(matching_environment(examples(entry.policy)[0]), PROMPT)
}
NINE = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, 9))


def played(policy, world, games, device, **options):
    return bl.simulate(
        {"it": policy},
        world,
        horizon=600,
        repetitions=games,
        seed=5,
        checkpoints=3,
        device=device,
        **options,
    )


def regrets(policy, world, games, device, **options):
    return played(policy, world, games, device, **options).regret("it")


def agree(policy, world, devices=("cpu", "cuda")):
    """The regret at three rounds, and the pulls of each arm, of 2,000 games: means and laws."""
    both = [played(policy, world, 2_000, device) for device in devices]
    here, there = (np.hstack([each.regret("it"), each.pulls("it")]) for each in both)
    error = np.sqrt((here.var(axis=0) + there.var(axis=0)) / 2_000)
    means = abs(here.mean(axis=0) - there.mean(axis=0)) <= 5 * error + 1e-9
    # Rounded, as equal sums may end in other bits.
    columns = zip(here.T.round(9), there.T.round(9), strict=True)
    return means.all() and all(
        stats.ks_2samp(*column, method="asymp").pvalue > 1e-6 for column in columns
    )


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_agrees_with_the_cpu(name):
    policy = examples(POLICIES[name])[0]
    assert agree(policy, matching_environment(policy))


UNUSUAL = {
    "one arm": ("ucb1", {}, [0.4]),
    "an arm that always pays, one that never does": ("imed", {}, [1.0, 0.0, 0.5]),
    "a first batch beyond the horizon": ("dp-imed", {"epsilon": 0.01}, [0.3, 0.7]),
    "many arms": ("dp-imed", {"epsilon": 5.0}, np.linspace(0.1, 0.9, 70)),
    "epsilon 0": ("dp-ftpl-new", {"epsilon": 0.0, "delta": 0.2, "horizon": 600}, [0.2, 0.6]),
    "a tiny delta": ("dp-ftpl-gauss", {"epsilon": 1.0, "delta": 1e-9}, [0.2, 0.6]),
}


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("what", UNUSUAL)
def test_an_unusual_setting_agrees_with_the_cpu(what):
    name, parameters, means = UNUSUAL[what]
    policy = bl.policy(name, arms=len(means), **parameters)
    assert agree(policy, bl.environment("bernoulli", means=means))


SCHEDULE = [(1, [0.2, 0.5, 0.9]), (201, [0.9, 0.5, 0.2])]
MOVING = {
    "changing": {"schedule": SCHEDULE, "period": 300},
    "drifting": {"means": [0.2, 0.5, 0.8], "step": 0.02},
    "bernoulli": {"means": [0.2, 0.5, 0.8]},
}


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("memory", [None, "detect", 160])
@pytest.mark.parametrize("name", MOVING)
def test_means_and_arms_that_change_agree_with_the_cpu(name, memory):
    policy = bl.policy("dp-imed", arms=3, epsilon=5.0, first_batch=8, memory=memory)
    assert agree(policy, bl.environment(name, **MOVING[name]))
    offers = [(1, [0, 1]), (151, [0, 1, 2]), (351, [2, 0]), (451, [2, 0, 1])]
    inner = {"name": name, **MOVING[name]}
    assert agree(policy, bl.environment("offered-arms", inner=inner, offers=offers))


@needs_gpu
@pytest.mark.gpu
def test_results_depend_on_the_seed_alone(monkeypatch):
    """Not on how many games are played at once, nor on how long a launch lasts."""
    from balaclava.simulation.gpu import device_loop, launches

    policy = bl.policy("dp-imed", arms=9, epsilon=1.0)
    expected = regrets(policy, NINE, 500, "cuda")
    monkeypatch.setattr(launches, "_MOST_GAMES", 77)
    monkeypatch.setattr(launches, "_LAUNCH_SECONDS", 1e-5)
    monkeypatch.setattr(device_loop, "BLOCK_THREADS", 32)
    assert np.array_equal(regrets(policy, NINE, 500, "cuda"), expected)


@needs_gpu
@pytest.mark.gpu
def test_pairs_that_are_played_together_are_played_as_alone(monkeypatch):
    """Those that share a launch, those beside them, and those of another world."""
    from balaclava.simulation.gpu import launches
    from balaclava.simulation.simulation_batches import Simulation, simulate_all

    policies = {
        **{f"dp-imed {e}": bl.policy("dp-imed", arms=9, epsilon=e) for e in (0.5, 1.0, 2.0)},
        "ucb1": bl.policy("ucb1", arms=9),
    }
    worlds = [NINE, bl.environment("bernoulli", means=np.linspace(0.8, 0.1, 9))]
    how = {"seed": 5, "checkpoints": 3, "device": "cuda"}
    both = list(simulate_all([Simulation(policies, world, 600, 70) for world in worlds], **how))
    monkeypatch.setattr(launches, "_SPARSE_THREADS", 1)  # no threads between games
    for world, together in zip(worlds, both, strict=True):
        for label, policy in policies.items():
            alone = played(policy, world, 70, "cuda")
            assert np.array_equal(together.regret(label), alone.regret("it"))
            assert np.array_equal(together.pulls(label), alone.pulls("it"))


@needs_gpu
@pytest.mark.gpu
def test_large_states_are_laid_out_on_the_device_as_small_ones_on_the_host(monkeypatch):
    from numba import cuda

    from balaclava.simulation.gpu import device_states

    monkeypatch.setattr(device_states, "_MOST_SENT_BYTES", 0)
    draws = np.random.default_rng(3).integers(0, 256, (3, 5, 2))
    for kind in (np.int64, np.float64, np.bool_, np.uint8):
        array = draws.astype(kind)
        there = device_states.repeat_on_device(array, 70, cuda.stream()).copy_to_host()
        assert np.array_equal(there, device_states.repeat_per_game(array, 70))


@needs_gpu
@pytest.mark.gpu
def test_an_error_in_one_pair_stops_all():
    def progress(rounds, whole):
        raise ValueError("enough")

    policies = [bl.policy("ucb1", arms=9), bl.policy("imed", arms=9)]
    with pytest.raises(ValueError, match="enough"):
        bl.simulate(
            policies, NINE, horizon=600, repetitions=9, seed=5, device="cuda", progress=progress
        )


@needs_gpu
@pytest.mark.gpu
def test_a_sweep_that_goes_on_ends_with_the_same_runs(tmp_path):
    from balaclava.experiments.experiment_file import ExperimentPlan, SimulationSetting
    from balaclava.experiments.sweep_runner import run_sweep
    from balaclava.simulation.gpu.launches import game_batches, play_in_turn

    policy = bl.policy("ucb1", arms=9)
    whole = regrets(policy, NINE, 12, "cuda")
    rounds = np.array([200, 400, 600])
    some = list(play_in_turn(game_batches("it", policy, NINE, rounds, 5, [0, 3, 4, 11])))
    assert [run.repetition for run in some] == [0, 3, 4, 11]
    assert all(np.array_equal(run.regret, whole[run.repetition]) for run in some)
    experiment = SimulationSetting({"it": policy}, NINE, 600, 12, 5, [200, 400, 600], device="cuda")
    sweep = run_sweep(ExperimentPlan("gpu", (experiment,)), tmp_path)
    assert np.array_equal(sweep.results("bernoulli", 600).regret("it"), whole)


@needs_gpu
@pytest.mark.gpu
def test_quantiles_agree_with_the_cpu():
    policy = bl.policy("ucb1", arms=9)
    here, there = (regrets(policy, NINE, 5_000, device)[:, -1] for device in ("cpu", "cuda"))
    for level in (0.05, 0.5, 0.95):
        share = (there <= np.quantile(here, level)).mean()
        assert abs(share - level) <= 7 * math.sqrt(level * (1 - level) / 5_000)


@pytest.mark.skipif(not gpu_fault(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    policy = bl.policy("ucb1", arms=9)
    with pytest.raises(DeviceError, match="use device = 'cpu'"):
        regrets(policy, NINE, 2, "cuda")
    assert np.array_equal(regrets(policy, NINE, 2, "auto"), regrets(policy, NINE, 2, "cpu"))


def test_delays_are_refused():
    with pytest.raises(DeviceError, match="delays"):
        regrets(bl.policy("ucb1", arms=9), NINE, 2, "cuda", delay=bl.Delay(mean=5, law="fixed"))


def test_an_unknown_device_is_refused():
    with pytest.raises(bl.errors.ParameterError, match="device"):
        regrets(bl.policy("ucb1", arms=9), NINE, 2, "tpu")


def test_the_list_of_what_is_played_is_true():
    """That of docs/scaling.md, of all that is registered; test_ptx.py compiles what is played."""
    worlds = {
        ("policies", e.name): matching_environment(examples(e.policy)[0])
        for e in bl.list_policies()
        if e.policy.__module__.startswith("balaclava.")
    } | {
        ("environments", e.name): examples(e.environment)[0]
        for e in bl.list_environments()
        if e.environment.__module__.startswith("balaclava.")
    }
    expected: dict[tuple[str, str], set[str]] = {}
    for (kind, name), world in worlds.items():
        reason = gpu_refusal(world, PROMPT)
        verdict = f"refused: {reason}" if reason else "played"
        expected.setdefault((kind, verdict), set()).add(name)
    page = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines()]
    listed = {
        (row[0], row[1]): set(row[2].split(", "))
        for row in rows
        if len(row) == 3 and row[0] in ("policies", "environments")
    }
    assert listed == expected


def test_where_a_state_is_kept_while_it_is_played():
    """Single numbers in registers, small arrays in shared memory, large ones where they are."""
    from balaclava.simulation.gpu.device_loop import initial_state
    from balaclava.simulation.gpu.device_states import access_source

    small, large = (
        access_source(initial_state(bl.policy("ucb1", arms=arms)), 64) for arms in (9, 101)
    )
    assert "own2 = cuda.local.array((1,), kind2)" in small
    assert "cuda.shared.array((64, 9), kind6)[lane, :9]" in small
    assert "states[3][0][0][:, game]" not in small
    epochs = access_source(initial_state(bl.policy("dp-se", arms=2, epsilon=1.0, horizon=100)), 64)
    assert "cuda.shared.array((64, 2, 2), kind8)[lane]" in epochs  # two axes keep their lengths
    assert "shared" not in large
    assert "states[3][0][0][:, game]" in large


def test_what_is_left_of_a_cell_is_played_in_stretches():
    from balaclava.simulation.gpu.launches import consecutive_ranges

    assert list(consecutive_ranges([])) == []
    assert list(consecutive_ranges([3])) == [(3, 1)]
    assert list(consecutive_ranges([0, 2, 3, 7])) == [(0, 1), (2, 2), (7, 1)]


MECHANISMS = {"laplace": stats.laplace(), "normal": stats.norm(), "beta": stats.beta(2.5, 40.0)}


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("law", MECHANISMS)
def test_the_noise_of_privacy_at_its_tails(law):
    """10^9 draws; how many are beyond what 1 in 10^3, 10^5 and 10^7 is beyond: within 4.5 sd."""
    from numba import cuda

    from balaclava.simulation.gpu import philox_draws
    from balaclava.simulation.gpu.device_states import map_arrays

    draws, threads = 3_815, 1 << 18
    chances = np.array([1e-3, 1e-5, 1e-7])
    low, high = MECHANISMS[law].ppf(chances / 2), MECHANISMS[law].isf(chances / 2)
    memories = map_arrays(
        philox_draws.new_stream(),
        lambda array: cuda.to_device(np.repeat(array[:, None], threads, 1)),
    )
    counts = cuda.to_device(np.zeros(3, np.uint64))
    count = cuda.jit(counter_of_tails(law))
    count[threads // 64, 64](draws, cuda.to_device(low), cuda.to_device(high), memories, counts)
    seen, expected = counts.copy_to_host().astype(float), draws * threads * chances
    assert (np.abs(seen - expected) < 4.5 * np.sqrt(expected)).all(), (seen, expected)


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", ["dp-imed", "dp-exp3-experts", "dp-se", "dp-tsallis-inf"])
def test_games_of_an_audit_agree_with_the_cpu(name):
    """Pulls of an arm by three probes, 40,000 games on each device: means within 4.5 errors."""
    from balaclava.auditing.games.compiled_games import count_pulls_in_games
    from balaclava.auditing.games.device_games import count_on_device

    policy = examples(POLICIES[name])[0]
    rewards = np.tile(np.linspace(0.6, 0.4, policy.arms), (120, 1))
    probes, games = np.array([30, 60, 120]), 40_000
    moments = []
    for count in (count_pulls_in_games, count_on_device):
        counts = count(policy, rewards, games, 5, probes, 3)
        assert (counts[-1].sum(axis=-1) == games).all()
        n = np.arange(counts.shape[-1])
        mean = counts @ n / np.maximum(counts.sum(axis=-1), 1)
        moments.append((mean[-1], (counts @ n**2)[-1] / games - mean[-1] ** 2))
    (here, spread), (there, _) = moments
    assert (np.abs(here - there) <= 4.5 * np.sqrt(2 * spread / games) + 1e-9).all()

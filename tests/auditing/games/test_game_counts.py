"""What games count, against a loop by hand; and the gaps at which a choice is open."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.games import attacks
from balaclava.auditing.games.attacks import undecided_gaps
from balaclava.auditing.games.compiled_games import (
    GameStart,
    count_pulls_in_games,
    decision_array,
    play_blocks,
    play_scenario,
    probe_rounds,
)
from balaclava.auditing.replay.recorded_run import ScenarioRunner
from balaclava.auditing.scenario import event_arrays, plain_scenario
from balaclava.privacy.randomness import seeded
from tests.oracles.violators import PROVED_CONTROLS

POLICY = PROVED_CONTROLS["honest"].policy
ROUNDS, GAMES, PLACE = 30, 200, 14
PROBES = np.array([15, 20, 30])


def late_scenario():
    """Rewards a round late; each third decision is cancelled."""
    rewards = np.random.default_rng(1).random((ROUNDS, 2))
    scenario = plain_scenario(POLICY, rewards)
    events = [[] if i == 0 else [i if i % 3 else -i] for i in range(ROUNDS)]
    scenario.event_offsets, scenario.event_items = event_arrays(events)
    return scenario


def by_hand(scenario, reference, seed):
    """The same counts from interpreted runs on the same stream."""
    pulls = np.zeros((3, 2, PROBES.size, ROUNDS + 1), np.int64)
    same, prefix, rng = np.zeros(ROUNDS, np.int64), np.zeros(ROUNDS, np.int64), seeded(seed)
    for _ in range(GAMES):
        runner, decisions = ScenarioRunner(POLICY, scenario), []
        state = runner.begin()
        for i in range(ROUNDS):
            decisions.append(runner.choose(state, i, rng))
            runner.apply_events(state, i, decisions, rng)
        alike = [tuple(row) == each for row, each in zip(reference, decisions, strict=True)]
        same += np.array(alike)
        prefix += np.logical_and.accumulate(alike)
        arms = np.array([arm for arm, _ in decisions])
        for probe, end in enumerate(PROBES):
            for arm in range(2):
                count = int((arms[:end] == arm).sum())
                pulls[arms[PLACE - 1], arm, probe, count] += 1
    pulls[-1] = pulls[:2].sum(axis=0)
    return pulls, same, prefix


def test_counts_are_those_of_interpreted_games():
    scenario = late_scenario()
    reference = np.array([(1 - i % 2, 1) for i in range(ROUNDS)])
    start = GameStart.of(POLICY, scenario)
    found = play_blocks(
        POLICY, scenario, scenario.rewards, [(GAMES, seeded(5))], PLACE, PROBES, reference, start
    )
    pulls, same, prefix = by_hand(scenario, reference, 5)
    assert np.array_equal(found.pulls, pulls)
    assert found.same.tolist() == same.tolist()
    assert found.prefix.tolist() == prefix.tolist()
    assert 0 < found.pulls[-1, 0, -1].max() < GAMES  # chance decides
    assert found.prefix[:8].tolist() == [GAMES] * 6 + [0] * 2  # then arm 0 alone is played
    assert found.same[7] == GAMES
    assert (found.prefix <= found.same).all()


def test_games_are_shared_among_streams_and_threads():
    """16 streams, whatever the number of threads: the sum of the blocks, played one by one."""
    scenario = plain_scenario(POLICY, np.random.default_rng(1).random((ROUNDS, 2)))
    for games in (37, 4_000):  # one thread, several threads
        found = play_scenario(
            POLICY, scenario, scenario.rewards, games, PLACE, PROBES, None, 7, 3, 1
        )
        sizes = [games // 16 + (number < games % 16) for number in range(16)]
        blocks = [(size, seeded(7, 3, 1, number)) for number, size in enumerate(sizes)]
        start = GameStart.of(POLICY, scenario)
        one = play_blocks(POLICY, scenario, scenario.rewards, blocks, PLACE, PROBES, None, start)
        assert np.array_equal(found.pulls, one.pulls)
        assert found.pulls[-1, 0].sum() == games * PROBES.size
        again = count_pulls_in_games(POLICY, scenario.rewards, games, PLACE, PROBES, 7, 3, 1)
        assert np.array_equal(again, one.pulls)


def test_the_first_rounds_of_a_state_are_not_played_again():
    """A start that was continued has its decisions, and a copy does not share its memory."""
    scenario = late_scenario()
    start = GameStart.of(POLICY, scenario)
    other = start.copied()
    other.decisions[:] = 1
    other.memory[:] = 1
    assert not start.decisions.any()
    assert not np.array_equal(start.memory, other.memory)
    assert start.from_scratch
    assert start.origin.size == 0
    begun = POLICY.kernels.begin(POLICY.constants())
    scenario.initial_state = begun
    kept = GameStart.of(POLICY, scenario)
    assert not kept.from_scratch
    assert np.array_equal(kept.origin, kept.memory)
    scenario.pending = np.array([[1, 4], [0, 5]])
    scenario.times = np.append(scenario.times, [1, 2])
    assert decision_array(scenario)[:, ROUNDS:].tolist() == [[1, 0], [4, 5]]
    assert decision_array(scenario).shape == (2, ROUNDS + 2)


def test_probes_begin_after_the_changed_round():
    assert probe_rounds(30, 14)[0] == 15
    assert probe_rounds(30, 14)[-1] == 30
    assert probe_rounds(30, 30).tolist() == [30]
    assert probe_rounds(4, 1).tolist() == [2, 3, 4]
    many = probe_rounds(100_000, 1)
    assert many.size == 24
    assert (np.diff(many) > 0).all()
    assert (np.diff(np.diff(many)[8:]) > 0).all()  # with growing distance


@pytest.mark.parametrize(("rounds", "count"), [(16, 21), (1_000, 11)])
def test_gaps_surround_the_one_at_which_arms_are_chosen_alike(monkeypatch, rounds, count):
    """Arm 0 has a share of pulls that grows with the gap from 0.2 to 0.8, between 0.1 and 0.3."""
    asked = []

    def pulls(policy, stream, games, place, probes, seed, *path):
        gap = stream[-1, 0] - stream[-1, 1]
        share = 0.2 + 0.6 * np.clip((gap - 0.1) / 0.2, 0.0, 1.0)
        asked.append((games, place, probes.tolist(), seed))
        counts = np.zeros((3, 2, 1, rounds + 1))
        low = int(share * rounds)
        counts[-1, 0, 0, low + 1] = games * (share * rounds - low)
        counts[-1, 0, 0, low] = games - counts[-1, 0, 0, low + 1]
        return counts

    monkeypatch.setattr(attacks, "count_pulls_in_games", pulls)
    gaps = undecided_gaps(bl.policy("kl-ucb", arms=2), rounds, 9)
    assert all(each == (200 if rounds == 16 else 100, 1, [rounds], 9) for each in asked)
    # The levels 0.1 and 0.9 are at 0.12 and 0.28; 2.5 of these widths on each side of the middle.
    expected = np.linspace(0.2 - 0.4, 0.2 + 0.4, count)
    found = sorted(set(gaps) - {-1.0, 0.0, 1.0})
    expected = expected[np.abs(expected) > 1e-3]
    assert len(found) >= expected.size
    assert {-1.0, 0.0, 1.0} <= set(gaps)
    assert min(found) == pytest.approx(-0.2, abs=2e-3)
    assert max(found) == pytest.approx(0.6, abs=2e-3)

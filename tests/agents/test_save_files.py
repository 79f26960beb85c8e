"""A save in a file names its successor once, also in other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import balaclava as bl
from balaclava.agents.save_files import SaveFile
from balaclava.errors import BalaclavaError, ResultsFileError, SavedStateError

BATCH = 4  # rewards of an arm until its first release


def new_agent(**settings: object) -> bl.Agent:
    return bl.policy("dp-imed", arms=2, epsilon=1.0, first_batch=BATCH).agent(**settings)  # type: ignore[arg-type]


def play(agent: bl.Agent, decisions: int) -> None:
    for _ in range(decisions):
        agent.tell(agent.ask(), 1.0)


def releases(agent: bl.Agent) -> int:
    return sum(estimate.rewards > 0 for estimate in agent.estimates())


@pytest.fixture
def saved(tmp_path: Path) -> tuple[bl.Agent, Path]:
    """An agent in the middle of its first batch, and its save."""
    agent, path = new_agent(), tmp_path / "agent.json"
    play(agent, 2)
    agent.save(path)
    return agent, path


def test_a_save_in_a_file_is_restored_once(saved: tuple[bl.Agent, Path]) -> None:
    _, path = saved
    agent = bl.restore(path)
    assert agent.status().decisions == 2
    with pytest.raises(SavedStateError, match=rf"continued by process {os.getpid()} on .*again"):
        bl.restore(str(path))
    play(agent, 20)
    assert releases(agent) > 0


def test_not_in_another_process_either(saved: tuple[bl.Agent, Path]) -> None:
    agent, path = saved
    code = "import sys, balaclava as bl; print(bl.restore(sys.argv[1]).status().decisions)"
    command = [sys.executable, "-c", code, str(path)]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stdout) == (0, "2\n"), first.stderr
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode != 0
    assert "was continued by process" in second.stderr
    with pytest.raises(SavedStateError, match="this agent must stop"):
        play(agent, 20)


def test_the_saved_agent_notices_before_anything_is_released_twice(
    saved: tuple[bl.Agent, Path],
) -> None:
    agent, path = saved
    restored = bl.restore(path)
    with pytest.raises(SavedStateError, match="this agent must stop"):
        play(agent, 2 * BATCH)
    assert 2 + BATCH <= agent._book.clock < 2 + 2 * BATCH  # it decides until it would release
    for leave in (agent.ask, agent.estimates, agent.status, agent.save):
        with pytest.raises(SavedStateError, match="this agent must stop"):
            leave()
    play(restored, 20)
    assert releases(restored) > 0


def test_a_save_is_not_restored_once_the_saved_agent_released(
    saved: tuple[bl.Agent, Path],
) -> None:
    agent, path = saved
    play(agent, 20)
    with pytest.raises(SavedStateError, match="was continued by process"):
        bl.restore(path)
    agent.save(path)
    assert bl.restore(path).status().decisions == 22


def test_a_save_is_restored_for_free_if_nothing_was_released_since(
    saved: tuple[bl.Agent, Path],
) -> None:
    agent, path = saved
    agent.ask()
    del agent  # it crashed
    assert bl.restore(path).guarantee.epsilon == 1.0


def test_a_second_successor_costs_epsilon_again_and_remembers_it(
    saved: tuple[bl.Agent, Path],
) -> None:
    _, path = saved
    assert bl.restore(path).guarantee.epsilon == 1.0
    assert bl.restore(path, again=True).guarantee.epsilon == 2.0
    third = bl.restore(path, again=True)
    assert third.guarantee.epsilon == 3.0
    assert bl.restore(third.save()).guarantee.epsilon == 3.0
    third.save(path)
    assert bl.restore(path).guarantee.epsilon == 3.0
    assert bl.restore(path, again=True).guarantee.epsilon == 4.0
    assert bl.restore(third.save(), again=True).guarantee.epsilon == 4.0


def test_the_saved_agent_notices_that_another_one_saved_to_the_same_file(
    saved: tuple[bl.Agent, Path],
) -> None:
    agent, path = saved
    restored = bl.restore(path)
    play(restored, 20)
    restored.save(path)
    with pytest.raises(SavedStateError, match="replaced by a save of another agent"):
        play(agent, 20)
    with pytest.raises(SavedStateError, match="must stop"):
        agent.save(path)
    assert bl.restore(path).status().decisions == 22


def test_policies_that_protect_single_decisions_release_with_each(tmp_path: Path) -> None:
    agent = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=0.01).agent()
    play(agent, 16)  # its start phase draws nothing
    agent.save(tmp_path / "agent.json")
    agent.ask()
    with pytest.raises(SavedStateError, match="was continued"):
        bl.restore(tmp_path / "agent.json")


def test_a_later_save_makes_earlier_ones_invalid(saved: tuple[bl.Agent, Path]) -> None:
    agent, path = saved
    later = path.with_name("later.json")
    agent.save(later)
    with pytest.raises(SavedStateError, match="was continued"):
        bl.restore(path)
    bl.restore(later)


def test_an_unchanged_agent_can_be_saved_repeatedly(saved: tuple[bl.Agent, Path]) -> None:
    agent, path = saved
    for _ in range(3):
        agent.save(path)
    assert sorted(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o077 == 0
    bl.restore(path)
    assert len(list(path.parent.iterdir())) == 2


def test_periodic_saves_leave_one_file(saved: tuple[bl.Agent, Path]) -> None:
    agent, path = saved
    for _ in range(10):
        play(agent, 5)
        agent.save(path)
    assert sorted(path.parent.iterdir()) == [path]


def test_of_many_at_once_one_restores(saved: tuple[bl.Agent, Path]) -> None:
    _, path = saved

    def attempt(_: int) -> bool:
        try:
            bl.restore(path)
        except SavedStateError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(16))) == 1


def test_a_damaged_save_names_no_successor(saved: tuple[bl.Agent, Path]) -> None:
    _, path = saved
    good = path.read_text()
    for bad in (good[:-9], "{}", "[]", good.replace('"clock": 2', '"clock": 3')):
        path.write_text(bad)
        with pytest.raises(SavedStateError):
            bl.restore(path)
    path.write_text(good)
    bl.restore(path)


def test_without_a_record_nothing_leaves(
    saved: tuple[bl.Agent, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the agent refuses; it continues once the record is written."""
    agent, _ = saved

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(SaveFile, "_create", full)
        with pytest.raises(SavedStateError, match="No space left"):
            play(agent, 20)
        with pytest.raises(SavedStateError, match="No space left"):
            agent.estimates()
    assert releases(agent) > 0
    play(agent, 20)


def test_paths_that_cannot_be_used(tmp_path: Path) -> None:
    agent = new_agent()
    with pytest.raises(ResultsFileError):
        agent.save(tmp_path / "missing" / "agent.json")
    for text in (json.dumps(agent.save()), " {}", json.dumps(json.dumps(agent.save()))):
        with pytest.raises(SavedStateError, match="as JSON, not a path") as error:
            bl.restore(text)
        assert "digest" not in str(error.value)
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(SavedStateError, match="cannot be read"):
            bl.restore(path)


@pytest.mark.parametrize(
    "settings", [{"seed": 1}, {"settle": "window", "patience": 3, "missing": 0.0}]
)
def test_seeded_agents_and_windows(settings: dict[str, object], tmp_path: Path) -> None:
    agent, path = new_agent(**settings), tmp_path / "agent.json"
    play(agent, 30)
    agent.save(path)
    restored = bl.restore(path)
    play(restored, 30)
    with pytest.raises(BalaclavaError):
        bl.restore(path)
    with pytest.raises(SavedStateError):
        agent.save(path)


def test_a_dict_is_not_tracked_and_older_saves_are_read(tmp_path: Path) -> None:
    """Saves without successors have the keys of before."""
    agent = new_agent()
    saved = json.loads(json.dumps(agent.save()))
    assert "restores" not in saved
    assert bl.restore(saved).guarantee.epsilon == bl.restore(saved).guarantee.epsilon == 1.0
    path = tmp_path / "older.json"
    path.write_text(json.dumps(saved))
    bl.restore(path)
    with pytest.raises(SavedStateError):
        bl.restore(path)

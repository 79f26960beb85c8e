"""A participant who returns counts once: with the first arm, and what follows in its window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.advice.log.log_reading import summarise_log
from balaclava.cli import main
from balaclava.errors import ParameterError
from balaclava.logs.cells import ReadOptions
from balaclava.logs.first_rows import first_rows
from balaclava.reporting.assessment_input import read_assessment

VIEWS = (
    "who,page,at\n"
    "a,y,2026-01-03\n"  # returns, to another arm; the file is not in the order of time
    "a,x,2026-01-01\n"
    "b,y,2026-01-01\n"
    "b,y,2026-01-02\n"
    "c,x,2026-01-02\n"
    "d,y,2026-01-20\n"  # its window does not end
)
OUTCOMES = (
    "who,at\n"
    "a,2026-01-04\n"  # after both views: counts for the first
    "b,2026-01-09\n"  # 8 days after the first view, 7 after the second
    "c,2026-01-01\n"  # before
    "e,2026-01-05\n"  # unknown
)
JOIN: dict[str, Any] = {
    **{"arm": "page", "time": "at", "by": "who", "window": "7d", "outcomes_as": "any"}
}


def write(folder: Path, views: str = VIEWS, outcomes: str = OUTCOMES) -> Path:
    (folder / "views.csv").write_text(views)
    (folder / "outcomes.csv").write_text(outcomes)
    return folder / "views.csv"


def summary(folder: Path, **changed: Any) -> Any:
    options = {**JOIN, "outcomes": folder / "outcomes.csv", "min_rows": 1, "per": "person"}
    return summarise_log(write(folder), **{**options, **changed})


def test_each_participant_counts_once_with_the_first_arm(tmp_path: Path) -> None:
    log = summary(tmp_path)
    assert {arm: rewards.tolist() for arm, rewards in log.logged.by_arm.items()} == {
        "x": [1.0, 0.0],
        "y": [0.0],
    }
    people = log.per_participant(bl.policy("dp-imed", arms=2, epsilon=1.0).guarantee)
    assert people.most == 1
    assert "a guarantee for one reward covers all" in people.findings()[0]
    said = " ".join(log.left_out)
    assert "2 of 6 rows were left out: they are later rows of 2 participants of 4." in said
    assert "1 participant of 4 (25.0%) got another arm later" in said
    assert "1 of 4 rows were left out: their window of 7d had not ended" in said
    assert (
        "3 outcomes of 4 have no row of the same who in the 7d before, and do not count: 1 with an "
        "id that no row has, 1 before the first row of their id, 1 after the window."
    ) in said
    rows = summary(tmp_path, per="row").logged.by_arm
    assert {arm: rewards.tolist() for arm, rewards in rows.items()} == {
        "x": [0.0, 0.0],
        "y": [1.0, 0.0, 1.0],
    }


def test_dropped_rows_are_counted_among_all(tmp_path: Path) -> None:
    drop = ReadOptions(drop_missing=True)
    views = VIEWS + ",x,2026-01-02\n"
    log = summarise_log(
        write(tmp_path, views), outcomes=tmp_path / "outcomes.csv", min_rows=1, per="person",
        read_options=drop, **JOIN,
    )  # fmt: skip
    assert any(text.startswith("1 of 7 rows (14.3%) lack a value") for text in log.left_out)


def test_files_may_end_later_than_their_last_row(tmp_path: Path) -> None:
    log = summary(tmp_path, until="2026-02-01")
    assert log.logged.by_arm["y"].tolist() == [0.0, 0.0]
    assert "had not ended" not in " ".join(log.left_out)
    with pytest.raises(ParameterError, match="until = '17' is not in the unit"):
        summary(tmp_path, until="17")


def test_doubled_rows_are_said_and_do_not_count() -> None:
    people, times = np.repeat(np.arange(30), 2), np.repeat(np.arange(30.0), 2)
    found = first_rows(people % 2, people, times)
    assert found.mask.sum() == 30
    assert found.findings[-1].startswith("30 rows repeat another row in arm, participant and time")
    assert first_rows(np.zeros(3, int), np.arange(3), None).findings == []


def test_one_file_keeps_the_first_row_of_each(tmp_path: Path) -> None:
    rows = "".join(f"p{i % 40},{'xy'[i % 2]},{int(i < 40)},{i}\n" for i in range(120))
    path = tmp_path / "log.csv"
    path.write_text("who,page,paid,at\n" + rows)
    names = {"arm": "page", "reward": "paid", "person": "who", "per": "person"}
    for time in ("at", None):
        log = summarise_log(path, min_rows=1, time=time, **names)
        assert log.rows == 40
        assert log.logged.rewards.tolist() == [1.0] * 40
    assert "in the order of the file" in log.left_out[0]
    with pytest.raises(ParameterError, match="--per person needs participants"):
        summarise_log(path, arm="page", reward="paid", per="person")
    with pytest.raises(ParameterError, match="--by who and --person page differ"):
        summary(tmp_path, person="page")


def test_a_release_is_for_a_participant(tmp_path: Path) -> None:
    """Which rows count depends on views only: an outcome after them all changes no count."""
    views = "who,page,at\n" + "".join(f"{i % 200},{'xy'[i % 2]},{i}\n" for i in range(400))
    bought = "who,at\n" + "".join(f"{i},{i + 5}\n" for i in range(0, 200, 2))
    terms = {**JOIN, "outcomes": tmp_path / "outcomes.csv", "window": "50"}
    del terms["arm"]
    released = [
        bl.release_log(write(tmp_path, views, text), "page", None, 1e6, per="person", **terms)
        for text in (bought, bought + "199,900\n")
    ]
    assert [[row.rewards for row in each] for each in released] == [[75, 75], [75, 75]]
    assert [round(row.mean, 3) for row in released[0]] == [1.0, 0.0]
    whole = bl.release_log(
        *(write(tmp_path, views, bought), "page", None, 1e6), per="person", until="249", **terms
    )
    assert [row.rewards for row in whole] == [100, 100]
    assert any("one id is one participant" in text for text in whole.guarantee.assumptions)


def test_the_commands_and_the_board(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    views = "who,page,at\n" + "".join(f"{i % 300},{'xy'[i % 2]},{i}\n" for i in range(600))
    bought = "".join(f"{i},{i + 5}\n" for i in range(300) if rng.random() < (0.1, 0.6)[i % 2])
    write(tmp_path, views, "who,at\n" + bought)
    board = tmp_path / "board.toml"
    words = ["compare", tmp_path / "views.csv", "--arm", "page", "--outcomes-as", "any"]
    words += ["--outcomes", tmp_path / "outcomes.csv", "--by", "who", "--time", "at"]
    words += ["--window", "50", "--per", "person", "--repetitions", "2", "--horizon", "200"]
    words += ["--out", tmp_path / "page.html", "--assessment", board]
    answer = CliRunner().invoke(main, [*map(str, words)])
    assert answer.exit_code == 0, answer.output
    inputs = read_assessment(board)
    assert inputs.rewards_per_person == 1
    assert inputs.environment is not None
    rows = (tmp_path / "board-log.csv").read_text().splitlines()[1:]
    assert len(rows) == 300
    assert sum(row.endswith("1.0") for row in rows) == bought.count("\n")

"""Rewards from a second file: each outcome counts once, for the right row, within its window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from balaclava.advice.log.log_reading import summarise_log
from balaclava.cli import main
from balaclava.errors import ParameterError
from balaclava.reporting.assessment_input import read_assessment

VIEWS = "who,page,at\n" + "".join(
    f"{who},{page},2026-01-{day:02} 12:00\n"
    for who, page, day in [
        ("a", "x", 1),
        ("a", "y", 3),
        ("b", "x", 3),
        ("c", "y", 9),
        ("d", "x", 15),
    ]
)
OUTCOMES = (
    "who,paid,at\n"
    "a,5,2026-01-03 12:00\n"  # at the time of the second view: counts for it
    "a,7,2026-01-02 09:00\n"
    "a,1,2026-01-02 10:00\n"
    "b,9,2026-01-03 11:59\n"  # before the view
    "b,2,2026-01-10 12:00\n"  # at the end of the window
    "c,4,2026-01-16 12:01\n"  # after it
    "nobody,8,2026-01-05 12:00\n"
)


def joined(folder: Path, outcomes: str = OUTCOMES, views: str = VIEWS, **changed: Any) -> Any:
    (folder / "views.csv").write_text(views)
    (folder / "outcomes.csv").write_text(outcomes)
    options = {"arm": "page", "reward": "paid", "time": "at", "by": "who", "window": "7d"}
    settings = {**options, "outcomes": folder / "outcomes.csv", "min_rows": 1, **changed}
    return summarise_log(folder / "views.csv", **settings)


def test_each_outcome_counts_once(tmp_path: Path) -> None:
    log = joined(tmp_path)
    assert log.logged.rewards.tolist() == [8.0, 5.0, 2.0, 0.0]
    assert log.logged.by_arm["x"].tolist() == [8.0, 2.0]
    assert log.participants is not None
    unmatched, incomplete = log.left_out  # many do not count: said first
    assert incomplete.startswith("1 of 5 rows were left out: their window of 7d had not ended")
    assert "That is 43%: are ids written alike" in unmatched
    assert unmatched.startswith("3 outcomes of 7 have no row of the same who in the 7d")


def test_rows_of_each_file_are_named_by_that_file(tmp_path: Path) -> None:
    for outcomes, views, words in [
        (OUTCOMES, VIEWS + ",x,2026-01-04 12:00\n", r"views.csv: column 'who' is empty in row 6 "),
        (
            OUTCOMES + ",1,2026-01-04 12:00\n",
            VIEWS,
            r"outcomes.csv: column 'who' is empty in row 8",
        ),
        (
            OUTCOMES + "a,,2026-01-04 12:00\n",
            VIEWS,
            r"outcomes.csv: column 'paid' is empty in row 8",
        ),
    ]:
        with pytest.raises(ParameterError, match=words):
            joined(tmp_path, outcomes, views)


def test_outcomes_without_a_value_are_dropped_and_counted(tmp_path: Path) -> None:
    from balaclava.logs.cells import ReadOptions

    drop = ReadOptions(drop_missing=True)
    gaps = OUTCOMES + ",1,2026-01-04 12:00\na,,2026-01-04 12:00\nb,1,\n"
    log = joined(tmp_path, gaps, VIEWS + "e,,2026-01-02 12:00\n", read_options=drop)
    assert log.logged.rewards.tolist() == joined(tmp_path).logged.rewards.tolist()
    assert any(text.startswith("3 of 10 outcomes (30.0%) lack a value") for text in log.left_out)
    assert any(text.startswith("1 of 5 rows") for text in log.left_out)
    with pytest.raises(ParameterError, match=r"outcomes.csv: each of its 1 rows lacks a value"):
        joined(tmp_path, "who,paid,at\na,,2026-01-03 12:00\n", read_options=drop)
    wrong = gaps + "a,much,2026-01-04 12:00\n"
    with pytest.raises(ParameterError, match=r"outcomes.csv without the 3 dropped: column 'paid'"):
        joined(tmp_path, wrong, read_options=drop)


@pytest.mark.parametrize(
    ("how", "rewards"), [("any", [1.0, 1.0, 1.0, 0.0]), ("count", [2.0, 1.0, 1.0, 0.0])]
)
def test_conversions_need_no_amounts(tmp_path: Path, how: str, rewards: list[float]) -> None:
    outcomes = OUTCOMES.replace(",7,", ",,").replace("paid", "note")
    log = joined(tmp_path, outcomes, reward=None, outcomes_as=how)
    assert log.logged.rewards.tolist() == rewards
    if how == "any":
        assert log.reward_range == (0.0, 1.0)
    with pytest.raises(ParameterError, match="--outcomes-as any: a row with an outcome"):
        joined(tmp_path, outcomes, reward=None)


def test_the_page_of_a_board_reads_the_joined_log(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    people, pages = range(400), rng.choice(["x", 'a "y", b'], 400)
    quoted = [page.replace('"', '""') for page in pages]
    views = "".join(f'{i},"{page}",2026-01-01\n' for i, page in zip(people, quoted, strict=True))
    paid = [i for i in people if rng.random() < (0.2 if pages[i] == "x" else 0.7)]
    outcomes = "".join(f"{i},1,2026-01-02\n" for i in paid) + "0,0,2026-02-01\n"
    joined(tmp_path, "who,paid,at\n" + outcomes, "who,page,at\n" + views)
    board = tmp_path / "board.toml"
    command = ["compare", tmp_path / "views.csv", "--arm", "page", "--reward", "paid"]
    command += ["--outcomes", tmp_path / "outcomes.csv", "--by", "who", "--time", "at"]
    command += ["--window", "7d", "--out", tmp_path / "page.html", "--assessment", board]
    answer = CliRunner().invoke(main, [*map(str, command), "--repetitions", "2"])
    assert answer.exit_code == 0, answer.output
    assert "board-log.csv, the rows that count with their rewards: keep it" in answer.output
    world = read_assessment(board).environment
    assert world is not None
    assert world.arm_labels == ('a "y", b', "x")
    means = [np.mean([i in set(paid) for i in people if pages[i] == arm])
             for arm in world.arm_labels]  # fmt: skip
    assert world.means.tolist() == pytest.approx(means)


def test_the_wait_for_outcomes_goes_to_the_board_and_can_be_played(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    views = "who,page,at\n" + "".join(f"{i},{'xy'[i % 2]},{i}\n" for i in range(1_000))
    paid = [i for i in range(1_000) if rng.random() < (0.1, 0.6)[i % 2]]
    bought = "".join(f"{i},{i + 5}\n" for i in paid)
    (tmp_path / "views.csv").write_text(views)
    (tmp_path / "outcomes.csv").write_text("who,at\n" + bought + "0,1100\n")
    board = tmp_path / "board.toml"
    command = ["compare", tmp_path / "views.csv", "--arm", "page", "--outcomes-as", "any"]
    command += ["--outcomes", tmp_path / "outcomes.csv", "--by", "who", "--time", "at"]
    command += ["--window", "100", "--out", tmp_path / "page.html", "--assessment", board]
    command += ["--repetitions", "2"]
    answer = CliRunner().invoke(main, [*map(str, command)])
    assert answer.exit_code == 0, answer.output
    words = " ".join(answer.output.split())
    assert "to play that wait, too, add --settle window --patience 100." in words
    settling = read_assessment(board).feedback.settling
    assert (settling.settle, settling.patience, settling.missing) == ("window", 100, 0.0)
    played = [*map(str, command), "--settle", "window", "--patience", "100"]
    answer = CliRunner().invoke(main, played)
    assert answer.exit_code == 0, answer.output
    assert "to play that wait" not in " ".join(answer.output.split())


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    """Against a plain loop, on 300 views and 400 outcomes in a random order."""
    rng = np.random.default_rng(4)
    views = [
        (int(rng.integers(40)), "xy"[rng.integers(2)], t) for t in rng.permutation(3_000)[:300]
    ]
    outcomes = [(int(rng.integers(45)), int(rng.integers(9)), int(rng.integers(3_000)))] * 2
    outcomes += [
        (int(rng.integers(45)), int(rng.integers(9)), int(t)) for t in rng.integers(0, 3_000, 398)
    ]
    expected = np.zeros(300)
    for who, paid, at in outcomes:
        before = [(t, i) for i, (w, _, t) in enumerate(views) if w == who and t <= at <= t + 200]
        if before:
            expected[max(before)[1]] += paid
    end = max(t for *_, t in views + outcomes)
    kept = [i for i, (*_, t) in enumerate(views) if t + 200 <= end]
    texts = (
        "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"
        for header, rows in (("who,paid,at", outcomes), ("who,page,at", views))
    )
    log = joined(tmp_path, *texts, window="200")
    assert log.logged.rewards.tolist() == expected[kept].tolist()


def test_people_are_counted_by_their_own_column(tmp_path: Path) -> None:
    """Views joined by their id: a guarantee for one view does not cover a person with more."""
    header, *rows = VIEWS.splitlines()
    views = "\n".join([f"view,{header}", *(f"{i},{row}" for i, row in enumerate(rows))]) + "\n"
    outcomes = "view,paid,at\n0,5,2026-01-02 12:00\n3,4,2026-01-16 12:00\n"
    people = [
        joined(tmp_path, outcomes, views, by="view", person=person).participants.tolist()
        for person in (None, "view", "who")
    ]
    assert people == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 0, 1, 2]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"window": None}, "--outcomes needs --by, --window and --time together; give --window"),
        ({"by": None, "time": None}, "give --by, --time"),
        ({"window": "500"}, "does not suit the time column; write 30m, 24h or 7d"),
        ({"window": "soon"}, "is not a length of time"),
        ({"window": "999d"}, "window = '999d' had not ended for any row"),
        ({"reward": "pay"}, "has no column 'pay'"),
        ({"by": "whom"}, "has no column 'whom'"),
        ({"person": "whom"}, r"has no column 'whom' \(person\)"),
    ],
)
def test_wrong_settings(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        joined(tmp_path, **changed)


def test_outcomes_with_other_times_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="is not in the unit of the decisions' times"):
        joined(tmp_path, "who,paid,at\na,5,17\n")


def test_missing_rewards_get_the_value_that_is_given(tmp_path: Path) -> None:
    from balaclava.environments.base import environment
    from balaclava.logs.cells import ReadOptions

    path = tmp_path / "log.csv"
    path.write_text("page,paid\n" + "x,\ny,2 %\nx,1 %\ny,NA\n" * 10)
    log = summarise_log(
        path, arm="page", reward="paid", min_rows=1, read_options=ReadOptions(missing=0.0)
    )
    assert log.logged.rewards[:4].tolist() == [0.0, 0.02, 0.01, 0.0]
    assert "20 empty rewards as 0" in log.logged.detected
    kept = ReadOptions(missing=0.5, drop_missing=True)
    rows = summarise_log(path, arm="page", reward="paid", min_rows=1, read_options=kept)
    assert rows.rows == 40
    world = environment("empirical", path=str(path), arm="page", reward="paid", missing=0.0)
    assert world.means.tolist() == pytest.approx([0.005, 0.01])
    with pytest.raises(ParameterError, match="missing = nan is not finite"):
        ReadOptions(missing=float("nan")).checked()


@pytest.mark.parametrize(
    ("outcomes", "message"),
    [
        ("A,5.75,2026-01-03 12:00\n", "such as 'A', is in .*, which has such as 'a'; write ids"),
        (
            "b,5.75,2026-01-01 12:00\n",
            "no outcome in .* has a row of the same who in the 7d before",
        ),
        ("", "has no rows; give one for each outcome"),
    ],
)
def test_outcomes_without_any_row_are_refused(tmp_path: Path, outcomes: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as refusal:
        joined(tmp_path, "who,paid,at\n" + outcomes)
    assert "5.75" not in str(refusal.value)


def test_few_outcomes_without_a_row_are_said_after_the_rows(tmp_path: Path) -> None:
    many = "a,1,2026-01-03 12:00\n" * 30
    assert joined(tmp_path, OUTCOMES + many).left_out[-1].startswith("3 outcomes of 37 have")


def test_outcomes_that_are_there_twice(tmp_path: Path) -> None:
    header, *rows = OUTCOMES.splitlines()
    twice = joined(tmp_path, "\n".join([header, *rows, *rows]) + "\n").left_out[0]
    assert twice.startswith("7 outcomes of 14 repeat another in who, time and reward")


@pytest.mark.parametrize("command", ["compare", "explore"])
def test_an_unknown_person_is_refused_by_both_commands(tmp_path: Path, command: str) -> None:
    joined(tmp_path)
    words = [command, tmp_path / "views.csv", "--outcomes", tmp_path / "outcomes.csv"]
    words += ["--arm", "page", "--reward", "paid", "--time", "at", "--by", "who", "--window", "7d"]
    answer = CliRunner().invoke(main, [*map(str, words), "--person", "whom"])
    assert answer.exit_code == 2
    assert "has no column 'whom' (person)" in answer.output

"""What-if questions: they are answered as `balaclava compare` answers them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from balaclava.advice.log.log_reading import summarise_log
from balaclava.advice.trial.what_if import Explorer, WhatIf
from balaclava.cli import main
from balaclava.errors import ParameterError
from tests.advice.logs_on_disk import write_log

ARMS: dict[str, Any] = {"old": [0, 1] * 30, "new": [1, 1, 0] * 30, "rare": [0, 0, 1] * 10}


def compared(*arguments: Any) -> Any:
    answer = CliRunner().invoke(main, ["compare", *map(str, arguments), "--json"])
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def test_an_answer_is_that_of_compare(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.csv", ARMS)
    explorer = Explorer(summarise_log(path, arm="page", reward="paid"))
    answer = explorer.answer(WhatIf(0.5, 500, 30, 2))
    how = ("--epsilon", 0.5, "--horizon", 500, "--delay", 30, "--arms", 2)
    expected = compared(path, "--arm", "page", "--reward", "paid", *how)
    rows = [(row["label"], row["mean"]) for row in expected["policies"]]
    assert [(row.label, row.mean) for row in answer.comparison.standings] == rows
    assert [arm["label"] for arm in expected["log"]["arms"]] == ["new", "old"]
    assert (
        "1 of 3 arms, those with the fewest rows, were left out, 30 rows (16.7%)."
        in (expected["log"]["findings"])
    )
    # The chart over epsilon has the same worlds: at the epsilon of the answer, the same regret.
    again = explorer.answer(WhatIf(1.0, 500, 30, 2))
    results = again.comparison.results
    same = again.by_epsilon.final_regret(f"{again.best}, ε=1")
    assert same.tolist() == results.final_regret(again.best).tolist()


def test_how_rewards_settle_holds_at_all_positions(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.csv", ARMS)
    late: dict[str, Any] = {"patience": 20, "settle": "window", "missing": 0.0}
    explorer = Explorer(
        summarise_log(path, arm="page", reward="paid"), law="fixed", lost=0.1, **late
    )
    for delay, words in ((10, "fixed delay of 10, 10 % lost, "), (0, "10 % lost, ")):
        answer = explorer.answer(WhatIf(1.0, 500, delay, 2))
        played = str(answer.comparison.results.feedback)
        assert played.endswith(f"{words}settled after a window of 20, missing counts 0")
    given = ("--horizon", 500, "--arms", 2, "--lost", 0.1, "--settle", "window", "--patience", 20)
    expected = compared(path, "--arm", "page", "--reward", "paid", *given, "--missing", 0)
    rows = [(row["label"], row["mean"]) for row in expected["policies"]]
    assert [(row.label, row.mean) for row in answer.comparison.standings] == rows
    words = ["compare", path, "--arm", "page", "--reward", "paid", *given]
    refusal = CliRunner().invoke(main, [*map(str, words)])
    assert "needs missing: the value that counts" in refusal.output


def test_settings_are_stops_of_their_sliders(tmp_path: Path) -> None:
    log = summarise_log(write_log(tmp_path / "log.csv", ARMS), arm="page", reward="paid")
    explorer = Explorer(log)
    assert explorer.start == WhatIf(1.0, 1_000, 0, 3)
    assert explorer.stops["arms"] == (2, 3)
    for wrong in ({"epsilon": 50.0}, {"horizon": 10**9}, {"delay": -1}, {"arms": 1}):
        with pytest.raises(ParameterError, match=r"is not one of \d"):
            explorer.answer(explorer.start._replace(**wrong))


def test_the_arms_with_the_most_rows(tmp_path: Path) -> None:
    rows = [
        f"{arm},{reward},{i},p{i % 7}" for i, (arm, reward) in enumerate([("a", 1), ("b", 0)] * 40)
    ]
    rows += [f"c,1,{100 + i},p0" for i in range(50)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["arm,paid,at,who", *rows]) + "\n", encoding="utf-8")
    log = summarise_log(path, arm="arm", reward="paid", time="at", person="who")
    two = log.with_most_rows(2)
    assert two.counts == {"a": 40, "c": 50}  # of equals, the first
    kept = log.logged.arms != 1
    assert two.times is not None
    assert log.times is not None
    assert np.array_equal(two.times, log.times[kept])
    assert two.participants is not None
    assert two.participants.size == two.logged.arms.size == two.logged.rewards.size == 90
    assert two.logged.rewards[two.logged.arms == 0].tolist() == two.samples[0].tolist()
    assert log.with_most_rows(3) is log
    for wrong in (1, 4):
        with pytest.raises(ParameterError, match="has 3 arms; give 2 or more"):
            log.with_most_rows(wrong)


def test_propensities_are_of_all_arms(tmp_path: Path) -> None:
    rows = [f"{arm},{i % 2},0.3333" for i in range(30) for arm in "abc"]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["arm,paid,chance", *rows]) + "\n", encoding="utf-8")
    log = summarise_log(path, arm="arm", reward="paid", propensity="chance")
    assert Explorer(log).stops["arms"] == (3,)
    with pytest.raises(ParameterError, match="cannot be combined with propensities"):
        log.with_most_rows(2)

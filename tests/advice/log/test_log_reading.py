"""Reading a log: which rows count, which are refused, and that no error repeats a reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from balaclava.advice.log.log_reading import summarise_log
from balaclava.cli import main
from balaclava.errors import ParameterError
from tests.advice.logs_on_disk import write_log

SECRET = "31.41592"  # a reward that must not be repeated


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def test_a_range_makes_it_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = write_log(tmp_path / "log.csv", {arm: 1 + rng.pareto(1.2, 100) for arm in "ab"})
    top = float(np.ceil(summarise_log(path, arm="page", reward="paid").observed_range[1]))
    log = summarise_log(path, arm="page", reward="paid", reward_range=(0.0, top))
    assert log.kind == "bounded"
    assert log.reward_range == (0.0, top)
    with pytest.raises(ParameterError, match="does not contain all rewards"):
        summarise_log(path, arm="page", reward="paid", reward_range=(0.0, 1.5))
    with pytest.raises(ParameterError, match="is empty"):
        summarise_log(path, arm="page", reward="paid", reward_range=(2.0, 1.0))


def test_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pa.table({"page": ["a", "b"] * 40, "paid": [0.0, 1.0] * 40})
    pq.write_table(table, tmp_path / "log.parquet")
    assert summarise_log(tmp_path / "log.parquet", arm="page", reward="paid").counts == {
        "a": 40,
        "b": 40,
    }
    with pytest.raises(ParameterError, match="no column 'pay'"):
        summarise_log(tmp_path / "log.parquet", arm="page", reward="pay")


GOOD = [0, 1] * 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; give a header and one row for each decision"),
        ("page,paid\n", "has no rows"),
        ("pages,paid\na,1\n", "has no column 'page' (arm); did you mean 'pages'?"),
        ("page,pay\na,1\n", "has no column 'paid' (reward); did you mean 'pay'?"),
        (f"a,{SECRET}\nb,2\n", "its first row does not name columns"),
        ("page,paid\n" + "a,1\n" * 30, "names one arm only"),
        ("page,paid\n" + "a,1\n" * 30 + "b,1\n" * 3, "arm 'b' has 3 rows; give at least 20"),
        ("page,paid\na,1\n" + f"b,{SECRET}x\n", "is not a number in row 2"),
        (
            "page,paid\na,1\nb,True\n",
            "neither yes nor no in row 1 (the first row after the header ",
        ),
        ("page,paid\na,1\nb,\n", "is empty in row 2"),
        ("page,paid\na,1\nb,inf\n", "is not finite in row 2"),
        ("page,paid\na,1\nb,-9e307\n", "is beyond 1e+100 in row 2"),
        (f"page,paid\na,1\nb,{SECRET},{SECRET}\n", "not a well-formed CSV"),
    ],
)
def test_errors_name_places_not_rewards(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content, encoding="utf-8")
    answer = invoke(path, "--arm", "page", "--reward", "paid")
    assert answer.exit_code == 2
    assert answer.output.count("\n") == 1
    assert message in answer.output
    assert SECRET not in answer.output
    assert list(tmp_path.iterdir()) == [path]  # nothing was written


def test_other_errors(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.csv", {"a": GOOD, "b": GOOD})
    answer = invoke(tmp_path / "none.csv", "--arm", "page", "--reward", "paid")
    assert "none.csv cannot be read: No such file" in answer.output
    answer = invoke(path, "--arm", "page", "--reward", "page")
    assert "arm and reward are both 'page'" in answer.output
    answer = invoke(path, "--arm", "page", "--reward", "paid", "--epsilon", "0")
    assert "epsilon = 0.0 is not allowed" in answer.output
    assert answer.exit_code == 2


def test_what_was_detected_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("Straße;paid\n" + "a;0,5\nb;1\n" * 30, encoding="utf-16")
    findings = summarise_log(path, arm="Straße", reward="paid").findings()
    assert "Read as CSV: text in utf-16, semicolons between cells, decimal commas." in findings
    answer = invoke(tmp_path, "--arm", "page", "--reward", "paid")
    assert answer.exit_code == 2
    assert "cannot be read: Is a directory" in answer.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sep", "::"], "sep = '::' is not allowed"),
        (["--encoding", "klingon"], "encoding = 'klingon' is not known"),
        (["--encoding", "ascii"], "is not text in ascii"),
        (["--sep", ";"], "has no column 'page'"),
        (["--propensity", "paid"], "reward and propensity are both 'paid'"),
        (["--propensity", "p"], "is not above 0 and at most 1 in row 1 (the first row after"),
        (["--time", "page2"], "is not a time; write 2026-01-31"),
        (["--clip", "3", "1"], "clip = (3, 1) is empty"),
        (["--min-rows", "1000"], "fewer than two arms with enough rows"),
        (["--repetitions", "1"], "not in the range"),
    ],
)
def test_wrong_calls(tmp_path: Path, options: list[str], message: str) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{arm},{i % 2},7,é{arm}" for arm in "ab" for i in range(30)]
    path.write_text("\n".join(["page,paid,p,page2", *rows]), encoding="utf-8")
    answer = invoke(path, "--arm", "page", "--reward", "paid", *options)
    assert answer.exit_code == 2
    assert message in answer.output

"""From a log to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import balaclava as bl
from balaclava.advice.compare import NOT_PRIVATE, compare
from balaclava.advice.findings import hill, read
from balaclava.cli import main
from balaclava.errors import ParameterError

SECRET = "31.41592"  # a reward that must not be repeated


def write(path: Path, arms: dict[str, Any], header: str = "page,paid") -> Path:
    rows = [f"{arm},{reward}" for arm, rewards in arms.items() for reward in rewards]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def a_log(path: Path, law: Any, rows: int = 400) -> Any:
    rng = np.random.default_rng(5)
    write(path, {arm: law(rng, i, rows) for i, arm in enumerate(("old", "new"))})
    return read(path, arm="page", reward="paid")


def test_a_log_of_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "clicks.csv", {"old": [0, 1] * 30, "<new>": [1, 1, 0] * 20})
    answer = invoke("clicks.csv", "--arm", "page", "--reward", "paid", "--repetitions", 5)
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith(NOT_PRIVATE)
    assert "120 rows, 2 arms, 60 to 60 rows an arm." in answer.output
    assert "all lie in [0, 1]" in answer.output
    for label in ("dp-imed (ε=1 per trajectory)", "ldp-ucb-bernoulli (ε=1 per report)"):
        assert f"- {label}: " in answer.output
    text = (tmp_path / "clicks-report.html").read_text(encoding="utf-8")
    assert "Looking is not private." in text
    assert "What the log says" in text
    assert "Which policies fit, and why" in text
    assert "arm &lt;new&gt;" in text
    assert "<new>" not in text
    assert "path = &quot;clicks.csv&quot;" in text  # how to run it again


@pytest.mark.parametrize(
    ("law", "kind"),
    [
        (lambda rng, i, n: rng.integers(1, 6, n), "bounded"),  # grades
        (lambda rng, i, n: 10 + i + rng.standard_normal(n), "bounded"),
        (lambda rng, i, n: rng.uniform(-4, 3, n), "bounded"),
        (lambda rng, i, n: 1 + rng.pareto(1.5, n), "heavy-tailed"),
        (lambda rng, i, n: rng.standard_t(2.0, n), "heavy-tailed"),
        (lambda rng, i, n: np.exp(1.5 * rng.standard_normal(n)), "heavy-tailed"),
    ],
)
def test_what_rewards_look_like(tmp_path: Path, law: Any, kind: str) -> None:
    log = a_log(tmp_path / "log.csv", law)
    assert log.kind == kind
    low, high = log.world.reward_range
    assert log.reward_range[0] <= low
    assert high <= log.reward_range[1] <= 2.5 * max(high, 1e-9)
    if kind == "heavy-tailed":
        assert 1 < log.moment_order <= 2
        assert log.world.moment(log.moment_order) <= log.moment_bound * (1 + 1e-9)


def test_hill_covers_the_index() -> None:
    """200 logs of a power law: a 95 % interval holds the index in at least 85 % of them.

    That fewer do by chance has a probability below 1e-6, if 95 % is right.
    """
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        tail = hill(1 + rng.pareto(1.8, 2_000))
        assert tail is not None
        held += tail.low <= 1.8 <= tail.high
    assert held >= 170
    # Scale and sign do not matter.
    sample = 1 + rng.pareto(1.8, 500)
    assert hill(-7 * sample).index == pytest.approx(hill(sample).index)  # type: ignore[union-attr]
    assert hill(np.zeros(100)) is None
    assert hill(np.ones(100)) is None
    assert hill(np.arange(1.0, 15.0)) is None


def test_heavy_tails_get_policies_that_truncate(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = tmp_path / "orders.csv"
    write(path, {"old": 1 + rng.pareto(1.5, 200), "new": 2 + rng.pareto(1.5, 200)})
    out = tmp_path / "page.html"
    answer = invoke(
        *(path, "--arm", "page", "--reward", "paid", "--out", out),
        *("--repetitions", 2, "--horizon", 500),
    )
    assert answer.exit_code == 0, answer.output
    assert "Rewards look heavy-tailed: tail index" in answer.output
    private = ("dpr-batch-ucb", "dpr-adaptive-ucb", "ldpr-batch-ucb")
    tuned = "robust-ucb(estimator=median-of-means, radius_scale=0.03)"
    for name in (tuned, "dpr-batch-ucb(radius_scale=0.2)", *private):
        assert f"\n{name} " in answer.output  # a line of the table
    assert f"{tuned} is no recommendation" in out.read_text(encoding="utf-8")
    largest = max(float(line.split(",")[1]) for line in path.read_text().splitlines()[1:])
    for told in (answer.output, out.read_text(encoding="utf-8")):
        assert f"{largest:.4g}" not in told


def test_a_range_makes_it_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = write(tmp_path / "log.csv", {arm: 1 + rng.pareto(1.2, 100) for arm in "ab"})
    top = float(np.ceil(read(path, arm="page", reward="paid").world.reward_range[1]))
    log = read(path, arm="page", reward="paid", reward_range=(0.0, top))
    assert log.kind == "bounded"
    assert log.reward_range == (0.0, top)
    with pytest.raises(ParameterError, match="does not hold all rewards"):
        read(path, arm="page", reward="paid", reward_range=(0.0, 1.5))
    with pytest.raises(ParameterError, match="is empty"):
        read(path, arm="page", reward="paid", reward_range=(2.0, 1.0))


def test_rewards_outside_the_range_can_be_clipped(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = write(tmp_path / "log.csv", {arm: 1 + rng.pareto(1.2, 100) for arm in "ab"})
    log = read(path, arm="page", reward="paid", reward_range=(0.0, 3.0), outside="clip")
    assert 0.1 < log.clipped < 0.5
    assert any("outside it clipped" in sentence for sentence in log.findings())
    done = compare(log, repetitions=1, horizon=500)
    for advice in done.advice.values():
        assert advice.policy.clips
        assert "rewards outside [0, 3] are clipped to it" in advice.guarantee.explain()
    with pytest.raises(ParameterError, match="needs a range"):
        read(path, arm="page", reward="paid", outside="clip")
    answer = invoke(path, *["--arm", "page", "--reward", "paid", "--range", "0", "3"])
    assert "have the others clipped to it (--outside clip)" in answer.output


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"page": ["a", "b"] * 40, "paid": [0.0, 1.0] * 40})
    pq.write_table(table, tmp_path / "log.parquet")
    assert read(tmp_path / "log.parquet", arm="page", reward="paid").counts == {"a": 40, "b": 40}
    with pytest.raises(ParameterError, match="no column 'pay'"):
        read(tmp_path / "log.parquet", arm="page", reward="pay")


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
    path = write(tmp_path / "log.csv", {"a": GOOD, "b": GOOD})
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
    findings = read(path, arm="Straße", reward="paid").findings()
    assert "Read as: text in utf-16, semicolons between cells, decimal commas." in findings
    answer = invoke(tmp_path, "--arm", "page", "--reward", "paid")
    assert answer.exit_code == 2
    assert "cannot be read: Is a directory" in answer.output


def test_a_page_that_cannot_be_written_costs_no_work(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", {"a": GOOD, "b": GOOD})
    for out, said in (
        (tmp_path / "none" / "page.html", "cannot be written: No such file or directory"),
        (tmp_path, "is a folder; give the name of a file"),
    ):
        answer = invoke(path, "--arm", "page", "--reward", "paid", "--out", out)
        assert answer.exit_code == 2
        assert answer.output.count("\n") == 1  # nothing was played
        assert said in answer.output


def test_a_log_that_decides_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log.csv", lambda rng, i, n: [3] * n)
    assert any("nothing to be learned" in sentence for sentence in log.findings())
    wide = a_log(tmp_path / "log.csv", lambda rng, i, n: 1000 + i + rng.standard_normal(n))
    assert wide.kind == "bounded"
    assert any("a small part of that range" in sentence for sentence in wide.findings())
    fine = a_log(tmp_path / "log.csv", lambda rng, i, n: rng.uniform(i, 4, n))
    assert len(fine.findings()) == 2


def test_the_horizon_is_that_of_the_log(tmp_path: Path) -> None:
    log = read(
        write(tmp_path / "log.csv", {"a": GOOD * 40, "b": GOOD * 10}), arm="page", reward="paid"
    )
    done = compare(log, repetitions=1, epsilon=2.0)
    assert done.results.horizon == log.rows == 2_000
    assert {str(a.guarantee) for a in done.advice.values()} == {
        *("ε=2 per trajectory", "ε=2 per decision", "ε=2 per report")
    }
    assert isinstance(done.results.policies["imed"], bl.Policy)

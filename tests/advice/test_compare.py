"""From a log to a report."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import balaclava as bl
from balaclava.advice.log.arm_estimates import (
    compare_best_arm,
    estimate_arm,
    estimate_weighted_arms,
)
from balaclava.advice.log.drift import drift_findings, read_times
from balaclava.advice.log.log_reading import summarise_log
from balaclava.advice.log.participants import count_participants
from balaclava.advice.log.tail_index import hill_estimate
from balaclava.advice.log.worlds import draw_worlds
from balaclava.advice.trial.compare import LOG_NOT_PRIVATE, compare
from balaclava.cli import main
from balaclava.cli.terminal import finite_json
from balaclava.errors import ParameterError
from balaclava.reporting.assessment_input import read_assessment

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
    return summarise_log(path, arm="page", reward="paid")


def test_a_log_of_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "clicks.csv", {"old": [0, 1] * 30, "<new>": [1, 1, 0] * 20})
    answer = invoke("clicks.csv", "--arm", "page", "--reward", "paid", "--repetitions", 5)
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("This log does not tell which arm is best: '<new>' has ")
    assert " ".join(LOG_NOT_PRIVATE.split()) in " ".join(answer.output.split())
    assert "120 rows, 2 arms, 60 to 60 rows an arm." in answer.output
    assert "all lie in [0, 1]" in answer.output
    for label in ("at random", "imed", "dp-imed", "dp-ftpl-new", "ldp-ucb-bernoulli"):
        assert f"\n{label}  " in answer.output  # a line of the table
    assert "\nold    60    0.5     0.3773 to 0.6227\n" in answer.output  # Wilson's interval
    text = (tmp_path / "clicks-report.html").read_text(encoding="utf-8")
    assert "Looking is not private." in text
    assert "What the log says" in text
    assert "Which policies fit, and why" in text
    assert "&lt;new&gt;" in text
    assert "<new>" not in text
    assert "outside epsilon" in text


def test_from_a_log_to_the_file_for_a_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "clicks.csv", {"old": [0, 0, 0, 1] * 30, 'the "new"': [1, 1, 0] * 40})
    how = ("clicks.csv", "--arm", "page", "--reward", "paid", "--repetitions", 5)
    answer = invoke(*how, "--assessment", "board.toml")
    assert answer.exit_code == 0, answer.output
    code = "bl.policy('dp-imed', arms=['old', 'the \"new\"'], epsilon=1.0)"
    assert f"\nuse:      {code}\n" in answer.output
    assert "\nrisk:     it loses " in answer.output
    assert code in html.unescape((tmp_path / "clicks-report.html").read_text(encoding="utf-8"))
    dossier = read_assessment("board.toml")
    assert repr(dossier.policy) == repr(eval(code, {"bl": bl}))
    assert dossier.environment is not None
    assert dossier.environment.means.tolist() == pytest.approx([1 / 4, 2 / 3])
    assert (dossier.horizon, dossier.title) == (1000, "Policies for clicks.csv")
    answer = invoke(*how, "--assessment", "board.toml", "--min-rows", 3)
    assert "remove rare arms" in answer.output


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
    low, high = log.observed_range
    assert log.reward_range[0] <= low
    assert high <= log.reward_range[1] <= 2.5 * max(high, 1e-9)
    if kind == "heavy-tailed":
        assert 1 < log.moment_order <= 2
        assert log.moment(log.moment_order) <= log.moment_bound * (1 + 1e-9)


def test_hill_covers_the_index() -> None:
    """200 logs of a power law: a 95 % interval holds the index in at least 85 % of them.

    That fewer do by chance has a probability below 1e-6, if 95 % is right.
    """
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        tail = hill_estimate(1 + rng.pareto(1.8, 2_000))
        assert tail is not None
        held += tail.low <= 1.8 <= tail.high
    assert held >= 170
    # Scale and sign do not matter.
    sample = 1 + rng.pareto(1.8, 500)
    assert hill_estimate(-7 * sample).index == pytest.approx(hill_estimate(sample).index)  # type: ignore[union-attr]
    assert hill_estimate(np.zeros(100)) is None
    assert hill_estimate(np.ones(100)) is None
    assert hill_estimate(np.arange(1.0, 15.0)) is None


@pytest.mark.slow
def test_heavy_tails_get_policies_that_truncate(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = tmp_path / "orders.csv"
    write(path, {"old": 1 + rng.pareto(1.5, 200), "new": 2 + rng.pareto(1.5, 200)})
    out = tmp_path / "page.html"
    answer = invoke(
        *(path, "--arm", "page", "--reward", "paid", "--out", out),
        *("--repetitions", 2, "--horizon", 500, "--clip", 0, 20),
    )
    assert answer.exit_code == 0, answer.output
    assert "Rewards look heavy-tailed: tail index" in answer.output
    private = ("dpr-batch-ucb", "dpr-adaptive-ucb", "ldpr-batch-ucb")
    for name in (*private, "dp-imed(clipped)", "at random"):
        assert f"\n{name} " in answer.output  # a line of the table
    assert "Clipping to [0, 20] touches" in answer.output
    moves = "the averages of 'old' by -"  # most first
    assert moves in " ".join(answer.output.split())
    # A baseline beside a private policy is tuned as it is.
    assert "\nrobust-ucb(radius_scale=" in answer.output
    largest = max(float(line.split(",")[1]) for line in path.read_text().splitlines()[1:])
    for told in (answer.output, out.read_text(encoding="utf-8")):
        assert f"{largest:.4g}" not in told


def test_a_range_makes_it_bounded(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = write(tmp_path / "log.csv", {arm: 1 + rng.pareto(1.2, 100) for arm in "ab"})
    top = float(np.ceil(summarise_log(path, arm="page", reward="paid").observed_range[1]))
    log = summarise_log(path, arm="page", reward="paid", reward_range=(0.0, top))
    assert log.kind == "bounded"
    assert log.reward_range == (0.0, top)
    with pytest.raises(ParameterError, match="does not hold all rewards"):
        summarise_log(path, arm="page", reward="paid", reward_range=(0.0, 1.5))
    with pytest.raises(ParameterError, match="is empty"):
        summarise_log(path, arm="page", reward="paid", reward_range=(2.0, 1.0))


@pytest.mark.slow
def test_rewards_outside_the_range_can_be_clipped(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = write(tmp_path / "log.csv", {arm: 1 + rng.pareto(1.2, 100) for arm in "ab"})
    log = summarise_log(path, arm="page", reward="paid", reward_range=(0.0, 3.0), outside="clip")
    assert 0.1 < log.clipped < 0.5
    assert any("outside it are clipped" in sentence for sentence in log.findings())
    done = compare(log, repetitions=2, horizon=500)
    for candidate in done.candidates.values():
        assert candidate.policy.clips
        promise = candidate.policy.guarantee.explain()
        assert "rewards outside [0, 3] are clipped to it" in promise
    with pytest.raises(ParameterError, match="needs a range"):
        summarise_log(path, arm="page", reward="paid", outside="clip")
    answer = invoke(path, *["--arm", "page", "--reward", "paid", "--range", "0", "3"])
    assert "clip the others to it with --outside clip" in answer.output


def test_limits_from_public_data(tmp_path: Path) -> None:
    """Quantiles of another file, which has no arms; their bias is shown."""
    rng = np.random.default_rng(5)
    path = write(tmp_path / "log.csv", {arm: 1 + rng.pareto(1.2, 100) for arm in "ab"})
    public = tmp_path / "public.csv"
    public.write_text("year,paid\n" + "".join(f"1999,{i}\n" for i in range(1001)))
    quantiles = {"clip_from": public, "clip_quantiles": (0.001, 0.005)}
    log = summarise_log(path, arm="page", reward="paid", **quantiles)  # type: ignore[arg-type]
    assert (log.kind, log.clip) == ("heavy-tailed", (1.0, 5.0))
    text = " ".join(log.findings())
    assert "Clipping to [1, 5] touches" in text
    shift = float(np.mean(np.minimum(log.samples[0], 5) - log.samples[0]))
    assert f"'a' by {shift:+.2g} ± " in text
    assert "0.1 % and 0.5 % quantiles of 1,001 rewards in" in text
    assert "They are few for such quantiles." in text  # one reward is below the lower one
    for wrong, message in (
        ({"clip": (0.0, 1.0), "clip_from": public}, "--clip and --clip-from are both given"),
        ({"clip_from": public, "clip_quantiles": (0.9, 0.1)}, "the smaller first"),
        ({"clip_from": "-"}, "clip-from cannot be a pipe"),
        ({"clip_from": path}, "is the log itself"),
    ):
        with pytest.raises(ParameterError, match=message):
            summarise_log(path, arm="page", reward="paid", **wrong)  # type: ignore[arg-type]


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
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
    findings = summarise_log(path, arm="Straße", reward="paid").findings()
    assert "Read as CSV: text in utf-16, semicolons between cells, decimal commas." in findings
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


@pytest.mark.slow
def test_a_log_that_decides_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log.csv", lambda rng, i, n: [3] * n)
    assert not log.best_arm_test.conclusive
    done = compare(log, repetitions=2, horizon=100)
    assert done.fitting == {}
    assert done.prices == ()
    json.dumps(finite_json(done.to_dict()), allow_nan=False)
    wide = a_log(tmp_path / "log.csv", lambda rng, i, n: 1000 + i + rng.standard_normal(n))
    assert wide.kind == "bounded"
    assert any("a small part of that range" in sentence for sentence in wide.findings())
    fine = a_log(tmp_path / "log.csv", lambda rng, i, n: rng.uniform(i, 4, n))
    assert len(fine.findings()) == 3


def test_the_horizon_is_that_of_the_log(tmp_path: Path) -> None:
    log = summarise_log(
        write(tmp_path / "log.csv", {"a": GOOD * 40, "b": GOOD * 10}), arm="page", reward="paid"
    )
    done = compare(log, repetitions=2, epsilon=2.0)
    assert done.results.horizon == log.rows == 2_000
    assert {str(each.policy.guarantee) for each in done.candidates.values()} == {
        *("ε=2 per trajectory", "ε=2 per decision", "ε=2 per report")
    }
    assert isinstance(done.results.policies["imed"], bl.Policy)


def test_identical_coins_are_not_told_apart() -> None:
    """1,000 logs of three equal coins: at most 8 % name a best arm, where 5 % or fewer should.

    More than that by chance has a probability below 1e-4.
    """
    rng = np.random.default_rng(4)
    named = 0
    for _ in range(1_000):
        rows = [
            estimate_arm(name, (rng.random(100) < 0.3).astype(float), None, None) for name in "abc"
        ]
        named += compare_best_arm(rows, binary=True).conclusive
    assert named <= 80


def test_intervals_hold_the_mean() -> None:
    """500 logs of each kind: a 95 % interval holds the mean in at least 90 % of them.

    That fewer do by chance has a probability below 1e-5, if 95 % is right.
    """
    rng = np.random.default_rng(6)
    held = np.zeros(3)
    people = np.repeat(np.arange(100), 3)
    for _ in range(500):
        clicks = estimate_arm("a", (rng.random(80) < 0.04).astype(float), None, None)
        held[0] += clicks.low <= 0.04 <= clicks.high
        each = np.repeat(rng.standard_normal(100), 3) + 0.1 * rng.standard_normal(300)
        clustered = estimate_arm("a", each, None, people)
        held[1] += clustered.low <= 0 <= clustered.high
        # Arm a is played on those who like it: 0.8 of the time, on others 0.2.
        likes = rng.random(1_000) < 0.5
        chance = np.where(likes, 0.8, 0.2)
        played = rng.random(1_000) < chance
        rewards = (rng.random(1_000) < np.where(likes, 0.9, 0.1)).astype(float)
        logged = np.where(played, chance, 1 - chance)
        row, _ = estimate_weighted_arms(["a", "b"], np.where(played, 0, 1), rewards, logged)
        assert rewards[played].mean() > 0.6  # what the log shows, where the truth is 0.5
        held[2] += row.snips_low <= 0.5 <= row.snips_high and row.ips_low <= 0.5 <= row.ips_high
    assert (held[:2] >= 450).all()
    assert held[2] >= 430  # both at once


def test_worlds_differ_as_much_as_the_log_leaves_open(tmp_path: Path) -> None:
    """400 draws: their spread is the standard error of the arms, within a fifth."""
    rng = np.random.default_rng(5)
    for name, law in (("clicks", rng.integers(0, 2, 200)), ("sizes", rng.uniform(0, 9, 200))):
        path = write(tmp_path / f"{name}.csv", {"a": law, "b": law[::2]})
        log = summarise_log(path, arm="page", reward="paid")
        worlds = draw_worlds(log, 1)
        means = np.empty((400, 2))
        for i in range(400):
            world, order, _ = next(worlds)
            means[i, order] = world.means
        errors = np.array([row.error for row in log.arms])
        np.testing.assert_allclose(means.std(axis=0), errors, rtol=0.2)
        np.testing.assert_allclose(
            means.mean(axis=0), [row.mean for row in log.arms], atol=0.2 * errors.max()
        )


def test_drift_is_seen_and_its_absence_too() -> None:
    rng = np.random.default_rng(7)
    times, arms = np.arange(2_000.0), rng.integers(0, 2, 2_000)
    steady = rng.standard_normal(2_000)
    assert "No drift" in drift_findings(["a", "b"], arms, steady, times)[0]
    sentences = drift_findings(["a", "b"], arms, steady + (arms == 1) * times / 2_000, times)
    assert sentences[0].startswith("Arm 'b' changes over time")
    assert "has no drift in it" in sentences[-1]
    later = (rng.random(2_000) < times / 2_000).astype(int)
    (moved,) = drift_findings(["a", "b"], later, steady, times)
    assert moved.startswith("Which arm was played changes over time ('")


def test_drift_is_rarely_seen_where_there_is_none() -> None:
    """400 steady logs of five arms: at most 8.5 % show a drift of any kind, where 5 % should.

    More than that by chance has a probability below 2e-3.
    """
    rng = np.random.default_rng(17)
    times, names = np.arange(500.0), list("abcde")
    seen = 0
    for _ in range(400):
        rewards = (rng.random(500) < 0.2).astype(float)
        sentences = drift_findings(names, rng.integers(0, 5, 500), rewards, times)
        seen += "No drift" not in sentences[0]
    assert seen <= 34


def test_weighted_intervals_of_rare_clicks() -> None:
    """500 logs, 250 rows an arm, a click in 100: 95 % intervals hold the mean in 91 % or more.

    Fewer by chance has a probability below 1e-4. No limit is below 0, and none is 0 to 0.
    """
    rng = np.random.default_rng(18)
    held = np.zeros(2)
    for _ in range(500):
        arms = rng.integers(0, 4, 1_000)
        rewards = (rng.random(1_000) < 0.01).astype(float)
        row, *_ = estimate_weighted_arms(list("abcd"), arms, rewards, np.full(1_000, 0.25))
        assert 0 <= row.ips_low < row.ips_high
        assert 0 <= row.snips_low < row.snips_high
        held += [row.ips_low <= 0.01 <= row.ips_high, row.snips_low <= 0.01 <= row.snips_high]
    assert (held >= 455).all()


def test_people_and_caps() -> None:
    people = np.array([0, 0, 0, 1, 2, 2])
    arms, rewards = np.array([0, 1, 1, 0, 1, 0]), np.array([1.0, 0, 0, 1, 1, 0])
    counted = count_participants(["a", "b"], arms, rewards, people, bl.Guarantee(epsilon=0.5))
    assert (counted.people, counted.median, counted.most) == (3, 2, 3)
    assert counted.guarantee == "ε=1.5 per trajectory for 3 rewards"
    assert [cap.rewards for cap in counted.caps] == [1, 2, 3]
    assert counted.caps[0].rows_kept == 0.5
    assert counted.caps[0].guarantee == "ε=0.5 per trajectory"
    assert counted.caps[1].people_cut == pytest.approx(1 / 3)


def test_everything_at_once_through_a_pipe(tmp_path: Path) -> None:
    """Further columns, odd notation, missing values, rare arms, and JSON."""
    rng = np.random.default_rng(8)
    lines = ["wer;wann;Arm;Lohn;Chance"]
    for i in range(300):
        arm = "ab"[i % 2]
        lines.append(f"p{i % 70};2026-01-{1 + i // 12:02};{arm};{rng.integers(0, 2)};0,5")
    lines += ["p1;2026-01-30;a;NA;0,5", "p1;2026-01-30;;1;0,5", *["p2;2026-01-31;c;1;0,5"] * 3]
    data = "\n".join(lines).encode("utf-16")
    answer = CliRunner().invoke(
        main,
        [
            *("compare", "-", "--arm", "Arm", "--reward", "Lohn", "--person", "wer", "--json"),
            *("--time", "wann", "--propensity", "Chance", "--drop-missing", "--min-rows", "20"),
            *("--repetitions", "2", "--horizon", "100"),
        ],
        input=data,
    )
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["log"]["rows"] == 300
    assert [row["label"] for row in told["log"]["arms"]] == ["a", "b"]
    assert told["log"]["detected"] == ["text in utf-16", "semicolons between cells"]
    assert told["log"]["left_out"][0].startswith("2 of 305 rows (0.7%) lack a value")
    assert told["log"]["left_out"][1].startswith("1 of 3 arms have fewer than 20 rows")
    assert told["people"]["most"] == 5
    assert told["log"]["weighted"][0]["snips"] == pytest.approx(told["log"]["arms"][0]["mean"])
    assert {row["label"] for row in told["policies"]} > {"at random", "imed", "dp-imed"}


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


@pytest.mark.parametrize(
    "times",
    [["1", "2.5"], ["2026-01-01", "2026-01-02"], ["2026-01-01T10:00Z", "2026-01-01T11:00Z"]],
)
def test_times_as_people_write_them(times: list[str]) -> None:
    first, second = read_times("log.csv: column 'when'", pa.array(times))
    assert first < second
    with pytest.raises(ParameterError, match="is not a time"):
        read_times("log.csv: column 'when'", pa.array(["31.01.2026"]))

"""Results: the table, the picture, the file, and experiment files."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import balaclava as bl
from balaclava._core.atomic_files import atomically
from balaclava.errors import (
    ExperimentFileError,
    IncompatibleError,
    ParameterError,
    ResultsFileError,
    UnknownNameError,
)
from balaclava.experiments.experiment_file import read_plan
from balaclava.policies.base import POLICIES
from balaclava.reporting.report_data import experiment_toml
from balaclava.simulation.results import Results, Run
from tests.experiments.settings import simulated

WORLD = bl.environment("bernoulli", means=[0.25, 0.75, 0.75])


def make(counts: dict[str, int], checkpoints: tuple[int, ...] = (10, 100)) -> Results:
    """Results as a simulation leaves them, with that many repetitions for each label."""
    policies = {label: bl.policy("ucb1", arms=3) for label in counts}
    results = Results.empty(
        policies, WORLD, horizon=checkpoints[-1], seed=7, checkpoints=np.array(checkpoints)
    )
    for label, count in counts.items():
        for repetition in range(count):
            bad = 10 * (repetition + 1)
            regret = np.linspace(0.5, bad / 2, len(checkpoints))
            pulls = np.array([bad, 60, 100 - 60 - bad])
            results.add(Run(label, repetition, regret, pulls))
    return results


class PrivatePolicy(bl.Policy):
    """Claims something, so that tables and plots have a scope to show."""

    name = "test-private"
    model = "central"
    scope = "trajectory"
    kernels = bl.policy("ucb1", arms=1).kernels

    @property
    def guarantee(self) -> bl.Guarantee:
        return bl.Guarantee(epsilon=1.0)


def with_private(results: Results, label: str) -> Results:
    results.policies[label] = PrivatePolicy(arms=3)
    return results


def test_summary_of_known_numbers() -> None:
    row = make({"a": 3}).summary()[0]  # final regret 5, 10, 15
    assert (row.label, row.guarantee, row.repetitions) == ("a", "not private", 3)
    assert (row.mean, row.q50, row.q25, row.q75) == (10.0, 10.0, 7.5, 12.5)
    assert (row.q05, row.q95) == pytest.approx((5.5, 14.5))
    assert row.plus_minus == pytest.approx(4.302653 * 5 / math.sqrt(3))
    assert row.best_arm_share == pytest.approx(1 - 60 / 300)  # both best arms count


def test_a_summary_for_a_paper() -> None:
    summary = with_private(make({"a_b": 3, "x|y": 2}), "x|y").summary()
    header, rule, first, second = summary.to_markdown().splitlines()
    assert header.startswith("| policy | privacy | repetitions |")
    assert " | 5 % quantile | 25 % quantile | " in header  # no title says it
    assert rule.startswith("| --- | --- | ---: |")
    assert first.startswith("| a_b | not private | 3 |")
    assert second.startswith(r"| x\|y | ε=1 per trajectory | 2 |")
    latex = summary.to_latex()
    assert latex.startswith("\\begin{tabular}{llrrrrrrrrr}\n\\toprule\npolicy & privacy &")
    assert "\na\\_b & not private & 3 & 10.0 &" in latex
    assert r"$\varepsilon$=1 per trajectory" in latex
    assert "%" not in latex.replace(r"\%", "")
    assert latex.endswith("\\bottomrule\n\\end{tabular}\n")
    narrow = summary.to_latex(["policy", "mean regret"])
    assert narrow.startswith(
        "\\begin{tabular}{lr}\n\\toprule\npolicy & mean regret \\\\\n\\midrule\na\\_b & 10.0 "
    )
    with pytest.raises(ParameterError, match="no column 'median'; give some of policy, priv"):
        summary.to_latex(["policy", "median"])
    frame = summary.to_pandas()
    assert frame["mean"].tolist() == [row.mean for row in summary]
    assert list(frame.columns) == list(summary[0]._fields)


def test_a_plot_for_a_paper(tmp_path: Path) -> None:
    results = make({"a": 3, "b": 3})
    figure = results.plot(tmp_path / "regret.pdf", paper=True)
    assert figure.get_figwidth() == 3.4
    assert figure.axes[0].get_title(loc="left") == ""
    assert {text.get_fontsize() for text in figure.legends[0].get_texts()} == {8}
    document = (tmp_path / "regret.pdf").read_bytes()
    assert b"/FontFile2" in document  # embedded
    assert b"/Type3" not in document
    with pytest.raises(TypeError, match="log_regrets"):
        results.plot(log_regrets=True)  # type: ignore[call-arg]


def entries(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_legend_says_a_guarantee_once() -> None:
    results = with_private(with_private(make({"a": 3, "b": 3}), "a"), "b")
    figure = results.plot(paper=True)
    assert entries(figure) == ["a", "b"]
    assert figure.legends[0].get_title().get_text() == "all: ε=1 per trajectory"
    markers = {line.get_marker() for line in figure.axes[0].lines}
    assert len(markers) == 2  # told apart in grey, too
    assert "None" not in markers
    mixed = with_private(
        make({"a": 3, "b(epsilon=1, discount=0.5)": 3}), "b(epsilon=1, discount=0.5)"
    )
    assert set(entries(mixed.plot())) == {
        "a [not private]",
        "b(discount=0.5) [ε=1 per trajectory]",
    }


@pytest.mark.parametrize("letters", [1, 25, 60])
def test_a_title_leaves_room_for_the_legend(letters: int) -> None:
    results = make({"a" * letters: 3, "b" * letters: 3, "c": 3})
    figure = with_private(results, "c").plot()
    figure.draw_without_rendering()
    title = figure.axes[0].get_title(loc="left")
    assert title.count("\n") == 1
    artist = next(
        text for text in figure.axes[0].findobj() if getattr(text, "get_text", str)() == title
    )
    legend = figure.legends[0].get_window_extent()
    assert not artist.get_window_extent().overlaps(legend)
    assert not figure.axes[0].get_window_extent().overlaps(legend)
    assert figure.axes[0].get_window_extent().width > figure.bbox.width / 2


def test_summary_is_a_table_with_the_scope_beside_each_name() -> None:
    summary = with_private(make({"plain": 2, "mine": 3}), "mine").summary()
    assert [row.label for row in summary] == ["plain", "mine"]
    assert len(summary) == 2
    lines = str(summary).splitlines()
    assert "bernoulli, 3 arms, horizon 100, seed 7" in lines[0]
    assert lines[3].split()[:3] == ["plain", "not", "private"]
    assert "mine    ε=1 per trajectory" in lines[4]
    assert len({len(line) for line in lines[2:]}) == 1  # aligned


def test_ragged_and_empty_results() -> None:
    results = make({"some": 2, "one": 1, "none": 0})
    some, one, none = results.summary()
    assert (some.repetitions, one.repetitions, none.repetitions) == (2, 1, 0)
    assert math.isnan(one.plus_minus)
    assert one.mean == 5.0
    assert math.isnan(none.mean)
    assert str(results.summary()).splitlines()[-1].split()[-1] == "-"
    assert results.regret("none").shape == (0, 2)
    assert results.pulls("none").shape == (0, 3)
    curves = [line.get_label() for line in results.plot().axes[0].lines]
    assert curves == ["some [not private]", "one [not private]"]
    assert not make({"none": 0}).plot().axes[0].lines
    with pytest.raises(UnknownNameError, match="did you mean 'some'"):
        results.regret("som")


def test_plot_labels_bands_and_scales(tmp_path: Path) -> None:
    results = with_private(make({"plain": 4, "mine": 4}), "mine")
    figure = results.plot(tmp_path / "p.png", band="interval", log_rounds=True)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["p.png"]
    ax = figure.axes[0]
    assert {line.get_label() for line in ax.lines} == {
        "plain [not private]",
        "mine [ε=1 per trajectory]",
    }
    assert ax.get_xscale() == "log"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.5, 12.5])
    top = ax.collections[0].get_paths()[0].get_extents().y1
    assert top == pytest.approx(12.5 + 3.182446 * np.std([5, 10, 15, 20], ddof=1) / 2)
    assert len(results.plot(band=None).axes[0].collections) == 0
    assert len(results.plot(bound=True).axes[0].lines) == 3  # the private one has no bound
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 2


def test_plot_many_policies_look_different() -> None:
    figure = make({f"p{i}": 1 for i in range(20)}).plot()
    looks = {(line.get_color(), repr(line._dash_pattern)) for line in figure.axes[0].lines}
    assert len(looks) == 20


def test_plot_keeps_to_itself(tmp_path: Path) -> None:
    """No global state of pyplot: nothing piles up, no backend is chosen."""
    import sys

    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert make({"a": 2}).plot(ax=ax) is ax.figure
    if "matplotlib.pyplot" in sys.modules:
        assert not sys.modules["matplotlib.pyplot"].get_fignums()
    assert mpl.rcParams["axes.grid"] is mpl.rcParamsDefault["axes.grid"]
    with pytest.raises(ParameterError, match=r"\.png"):
        make({"a": 2}).plot(tmp_path / "p.docx")
    with pytest.raises(ParameterError, match=r"band = 0\.9"):
        make({"a": 2}).plot(band=0.9)
    with pytest.raises(ParameterError, match="band"):
        make({"a": 2}).plot(band=(0.9, 0.1))


@pytest.mark.parametrize("counts", [{"a": 3}, {"a": 3, "b": 1, "c": 0}, {"a": 0}])
def test_save_and_load(tmp_path: Path, counts: dict[str, int]) -> None:
    results = make(counts)
    results.policies["a"] = bl.policy("ucb1", arms=3, radius_scale=0.5)
    path = tmp_path / "r.parquet"
    results.save(path)
    loaded = bl.load(path)
    assert loaded.labels == results.labels
    assert loaded.policies == results.policies
    assert loaded.environment == WORLD
    assert (loaded.horizon, loaded.seed) == (100, 7)
    np.testing.assert_array_equal(loaded.checkpoints, results.checkpoints)
    for label in counts:
        np.testing.assert_array_equal(loaded.regret(label), results.regret(label))
        np.testing.assert_array_equal(loaded.pulls(label), results.pulls(label))
    assert str(loaded.summary()) == str(results.summary())
    first = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.parquet"]


def test_file_is_plain_parquet(tmp_path: Path) -> None:
    make({"a": 2, "b": 1}).save(tmp_path / "r.parquet")
    table = pq.read_table(tmp_path / "r.parquet")
    assert table.column("label").to_pylist() == ["a", "a", "b"]
    assert table.column("repetition").to_pylist() == [0, 1, 0]
    assert table.schema.field("regret").type == pa.list_(pa.float64())
    assert table.schema.field("pulls").type == pa.list_(pa.int64())
    said = json.loads(table.schema.metadata[b"balaclava"])
    assert said["schema"] == 1
    assert said["policies"]["a"]["guarantee"] == "not private"
    assert set(said["versions"]) == {"balaclava", "numpy", "numba", "python"}


def rewritten(path: Path, change: Any) -> None:
    """The same file with other metadata."""
    table = pq.read_table(path)
    said = json.loads(table.schema.metadata[b"balaclava"])
    change(said)
    pq.write_table(table.replace_schema_metadata({b"balaclava": json.dumps(said)}), path)


def test_broken_files_are_refused_by_name(tmp_path: Path) -> None:
    good = tmp_path / "good.parquet"
    make({"a": 20}, tuple(range(1, 101))).save(good)
    data = good.read_bytes()
    middle = len(data) // 3
    flipped = data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"x": [1]}), foreign)
    cases = {
        "empty": b"",
        "truncated": data[: len(data) // 2],
        "cut-short": data[:-1],
        "text": b"label,regret\n" * 50,
        "flipped": flipped,
    }
    for name, content in cases.items():
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(content)
        with pytest.raises(ResultsFileError, match=rf"{name}\.parquet .*simulate again"):
            bl.load(path)
    with pytest.raises(ResultsFileError, match=r"foreign\.parquet .*not a results file"):
        bl.load(foreign)
    with pytest.raises(ResultsFileError, match=r"missing\.parquet does not exist"):
        bl.load(tmp_path / "missing.parquet")
    with pytest.raises(ResultsFileError, match="is a folder"):
        bl.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: said.update(schema=2), "format 2.*upgrade"),
        (lambda said: said.update(schema="x"), "not an intact"),
        (lambda said: said.pop("horizon"), "not an intact"),
        (lambda said: said["checkpoints"].append(200), "wrong length"),
        (lambda said: said["policies"]["a"]["parameters"].update(arms=-1), "arms = -1"),
        (lambda said: said["policies"].update(b=said["policies"].pop("a")), "not an intact"),
        (lambda said: said["environment"].update(gaps=[0, 0, 0]), "not an intact"),
        (lambda said: said["environment"].update(name="x"), "no environment is called 'x'"),
    ],
)
def test_files_that_say_something_else(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "r.parquet"
    make({"a": 2}).save(path)
    rewritten(path, change)
    with pytest.raises(ResultsFileError, match=rf"r\.parquet.*{message}"):
        bl.load(path)


def test_own_policy_must_be_registered_at_load(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "r.parquet"
    with_private(make({"mine": 1}), "mine").save(path)
    with pytest.raises(ResultsFileError, match=r"'test-private'.*import its module first"):
        bl.load(path)
    monkeypatch.setattr(POLICIES, "_classes", dict(POLICIES.classes()))
    bl.register(PrivatePolicy)
    assert isinstance(bl.load(path).policies["mine"], PrivatePolicy)


@pytest.mark.crash
def test_writing_is_whole_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.txt"
    path.write_text("before")

    def interrupted() -> None:
        with atomically(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.txt"]
    with pytest.raises(ResultsFileError, match=r"nowhere.*an existing, writable folder"):
        make({"a": 1}).save(tmp_path / "nowhere" / "r.parquet")


EXPERIMENT = """
horizon = 500
repetitions = 2
seed = 1
checkpoints = 5

[environment]
name = "bernoulli"
means = [0.4, 0.6]

[policies.ucb1]

[policies.careful]
name = "ucb1"
radius_scale = 2
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "exp.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_experiment_file(tmp_path: Path) -> None:
    (experiment,) = read_plan(written(tmp_path, EXPERIMENT)).settings
    assert experiment.policies == {
        "ucb1": bl.policy("ucb1", arms=2),
        "careful": bl.policy("ucb1", arms=2, radius_scale=2.0),
    }
    assert experiment.environment == bl.environment("bernoulli", means=[0.4, 0.6])
    results = simulated(experiment)
    assert results.regret("careful").shape == (2, 5)
    assert results.checkpoints.tolist() == [100, 200, 300, 400, 500]


def test_experiment_fills_in_the_horizon(tmp_path: Path, monkeypatch: Any) -> None:
    class Planner(bl.Policy):
        name = "test-planner"
        horizon: int
        kernels = bl.policy("ucb1", arms=1).kernels

    monkeypatch.setattr(POLICIES, "_classes", dict(POLICIES.classes()))
    bl.register(Planner)
    path = written(tmp_path, EXPERIMENT + "[policies.test-planner]\n")
    assert read_plan(path).settings[0].policies["test-planner"].parameters["horizon"] == 500
    path = written(tmp_path, EXPERIMENT + "[policies.test-planner]\nhorizon = 20\n")
    with pytest.raises(ExperimentFileError, match=r"\[policies.test-planner\].*horizon = 20"):
        read_plan(path)


def test_experiment_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("arm,reward\n0,1\n1,0\n1,1\n")
    section = 'name = "empirical"\npath = "log.csv"'
    text = EXPERIMENT.replace('name = "bernoulli"\nmeans = [0.4, 0.6]', section)
    assert read_plan(written(tmp_path, text)).settings[0].environment.means.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("horizon =", "horizont =", r"exp\.toml: unknown key 'horizont'; did you mean 'horizon'"),
        ("seed = 1\n", "", r"exp\.toml: 'seed' is missing"),
        ("horizon = 500", "horizon = 0", r"exp\.toml: horizon = 0 is not allowed; give a whole"),
        ("horizon = 500", 'horizon = "500"', r"exp\.toml: horizon = '500'"),
        ("checkpoints = 5", "checkpoints = [5, 4]", r"exp\.toml: checkpoints"),
        ("checkpoints = 5", "workers = 0", r"exp\.toml: workers = 0"),
        ("seed = 1", "seed = = 1", r"exp\.toml is not TOML: .*line 4"),
        ("[environment]", "[environmen]", r"unknown key 'environmen'; did you mean 'environment'"),
        ('name = "bernoulli"\n', "", r"\[environment\]: name is missing; .*bernoulli"),
        ('"bernoulli"', '"bernouli"', r"\[environment\]: .*did you mean 'bernoulli'"),
        ("means = [0.4, 0.6]", "means = [0.4, 6]", r"\[environment\]: bernoulli: means\[1\] = 6"),
        (
            "[policies.ucb1]",
            "[policies.ucb2]",
            r"\[policies\.ucb2\]: no policy .* 'ucb2'; did",
        ),
        ("radius_scale", "radius", r"\[policies\.careful\]: ucb1: unknown parameter 'radius'; did"),
        (
            "radius_scale = 2",
            "radius_scale = -2",
            r"\[policies\.careful\]: ucb1: radius_sc",
        ),
        ("radius_scale = 2", "arms = 3", r"\[policies\.careful\]: careful: arms = 3, but"),
        ('name = "ucb1"', "name = 1", r"\[policies\.careful\]: name = 1 is not a policy's name"),
        (EXPERIMENT[EXPERIMENT.index("[policies.ucb1]") :], "", r"'policies' is missing"),
        (EXPERIMENT[EXPERIMENT.index("[policies.ucb1]") :], "[policies]", r"no policy is given"),
        ("[policies.ucb1]", "[policies]\nx = 1", r"\[policies\.x\]: x = 1 is not a section"),
    ],
)
def test_experiment_errors_say_where(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in EXPERIMENT
    with pytest.raises(ExperimentFileError, match=message):
        read_plan(written(tmp_path, EXPERIMENT.replace(before, after, 1)))


def test_experiment_file_missing_or_binary(tmp_path: Path) -> None:
    with pytest.raises(ExperimentFileError, match=r"no\.toml does not exist"):
        read_plan(tmp_path / "no.toml")
    (tmp_path / "bin.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ExperimentFileError, match="UTF-8"):
        read_plan(tmp_path / "bin.toml")
    with pytest.raises(ExperimentFileError, match="cannot be read"):
        read_plan(tmp_path)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", ["table", "empirical"])
def test_no_reward_is_written_to_a_file(tmp_path: Path, name: str, wrapped: bool) -> None:
    """A marked reward is neither in the file's bytes, nor in a repr, a table or a report."""
    marked = 0.7310585786300049
    rewards = np.full((50, 2), 0.25)
    rewards[7, 1] = marked
    data = {"table": {"rewards": rewards}, "empirical": {"samples": list(rewards.T)}}[name]
    world = bl.environment(name, **data)
    if wrapped:
        outliers = {"kind": "point", "value": 0.5}
        world = bl.environment("contaminated", inner=world, fraction=0.1, outliers=outliers)
    results = bl.simulate(bl.policy("ucb1", arms=2), world, horizon=50, repetitions=2, seed=1)
    results.save(tmp_path / "r.parquet")
    content = (tmp_path / "r.parquet").read_bytes()
    assert b"0.73105" not in content
    assert struct.pack("<d", marked) not in content
    assert "0.73105" not in repr(results) + repr(world) + str(results.summary())
    again = bl.load(tmp_path / "r.parquet")
    assert np.array_equal(again.regret("ucb1"), results.regret("ucb1"))
    assert str(again.summary()) == str(results.summary()).replace(world.name, "recorded")
    again.save(tmp_path / "s.parquet")
    assert (tmp_path / "s.parquet").read_bytes() == content
    with pytest.raises(IncompatibleError, match="does not contain the rewards"):
        bl.simulate(bl.policy("ucb1", arms=2), again.environment, horizon=5, repetitions=1, seed=1)


def test_a_file_says_where_it_was_played(tmp_path: Path) -> None:
    path, results = tmp_path / "r.parquet", make({"a": 2})
    results.save(path)
    assert bl.load(path).device == "cpu"
    assert "GPU" not in str(results.summary())
    results.device = "cuda"
    results.save(path)
    again = bl.load(path)
    assert again.device == "cuda"
    assert "numba-cuda" in (again.versions or {})
    assert ", on a GPU" in str(again.summary())
    assert 'device = "cuda"' in experiment_toml(again)
    rewritten(path, lambda header: header.update(device="abacus"))
    with pytest.raises(ResultsFileError, match="its device is unknown"):
        bl.load(path)


def test_with_contexts_no_single_arm_is_best(tmp_path: Path) -> None:
    """Playing the arm with the best mean is not what regret is against, in a file too."""
    labelled = bl.environment(
        "labelled", features=[[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], labels=[0, 1, 1]
    )
    how: Any = {"horizon": 30, "repetitions": 2, "seed": 1}
    results = bl.simulate(bl.policy("imed", arms=2), labelled, **how)
    results.save(tmp_path / "results.parquet")
    for each in (results, bl.load(tmp_path / "results.parquet")):
        (row,) = each.summary()
        assert math.isnan(row.best_arm_share)
        assert str(each.summary()).splitlines()[-1].split()[-1] in "–-"

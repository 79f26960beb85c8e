"""The page with every figure: what is made, what is kept, what fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import markupsafe
import numpy as np
import pytest
from click.testing import CliRunner, Result

from balaclava._core.kernels import kernel as kernel_of
from balaclava.cli import main
from balaclava.errors import ResultsFileError
from balaclava.papers.harness import figure_registry, gallery
from balaclava.papers.harness.figure_registry import FigureEntry
from balaclava.papers.harness.figure_run import FigureRun, FigureText
from balaclava.papers.harness.gallery import figure_digest, make_gallery, read_gallery
from balaclava.papers.harness.gallery_pages import html_page, read_page, shrink, write_markdown

TEXT = {
    "What the paper shows": [
        "A line that <rises>, a long point that is broken " + "a b c " * 20 + "."
    ],
    "What we see": ["One.", "Two."],
    "Where they differ, and why": ["Nowhere."],
}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def behaviour() -> dict[str, int]:
    """What the policies of each figure do."""
    return {"one-fig1": 1, "two-fig1": 1}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, int]) -> list[str]:
    """Two figures that are made at once and one that fails; the names of those that were made."""
    called: list[str] = []

    def draw(run: FigureRun) -> FigureText:
        from matplotlib.figure import Figure

        if run.scale == "tiny":  # for a digest
            run.save_table({"x": [behaviour[run.name]]})
            return FigureText(f"{run.name}: a line", TEXT)
        called.append(run.name)
        picture = Figure(figsize=(4, 2))
        picture.subplots().plot([0, 1], [0, 1])
        run.save_picture(picture)
        return FigureText(f"{run.name}: a line", TEXT)

    def fail(run: FigureRun) -> FigureText:
        raise ValueError("no\nluck")

    figure_registry.figures()  # so that none is registered later
    entries = [
        FigureEntry("one-fig1", "A line", "One 2001", draw, "the paper's scale"),
        FigureEntry("one-fig2", "Trouble", "One 2001", fail, "the paper's scale"),
        FigureEntry("two-fig1", "A line & more", "Two 2002", draw, "our own scale"),
    ]
    monkeypatch.setattr(figure_registry, "_FIGURES", {entry.name: entry for entry in entries})
    return called


def test_all_figures_are_made_and_one_failure_is_told(made: list[str], tmp_path: Path) -> None:
    out, document = tmp_path / "out", tmp_path / "gallery.md"
    answer = invoke("reproduce", "--all", "--out", out, "--markdown", document)
    assert answer.exit_code == 1
    assert made == ["one-fig1", "two-fig1"]
    assert "balaclava: one-fig2: ValueError: no luck\n" in answer.output
    assert answer.output.endswith("balaclava: not made: one-fig2; the same command tries again\n")
    html_page = (out / "index.html").read_text(encoding="utf-8")
    assert html_page.count("<img ") == 2
    assert "A line &amp; more" in html_page
    assert "A line that &lt;rises&gt;" in html_page
    assert "Trouble" not in html_page
    first, second = read_gallery(out)
    assert (first.name, second.reference) == ("one-fig1", "Two 2002")
    assert first.sections == TEXT
    text = document.read_text(encoding="utf-8")
    assert "## One 2001\n\n### one-fig1\n" in text
    assert "![A line & more](gallery/two-fig1.png)" in text
    assert "- A line that \\<rises\\>" in text
    assert (tmp_path / "gallery" / "one-fig1.png").is_file()


def test_what_is_there_is_kept(made: list[str], tmp_path: Path) -> None:
    make_gallery(tmp_path)
    del made[:]
    again = make_gallery(tmp_path)
    assert [step.outcome for step in again.steps] == ["kept", "failed", "kept"]
    assert made == []
    assert [each.name for each in again.figures] == ["one-fig1", "two-fig1"]


@pytest.mark.parametrize("spoil", ["picture", "key", "record", "scale"])
def test_what_is_not_whole_or_not_the_same_is_made_again(
    made: list[str], tmp_path: Path, spoil: str
) -> None:
    make_gallery(tmp_path, names=["one-fig1"])
    record = tmp_path / gallery.RECORD
    if spoil == "picture":
        (tmp_path / "one-fig1.png").unlink()
    elif spoil == "key":  # other sources
        rows = json.loads(record.read_text())
        record.write_text(json.dumps([{**row, "key": "0"} for row in rows]))
    elif spoil == "record":
        record.write_text("[{")
    scale = "paper" if spoil == "scale" else "quick"
    del made[:]
    done = make_gallery(tmp_path, names=["one-fig1"], scale=scale)
    assert made == ["one-fig1"]
    assert [each.scale for each in done.figures] == [scale]


def test_other_figures_stay_on_the_page(made: list[str], tmp_path: Path) -> None:
    make_gallery(tmp_path, names=["one-fig1"])
    done = make_gallery(tmp_path, names=["two-fig1"])
    assert [each.name for each in done.figures] == ["one-fig1", "two-fig1"]
    assert "one-fig1.png" in done.page.read_text(encoding="utf-8")


@pytest.mark.crash
def test_what_was_there_outlives_an_interruption(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_gallery(tmp_path)

    def interrupt(run: FigureRun) -> FigureText:
        raise KeyboardInterrupt

    entry = figure_registry._FIGURES["one-fig2"]
    monkeypatch.setitem(figure_registry._FIGURES, "one-fig2", entry._replace(make=interrupt))
    with pytest.raises(KeyboardInterrupt):
        make_gallery(tmp_path)
    assert [each.name for each in read_gallery(tmp_path)] == ["one-fig1", "two-fig1"]


def test_what_is_on_the_page_is_kept_until_a_policy_changes(
    made: list[str], behaviour: dict[str, int], tmp_path: Path
) -> None:
    """A figure at full scale is not replaced by a quick one, unless its policies changed."""
    page = tmp_path / "gallery.md"

    def make(folder: str, *more: str) -> str:
        answer = invoke("reproduce", *more, "--out", tmp_path / folder, "--markdown", page)
        assert answer.exit_code == ("--all" in more)  # one of all fails
        return page.read_text(encoding="utf-8")

    before = make("gpu", "one-fig1", "two-fig1", "--scale", "paper")
    assert "A line. The paper's scale." in before
    assert "A line & more. Our own scale." in before
    del made[:]
    assert make("another", "--all") == before
    assert made == []
    behaviour["two-fig1"] = 2
    after = make("another", "--all")
    assert made == ["two-fig1"]
    assert after == before.replace("more. Our own scale", "more. Quick scale")
    assert {name: each.scale for name, each in read_page(page).items()} == {
        "one-fig1": "paper",
        "two-fig1": "quick",
    }
    del made[:]
    assert "A line. Quick scale." in make("another", "one-fig1")  # named, so made again
    assert made == ["one-fig1"]


def test_pages_are_made_of_the_record(made: list[str], tmp_path: Path) -> None:
    """Nothing is read back from a text or a page: the record alone gives the same bytes."""
    known = figure_registry.figures()
    done = make_gallery(tmp_path / "out")
    write_markdown(done.figures, done.folder, tmp_path / "gallery.md", known)
    for path in done.folder.glob("*.txt"):
        path.unlink()
    recorded = read_gallery(done.folder)
    assert recorded == done.figures
    write_markdown(recorded, done.folder, tmp_path / "again" / "gallery.md", known)
    pages = [tmp_path / "gallery.md", tmp_path / "again" / "gallery.md"]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert html_page(recorded) == done.page.read_text(encoding="utf-8")


def test_only_own_pictures_are_replaced_or_removed(made: list[str], tmp_path: Path) -> None:
    folder, page, known = tmp_path / "gallery", tmp_path / "gallery.md", figure_registry.figures()
    folder.mkdir()
    (folder / "mine.png").write_bytes(b"a user's own")
    done = make_gallery(tmp_path / "out")
    write_markdown(done.figures, done.folder, page, known)
    write_markdown(done.figures[:1], done.folder, page, known)
    own = {"one-fig1.png", "two-fig1.png"}
    assert {path.name for path in folder.glob("*.png")} == {"mine.png", *own}
    write_markdown(done.figures[:1], done.folder, page, known[:1])  # the other is gone
    assert {path.name for path in folder.glob("*.png")} == {"mine.png", "one-fig1.png"}
    assert "two-fig1" not in page.read_text(encoding="utf-8")
    assert (folder / "mine.png").read_bytes() == b"a user's own"
    (folder / "two-fig1.png").write_bytes(b"a user's own")
    with pytest.raises(ResultsFileError, match=r"two-fig1\.png already exists"):
        write_markdown(done.figures, done.folder, page, known)
    assert (folder / "two-fig1.png").read_bytes() == b"a user's own"
    reaching_out = '{"x": {"scale": "quick", "key": "", "pictures": ["../out/two-fig1.png"]}}'
    for damaged in ('["one-fig1.png", "two-', "5", "[5]", '{"x": {}}', reaching_out):
        (folder / "pictures.json").write_text(damaged)
        with pytest.raises(ResultsFileError, match=r"pictures\.json cannot be read"):
            write_markdown(done.figures[:1], done.folder, page, known)
    assert (done.folder / "two-fig1.png").is_file()


def test_a_digest_is_of_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other names in the sources do not change it; another decision late in a run does."""
    from balaclava.frames.tally import begin_tally
    from balaclava.policies.base import Kernels
    from balaclava.policies.bounded.dp_ftpl_gauss import DPFTPLGauss

    entry = next(each for each in figure_registry.figures() if each.name == "wang2024-fig6")
    before = figure_digest(entry)
    choose = DPFTPLGauss.kernels.choose

    def renamed(params: Any, state: Any, t: int, context: Any, rng: Any) -> tuple[int, int]:
        return choose(params, state, t, context, rng)

    def careless(params: Any, state: Any, t: int, context: Any, rng: Any) -> tuple[int, int]:
        arm, phase = choose(params, state, t, context, rng)
        return (0 if t == 3_500 else arm), phase

    for kernel, same in ((renamed, True), (careless, False)):
        kernels = Kernels(begin_tally, kernel_of(kernel), DPFTPLGauss.kernels.learn)
        monkeypatch.setattr(DPFTPLGauss, "kernels", kernels)
        assert (figure_digest(entry) == before) == same


@pytest.mark.parametrize("name", ["wang2024-fig1", "wang2024-fig6"])
def test_a_real_figure_on_every_page(name: str, tmp_path: Path) -> None:
    known = figure_registry.figures()
    done = make_gallery(tmp_path / "out", names=[name], scale="tiny")
    (exhibit,) = done.figures
    write_markdown(done.figures, done.folder, tmp_path / "gallery.md", known)
    text = (done.folder / f"{name}.txt").read_text(encoding="utf-8")
    for title, points in exhibit.sections.items():
        assert f"\n\n{title}\n- " in text
        for point in points:
            assert " ".join(point.split()) in " ".join(text.split())
            assert f"<li>{markupsafe.escape(point)}</li>" in html_page(done.figures)
    assert read_gallery(done.folder) == done.figures
    assert f"### {name}\n" in (tmp_path / "gallery.md").read_text(encoding="utf-8")


def test_a_small_picture_is_small(tmp_path: Path) -> None:
    from PIL import Image

    noise = np.random.default_rng(1).integers(0, 16, (460, 460, 3), dtype=np.uint8)
    Image.fromarray(16 * noise).save(tmp_path / "large.png")
    shrink(tmp_path / "large.png", tmp_path / "small.png")
    assert (tmp_path / "large.png").stat().st_size > 300_000
    assert (tmp_path / "small.png").stat().st_size < 100_000


def test_options_that_do_not_go_together() -> None:
    assert "not both" in invoke("reproduce", "wang2024-fig1", "--all").output
    assert (
        "--markdown needs figures or --all" in invoke("reproduce", "--markdown", "here.md").output
    )

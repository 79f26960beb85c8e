"""All figures of all papers in one folder, with a page and a record of how each was made."""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.atomic_files import atomically, require_writable_folder
from balaclava.papers.harness.figure_registry import FigureEntry, figures
from balaclava.papers.harness.figure_run import FigurePanel, FigureRun, RunSize
from balaclava.papers.harness.gallery_pages import GalleryFigure, html_page, read_page
from balaclava.papers.harness.reproduction import reproduce
from balaclava.simulation.engine import Device
from balaclava.simulation.results import Results

INDEX = "index.html"
RECORD = "gallery.json"
# Rounds that a digest plays beside the figure at its smallest scale, whose runs are shorter.
_DIGEST_SIZE = RunSize(4_000, 1)


class GalleryStep(NamedTuple):
    name: str
    outcome: str  # "made", "kept" or "failed"
    seconds: float
    problem: str = ""
    key: str = ""  # the digest of today, unless it failed


@dataclass
class Gallery:
    """A folder of figures with a page, and the outcome for each figure."""

    folder: Path
    figures: list[GalleryFigure]
    steps: list[GalleryStep]

    @property
    def failed(self) -> list[GalleryStep]:
        return [step for step in self.steps if step.outcome == "failed"]

    @property
    def page(self) -> Path:
        return self.folder / INDEX

    def news(self, page: Path) -> list[GalleryFigure]:
        """The figures that were made, or are newer than those of the Markdown page."""
        published, steps = read_page(page), {step.name: step for step in self.steps}
        return [
            each
            for each in self.figures
            if each.name in steps
            and each.key == steps[each.name].key
            and (
                steps[each.name].outcome == "made"
                or not is_current(published.get(each.name), each.key, each.scale)
            )
        ]


def make_gallery(
    out: str | os.PathLike[str],
    *,
    scale: str = "quick",
    names: Sequence[str] | None = None,
    workers: int | None = None,
    progress: Callable[[str], Any] | None = None,
    on_step: Callable[[GalleryStep], None] | None = None,
    device: Device = "cpu",
    page: Path | None = None,
    again: bool = False,
) -> Gallery:
    """Run every figure again and write a page with all of them.

    A figure is kept if its policies still decide as they did (`figure_digest`), and it was made at
    this scale or the paper's: in the folder, or on the Markdown page. A figure that fails is
    reported, and the others are still made. The page and its record are written after each figure,
    so that an interrupted run keeps finished figures.

    Args:
        out: the folder; its page is index.html, with pictures, texts and data beside it.
        scale: "quick" or "paper".
        names: only these figures; by default all.
        workers: threads; by default one for each core.
        progress: called with a figure's name; returns a context manager that yields a `Progress`.
        on_step: called with the outcome for each figure.
        device: "cpu", "cuda" or "auto", as for `bl.simulate`.
        page: a Markdown page that `write_markdown` wrote.
        again: make every figure, also those that could be kept.

    Returns:
        The folder, its figures, and the outcome for each.
    """
    folder, entries = Path(out), figures()
    require_writable_folder(folder)
    made = {each.name: each for each in read_gallery(folder)}
    published = {} if page is None else read_page(page)
    gallery = Gallery(folder, [], [])
    for entry in entries:
        if names is not None and entry.name not in names:
            continue
        began = time.monotonic()
        earlier, key, problem = made.get(entry.name), "", ""
        pictures = () if earlier is None else earlier.pictures
        if not all((folder / picture).is_file() for picture in pictures):
            earlier = None
        try:
            key = figure_digest(entry)
            others = () if again else (earlier, published.get(entry.name))
            if any(is_current(each, key, scale) for each in others):
                outcome = "kept"
            else:
                how: dict[str, Any] = {"scale": scale, "workers": workers, "device": device}
                made[entry.name] = _make(entry, key, folder, progress, **how)
                outcome = "made"
        except Exception as error:  # one bad figure must not cost the others
            made.pop(entry.name, None)
            outcome, key, problem = "failed", "", f"{type(error).__name__}: {error}"
        gallery.figures = [made[each.name] for each in entries if each.name in made]
        write_index(gallery.figures, folder)
        seconds = time.monotonic() - began
        gallery.steps.append(GalleryStep(entry.name, outcome, seconds, problem, key))
        if on_step is not None:
            on_step(gallery.steps[-1])
    return gallery


def _make(
    entry: FigureEntry, key: str, folder: Path, progress: Callable[[str], Any] | None, **how: Any
) -> GalleryFigure:
    with contextlib.nullcontext() if progress is None else progress(entry.name) as bar:
        reproduction = reproduce(entry.name, out=folder, progress=bar, **how)
    pictures = tuple(path.name for path in reproduction.files if path.suffix == ".png")
    return GalleryFigure(
        entry.name,
        entry.title,
        entry.reference,
        reproduction.scale,
        entry.full_scale if reproduction.scale == "paper" else f"{reproduction.scale} scale",
        key,
        pictures,
        reproduction.findings.sections,
    )


def is_current(earlier: Any, key: str, scale: str) -> bool:
    """Whether a figure has this digest, and was made at this scale or the paper's."""
    return earlier is not None and earlier.key == key and earlier.scale in (scale, "paper")


def figure_digest(entry: FigureEntry) -> str:
    """A digest of what the figure's policies decide, and of what it computes without them.

    It depends on decisions for fixed seeds and on the labels of the figure, not on the sources:
    renaming a function does not change it. The figure is made at the smallest scale.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = DigestRun(entry.name, "tiny", Path(folder), workers=1)
        entry.make(run)
    return str(run.digest.hexdigest()[:20])


@dataclass
class DigestRun(FigureRun):
    """A run of a figure that draws nothing, and digests its results."""

    digest: Any = field(default_factory=hashlib.sha256)

    def simulate(
        self,
        panels: Sequence[tuple[FigurePanel, RunSize]],
        *,
        seed: int,
        checkpoints: int | np.ndarray,
    ) -> Iterator[Results]:
        longer = [(each, _DIGEST_SIZE) for each in _lengthened(panel for panel, _ in panels)]
        for results in super().simulate(longer, seed=seed, checkpoints=1):
            self._add(results)
        for results in super().simulate(panels, seed=seed, checkpoints=checkpoints):
            self._add(results)
            yield results

    def save_picture(self, figure: Any, ending: str = "") -> None:
        pass

    def save_table(self, columns: Mapping[str, Any]) -> None:
        for name, column in columns.items():
            cells = [x if isinstance(x, str) else f"{x:.6g}" for x in np.asarray(column).tolist()]
            self.digest.update(json.dumps([name, cells]).encode())

    def _add(self, results: Results) -> None:
        for label in results.labels:
            regret = np.round(results.regret(label), 6) + 0.0  # no -0.0
            self.digest.update(label.encode() + regret.tobytes() + results.pulls(label).tobytes())


def _lengthened(panels: Iterable[FigurePanel]) -> Iterator[FigurePanel]:
    """Panels for the digest's horizon: those of environments without an end, each policy once."""
    seen: set[Any] = set()
    for policies, world in panels:
        if not world.independent:
            continue
        longer = {
            label: type(policy).create(policy.parameters | {"horizon": _DIGEST_SIZE.horizon})
            if "horizon" in policy.parameters
            else policy
            for label, policy in policies.items()
        }
        new = {label: p for label, p in longer.items() if (label, p, world) not in seen}
        seen.update((label, policy, world) for label, policy in new.items())
        if new:
            yield FigurePanel(new, world)


def read_gallery(folder: str | os.PathLike[str]) -> list[GalleryFigure]:
    """The figures of a folder's gallery; empty if there is none."""
    record = Path(folder) / RECORD
    if not record.is_file():
        return []
    try:
        rows = json.loads(record.read_text(encoding="utf-8"))
        return [GalleryFigure(**row | {"pictures": tuple(row["pictures"])}) for row in rows]
    except (ValueError, TypeError, OSError):
        return []  # damaged: make them again


def write_index(shown: Sequence[GalleryFigure], folder: Path) -> None:
    rows = json.dumps([each._asdict() for each in shown], indent=1, ensure_ascii=False)
    with atomically(folder / RECORD) as temporary:
        temporary.write_text(rows + "\n", encoding="utf-8")
    with atomically(folder / INDEX) as temporary:
        temporary.write_text(html_page(shown), encoding="utf-8")

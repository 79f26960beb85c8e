"""All figures of all papers in one folder, with a page and a record of how each was made."""

import contextlib
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from balaclava._core.atomic_files import atomically, require_writable_folder
from balaclava.experiments.sweep import sources
from balaclava.papers.harness.figure_registry import FigureEntry, figures
from balaclava.papers.harness.gallery_pages import GalleryFigure, html_page
from balaclava.papers.harness.reproduction import reproduce
from balaclava.simulation.engine import Device
from balaclava.simulation.results_file import versions

INDEX = "index.html"
RECORD = "gallery.json"
# Modules that do not affect a figure: they only display it.
_DISPLAY_MODULES = ("harness/gallery", "harness/gallery_pages")


class GalleryStep(NamedTuple):
    name: str
    outcome: str  # "made", "kept" or "failed"
    seconds: float
    problem: str = ""


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


def make_gallery(
    out: str | os.PathLike[str],
    *,
    scale: str = "quick",
    names: Sequence[str] | None = None,
    workers: int | None = None,
    progress: Callable[[str], Any] | None = None,
    on_step: Callable[[GalleryStep], None] | None = None,
    device: Device = "cpu",
) -> Gallery:
    """Run every figure again and write a page with all of them.

    A figure that the same sources already made at the same scale is kept. A figure that fails is
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

    Returns:
        The folder, its figures, and the outcome for each.
    """
    folder, entries = Path(out), figures()
    require_writable_folder(folder)
    made = {each.name: each for each in read_gallery(folder)}
    gallery = Gallery(folder, [], [])
    for entry in entries:
        if names is not None and entry.name not in names:
            continue
        began = time.monotonic()
        key, earlier, problem = _key(entry, entries, scale, device), made.get(entry.name), ""
        pictures = () if earlier is None else earlier.pictures
        has_pictures = all((folder / picture).is_file() for picture in pictures)
        if earlier is not None and earlier.key == key and has_pictures:
            outcome = "kept"
        else:
            try:
                made[entry.name] = _make(entry, key, folder, scale, workers, progress, device)
                outcome = "made"
            except Exception as error:  # one bad figure must not cost the others
                made.pop(entry.name, None)
                outcome, problem = "failed", f"{type(error).__name__}: {error}"
        gallery.figures = [made[each.name] for each in entries if each.name in made]
        write_index(gallery.figures, folder)
        gallery.steps.append(GalleryStep(entry.name, outcome, time.monotonic() - began, problem))
        if on_step is not None:
            on_step(gallery.steps[-1])
    return gallery


def _make(
    entry: FigureEntry,
    key: str,
    folder: Path,
    scale: str,
    workers: int | None,
    progress: Callable[[str], Any] | None,
    device: Device,
) -> GalleryFigure:
    with contextlib.nullcontext() if progress is None else progress(entry.name) as bar:
        reproduction = reproduce(
            entry.name, scale=scale, out=folder, workers=workers, progress=bar, device=device
        )
    pictures = tuple(path.name for path in reproduction.files if path.suffix == ".png")
    return GalleryFigure(
        entry.name,
        entry.title,
        entry.reference,
        scale,
        key,
        pictures,
        reproduction.findings.sections,
    )


def _key(entry: FigureEntry, entries: Sequence[FigureEntry], scale: str, device: Device) -> str:
    """A digest of everything that affects a figure: sources, the paper's modules, versions."""
    paper = _paper(entry.name)
    others = {_paper(each.name) for each in entries} - {paper}
    how = [scale, sources(), versions(), *([device] if device != "cpu" else [])]
    digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
    for module, text in _modules().items():
        if module.partition("/")[0] not in others and module not in _DISPLAY_MODULES:
            digest.update(f"{module}\0{text}".encode())
    return digest.hexdigest()[:20]


def _paper(figure: str) -> str:
    """The paper of a figure, "wang2024" for "wang2024-fig1": also its module or folder."""
    return figure.partition("-")[0]


@functools.cache
def _modules() -> dict[str, str]:
    """Sources and texts: "wang2024/index_regions", "harness/claims", "tao2022/tao2022-fig2"."""
    folder = Path(__file__).parents[1]
    files = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.py"))
    }
    for path in sorted((folder / "templates").glob("*.md")):
        files[f"{_paper(path.stem)}/{path.stem}"] = path
    return {name: path.read_text(encoding="utf-8") for name, path in files.items()}


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

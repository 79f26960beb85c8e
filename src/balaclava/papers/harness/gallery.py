"""All figures of all papers on one page: pictures, what each paper shows, and what we see."""

from __future__ import annotations

import functools
import hashlib
import html
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from balaclava._core.files import atomically
from balaclava.experiments.sweep import sources
from balaclava.papers.harness.base import FigureEntry, _open, figures, reproduce
from balaclava.simulation.engine import Progress
from balaclava.simulation.files import versions

INDEX = "index.html"
RECORD = "gallery.json"
_OWN = "harness/gallery"
_WIDTH = 1400  # pixels of a small picture
_BYTES = 95_000  # of a small picture, at most
_COLOURS = (128, 64, 32, 16)

_CSS = """
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 68rem; color: #1c2024;
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1, h2, h3 { line-height: 1.25; } h2 { margin: 3rem 0 .5rem; } h3 { margin: 1rem 0 .3rem; }
a { color: #0b57a4; } .wide { overflow-x: auto; } img { width: 100%; min-width: 44rem; }
.soft { color: #59636e; } ul { padding-left: 1.2rem; }
"""


class Shown(NamedTuple):
    """A figure on the page."""

    name: str
    title: str
    reference: str
    scale: str
    key: str  # a digest of what it was made by
    pictures: tuple[str, ...]  # names of files beside the page
    text: str

    @property
    def sections(self) -> dict[str, list[str]]:
        """The points of its text under their headings."""
        found: dict[str, list[str]] = {}
        points: list[str] = []
        for line in self.text.splitlines()[1:]:  # the first is the figure's name
            if line.startswith("- "):
                points.append(line[2:])
            elif line.startswith("  ") and points:
                points[-1] += " " + line.strip()
            elif line.strip():
                points = found.setdefault(line.strip(), [])
        return found


class Step(NamedTuple):
    """What became of one figure."""

    name: str
    outcome: str  # "made", "kept" or "failed"
    seconds: float
    problem: str = ""


@dataclass
class Gallery:
    """A folder with a page, and what was done to fill it."""

    folder: Path
    shown: list[Shown]
    steps: list[Step]

    @property
    def failed(self) -> list[Step]:
        """The figures that could not be made."""
        return [step for step in self.steps if step.outcome == "failed"]

    @property
    def page(self) -> Path:
        """The page."""
        return self.folder / INDEX


def make_gallery(
    out: str | os.PathLike[str],
    *,
    scale: str = "quick",
    names: Sequence[str] | None = None,
    workers: int | None = None,
    progress: Callable[[str], Any] | None = None,
    tell: Callable[[Step], None] | None = None,
) -> Gallery:
    """Run every figure again and write a page with all of them.

    A figure that the folder holds already, made at the same scale by the same sources, is kept. A
    figure that fails is named, and the others are made all the same. The page and its record are
    written after each, so that whatever ends a run, what it made is kept.

    Args:
        out: the folder; its page is index.html, with pictures, texts and data beside it.
        scale: "quick" or "paper".
        names: only these figures; by default all.
        workers: threads; by default one for each core.
        progress: called with a figure's name, gives a context that yields a `Progress`.
        tell: called with what became of each figure.
    """
    folder, entries = Path(out), figures()
    _open(folder)
    shown = {each.name: each for each in read_gallery(folder)}
    gallery = Gallery(folder, [], [])
    for entry in entries:
        if names is not None and entry.name not in names:
            continue
        began = time.monotonic()
        key, kept, problem = _key(entry, entries, scale), shown.get(entry.name), ""
        if kept is not None and kept.key == key and _is_whole(kept, folder):
            outcome = "kept"
        else:
            try:
                shown[entry.name] = _make(entry, key, folder, scale, workers, progress)
                outcome = "made"
            except Exception as error:  # one bad figure must not cost the others
                shown.pop(entry.name, None)
                outcome, problem = "failed", f"{type(error).__name__}: {error}"
        gallery.shown = [shown[each.name] for each in entries if each.name in shown]
        write_page(gallery.shown, folder)
        gallery.steps.append(Step(entry.name, outcome, time.monotonic() - began, problem))
        if tell is not None:
            tell(gallery.steps[-1])
    return gallery


def _make(
    entry: FigureEntry,
    key: str,
    folder: Path,
    scale: str,
    workers: int | None,
    progress: Callable[[str], Any] | None,
) -> Shown:
    def run(bar: Progress | None) -> Any:
        return reproduce(entry.name, scale=scale, out=folder, workers=workers, progress=bar)

    if progress is None:
        done = run(None)
    else:
        with progress(entry.name) as bar:
            done = run(bar)
    pictures = tuple(path.name for path in done.files if path.suffix == ".png")
    return Shown(entry.name, entry.title, entry.reference, scale, key, pictures, done.text)


def _is_whole(shown: Shown, folder: Path) -> bool:
    return all((folder / picture).is_file() for picture in shown.pictures)


def _key(entry: FigureEntry, entries: Sequence[FigureEntry], scale: str) -> str:
    """A digest of what a figure depends on: sources, the paper's own file among them, versions."""
    paper = _paper(entry.name)
    others = {_paper(each.name) for each in entries} - {paper}
    digest = hashlib.sha256(json.dumps([scale, sources(), versions()], sort_keys=True).encode())
    for module, text in _modules().items():
        if module.partition("/")[0] not in others and module != _OWN:
            digest.update(f"{module}\0{text}".encode())
    return digest.hexdigest()[:20]


def _paper(figure: str) -> str:
    """wang2024 of wang2024-fig1: the file or the folder of a paper has that name too."""
    return figure.partition("-")[0]


@functools.cache
def _modules() -> dict[str, str]:
    """The sources of the papers: "wang2024/regions", "harness/slopes", "tao2022"."""
    folder = Path(__file__).parents[1]
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }


def read_gallery(folder: str | os.PathLike[str]) -> list[Shown]:
    """What a folder's gallery shows; nothing where there is none."""
    record = Path(folder) / RECORD
    if not record.is_file():
        return []
    try:
        rows = json.loads(record.read_text(encoding="utf-8"))
        return [_read(row, Path(folder)) for row in rows]
    except (ValueError, TypeError, OSError):
        return []  # damaged: made again


def _read(row: Mapping[str, Any], folder: Path) -> Shown:
    text = (folder / f"{row['name']}.txt").read_text(encoding="utf-8")
    return Shown(**{**row, "pictures": tuple(row["pictures"]), "text": text.rstrip("\n")})


def write_page(shown: Sequence[Shown], folder: Path) -> None:
    """The page and the record of what is on it."""
    _record(shown, folder)
    with atomically(folder / INDEX) as temporary:
        temporary.write_text(_page(shown), encoding="utf-8")


def write_markdown(shown: Sequence[Shown], source: Path, page: Path) -> None:
    """The page in Markdown, with small pictures in a folder beside it: for the documentation."""
    folder = page.with_suffix("")
    _open(folder)
    for old in folder.glob("*.png"):
        old.unlink()
    for each in shown:
        for picture in each.pictures:
            shrink(source / picture, folder / picture)
    with atomically(page) as temporary:
        temporary.write_text(_markdown(shown, folder.name), encoding="utf-8")


def _markdown(shown: Sequence[Shown], folder: str) -> str:
    papers: dict[str, list[Shown]] = {}
    for each in shown:
        papers.setdefault(each.reference, []).append(each)
    parts = [
        "# Gallery",
        "The figures of the papers, run again from their descriptions. Each shows the picture, "
        "what the paper shows, what we see, and why they differ where they do. Where a paper does "
        "not say what it did, the text says what we did. `make gallery` makes them at a scale that "
        "takes minutes; `balaclava reproduce NAME --scale paper` plays as much as the paper did.",
    ]
    for reference, theirs in papers.items():
        links = [f"- [{each.name}](#{each.name}): {_plain(each.title)}" for each in theirs]
        parts += [f"**{_plain(reference)}**", "\n".join(links)]
    for reference, theirs in papers.items():
        parts.append(f"## {_plain(reference)}")
        for each in theirs:
            parts += [f"### {each.name}", f"{_plain(each.title)}. {each.scale.capitalize()} scale."]
            parts += [f"![{_plain(each.title)}]({folder}/{picture})" for picture in each.pictures]
            for title, points in each.sections.items():
                listed = "\n".join(f"- {_plain(point)}" for point in points)
                parts += [f"**{_plain(title)}**", listed]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Text in which Markdown finds no marks."""
    return re.sub(r"([\\`*_<>\[\]#|~])", r"\\\1", text)


def _record(shown: Sequence[Shown], folder: Path) -> None:
    rows = [each._asdict() for each in shown]
    for row in rows:
        del row["text"]  # in a file of its own
    with atomically(folder / RECORD) as temporary:
        temporary.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")


def shrink(source: Path, target: Path) -> None:
    """The same picture in fewer colours, and smaller if it must be."""
    from PIL import Image  # comes with matplotlib

    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    width = min(picture.width, _WIDTH)
    while True:
        size = (width, round(picture.height * width / picture.width))
        smaller = picture.resize(size, Image.Resampling.LANCZOS)
        for colours in _COLOURS:
            smaller.quantize(colours).save(target, optimize=True)
            if target.stat().st_size <= _BYTES:
                return
        width = width * 3 // 4


def _page(shown: Sequence[Shown]) -> str:
    listed = "".join(
        f'<li><a href="#{each.name}">{html.escape(each.name)}</a> {html.escape(each.title)}</li>'
        for each in shown
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Figures run again - balaclava</title><style>{_CSS}</style></head>\n"
        f"<body><h1>Figures run again</h1><ul>{listed}</ul>\n"
        + "\n".join(_article(each) for each in shown)
        + "</body></html>\n"
    )


def _article(shown: Shown) -> str:
    parts = [
        f'<h2 id="{shown.name}">{html.escape(shown.title)}</h2>',
        f'<p class="soft">{html.escape(shown.name)}, {shown.scale} scale. '
        f"{html.escape(shown.reference)}</p>",
    ]
    parts += [
        f'<div class="wide"><a href="{picture}"><img src="{picture}" loading="lazy" '
        f'alt="{html.escape(shown.title)}"></a></div>'
        for picture in shown.pictures
    ]
    for title, points in shown.sections.items():
        listed = "".join(f"<li>{html.escape(point)}</li>" for point in points)
        parts.append(f"<h3>{html.escape(title)}</h3><ul>{listed}</ul>")
    return "\n".join(parts)

"""The page of a gallery: in HTML, and in Markdown with smaller pictures."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from balaclava._core.atomic_files import atomically, require_writable_folder
from balaclava._core.html_templates import render_template, render_text
from balaclava.errors import ResultsFileError
from balaclava.papers.harness.figure_registry import FigureEntry

GALLERY_TEMPLATES = "balaclava.papers.harness"  # the package of the pages' templates
PICTURES = "pictures.json"  # lists the small pictures written beside it, by figure
_SMALL_WIDTH = 1400  # pixels of a small picture; the documentation displays about half of it
_SMALL_BYTES = 95_000  # of a small picture, at most: keeps the repository small
_PALETTE_SIZES = (128, 64)  # colours to try; fewer blur thin lines


class GalleryFigure(NamedTuple):
    """A figure on the page, as the record stores it."""

    name: str
    title: str
    reference: str
    scale: str
    scale_words: str
    key: str  # a digest of what its policies decided
    pictures: tuple[str, ...]  # names of files beside the page
    sections: Mapping[str, Sequence[str]]


class PageFigure(NamedTuple):
    """A figure on a Markdown page, as the list of pictures stores it."""

    scale: str
    key: str
    pictures: tuple[str, ...]


def read_page(page: Path) -> dict[str, PageFigure]:
    """The figures of a Markdown page; empty if there is none."""
    path = page.with_suffix("") / PICTURES
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        listed = {
            name: PageFigure(**row | {"pictures": tuple(row["pictures"])})
            for name, row in rows.items()
        }
        if any(Path(file).name != file for each in listed.values() for file in each.pictures):
            raise ValueError("a picture outside the folder")
        return listed
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError, KeyError, OSError) as error:
        raise ResultsFileError(
            f"{path} cannot be read; it lists the pictures that may be replaced. "
            "Delete it and those pictures, or choose another name for the page"
        ) from error


def write_markdown(
    figures: Sequence[GalleryFigure], source: Path, page: Path, known: Sequence[FigureEntry]
) -> None:
    """Write figures onto a Markdown page, with small pictures in a folder beside it.

    Other figures of the page do not change, unless they are no longer `known`. Only pictures
    that an earlier call wrote are replaced or removed; a list beside them names them.
    """
    folder = page.with_suffix("")
    require_writable_folder(folder)
    before = read_page(page)
    new = {each.name: PageFigure(each.scale, each.key, each.pictures) for each in figures}
    now = {each.name: (before | new)[each.name] for each in known if each.name in before | new}
    own = {picture for each in before.values() for picture in each.pictures}
    for picture in sorted({p for each in new.values() for p in each.pictures} - own):
        if (folder / picture).exists():
            raise ResultsFileError(
                f"{folder / picture} already exists and is not a picture of this gallery; move it, "
                "or choose another name for the page"
            )
    _list_pictures(before | new, folder)  # first: an interrupted call leaves no unlisted picture
    for each in figures:
        for picture in each.pictures:
            shrink(source / picture, folder / picture)
    for picture in own - {picture for each in now.values() for picture in each.pictures}:
        (folder / picture).unlink(missing_ok=True)
    old = page.read_text(encoding="utf-8") if page.is_file() else ""
    parts = dict(re.findall(r"^### (\S+)\n\n(.*?)(?=^##|\Z)", old, re.M | re.S))
    parts |= {each.name: _describe(each, folder.name) for each in figures}
    with atomically(page) as temporary:
        temporary.write_text(markdown(parts, [e for e in known if e.name in now]), encoding="utf-8")
    _list_pictures(now, folder)


def _list_pictures(figures: Mapping[str, PageFigure], folder: Path) -> None:
    rows = {name: each._asdict() for name, each in figures.items()}
    with atomically(folder / PICTURES) as temporary:
        temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _describe(figure: GalleryFigure, folder: str) -> str:
    """Scale, pictures and text of a figure in Markdown; its pictures are in `folder`."""
    title = _plain(figure.title)
    words = figure.scale_words
    parts = [f"{title}. {words[:1].upper()}{words[1:]}."]
    parts += [f"![{title}]({folder}/{picture})" for picture in figure.pictures]
    for heading, points in figure.sections.items():
        parts += [f"**{_plain(heading)}**", "\n".join(f"- {_plain(point)}" for point in points)]
    return "\n\n".join(parts) + "\n\n"


def markdown(parts: Mapping[str, str], entries: Sequence[FigureEntry]) -> str:
    """The page in Markdown, from the part of each figure."""
    papers: dict[str, list[FigureEntry]] = {}
    for each in entries:
        papers.setdefault(each.reference, []).append(each)
    return render_text(GALLERY_TEMPLATES, "gallery.md", papers=papers, parts=parts, plain=_plain)


def _plain(text: str) -> str:
    """Escape the marks of Markdown."""
    return re.sub(r"([\\`*_<>\[\]#|~])", r"\\\1", text)


def shrink(source: Path, target: Path) -> None:
    """Write a picture in fewer colours, and smaller if necessary."""
    from PIL import Image  # comes with matplotlib

    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    width = min(picture.width, _SMALL_WIDTH)
    while True:
        size = (width, round(picture.height * width / picture.width))
        smaller = picture.resize(size, Image.Resampling.LANCZOS)
        for colours in _PALETTE_SIZES:
            # Other methods give thin lines the colours of large areas.
            few = smaller.quantize(colours, method=Image.Quantize.FASTOCTREE)
            few.save(target, optimize=True)
            if target.stat().st_size <= _SMALL_BYTES:
                return
        width = width * 3 // 4


def html_page(figures: Sequence[GalleryFigure]) -> str:
    return render_template(GALLERY_TEMPLATES, "gallery.html", figures=figures)

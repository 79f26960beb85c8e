"""The page of a gallery: in HTML, and in Markdown with smaller pictures."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from balaclava._core.atomic_files import atomically, require_writable_folder
from balaclava._core.html_templates import render_template
from balaclava.errors import ResultsFileError

PICTURES = "pictures.json"  # lists the small pictures written beside it
_SMALL_WIDTH = 1400  # pixels of a small picture; the documentation displays about half of it
_SMALL_BYTES = 95_000  # of a small picture, at most: keeps the repository small
_PALETTE_SIZES = (128, 64)  # colours to try; fewer blur thin lines


class GalleryFigure(NamedTuple):
    """A figure on the page, as the record stores it."""

    name: str
    title: str
    reference: str
    scale: str
    key: str  # a digest of the sources that made it
    pictures: tuple[str, ...]  # names of files beside the page
    sections: Mapping[str, Sequence[str]]


def write_markdown(figures: Sequence[GalleryFigure], source: Path, html_page: Path) -> None:
    """Write the page in Markdown, with small pictures in a folder beside it.

    Only pictures that an earlier call wrote are replaced or removed; a list beside them names
    them.
    """
    folder = html_page.with_suffix("")
    require_writable_folder(folder)
    before = _pictures(folder)
    now = {picture for each in figures for picture in each.pictures}
    for picture in sorted(now - before):
        if (folder / picture).exists():
            raise ResultsFileError(
                f"{folder / picture} already exists and is not a picture of this gallery; move it, "
                "or choose another name for the page"
            )
    _list_pictures(before | now, folder)  # first: an interrupted call leaves no unlisted picture
    for each in figures:
        for picture in each.pictures:
            shrink(source / picture, folder / picture)
    for picture in before - now:
        (folder / picture).unlink(missing_ok=True)
    _list_pictures(now, folder)
    with atomically(html_page) as temporary:
        temporary.write_text(markdown(figures, folder.name), encoding="utf-8")


def _pictures(folder: Path) -> set[str]:
    try:
        names = json.loads((folder / PICTURES).read_text(encoding="utf-8"))
        return {name for name in names if Path(name).name == name}  # none outside the folder
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError, OSError) as error:
        raise ResultsFileError(
            f"{folder / PICTURES} cannot be read; it lists the pictures that may be replaced. "
            "Delete it and those pictures, or choose another name for the page"
        ) from error


def _list_pictures(names: set[str], folder: Path) -> None:
    with atomically(folder / PICTURES) as temporary:
        temporary.write_text(json.dumps(sorted(names), indent=1) + "\n", encoding="utf-8")


def markdown(figures: Sequence[GalleryFigure], folder: str) -> str:
    """The page in Markdown; its pictures are in `folder`."""
    papers: dict[str, list[GalleryFigure]] = {}
    for each in figures:
        papers.setdefault(each.reference, []).append(each)
    parts = [
        "# Gallery",
        "The figures of the papers, reproduced from their descriptions. Each has the picture, what "
        "the paper shows, what we see, and why they differ. If a paper omits a detail, the text "
        "states our choice. `make gallery` makes them at a scale that takes minutes; `balaclava "
        "reproduce NAME --scale paper` uses the paper's own sizes. The line below the title names "
        "the scale.",
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
                bullets = "\n".join(f"- {_plain(point)}" for point in points)
                parts += [f"**{_plain(title)}**", bullets]
    return "\n\n".join(parts) + "\n"


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
    return render_template("balaclava.papers.harness", "gallery.html", figures=figures)

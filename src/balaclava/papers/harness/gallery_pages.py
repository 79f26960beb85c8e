"""A gallery as a page: in HTML with its pictures beside it, in Markdown with small ones."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from balaclava._core.atomic_files import atomically, require_folder
from balaclava.errors import ResultsFileError

PICTURES = "pictures.json"  # which small pictures were written beside it
_WIDTH = 1400  # pixels of a small picture
_BYTES = 95_000  # of a small picture, at most
_COLOURS = (128, 64)

_CSS = """
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 68rem; color: #1c2024;
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1, h2, h3 { line-height: 1.25; } h2 { margin: 3rem 0 .5rem; } h3 { margin: 1rem 0 .3rem; }
a { color: #0b57a4; } .wide { overflow-x: auto; } img { width: 100%; min-width: 44rem; }
.soft { color: #59636e; } ul { padding-left: 1.2rem; }
"""


class GalleryFigure(NamedTuple):
    """A figure on the page."""

    name: str
    title: str
    reference: str
    scale: str
    key: str  # a digest of what it was made by
    pictures: tuple[str, ...]  # names of files beside the page
    sections: Mapping[str, Sequence[str]]


def write_markdown(exhibits: Sequence[GalleryFigure], source: Path, html_page: Path) -> None:
    """The page in Markdown, with small pictures in a folder beside it: for the documentation.

    Of the pictures in that folder only those are replaced or removed that an earlier call wrote;
    a list beside them says which.
    """
    folder = html_page.with_suffix("")
    require_folder(folder)
    before = _pictures(folder)
    now = {picture for each in exhibits for picture in each.pictures}
    for picture in sorted(now - before):
        if (folder / picture).exists():
            raise ResultsFileError(
                f"{folder / picture} is in the way, and was not written here; move it, or choose "
                "another name for the page"
            )
    _list_pictures(before | now, folder)  # first: what ends this early leaves no stranger behind
    for each in exhibits:
        for picture in each.pictures:
            shrink(source / picture, folder / picture)
    for picture in before - now:
        (folder / picture).unlink(missing_ok=True)
    _list_pictures(now, folder)
    with atomically(html_page) as temporary:
        temporary.write_text(markdown(exhibits, folder.name), encoding="utf-8")


def _pictures(folder: Path) -> set[str]:
    """The pictures that were written here before."""
    try:
        names = json.loads((folder / PICTURES).read_text(encoding="utf-8"))
        return {name for name in names if Path(name).name == name}  # none outside the folder
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError, OSError) as error:
        raise ResultsFileError(
            f"{folder / PICTURES} cannot be read; it lists the pictures that may be replaced: "
            "remove it and those, or choose another name for the page"
        ) from error


def _list_pictures(names: set[str], folder: Path) -> None:
    with atomically(folder / PICTURES) as temporary:
        temporary.write_text(json.dumps(sorted(names), indent=1) + "\n", encoding="utf-8")


def markdown(exhibits: Sequence[GalleryFigure], folder: str) -> str:
    """The page in Markdown; its pictures are in `folder`."""
    papers: dict[str, list[GalleryFigure]] = {}
    for each in exhibits:
        papers.setdefault(each.reference, []).append(each)
    parts = [
        "# Gallery",
        "The figures of the papers, run again from their descriptions. Each shows the picture, "
        "what the paper shows, what we see, and why they differ where they do. Where a paper does "
        "not say what it did, the text says what we did. `make gallery` makes them at a scale that "
        "takes minutes; `balaclava reproduce NAME --scale paper` plays as much as the paper did. "
        "Below its title each figure says at which of the two it was made.",
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
    """Text in which Markdown finds no marks."""
    return re.sub(r"([\\`*_<>\[\]#|~])", r"\\\1", text)


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
            # The other methods take the colours of large areas for those of thin lines.
            few = smaller.quantize(colours, method=Image.Quantize.FASTOCTREE)
            few.save(target, optimize=True)
            if target.stat().st_size <= _BYTES:
                return
        width = width * 3 // 4


def html_page(exhibits: Sequence[GalleryFigure]) -> str:
    """The page in HTML."""
    links = "".join(
        f'<li><a href="#{each.name}">{html.escape(each.name)}</a> {html.escape(each.title)}</li>'
        for each in exhibits
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Figures run again - balaclava</title><style>{_CSS}</style></head>\n"
        f"<body><h1>Figures run again</h1><ul>{links}</ul>\n"
        + "\n".join(_article(each) for each in exhibits)
        + "</body></html>\n"
    )


def _article(exhibit: GalleryFigure) -> str:
    parts = [
        f'<h2 id="{exhibit.name}">{html.escape(exhibit.title)}</h2>',
        f'<p class="soft">{html.escape(exhibit.name)}, {exhibit.scale} scale. '
        f"{html.escape(exhibit.reference)}</p>",
    ]
    parts += [
        f'<div class="wide"><a href="{picture}"><img src="{picture}" loading="lazy" '
        f'alt="{html.escape(exhibit.title)}"></a></div>'
        for picture in exhibit.pictures
    ]
    for title, points in exhibit.sections.items():
        bullets = "".join(f"<li>{html.escape(point)}</li>" for point in points)
        parts.append(f"<h3>{html.escape(title)}</h3><ul>{bullets}</ul>")
    return "\n".join(parts)

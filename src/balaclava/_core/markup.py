"""Tables: as text, and as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def html_table(caption: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table whose first column names the row.

    >>> html_table("a < b", ["x"], [[1]]).partition("</caption>")[0]
    '<table><caption>a &lt; b'
    """
    head = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in header)
    body = "".join(
        f"<tr><th>{html.escape(str(first))}</th>"
        + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in others)
        + "</tr>"
        for first, *others in rows
    )
    return (
        f"<table><caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def text_lines(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """The lines of a table, its columns side by side; the first `left` begin at the left.

    >>> text_lines([("arm", "mean"), ("a", "0.25")])
    ['arm  mean', 'a    0.25']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]

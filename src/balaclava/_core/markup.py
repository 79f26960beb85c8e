"""Tables as HTML, for notebooks."""

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

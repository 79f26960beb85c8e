"""Tables of a page, which scroll by themselves where a screen is narrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from balaclava.reporting.svg_charts import escape

NUMBER = "number"  # the class of a column that is set to the right


def wide_table(
    label: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    classes: Sequence[str] = (),
) -> str:
    """A table whose first column names the row; `classes` are those of the columns after it.

    >>> wide_table("Runs", ["policy", "runs"], [["a < b", "7"]], ["number"]).partition("<tbody>")[2]
    '<tr><th scope="row">a &lt; b</th><td class="number">7</td></tr></tbody></table></div>'
    """
    marks = [f' class="{name}"' if name else "" for name in classes]
    marks = ["", *marks, *[""] * (len(header) - 1 - len(marks))]
    head = "".join(
        f'<th scope="col"{mark if NUMBER in mark else ""}>{escape(cell)}</th>'
        for mark, cell in zip(marks, header, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(
            f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(marks[1:], others, strict=True)
        )
        + "</tr>"
        for first, *others in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(label)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )

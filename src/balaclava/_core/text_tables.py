"""Tables of results: as plain text, as HTML for notebooks, and for papers."""

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar, overload

from balaclava._core.extras import import_extra
from balaclava._core.number_format import UNKNOWN
from balaclava.errors import ParameterError

Row = TypeVar("Row")
_TEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"ε": r"$\varepsilon$", "δ": r"$\delta$", "±": r"$\pm$", UNKNOWN: "--"},
    }
)


class ResultTable(Sequence[Row]):
    """A sequence of rows that prints as a table; a subclass defines `row_cells`."""

    header: tuple[str, ...]
    paper_header: ClassVar[tuple[str, ...] | None] = None  # where it differs: papers show no title
    text_columns: ClassVar[int] = 1  # the first columns, aligned to the left; the rest are numbers
    title: str = ""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = tuple(rows)

    def row_cells(self, row: Row) -> tuple[str, ...]:
        """The cells of a row, as many as the header has."""
        raise NotImplementedError

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The table as strings, header first."""
        return [self.header, *map(self.row_cells, self)]

    @property
    def paper_cells(self) -> list[tuple[str, ...]]:
        """The cells under the header for papers."""
        return [self.paper_header or self.header, *self.cells[1:]]

    @property
    def text_lines(self) -> list[str]:
        """The lines of the table as plain text, without its title."""
        return text_lines(self.cells, self.text_columns)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, index: int | slice) -> Row | tuple[Row, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __str__(self) -> str:
        return "\n".join([self.title, "", *self.text_lines])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html_table(self.title, self.header, self.cells[1:])

    def to_markdown(self) -> str:
        """The table in Markdown, with numbers aligned to the right.

        Returns:
            Lines of cells between bars, without the title.
        """
        header, *rows = ([cell.replace("|", r"\|") for cell in row] for row in self.paper_cells)
        rule = ["---" if i < self.text_columns else "---:" for i in range(len(header))]
        return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows))

    def to_latex(self, columns: Sequence[str] | None = None) -> str:
        """The table as a LaTeX `tabular` with the rules of the package booktabs.

        Args:
            columns: Names of the columns, as `header` has them; by default all.

        Returns:
            The environment, without a float or a caption.

        Raises:
            ParameterError: If there is no such column.
        """
        names = self.header if columns is None else columns
        if unknown := [name for name in names if name not in self.header]:
            raise ParameterError(f"no column {unknown[0]!r}; give some of {', '.join(self.header)}")
        places = [self.header.index(name) for name in names]
        header, *rows = (
            " & ".join(row[i].translate(_TEX) for i in places) for row in self.paper_cells
        )
        alignment = "".join("l" if i < self.text_columns else "r" for i in places)
        body = "".join(f"{row} \\\\\n" for row in rows)
        return (
            f"\\begin{{tabular}}{{{alignment}}}\n\\toprule\n{header} \\\\\n\\midrule\n{body}"
            "\\bottomrule\n\\end{tabular}\n"
        )

    def to_pandas(self) -> Any:
        """The rows as a pandas frame, with unrounded numbers.

        Returns:
            A frame with a column for each field of a row.

        Raises:
            MissingPartError: If pandas is not installed.
        """
        pandas = import_extra("pandas", "a pandas frame")
        return pandas.DataFrame(list(self))


def html_table(caption: str, header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in HTML; the first column names the row.

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


def text_lines(rows: Sequence[Sequence[str]], text_columns: int = 1) -> list[str]:
    """The lines of a plain-text table; all but the first `text_columns` are aligned to the right.

    >>> text_lines([("arm", "mean"), ("a", "0.25")])
    ['arm  mean', 'a    0.25']
    """
    plain = [["-" if cell == UNKNOWN else cell for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < text_columns else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in plain
    ]

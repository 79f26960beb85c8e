"""Numbers as text in common notations: 1.5, 1,5, 1,234.5, $3, 20 %, True."""

from typing import Any

import numpy as np

from balaclava.errors import ParameterError

_MISSING_WORDS = r"(?i)^(na|n/a|nan|null|none|missing|-|\.|#n/a)?$"
_YES, _NO = r"(?i)^(true|yes)$", r"(?i)^(false|no)$"
_CURRENCY = "[$€£]"
FILL_MISSING = "fill missing values, or drop such rows with --drop-missing"
_WRITE_NUMBERS = "write numbers such as 1.5, and 1 for yes and 0 for no"


def to_array(column: Any) -> np.ndarray:
    """A pyarrow column as an array, without a copy if possible; NaN for null.

    Column.to_numpy would import pandas if it is installed, which takes half a second.

    >>> import pyarrow as pa
    >>> to_array(pa.array([1.5, None, 2.0])[1:]), to_array(pa.array([True, False])[1:])
    (array([nan,  2.]), array([False]))
    """
    if isinstance(column, np.ndarray):
        return column
    if column.null_count or len(column) == 0:
        kind = dtype_of(column)
        return np.array([np.nan if cell is None else cell for cell in column.to_pylist()], kind)
    data = column.buffers()[1]
    if str(column.type) == "bool":
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[column.offset :][: len(column)].astype(bool)
    return np.frombuffer(data, dtype_of(column))[column.offset :][: len(column)]


def dtype_of(column: Any) -> Any:
    """The numpy type of a column, without pandas, which old versions of pyarrow would import."""
    name = str(column.type)
    name = {"double": "float64", "float": "float32", "halffloat": "float16"}.get(name, name)
    return np.dtype(name) if name in np.sctypeDict else column.type.to_pandas_dtype()


def missing(column: Any, *, words: bool = True) -> np.ndarray:
    """A mask of missing cells: empty, NaN or null, or with `words` NA and similar."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type):
        pattern = _MISSING_WORDS if words else "^$"
        absent = pc.match_substring_regex(pc.utf8_trim_whitespace(column), pattern)
    elif pa.types.is_floating(column.type):
        absent = pc.is_nan(column)
    else:
        absent = pc.is_null(column)
    return to_array(pc.fill_null(absent, True))


def read_numbers(
    where: str,
    column: Any,
    *,
    commas_between_cells: bool = True,
    decimal: str | None = None,
    if_empty: str = FILL_MISSING,
) -> tuple[np.ndarray, list[str]]:
    """The column as finite floats, and its notation; errors name rows, not values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    notation: list[str] = []
    if pa.types.is_string(column.type):
        usual = None if decimal == "," or column.null_count else _plain(column)
        if usual is not None and np.isfinite(usual).all():
            return usual, notation
        refuse_rows(where, missing(column), "is empty", if_empty)
        column = pc.utf8_trim_whitespace(column)
        numbers = None if decimal == "," else _plain(column)
        if numbers is None:
            numbers, notation = _translated(where, column, commas_between_cells, decimal)
    else:
        numbers = _cast(where, column, if_empty)
    refuse_rows(where, ~np.isfinite(numbers), "is not finite", "remove or replace it")
    return numbers, notation


def refuse_rows(where: str, wrong: Any, what: str, advice: str) -> None:
    """Refuse a column if the mask `wrong` has a row; the error names the first."""
    mask = to_array(wrong)
    if mask.any():
        row = int(np.argmax(mask)) + 1
        raise ParameterError(
            f"{where} {what} in row {row} (the first row after the header is 1); {advice}"
        )


def _cast(where: str, column: Any, if_empty: str) -> np.ndarray:
    """Convert a typed column, as in a Parquet file."""
    import pyarrow as pa

    refuse_rows(where, column.is_null(), "is empty", if_empty)
    try:
        return to_array(column.cast(pa.float64(), safe=False))
    except pa.ArrowException:
        raise ParameterError(f"{where} holds {column.type}; {_WRITE_NUMBERS}") from None


def _plain(text: Any) -> np.ndarray | None:
    """The numbers if all text is in plain notation, else None.

    pyarrow's error quotes the value, so it must not become the context of ours.
    """
    import pyarrow as pa

    try:
        return to_array(text.cast(pa.float64()))
    except pa.ArrowException:
        return None


def _translated(
    where: str, text: Any, commas_between_cells: bool, decimal: str | None
) -> tuple[Any, list[str]]:
    """Convert text to numbers by the notation that all of it shares."""
    import pyarrow.compute as pc

    notation = []

    def there(pattern: str) -> Any:
        return pc.match_substring_regex(text, pattern)

    yes, no = there(_YES), there(_NO)
    if pc.any(pc.or_(yes, no)).as_py():
        refuse_rows(where, pc.invert(pc.or_(yes, no)), "is neither yes nor no", _WRITE_NUMBERS)
        return to_array(yes).astype(np.float64), ["yes and true as 1, no and false as 0"]
    if pc.any(there(_CURRENCY)).as_py():
        text = pc.replace_substring_regex(text, rf"^(-?)\s*{_CURRENCY}\s*|\s*{_CURRENCY}$", r"\1")
        notation.append("amounts with a currency sign")
    percent = there(r"%$")
    if pc.any(percent).as_py():
        refuse_rows(where, pc.invert(percent), "lacks the percent sign of others", _WRITE_NUMBERS)
        text = pc.replace_substring_regex(text, r"\s*%$", "")
        notation.append("percentages as shares of 1")
    mark = decimal or _decimal_mark(where, text, commas_between_cells)
    between = "." if mark == "," else ","
    if mark == ",":
        notation.append("decimal commas")
    elif pc.any(pc.match_substring(text, ",")).as_py():
        notation.append("commas between thousands")
    whole = rf"([0-9]+|[1-9][0-9]{{0,2}}([{between}][0-9]{{3}})+)"
    number = rf"(?i)^[+-]?({whole}[{mark}]?[0-9]*|[{mark}][0-9]+)(e[+-]?[0-9]+)?$|^[+-]?inf$"
    wrong = pc.invert(pc.match_substring_regex(text, number))
    refuse_rows(where, wrong, "is not a number", _WRITE_NUMBERS)
    text = pc.replace_substring(pc.replace_substring(text, between, ""), mark, ".")
    numbers = _plain(text)
    if numbers is None:  # a plus in front
        numbers = np.array([float(item) for item in text.to_pylist()])
    return (numbers / 100.0 if "percentages as shares of 1" in notation else numbers), notation


def _decimal_mark(where: str, text: Any, commas_between_cells: bool) -> str:
    """The decimal mark, comma or point; refused if ambiguous."""
    import pyarrow.compute as pc

    def some(pattern: str) -> bool:
        return bool(pc.any(pc.match_substring_regex(text, pattern)).as_py())

    if not some(","):
        return "," if some(r"^[+-]?[1-9][0-9]{0,2}(\.[0-9]{3}){2,}$") else "."
    with_comma = pc.match_substring(text, ",")
    thousands = pc.match_substring_regex(text, r"^[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.|$)")
    comma = some(r"\..*,") or pc.any(pc.and_(with_comma, pc.invert(thousands))).as_py()
    point = some(r",.*\.") or some(r",.*,")
    if comma and point:
        raise ParameterError(f"{where} has commas and points in both roles; {_WRITE_NUMBERS}")
    if comma or point:
        return "," if comma else "."
    if not commas_between_cells:  # so commas belong to the numbers
        return ","
    raise ParameterError(
        f"{where} has commas that could separate thousands or begin a fraction; choose with "
        f"--decimal, or {_WRITE_NUMBERS}"
    )

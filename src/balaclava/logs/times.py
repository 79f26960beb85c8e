"""Times as people write them: numbers, ISO 8601, 31.01.2026, 1/31/2026 9:05 PM."""

import datetime
import re
from typing import Any

import numpy as np

from balaclava._core.extras import require_extra
from balaclava.errors import ParameterError
from balaclava.logs.numerals import FILL_MISSING, refuse_rows, to_array

_DATES = ("%d.%m.%Y", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_FORMATS = tuple(date + clock for clock in _CLOCKS for date in _DATES)
_FIRST_YEAR = 1900  # earlier ones are years of two digits
_LAST_DAY_READ = 3  # of the month: 31.02. is read as 3.3., the latest of such dates
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_LENGTH_OF_TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smhdw]?)\s*", re.IGNORECASE)
_HOW_TO_WRITE = "write 2026-01-31, 2026-01-31T12:00 or numbers, or give --time-format"


def read_times(where: str, column: Any, time_format: str | None = None) -> tuple[np.ndarray, bool]:
    """Times as ascending numbers, and whether they are seconds: plain numbers have no unit.

    >>> import pyarrow as pa
    >>> times, seconds = read_times("log.csv: column 'when'", pa.array(["1.2.2026", "2.2.2026"]))
    >>> float(np.diff(times)[0]), seconds
    (86400.0, True)
    """
    require_extra("pyarrow", "reading times")
    import pyarrow as pa

    if time_format is not None:
        return _by_format(where, column, time_format)
    with_zone = (pa.timestamp("us", "UTC"), pa.int64())
    for kinds in ((pa.float64(),), (pa.timestamp("us"), pa.int64()), with_zone, (pa.int64(),)):
        times = column
        try:
            for kind in kinds:
                times = times.cast(kind, safe=False)
        except pa.ArrowException:
            continue
        refuse_rows(where, times.is_null(), "is empty", FILL_MISSING)
        return _in_seconds(times) if len(kinds) == 2 else (to_array(times).astype(float), False)
    return _by_usual_format(where, column)


def read_window(text: str, *, seconds: bool) -> float:
    """A length of time such as 30m, 24h or 7d in seconds, or a number in the unit of the log.

    >>> read_window("7d", seconds=True), read_window("500", seconds=False)
    (604800.0, 500.0)
    """
    match = _LENGTH_OF_TIME.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise ParameterError(f"window = {text!r} is not a length of time; write 30m, 24h or 7d")
    if bool(match[2]) != seconds:
        how = "write 30m, 24h or 7d" if seconds else "give a number in the unit of the time column"
        raise ParameterError(f"window = {text!r} does not suit the time column; {how}")
    return float(match[1]) * _SECONDS[match[2].lower() or "s"]


def _in_seconds(microseconds: Any) -> tuple[np.ndarray, bool]:
    return to_array(microseconds).astype(float) / 1e6, True


def _parsed(column: Any, time_format: str) -> Any:
    """The column as microseconds, or None if a cell does not have the format."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = pc.strptime(column, format=time_format, unit="us", error_is_null=True)
    if times.null_count or pc.min(pc.year(times)).as_py() < _FIRST_YEAR:
        return None
    return times.cast(pa.int64())


def _refuse_impossible_dates(where: str, text: Any, time_format: str, times: Any) -> None:
    """Refuse dates such as 31.02.2026, which pyarrow reads as 3.3.2026."""
    import pyarrow as pa
    import pyarrow.compute as pc

    early = to_array(pc.less_equal(pc.day(times.cast(pa.timestamp("us"))), _LAST_DAY_READ))
    wrong = np.zeros(early.size, bool)
    for row in np.flatnonzero(early).tolist():
        try:
            datetime.datetime.strptime(text[row].as_py(), time_format)
        except ValueError as error:
            wrong[row] = "out of range for month" in str(error)
    refuse_rows(where, wrong, "is not a date of the calendar", "correct it, or leave the row out")


def _text(where: str, column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        raise ParameterError(f"{where} holds {column.type}, not times; {_HOW_TO_WRITE}")
    refuse_rows(where, column.is_null(), "is empty", FILL_MISSING)
    return pc.utf8_trim_whitespace(column)


def _by_format(where: str, column: Any, time_format: str) -> tuple[np.ndarray, bool]:
    import pyarrow.compute as pc

    text = _text(where, column)
    times = pc.strptime(text, format=time_format, unit="us", error_is_null=True)
    advice = "write it like %d.%m.%Y %H:%M or %m/%d/%Y %I:%M %p"
    refuse_rows(where, times.is_null(), f"does not have the format {time_format!r}", advice)
    _refuse_impossible_dates(where, text, time_format, times)
    return _in_seconds(times.cast("int64"))


def _by_usual_format(where: str, column: Any) -> tuple[np.ndarray, bool]:
    """Try the usual formats; refuse if day and month cannot be told apart."""
    text = _text(where, column)
    fits = {}
    if len(text):
        fits = {each: times for each in _FORMATS if (times := _parsed(text, each)) is not None}
    if not fits:
        _refuse_odd_rows(where, text)
        raise ParameterError(f"{where} is not a time; {_HOW_TO_WRITE}")
    if len(fits) > 1:
        raise ParameterError(
            f"{where} could be day/month or month/day; give --time-format, such as "
            f"{next(iter(fits))!r}"
        )
    ((time_format, times),) = fits.items()
    _refuse_impossible_dates(where, text, time_format, times)
    return _in_seconds(times)


def _refuse_odd_rows(where: str, text: Any) -> None:
    """Name the first row that does not have the format of most."""
    import pyarrow.compute as pc

    for time_format in _FORMATS:
        times = pc.strptime(text, format=time_format, unit="us", error_is_null=True)
        if 2 * times.null_count < len(text):
            what = f"does not have the format {time_format!r} of most rows"
            refuse_rows(where, times.is_null(), what, _HOW_TO_WRITE)

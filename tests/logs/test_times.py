"""Times as people write them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from balaclava.errors import ParameterError
from balaclava.logs.times import read_times, read_window

WHERE = "log.csv: column 'when'"


@pytest.mark.parametrize(
    ("times", "apart"),
    [
        (["1", "2.5"], 1.5),
        (["2026-01-01", "2026-01-02"], 86_400),
        (["2026-01-01T10:00Z", "2026-01-01T11:00Z"], 3_600),
        (["31.01.2026", "1.2.2026"], 86_400),
        (["31.01.2026 23:00", "01.02.2026 00:30"], 5_400),
        (["1/31/2026 11:59:30 PM", "2/1/2026 12:00:00 AM"], 30),
        (["31/1/2026", "1/2/2026"], 86_400),
        (["2026/01/31 08:00", " 2026/01/31 09:00"], 3_600),
    ],
)
def test_usual_formats(times: list[str], apart: float) -> None:
    (first, second), seconds = read_times(WHERE, pa.array(times))
    assert second - first == pytest.approx(apart)
    assert seconds == (times[0] != "1")


def test_times_that_could_be_two_things_are_refused() -> None:
    times = pa.array(["1/2/2026", "3/4/2026"])
    with pytest.raises(ParameterError, match="could be day/month or month/day; give --time-format"):
        read_times(WHERE, times)
    (first, second), _ = read_times(WHERE, times, "%m/%d/%Y")
    assert second - first == 61 * 86_400
    for wrong in (["31.01.26"], ["31.31.2026"], ["soon"], ["1.2.2026", "2026-01-01"]):
        with pytest.raises(ParameterError, match="is not a time; write 2026-01-31"):
            read_times(WHERE, pa.array(wrong))
    with pytest.raises(ParameterError, match=r"does not have the format '%H:%M' in row 2"):
        read_times(WHERE, pa.array(["10:00", "10"]), "%H:%M")
    with pytest.raises(ParameterError, match="is empty in row 1"):
        read_times(WHERE, pa.array([None, "31.01.2026"]))
    with pytest.raises(ParameterError, match="not times"):
        read_times(WHERE, pa.array([True]), "%H:%M")


@pytest.mark.parametrize("time_format", [None, "%d.%m.%Y %H:%M"])
def test_dates_that_do_not_exist_are_refused_with_their_row(time_format: str | None) -> None:
    """pyarrow reads the second as 3 March."""
    times = ["03.03.2026 09:00", "31.02.2026 03:03", "13.03.2026 09:00"]
    with pytest.raises(ParameterError, match="not a date of the calendar in row 2 "):
        read_times("log", pa.array(times), time_format)


def test_a_row_unlike_the_others_is_named() -> None:
    with pytest.raises(ParameterError, match=r"format '%d.%m.%Y' of most rows in row 2 "):
        read_times("log", pa.array(["13.3.2026", "yesterday", "14.3.2026"]))


def test_windows() -> None:
    assert read_window("90m", seconds=True) == read_window("1.5 h", seconds=True) == 5_400
    for wrong in ("7", "0d", "-1d", "week", "7d ago"):
        with pytest.raises(ParameterError, match="window = "):
            read_window(wrong, seconds=True)
    with pytest.raises(ParameterError, match="give a number in the unit of the time column"):
        read_window("7d", seconds=False)

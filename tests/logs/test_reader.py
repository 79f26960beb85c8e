"""The reader of logs: files as they come, read once, and errors that repeat no reward."""

from __future__ import annotations

import datetime
import gzip
import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.logs.cells import ReadOptions
from balaclava.logs.reader import read_log

PLAIN = "arm,reward\nb,0.5\na,1\nb,1234.5\n"
WANTED = {"a": [1.0], "b": [0.5, 1234.5]}


def read(path: Path, content: str | bytes, encoding: str = "utf-8") -> Any:
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return read_log(path, arm="arm", reward="reward")


def as_lists(log: Any) -> dict[Any, list[float]]:
    return {arm: rewards.tolist() for arm, rewards in log.by_arm.items()}


@pytest.mark.parametrize(
    ("content", "encoding", "detected"),
    [
        (PLAIN, "utf-8", ()),
        (PLAIN, "utf-8-sig", ()),
        (PLAIN.replace("\n", "\r\n"), "utf-8", ()),
        (PLAIN, "utf-16", ("text in utf-16",)),
        ("é," + PLAIN.replace("\n", "\nx,", 3), "latin-1", ("text in cp1252",)),
        (PLAIN.replace(",", "\t"), "utf-8", ("tabs between cells",)),
        (PLAIN.replace(",", "|"), "utf-8", ("bars between cells",)),
        ("arm, reward\n b , 0.5\n a, 1\nb, +1234.5 \n", "utf-8", ()),
        (
            "arm;reward\nb;0,5\na;1\nb;1.234,5\n",
            "utf-8",
            ("semicolons between cells", "decimal commas"),
        ),
        (
            'note,arm,reward\n"two\nlines",b,0.5\n,a,1\n"a, b",b,"1,234.5"\n',
            "utf-8",
            ("commas between thousands",),
        ),
        ("sep=;\n" + PLAIN.replace(",", ";"), "utf-8", ("semicolons between cells",)),
        ("arm,reward\nb,$0.50\na,$1\nb,$1234.5\n", "utf-8", ("amounts with a currency sign",)),
        ("arm,reward\nb,50%\na,100 %\nb,123450%\n", "utf-8", ("percentages as shares of 1",)),
    ],
)
def test_files_as_they_come(
    tmp_path: Path, content: str, encoding: str, detected: tuple[str, ...]
) -> None:
    log = read(tmp_path / "log.csv", content, encoding)
    assert as_lists(log) == WANTED
    assert log.detected == detected


def test_packed_and_typed_files(tmp_path: Path) -> None:
    log = read(tmp_path / "log.csv.gz", gzip.compress(PLAIN.encode()))
    assert as_lists(log) == WANTED
    assert log.detected == ("packed with gzip",)
    path = tmp_path / "log.parquet"
    for rewards in (pa.array([True, False]), pa.array(["yes", "No"]), pa.array([1, 0], pa.int8())):
        parquet.write_table(pa.table({"arm": [3, 10], "reward": rewards}), path)
        assert as_lists(read_log(path, arm="arm", reward="reward")) == {3: [1.0], 10: [0.0]}


def test_an_environment_is_told_how_to_read_as_compare_is(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes("Größe;reward\nb;1.234\na;2\nb;NA\n".encode("cp1252"))
    with pytest.raises(ParameterError, match="is empty in row 3"):
        bl.environment("empirical", path=path, arm="Größe")
    world = bl.environment(
        "empirical", path=path, arm="Größe", sep=";", encoding="cp1252", decimal=",",
        drop_missing=True,
    )  # fmt: skip
    assert world.means.tolist() == [2.0, 1234.0]
    assert bl.environment("empirical", **world.parameters) == world
    with pytest.raises(ParameterError, match="decimal = ';' is not allowed"):
        bl.environment("empirical", path=path, decimal=";")


def test_yes_and_no(tmp_path: Path) -> None:
    log = read(tmp_path / "log.csv", "arm,reward\na,True\nb,FALSE\na,no\n")
    assert as_lists(log) == {"a": [1.0, 0.0], "b": [0.0]}
    assert log.detected == ("yes and true as 1, no and false as 0",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arm,reward\na,0.777\nb,x0.777\n", "'reward' is not a number in row 2"),
        ("arm,reward\na,0.777\nb,0.7.7.7\n", "'reward' is not a number in row 2"),
        ("arm,reward\na,0.777\nb,\n", "'reward' is empty in row 2 .*give --missing 0"),
        ("arm,reward\na,0.777\nb,NA\n", "'reward' is empty in row 2"),
        ("arm,reward\na,0.777\nb,nan\n", "'reward' is empty in row 2"),
        ("arm,reward\na,0.777\nb,inf\n", "'reward' is not finite in row 2"),
        ("arm,reward\na,0.777\n,0.777\n", "'arm' is empty in row 2"),
        ("arm,reward\na,0.777\nb,0.777,0.777\n", "line 3"),
        ("arm,reward\na,0.777\nb,True\n", "neither yes nor no in row 1"),
        ("arm,reward\na,0.777\nb,77.7%\n", "lacks the percent sign of others in row 1"),
        ('arm,reward\na,"1,777"\n', "could separate thousands or begin a fraction"),
        ('arm,reward\na,"1,777.5"\nb,"1.777,5"\n', "in both roles"),
        ("arm,gain\na,0.777\n", r"no column 'reward' \(reward\); known: arm, gain"),
        ("arms,reward\na,0.777\n", r"no column 'arm' \(arm\); did you mean 'arms'"),
        ("a,0.777\nb,0.777\n", "no column 'arm'.*first row does not name columns"),
        ("a;0.777\nb;0.777\n", "no column 'arm'.*first row does not name columns"),
        ("a,$0.777\nb,$0.777\n", "first row does not name columns"),
        ("arm,reward,reward\na,0.777,1\n", "more than one column 'reward'"),
        ("arm,reward\n", "no rows"),
        ("", "is empty; give a header"),
        ("PAR1 and no more", "not a well-formed Parquet"),
        ("\0\0777\0", "is not a CSV or Parquet file"),
        ('arm,reward\n"a,0.777\n', "not a well-formed CSV"),
    ],
)
def test_a_broken_log_is_refused_by_row_and_never_by_reward(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        read(tmp_path / "log.csv", text)
    assert "777" not in str(caught.value).replace(str(tmp_path), "")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_other_files_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(ParameterError, match="cannot be read"):
            bl.environment("empirical", path=path)
    with zipfile.ZipFile(tmp_path / "log.xlsx", "w") as file:
        file.writestr("[Content_Types].xml", "777")
    with pytest.raises(ParameterError, match="save the sheet as CSV"):
        read_log(tmp_path / "log.xlsx", arm="arm", reward="reward")
    with pytest.raises(ParameterError, match="gzip cannot unpack it"):
        read(tmp_path / "log.gz", gzip.compress(PLAIN.encode())[:-9])
    with pytest.raises(ParameterError, match="both 'arm'; give the names of two columns"):
        read_log(tmp_path / "none.csv", arm="arm", reward="arm")
    parquet.write_table(
        pa.table({"arm": ["a"], "reward": [datetime.date(2026, 1, 1)]}), tmp_path / "log.parquet"
    )
    with pytest.raises(ParameterError, match="'reward' holds date32"):
        read_log(tmp_path / "log.parquet", arm="arm", reward="reward")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_log_is_read_once(tmp_path: Path) -> None:
    """What comes through a pipe is gone after it was read: a second look would find nothing."""
    from balaclava.advice.log.log_reading import summarise_log as read_findings

    pipe = tmp_path / "log.csv"
    os.mkfifo(pipe)
    content = "page,paid\n" + "a,0\nb,1\n" * 30
    writer = threading.Thread(target=pipe.write_text, args=(content,), daemon=True)
    writer.start()
    log = read_findings(pipe, arm="page", reward="paid")
    writer.join()
    assert log.counts == {"a": 30, "b": 30}


def test_a_log_without_a_complete_row_says_how_many_were_dropped(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("arm,reward\n" + "a,\n" * 8_500, encoding="utf-8")
    with pytest.raises(ParameterError, match=r"each of its 8,500 rows lacks a value .* 'reward'"):
        read_log(path, arm="arm", reward="reward", read_options=ReadOptions(drop_missing=True))

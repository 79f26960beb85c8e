"""`bl.reproduce`: names, scales and folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import ParameterError, ResultsFileError, UnknownNameError


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_an_unknown_figure() -> None:
    with pytest.raises(UnknownNameError, match=r"'wang2024-fig9'; did you mean 'wang2024-fig"):
        bl.reproduce("wang2024-fig9")
    answer = invoke("reproduce", "wang2024-fig1", "wang2024-fgi2")
    assert answer.exit_code == 2
    assert answer.output == (
        "balaclava: no figure is called 'wang2024-fgi2'; did you mean 'wang2024-fig2'?\n"
    )


def test_an_unknown_scale(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="scale = 'huge' is not allowed; give one of quick"):
        bl.reproduce("wang2024-fig1", scale="huge", out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for out in (blocked, blocked / "inside"):
        with pytest.raises(ResultsFileError, match=r"created or written: .*; choose another"):
            bl.reproduce("wang2024-fig4", out=out)
    answer = invoke("reproduce", "wang2024-fig4", "--out", str(blocked))
    assert answer.exit_code == 2
    assert answer.output.startswith("balaclava: out = ")


def test_the_folder_is_named_after_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = invoke("reproduce", "wang2024-fig3")
    assert answer.exit_code == 0
    assert "wrote wang2024-fig3.csv, wang2024-fig3.png, wang2024-fig3.txt" in answer.output
    assert (tmp_path / "wang2024-fig3" / "wang2024-fig3.png").exists()

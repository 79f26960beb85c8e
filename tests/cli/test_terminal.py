"""Tables on the terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

from balaclava.cli import terminal
from balaclava.simulation.analysis.summary import OPTIONAL_COLUMNS


@pytest.mark.parametrize("width", [120, 80, 50, 30])
def test_a_table_fits_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer, and no word or number is broken."""
    monkeypatch.setattr(terminal, "_console", lambda: Console(width=width, color_system=None))
    header = ("policy", "privacy", "mean regret", *(f"{q} %" for q in (5, 25, 50, 75, 95)))
    row = ("bolder(radius_scale=0.25)", "not private", *("123456.7",) * 6)
    terminal.print_table(header, [row, row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(lines).replace(";", " ").split()
    assert words.count("123456.7") == 12
    assert words.count("bolder(radius_scale=0.25)") == 2


def test_columns_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "_console", lambda: Console(width=80, color_system=None))
    header = ("policy", "privacy", "repetitions", "mean regret", "5 %", "25 %", "50 %", "75 %")
    row = ("dp-imed", "ε=1 per trajectory", "40", *("123456.7",) * 5)
    terminal.print_table(header, [row], OPTIONAL_COLUMNS, "--wide shows all columns")
    title, numbers, note = capsys.readouterr().out.splitlines()
    assert title.split("  ")[0] == "policy"
    assert max(map(len, (title, numbers, note))) <= 80
    assert numbers.split()[-1] == "123456.7"
    left_out = [each for each in header if each not in title]
    assert left_out == ["25 %", "75 %"]
    assert note == "Left out for the width: 25 %, 75 %; --wide shows all columns."


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal._console().no_color
    monkeypatch.delenv("NO_COLOR")
    assert not terminal._console().no_color


def test_a_long_cell_breaks_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_console", lambda: Console(width=20))
    words = "plays the arm whose estimate, perturbed by noise, is largest"
    terminal.print_table(("policy", "rule", "rewards"), [("a-policy", words, "in [0, 1]")])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 20
    assert " ".join(" ".join(lines).split()) == f"a-policy rule: {words}; rewards: in [0, 1]"

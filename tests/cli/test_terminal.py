"""Tables on the terminal."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("width", [120, 80, 50, 30])
def test_a_table_fits_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer, and no word or number is broken."""
    from rich.console import Console

    from balaclava.cli import terminal

    monkeypatch.setattr(terminal, "_console", lambda: Console(width=width, color_system=None))
    header = ("policy", "privacy", "mean regret", *(f"{q} %" for q in (5, 25, 50, 75, 95)))
    row = ("bolder(radius_scale=0.25)", "not private", *("123456.7",) * 6)
    terminal.print_table(header, [row, row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(lines).replace(";", " ").split()
    assert words.count("123456.7") == 12
    assert words.count("bolder(radius_scale=0.25)") == 2

"""Check the files that a figure of this paper saves."""

from __future__ import annotations

import balaclava as bl

PNG = b"\x89PNG\r\n"


def check_files(made: bl.Reproduction, endings: list[str]) -> None:
    assert [path.suffix[1:] for path in made.files] == endings
    for path in made.files:
        content = path.read_bytes()
        assert content
        if path.suffix == ".png":
            assert content.startswith(PNG)
    assert made.files[-1].read_text() == f"{made}\n"
    for title in ("What the paper shows", "What we see", "Where they differ, and why"):
        assert title in made.text

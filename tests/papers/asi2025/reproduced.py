"""Reproduce a figure of this paper at the scale of tests."""

from __future__ import annotations

import csv
from pathlib import Path

import balaclava as bl

TITLES = ("What the paper shows", "What we see", "Where they differ, and why")


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def make(name: str, folder: Path) -> tuple[bl.Reproduction, list[dict[str, str]]]:
    made = bl.reproduce(f"asi2025-{name}", scale="tiny", out=folder)
    assert [path.suffix for path in made.files] == [".csv", ".png", ".txt"]
    assert made.files[1].read_bytes().startswith(b"\x89PNG")
    assert made.files[2].read_text() == f"{made}\n"
    assert all(title in made.text for title in TITLES)
    return made, read(made.files[0])

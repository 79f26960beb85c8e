"""Helpers for tests of figures."""

from __future__ import annotations

import csv
from pathlib import Path

import balaclava as bl


def squeezed(made: bl.Reproduction) -> str:
    return " ".join(made.text.split())


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def check(made: bl.Reproduction, folder: Path, pictures: list[str]) -> None:
    """Pictures, data of every panel, and a text with its three parts."""
    for picture in pictures:
        path = folder / f"{made.name}{picture}.png"
        assert path in made.files
        assert path.read_bytes().startswith(b"\x89PNG\r\n")
    for letter, results in made.results.items():
        saved = bl.load(folder / f"{made.name}{letter}.parquet")
        assert saved.labels == results.labels
    assert (folder / f"{made.name}.txt").read_text() == f"{made}\n"
    for title in ("What the paper shows", "What we see", "Where they differ, and why"):
        assert title in made.text

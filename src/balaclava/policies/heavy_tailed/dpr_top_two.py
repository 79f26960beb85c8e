"""DPR top two: name the best arm of heavy-tailed or contaminated rewards, with proved radii."""

import math
from typing import Any

from balaclava._core import declared
from balaclava._core.kernels import kernel
from balaclava.frames import pools as frame
from balaclava.policies.base import Kernels, PrivateRealPolicy, register
from balaclava.policies.bounded.dp_top_two import AnswerConfidence
from balaclava.policies.heavy_tailed import dpr_batch_ucb as batches

CONFIDENCE_ROUNDING = 1e-12  # relative, above the error of 1 - confidence


@kernel(borrows=True)
def leader_or_rival(params: Any, state: batches.State, t: int) -> int:
    """The leader or the arm with the highest upper limit, whichever has the larger radius.

    The leader alone once its lower limit is above all upper limits.
    """
    pools, lead, rival, highest = state.pools, state.pools.lead[0], -1, -math.inf
    for arm in range(params.arms):
        upper = pools.means[arm] + state.widths[arm]
        if arm != lead and pools.weights[arm] > 0 and upper > highest:
            rival, highest = arm, upper
    known = highest < pools.means[lead] - state.widths[lead]
    if known or rival < 0 or not pools.ready[rival]:
        return int(lead)
    wider = state.widths[lead] > state.widths[rival] and pools.ready[lead]
    return int(lead if wider else rival)


decide = frame.batch_driver(leader_or_rival, batches.prepare_batch)


@kernel(borrows=True)
def choose(params: Any, state: batches.State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return decide(params, state, state.pools, t, rng)


@register
class DPRTopTwo(batches.BatchUCBPolicy, PrivateRealPolicy):
    r"""Name the best arm of heavy-tailed rewards with a given confidence; then play it.

    For a shop that asks which offer brings more revenue, with or without outliers, if a trusted
    server holds the rewards. For rewards in a known range dp-top-two needs far fewer rounds; for
    low regret use dpr-batch-ucb.

    Batches, truncation, centres and radii R are those of dpr-batch-ucb, for a failure probability
    of (1 - confidence)/(2 arms). The leader has the highest released mean; the rival is the other
    arm with the highest mean + R. The next batch goes to the one with the larger R. If the leader's
    mean - R is above every other mean + R, it is the winner, and is played from then on. All limits
    hold together in every round except with probability 1 - confidence, so a wrong arm is ever
    named with at most that probability, also with late rewards (`theory.batch_radii`). If several
    arms are best, no arm is named. With outliers R has a limit above 0 (`policy.schedule.radii`),
    and means that differ by less than twice it cannot be told apart.

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward enters the sum of one
        batch, of sensitivity 2B, which is released once. Sizes and levels are fixed; centres,
        choices and the answer follow from released values.

    Parameters:
        moment_order: p, above 1.
        moment_bound: u, a bound on E|X|^p, or on E|X - mu|^p if mean_range is given.
        confidence: chance that the named arm is the best, above 0.5.
        horizon: a bound on the rounds that will be played; radii are slightly smaller with it.
        contamination: bound on the share of rewards that are arbitrary outliers.
        failure_probability: of the radii of an arm on one side, in place of the above.
        radius_scale: multiplies R; below 1 there is no proof, and no winner is named.
        first_batch: pulls in an arm's first batch, by default as in dpr-batch-ucb.
        mean_range: D, the means lie in [-D, D].

    Example:
        >>> policy = bl.policy("dpr-top-two", arms=2, epsilon=1.0, moment_order=2.0,
        ...                    moment_bound=4.0, mean_range=5.0)
        >>> agent = policy.agent(seed=1)
        >>> while agent.winner() is None:
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(1.0, 4.0)[decision.arm])
        >>> agent.winner(), agent.status().decisions
        (1, 4096)
    """

    name = "dpr-top-two"
    reference = "balaclava: LUCB (Kalyanakrishnan et al. 2012) with the radii of dpr-batch-ucb"
    cites = "Kalyanakrishnan, Tewari, Auer, Stone 2012; Tao, Wu, Zhao, Wang 2022"
    see_also = "dp-top-two, dpr-batch-ucb"
    kernels = Kernels(batches.begin, choose, batches.learn, batches.forget)
    fixed_arms = (
        "the failure probability of its radii, and so the truncation, is divided among the arms at "
        "the start; dpr-batch-ucb can"
    )
    winner_reason = "it plays the arms that are hardest to tell apart until the best is known"
    confidence: AnswerConfidence = 0.95
    mean_range: declared.MeanRange | None = None
    examples = (
        {"horizon": 600, "first_batch": 8, "radius_scale": 0.1},
        {"horizon": 600, "first_batch": 8, "radius_scale": 0.1, "mean_range": 5.0},
        {"first_batch": 16, "mean_range": 2.0, "contamination": 0.1, "moment_order": 3.0},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arms < 2:
            raise self.refuse("arms", "leaves nothing to compare; give at least 2")

    @property
    def radius_failure(self) -> float:
        """beta: half of an arm's share of 1 - confidence, less the rounding of that difference."""
        share = (1.0 - CONFIDENCE_ROUNDING) * (1.0 - self.confidence) / self.arms
        return self.failure_probability or 0.5 * share

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        return None

"""Did an arm's mean change? A test on released batches, with a stated rate of false alarms.

An arm has released m batches, each as its sum plus Laplace noise of scale b (see
`confidence_sequences` for the setting, M, A and B). For a number of batches k < m, compare the
first k with the later ones, as if they were two arms: if the mean did not change, both have it.

    E(k) = min over y of log A(y) of the first k + log B(y) of the later ones, or the reverse,

where A(y) is the mixture for a mean of at least y, and B(y) that for a mean of at most y. The test
calls the mean changed once, for some k in 1, ..., m - 1,

    E(k) >= log(2 k (k + 1) / alpha).

If the arm's mean never changes, it ever does so, at any time, with probability at most alpha.

Proof.
    Fix k and one direction, and let mu be the mean. Stop A(mu) after the first k batches and start
    B(mu) there. A batch that counts changes one of the two factors: A before, B after. Given what
    was known when it began to count, the batch multiplies the factor of each rate by a number of
    mean at most 1 (`confidence_sequences`, Proof). So the product is a supermartingale that starts
    at 1. By Ville's inequality it ever reaches 2 k (k + 1)/alpha with probability at most
    alpha/(2 k (k + 1)), and the minimum over y is no larger than it is at y = mu. There are two
    directions, and 1/(k (k + 1)) adds up to 1 over k. To try some of the k only lowers the
    probability.

    Sizes of batches may depend on earlier releases: they are fixed before the batch's first reward.
    The noise may be that of a simulation or the discrete noise of an agent, and rewards are rounded
    to the grid first: `laplace_scale` and the grid in `pair_evidence` allow for both.

    Batches count here in the order in which they settle. Given the released values, and if neither
    when nor whether a reward comes depends on its value, the rewards of the next batch to settle
    have the law by which they were drawn. That is what the guarantee assumes with
    settle="arrival", and it holds always with settle="window", where every decision has one delay.

After a restart the test begins again, with batches that were opened later. Given all that was
released before, the same proof holds for them. So from every restart to the next change, a false
one has probability at most alpha an arm.

The test reads released values only, so it costs no epsilon.
"""

import math

from balaclava._core.kernels import kernel
from balaclava.theory.confidence_sequences import laplace_scale, pair_evidence

# Probability, for each arm, that it is ever called changed though it did not. Detection waits for
# log(1/alpha), so it is flat (docs/figures.md, Means that change).
FALSE_ALARMS = 0.01
# Standard errors of the difference below which the evidence is not computed: it could not reach
# log(4/alpha) = 6 nats, which is about the square of 3.5 errors over 2.
_LEAST_ERRORS = 2.0
# Change points are tried 1, 2, 4, ... batches back, so far; 8 to 64 do the same.
MOST_BATCHES_BACK = 32


@kernel(borrows=True)
def change_evidence(
    before: tuple[float, int, int], after: tuple[float, int, int], epsilon: float
) -> float:
    """Evidence in nats that the mean of the later batches is not that of the first ones.

    Each part is given by its released mean, rewards and draws of noise.

    Example:
        >>> round(change_evidence((0.75, 5_000, 12), (0.55, 480, 2), 1.0), 1)
        33.8
        >>> change_evidence((0.75, 5_000, 12), (0.74, 480, 2), 1.0)
        0.0
    """
    if before[1] < 1 or after[1] < 1:
        return 0.0
    scale = laplace_scale(epsilon)
    pooled = (before[0] * before[1] + after[0] * after[1]) / (before[1] + after[1])
    pooled = min(max(pooled, 0.0), 1.0)
    variance = 0.0
    for _, n, draws in (before, after):
        variance += pooled * (1.0 - pooled) / n + 2.0 * draws * (scale / n) ** 2
    apart = abs(before[0] - after[0])  # not squared: it may be that of a forged save
    if apart < _LEAST_ERRORS * math.sqrt(variance):
        return 0.0
    if before[0] < after[0]:
        return pair_evidence(before, after, scale, 1.0)
    return pair_evidence(after, before, scale, 1.0)


@kernel(borrows=True)
def change_threshold(batches: int, false_alarms: float) -> float:
    """Evidence in nats that shows a change after the first `batches`."""
    return math.log(2.0 * batches * (batches + 1.0) / false_alarms)


def latest_change(
    releases: list[tuple[float, int]],
    whole: tuple[float, int, int],
    epsilon: float,
    noises: int = 1,
) -> bool:
    """Whether an arm's releases show that its mean changed.

    Args:
        releases: Sum and rewards of its latest batches, the newest first.
        whole: Mean, rewards and number of all its batches.
        epsilon: Privacy loss of a release.
        noises: Draws of noise in a release.

    Returns:
        True if they do, after 1, 2, 4, ... batches back.
    """
    (mean, n, batches), total, more = whole, 0.0, 0
    for back, (released, rewards) in enumerate(releases[: min(batches - 1, MOST_BATCHES_BACK)], 1):
        total, more = total + released, more + rewards
        if back & (back - 1) == 0 and n > more:  # a power of two
            before = (mean * n - total) / (n - more), n - more, noises * (batches - back)
            evidence = change_evidence(before, (total / more, more, noises * back), epsilon)
            if evidence >= change_threshold(batches - back, FALSE_ALARMS):
                return True
    return False

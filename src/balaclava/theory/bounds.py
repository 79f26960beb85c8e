"""Lower bounds on the regret of every private policy.

Rewards in [0, 1], privacy of whole trajectories:

- `minimax` holds for every horizon, on the worst instance.
- `instance` and `private_kl_instance` bound the limit of regret / log(horizon), for policies that
  are good on all instances. At a finite horizon a policy may be below them.
- `wang_zhu` holds at a given horizon, for policies that are good on all instances.

Rewards whose moment of order 1 + v is at most 1, on the instances of
`balaclava.environments.hard_instances`:

- `heavy_tailed_pair`, `heavy_tailed_arms` and `heavy_tailed_minimax`: privacy of trajectories.
- `local_pair`, `local_arms` and `local_minimax`: privacy of each report.

`identification` bounds the rounds that it takes to name the best arm, not the regret.

`contaminated_order` is for rewards with outliers, without constants; `early_commitment` is for
losses. All other functions return the regret. All raise `ParameterError` if an argument is out of
range.

>>> round(minimax(arms=9, horizon=10**6, epsilon=1.0), 1)
104.8
>>> round(private_kl_instance([0.25, 0.75], horizon=10**6, epsilon=1.0), 2)
17.59
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from balaclava._core import declared
from balaclava._core.declared import Arms, Horizon, Range, check
from balaclava._core.docstrings import checked
from balaclava.errors import ParameterError
from balaclava.estimators.kl import kl
from balaclava.privacy.exact_noise import LARGEST_EXPONENT

_BernoulliMeans = Annotated[np.ndarray, Range(0, 1, "means of Bernoulli arms"), 1]
PairGap = Annotated[float, Range(0, 0.2, "difference of the two means", open_low=True)]
TailOrder = Annotated[float, Range(1, 2, "1 + v, order of the moment", open_low=True)]
_Loss = Range(declared.SMALLEST_EPSILON, declared.LARGEST_EPSILON, "privacy loss of a report")
_ReportEpsilon = Annotated[float, _Loss]
_RunEpsilon = Annotated[float, replace(_Loss, meaning="privacy loss of the whole trajectory")]
_EpsilonUpTo1 = Annotated[
    float, Range(0, 1, "privacy loss of the whole trajectory, at most 1", open_low=True)
]
_Exponent = Annotated[
    float, Range(0, 1, "a: the policy's regret grows no faster than T^a", open_high=True)
]
_Constant = Annotated[float, Range(0, meaning="c of that growth", open_low=True)]
_ErrorChance = Annotated[
    float, Range(0, 0.5, "chance of naming a wrong arm", open_low=True, open_high=True)
]
_Share = Annotated[float, Range(0, 1, "gamma", open_low=True)]
_Changed = Annotated[float, Range(0, meaning="p", open_low=True)]
_Switch = Annotated[float, Range(0, meaning="tau")]
# Relative float error that a condition on whole rounds forgives.
_CONDITION_TOLERANCE = 1e-9
# Steps of searches. The interval shrinks by 0.618^30 = 5e-7, the error of a minimum by its square.
_SEARCH_STEPS = 30


@checked
def wang_zhu(
    *,
    horizon: Horizon,
    epsilon: declared.EpsilonOrZero,
    delta: declared.Delta = 0.0,
    exponent: _Exponent,
    constant: _Constant,
    arms: Arms = 2,
) -> float:
    r"""Regret with one arm of mean 1/2 and the others of mean 1/4 (Wang and Zhu 2024, Theorem 4).

    If a policy's regret is at most c T^a on every instance of K arms, then on this one it is at
    least

    .. math::
        \frac{(K - 1) L}{16 \varepsilon}, \quad
        L = \log \frac{E S + 5 \delta S}{40 c E + 5 \delta S}, \quad
        E = e^\varepsilon - 1, \quad S = T^{1-a}, \qquad \text{if } T \ge 3 L / \varepsilon.

    The paper states it for two arms, and its order for more (Remark 6).

    Proof, for the privacy of whole trajectories and every epsilon. Let n = 3 L / (2 epsilon), and
    suppose that arm i is pulled at most n / 4 times on average. Then A = {at most n pulls of i}
    has P(A) >= 3/4. Turn each 0 of arm i into a 1 with probability q = 2/3: its mean is now 3/4,
    the best by 1/4. At most M of n pulls are changed, where M does not depend on the rewards and
    E M = q n. By group privacy the probability of A is now at least the average of
    e^(-epsilon M) (P(A) + delta/E) - delta/E. By Jensen this is at least its value at
    M = q n = L / epsilon, which is above 8 c / S. But A costs (T - n) / 4 >= T/8, so that its
    probability is at most 8 c / S: a contradiction. So each of the K - 1 arms is pulled more than
    n / 4 times.

    For delta above 0 the guarantee must also cover rewards that depend on earlier decisions.

    The paper's own notion of privacy is on average over rewards. It charges one expected change at
    a time: each 0 becomes a 1 with probability 1/n, and this is done n log 3 times, rounded up.
    The bound holds for it too, as the proof uses only P(A) > 1/5. Let n be the largest whole
    number with n log 3, rounded up, at most L / epsilon: arm i is pulled at least 4 (n + 1) / 5
    times.

    Returns:
        The bound, or 0 if the horizon is too short for the theorem.

    Example:
        >>> round(wang_zhu(horizon=10**6, epsilon=3.0, exponent=0.5, constant=1.0), 4)
        0.0671
    """
    if epsilon == 0.0 and delta == 0.0:
        raise ParameterError("epsilon and delta are both 0, so that no policy can learn; raise one")
    saved = horizon ** (1.0 - exponent)
    if 40.0 * constant >= saved:
        return 0.0
    ratio = _log_per_epsilon(epsilon, delta, saved, 40.0 * constant)
    return (arms - 1) * ratio / 16.0 if horizon >= 3.0 * ratio else 0.0


def _log_per_epsilon(epsilon: float, delta: float, saved: float, least: float) -> float:
    """L / epsilon, also in the limit epsilon = 0."""
    if epsilon == 0.0:
        return (saved - least) / (5.0 * delta * saved)
    excess = math.expm1(min(epsilon, LARGEST_EXPONENT))
    grown = excess * (saved - least) / (least * excess + 5.0 * delta * saved)
    return math.log1p(grown) / epsilon


@checked
def minimax(*, arms: Arms, horizon: Horizon, epsilon: _RunEpsilon) -> float:
    r"""Regret of any private policy on its worst instance.

    .. math::
        \max\{ \min\{\sqrt{T (K-1)}, T\} / 27,\;
        \min\{ (K-1) / (131 \varepsilon),\; (T/8) e^{-\varepsilon T / (2m)} \} \}

    with m = max{1, (K-1)/4}. The exponential term applies only while T < 2m / epsilon. The
    constants 27 and 131 are those of Azize and Basu (2022). They state no condition on T; for short
    horizons their terms exceed any possible regret.

    Proof of the first term. It is below min{sqrt(K T), T} / 20, which holds for rewards in [0, 1],
    every T and every policy (Auer, Cesa-Bianchi, Freund, Schapire 2002, Theorem 5.1).

    Proof of the second. Let arm 0 have mean D and the others 0, with D <= 1/2. Some other arm a is
    pulled at most T / (K-1) times in expectation. Let t = min{T/2, 2T / (K-1)} = T / (2m). The
    event A that a is pulled at most t times has probability at least 1/2. Otherwise t = T/2, and
    arm 0 is missed in more than T/2 rounds with probability 1/2, a regret of T D / 4. Now turn
    each 0 of arm a into a 1 with probability 2D, so that a is the best arm by D. For given
    decisions in A, at most M rewards change: the number of successes among t coins, which depends
    on neither rewards nor decisions. By privacy the probability of A is now at least
    E[e^(-epsilon M)] P(A), and by Jensen at least e^(-2 epsilon D t) / 2. In A arm a is missed in
    at least T/2 rounds. So the regret of one of the two is at least

    .. math:: (T D / 4) e^{-\varepsilon T D / m}.

    With D = min{1/2, m / (epsilon T)} this is m / (4 e epsilon) >= (K-1) / (16 e epsilon), which
    is above (K-1) / (131 epsilon), or (T/8) e^(-epsilon T / (2m)) if T < 2m / epsilon.

    Example:
        >>> round(minimax(arms=101, horizon=10_000, epsilon=0.001), 2)
        763.36
    """
    others = arms - 1
    if others == 0:
        return 0.0
    learning = min(math.sqrt(horizon * others), horizon) / 27.0
    privacy = others / (131.0 * epsilon)
    exponent = epsilon * horizon / (2.0 * max(1.0, others / 4.0))
    if exponent < 1.0:
        privacy = min(privacy, horizon / 8.0 * math.exp(-exponent))
    return max(learning, privacy)


@checked
def instance(
    means: Sequence[float] | np.ndarray, *, horizon: Horizon, epsilon: _RunEpsilon
) -> float:
    r"""Regret on Bernoulli arms with these means, for long horizons (Azize and Basu 2022).

    .. math::
        \sum_a \frac{D_a \log T}{\min\{\mathrm{kl}(\mu_a, \mu),\; 6 \varepsilon D_a\}},
        \quad D_a = \mu - \mu_a,

    over the arms of mean mu_a below the best mean mu. kl is the cost of learning without privacy,
    6 epsilon D_a that of privacy: the total variation distance of two Bernoulli arms is their gap.
    `private_kl_instance` is sharper. If the best mean is 1 the bound is 0: no arm can be better, so
    no alternative forces exploration.

    Args:
        means: means of the arms.

    Example:
        >>> round(instance([0.25, 0.75], horizon=10**6, epsilon=0.1), 2)
        23.03
    """
    return _over_arms(
        means, horizon, lambda best, gap: min(_divergence_per_gap(best, gap), 6.0 * epsilon)
    )


@checked
def private_kl_instance(
    means: Sequence[float] | np.ndarray, *, horizon: Horizon, epsilon: _RunEpsilon
) -> float:
    r"""As `instance`, with the exact cost of privacy (Azize, Wu, Honda, Orabona, Ito, Basu 2025).

    Sum over the arms below the best of gap log(T) / d_eps(mean, best), where

    .. math:: d_\varepsilon(x, y) = \min_{z \in [x, y]} \varepsilon |z - x| + \mathrm{kl}(z, y)

    It is 0 if the best mean is 1. The paper's policies reach it up to their batch ratio. So does
    dp-imed with index="exact" and batches="ratio" (`theory.imed_regret`).

    Args:
        means: means of the arms.

    Example:
        >>> round(private_kl_instance([0.25, 0.75], horizon=10**6, epsilon=0.1), 2)
        140.84
    """
    return _over_arms(means, horizon, lambda best, gap: _divergence_per_gap(best, gap, epsilon))


@checked
def identification(environment: Any, epsilon: _RunEpsilon, delta: _ErrorChance) -> float:
    r"""Rounds until the best of Bernoulli arms is named (Azize, Jourdan, Al Marjani, Basu 2024).

    For policies that name a wrong arm with probability at most delta on all instances, the expected
    number of rounds is at least T* kl(delta, 1 - delta). With b the best arm and shares w of the
    rounds

    .. math::
        1/T^* = \max_w \min_{a \ne b} \min_y
        w_b\, d_\varepsilon(\mu_b, y) + w_a\, d_\varepsilon(\mu_a, y)

    It is infinite if two arms are best.

    Args:
        environment: an environment with means in [0, 1], or these means.

    Example:
        >>> round(identification([0.75, 0.625, 0.5, 0.375, 0.25], epsilon=1.0, delta=0.01))
        558
    """
    arms = environment.means if hasattr(environment, "means") else environment
    means = np.sort(check("means", arms, _BernoulliMeans))
    if means.size < 2:
        raise ParameterError("means has one arm: there is nothing to compare; give at least 2")
    best, others = float(means[-1]), means[:-1].tolist()
    if best == others[-1]:
        return math.inf

    def fall(gap: float) -> float:
        """The cost of a best arm that is worse by `gap`."""
        return gap * _divergence_per_gap(1.0 - best + gap, gap, epsilon)

    def least(share: float, arm: float) -> float:
        """The cost of a common mean of the best arm and another, at shares 1 and `share`."""

        def cost(rise: float) -> float:
            return share * rise * _divergence_per_gap(arm + rise, rise, epsilon) + fall(
                best - arm - rise
            )

        return _golden_minimum(cost, 0.0, best - arm)

    def rate(level: float) -> float:
        """Evidence a round if each pair has the cost `level` at share 1 of the best arm."""
        shares = [_smallest_above(functools.partial(least, arm=arm), level) for arm in others]
        return level / (1.0 + sum(shares))

    most = min(fall(best - arm) for arm in others)
    fastest = -_golden_minimum(lambda level: -rate(level), 0.0, most * (1.0 - 1e-9))
    return kl(delta, 1.0 - delta) / fastest


@checked
def heavy_tailed_pair(
    gap: PairGap, *, moment_order: TailOrder, horizon: Horizon, epsilon: _EpsilonUpTo1
) -> float:
    r"""Regret on `hard_pair` under central privacy (Tao, Wu, Zhao, Wang 2022, Theorem 10).

    For epsilon <= 1 and a policy whose regret is at most T^(3/4) on the pair and its alternative:
    gap t / 2, since with probability 1/2 the worse arm is pulled more often than

    .. math:: t = \frac{\log T}{100\, \varepsilon\, 5^{1/v}} \, \mathrm{gap}^{-(1+v)/v}.

    The theorem needs T^0.13 > 4 / gap and T >= 2 t.

    Returns:
        The bound, or 0 if the theorem does not apply.

    Example:
        >>> round(heavy_tailed_pair(0.1, moment_order=2.0, horizon=10**17, epsilon=0.1), 2)
        3.91
    """
    return _central_arms(np.array([gap]), 5.0, moment_order, horizon, epsilon, 4.0 / gap)


@checked
def heavy_tailed_arms(
    means: Sequence[float] | np.ndarray,
    *,
    moment_order: TailOrder,
    horizon: Horizon,
    epsilon: _EpsilonUpTo1,
) -> float:
    r"""Regret on `hard_arms` under central privacy (Tao, Wu, Zhao, Wang 2022, Theorem 5).

    For epsilon <= 1 and a policy whose regret is at most T^(3/4) on the instance and all its
    alternatives: half the sum over the arms below the best of gap t, where

    .. math:: t = \frac{\log T}{100\, \varepsilon\, 4^{1/v}} \, \mathrm{gap}^{-(1+v)/v}.

    The theorem needs T^0.13 > 4 K / gap and T >= 2 t for all of them.

    Args:
        means: means of the arms.

    Returns:
        The bound, or 0 if the theorem does not apply.

    Example:
        >>> bound = heavy_tailed_arms([0.16, 0.08], moment_order=1.5, horizon=10**18, epsilon=0.1)
        >>> round(bound, 1)
        20.2
    """
    arms = check("means", means, Annotated[np.ndarray, Range(0, 1 / 6, open_low=True), 1])
    gaps = arms.max() - arms
    gaps = gaps[gaps > 0]
    if gaps.size == 0:
        return 0.0
    if gaps.max() > 1 / 12:
        raise ParameterError(f"means have a gap of {gaps.max():g}; give gaps of at most 1/12")
    least = 4.0 * arms.size / float(gaps.min())
    return _central_arms(gaps, 4.0, moment_order, horizon, epsilon, least)


def _central_arms(
    gaps: np.ndarray, base: float, order: float, horizon: int, epsilon: float, least: float
) -> float:
    """Half the sum of gap t, or 0 unless T^0.13 > least and T >= 2 t."""
    inverse = 1.0 / (order - 1.0)
    pulls = math.log(horizon) / (100.0 * epsilon * base**inverse) * gaps ** (-1.0 - inverse)
    if horizon**0.13 <= least or horizon < 2.0 * pulls.max():
        return 0.0
    return float((gaps * pulls).sum()) / 2.0


@checked
def heavy_tailed_minimax(
    *, arms: Arms, moment_order: TailOrder, horizon: Horizon, epsilon: _EpsilonUpTo1
) -> float:
    r"""Regret on the worst instance of heavy tails under central privacy, for epsilon <= 1.

    .. math::
        \frac{T D}{4 e}, \quad
        D = \min\{1/5,\; (m / (6 \varepsilon T 5^{1/v}))^{v/(1+v)}\}, \quad
        m = \max\{1, (K - 1) / 4\}.

    It is of order (K / epsilon)^(v/(1+v)) T^(1/(1+v)), the privacy term of Wu, Zhou, Tao, Wang
    (2023, Theorem 4.1).

    Proof. On `hard_pair` with K - 1 other arms, one of these, a, is pulled N times, at most
    T / (K - 1) in expectation. So N <= t = min{T/2, 2T/(K-1)} with probability 1/2 (or, if t = T/2,
    the regret is at least T D / 4). Raising the mean of a moves the law of a reward by 2 D g in
    total variation. The event N <= t then still has at least the probability
    exp(-6 epsilon t 2 D g) / 2 (Karwa and Vadhan 2018, Lemma 6.1), and costs (T - t) D. With
    D g = D (5 D)^(1/v) as chosen, the exponent is at most 1.

    Example:
        >>> round(heavy_tailed_minimax(arms=5, moment_order=2.0, horizon=10**6, epsilon=0.1), 1)
        53.1
    """
    others = arms - 1
    if others == 0:
        return 0.0
    rate = max(1.0, others / 4.0) / (6.0 * epsilon * horizon)
    return horizon * _hard_gap(rate, moment_order) / (4.0 * math.e)


@checked
def local_pair(
    gap: PairGap, *, moment_order: TailOrder, horizon: Horizon, epsilon: _ReportEpsilon
) -> float:
    r"""Regret on `hard_pair` under local privacy.

    For a policy whose regret is at most T^(3/4) on the pair and its alternative, with D = gap:

    .. math:: \frac{\log(D\, T^{1/4} / 8)}{16 (e^\varepsilon - 1)^2 D (5 D)^{2/v}},

    of order log(T) / (epsilon^2 D^((2+v)/v)). Theorem 11 of Tao, Wu, Zhao, Wang (2022) has
    D^(-1/v), which is valid but loose: it bounds the square of a distance by a divergence.

    Proof. Reports of two laws at distance V in total variation have divergence at most
    4 (e^epsilon - 1)^2 V^2 (Duchi, Jordan, Wainwright 2018), here with V = 2 D g. If the worse arm
    is pulled N times in expectation, the divergence of the two runs is at most N times that. The
    regret of one of them is at least T D exp(-divergence) / 8 (Bretagnolle and Huber).

    Returns:
        The bound, or 0 if the theorem does not apply.

    Example:
        >>> round(local_pair(0.1, moment_order=2.0, horizon=10**12, epsilon=1.0), 4)
        2.1386
    """
    inverse = 1.0 / (moment_order - 1.0)
    return _local_arms(np.array([gap]), np.array([(5.0 * gap) ** inverse]), horizon, epsilon)


@checked
def local_arms(
    means: Sequence[float] | np.ndarray,
    *,
    moment_order: TailOrder,
    horizon: Horizon,
    epsilon: _ReportEpsilon,
) -> float:
    """Regret on `hard_local_arms` under local privacy: as `local_pair`, summed over the arms.

    With s = (2 mean)^(1/v) in place of (5 gap)^(1/v), for a policy whose regret is at most
    T^(3/4) on the instance and all its alternatives; Theorem 8 has a looser rate.

    Args:
        means: above 0, at most 1/2; gaps at most half an arm's mean, so that the moment of the
            alternative, 1/2 + gap / mean, is at most 1.

    Returns:
        The bound, or 0 if the theorem does not apply.

    Raises:
        ParameterError: if an argument is out of range, or a gap is above half its arm's mean.

    Example:
        >>> round(local_arms([0.2, 0.15], moment_order=2.0, horizon=10**12, epsilon=1.0), 3)
        8.621
    """
    arms = check("means", means, Annotated[np.ndarray, Range(0, 1 / 2, open_low=True), 1])
    inverse = 1.0 / (moment_order - 1.0)
    gaps = arms.max() - arms
    wide = gaps > arms / 2 * (1 + _CONDITION_TOLERANCE)
    if wide.any():
        arm = int(np.argmax(wide))
        raise ParameterError(
            f"means[{arm}] = {arms[arm]:g} is {gaps[arm]:g} below the best; give gaps of at most "
            "half the arm's mean"
        )
    return _local_arms(gaps[gaps > 0], (2.0 * arms[gaps > 0]) ** inverse, horizon, epsilon)


def _local_arms(gaps: np.ndarray, rarity: np.ndarray, horizon: int, epsilon: float) -> float:
    """Sum of log(gap T^(1/4) / 8) / (16 (e^epsilon - 1)^2 gap rarity^2) over its positive terms."""
    price = math.expm1(min(epsilon, LARGEST_EXPONENT / 2)) ** 2
    logs = np.maximum(np.log(gaps * horizon**0.25 / 8.0), 0.0)
    return float((logs / (16.0 * price * gaps * rarity**2)).sum())


@checked
def local_minimax(
    *, arms: Arms, moment_order: TailOrder, horizon: Horizon, epsilon: _ReportEpsilon
) -> float:
    r"""Regret on the worst instance of heavy tails under local privacy.

    .. math::
        \frac{T D}{8 e}, \quad
        D = \min\{1/5,\; ((K - 1) / (16 T (e^\varepsilon - 1)^2 5^{2/v}))^{v/(2(1+v))}\}.

    It is of order (K / epsilon^2)^(v/(2(1+v))) T^((2+v)/(2(1+v))), T^(3/4) for v = 1. Theorem 9 of
    Tao, Wu, Zhao, Wang (2022) has T^(1/(1+v)), which is valid but loose.

    Proof. As for `local_pair`: on `hard_pair` with K - 1 other arms one of these is pulled at most
    T / (K - 1) times in expectation, and with this D the divergence is at most 1.

    Example:
        >>> round(local_minimax(arms=5, moment_order=2.0, horizon=10**6, epsilon=1.0), 1)
        350.8
    """
    others = arms - 1
    if others == 0:
        return 0.0
    loss = math.expm1(min(epsilon, LARGEST_EXPONENT / 2))
    rate = math.sqrt(others / horizon) / (4.0 * loss)
    return horizon * _hard_gap(rate, moment_order) / (8.0 * math.e)


def _hard_gap(rate: float, order: float) -> float:
    """The gap D, at most 1/5, at which D (5 D)^(1/v) is `rate`."""
    return min(0.2, float((5.0 * rate) ** (1.0 - 1.0 / order)) / 5.0)


@checked
def contaminated_order(
    *,
    arms: Arms,
    moment_order: declared.MomentOrder,
    horizon: Horizon,
    epsilon: _RunEpsilon,
    contamination: declared.Contamination,
) -> float:
    r"""Order of the regret under central privacy with outliers, without its constant.

    Wu, Zhou, Tao, Wang (2023, Theorem 4.1): regret is at least an unstated constant times

    .. math:: \sqrt{K T} + (K / \varepsilon)^{1 - 1/k} T^{1/k} + T \alpha^{1 - 1/k},

    where the moment of order k is at most 1 and alpha is the share of outliers. Use it for slopes.

    Example:
        >>> round(contaminated_order(arms=4, moment_order=2.0, horizon=10**4, epsilon=1.0,
        ...                          contamination=0.01), 6)
        1400.0
    """
    inverse = 1.0 / moment_order
    privacy = (arms / epsilon) ** (1.0 - inverse) * horizon**inverse
    return float(math.sqrt(arms * horizon) + privacy + horizon * contamination ** (1.0 - inverse))


@checked
def early_commitment(
    *, horizon: Horizon, epsilon: _RunEpsilon, share: _Share, changed: _Changed, switch: _Switch
) -> float:
    r"""Regret of a private policy that commits to an arm too soon (Asi, Raman, Talwar 2025).

    Lemma 5.1: of two arms the first loses 1/2 in every round. The second loses 1, or it switches:
    it loses 1 up to round tau < T/2 and then 0. On the losses without a switch, let the policy play
    the second arm in a share gamma of all rounds with probability 1/2. Let it play this arm at most
    p times in the p / gamma rounds after tau, also with probability 1/2. Then its regret on one of
    the two is, on average, at least

    .. math::
        \max\{\gamma T / 4,\; P (p/\gamma - p) / 2 - \tau / 2\}, \quad
        P = \max\{e^{-\varepsilon p} / 2,\; 1 - e^{\varepsilon p} / 2\}.

    The paper's proof counts p/(2 gamma) - p/2 for the second term and omits tau / 2.

    Proof. The first term is half the pulls of the second arm. For the other, P bounds the
    probability of at most p pulls of this arm after tau if the losses switch: in such a run, and
    in any up to pull p + 1, p of the observed losses differ. Each round of the window without it
    costs 1/2. Up to tau the policy gains at most 1/2 per round on the second arm.

    Returns:
        The bound, or 0 unless 2 gamma tau <= p <= gamma (T - tau).

    Example:
        >>> bound = early_commitment(horizon=10_000, epsilon=0.1, share=0.01, changed=5.0,
        ...                          switch=20)
        >>> round(bound, 2)
        65.06
    """
    window, slack = changed / share, 1.0 + _CONDITION_TOLERANCE
    if 2.0 * switch > window * slack or window > (horizon - switch) * slack:
        return 0.0
    price = epsilon * changed
    chance = max(math.exp(-price) / 2.0, 1.0 - math.exp(min(price, 1.0)) / 2.0)
    late = chance * (window - changed) / 2.0 - switch / 2.0
    return max(share * horizon / 4.0, late)


def _over_arms(means: Any, horizon: int, per_gap: Callable[[float, float], float]) -> float:
    """log(T) times the sum of gap / divergence over the arms below the best."""
    arms = check("means", means, _BernoulliMeans).tolist()
    best = max(arms)
    if best == 1.0:
        return 0.0
    return math.log(horizon) * math.fsum(1.0 / per_gap(best, best - x) for x in arms if x < best)


def _divergence_per_gap(mean: float, gap: float, epsilon: float = math.inf) -> float:
    """d_eps(mean - gap, mean) / gap, with a small relative error however close the means are.

    `private_kl` has a small absolute error, which exceeds the divergence of close means. Here
    z = mean - shift is `left` above mean - gap, and kl(z, y) = y f(z/y) + (1-y) f((1-z)/(1-y)),
    where f(r) = r log r - r + 1 is never negative, so nothing cancels.
    """
    if mean == 1.0 or gap == 0.0:
        return epsilon if gap else 0.0
    if epsilon < 1.0:
        excess = math.expm1(-epsilon)
        left = max(gap + excess * mean * (1.0 - mean) / (1.0 + excess * mean), 0.0)
    else:
        other, factor = mean - gap, math.exp(-epsilon)
        kept = mean * factor * (1.0 - other) - other * (1.0 - mean)
        left = max(kept / (1.0 - mean + mean * factor), 0.0)
    shift = gap - left
    below, above = _relative_entropy(-shift / mean), _relative_entropy(shift / (1.0 - mean))
    private = epsilon * (left / gap) if left > 0.0 else 0.0
    return private + mean / gap * below + (1.0 - mean) * (above / gap)


def _relative_entropy(u: float) -> float:
    """(1 + u) log(1 + u) - u, by its series where that would cancel."""
    if u == -1.0:
        return 1.0
    if abs(u) > 0.01:
        return (1.0 + u) * math.log1p(u) - u
    return math.fsum((-u) ** k / (k * (k - 1)) for k in range(2, 10))


def _golden_minimum(cost: Callable[[float], float], low: float, high: float) -> float:
    """The least value of a function with one minimum, by golden sections."""
    ratio = 0.5 * (math.sqrt(5.0) - 1.0)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = cost(left), cost(right)
    for _ in range(_SEARCH_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = cost(right)
    return min(at_left, at_right)


def _smallest_above(value: Callable[[float], float], level: float) -> float:
    """The argument at which an increasing function reaches `level`."""
    high = 1.0
    while value(high) < level:
        high *= 2.0
    low = 0.0
    for _ in range(_SEARCH_STEPS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if value(middle) >= level else (middle, high)
    return high

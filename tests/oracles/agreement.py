"""Does every policy for bounded rewards play as its paper says?

Each policy is written here a second time, straight from the published rule: plain loops that
share nothing with the package, neither its kernels, its mechanisms nor its random streams. Both
are played on the same problem and the distributions of their regrets are compared.

    python -m tests.oracles.agreement            # 10^6 rounds, 50 runs, some ten minutes
    python -m tests.oracles.agreement --quick    # 20,000 rounds, 40 runs
    python -m tests.oracles.agreement dp-imed    # these policies only

There are two verdicts. z is the difference of the means in combined standard errors. If a few runs
lock in to a wrong arm, they dominate the mean and its error, and z says little. The p-values of
Kolmogorov-Smirnov and of Mann-Whitney compare the whole distributions. A row agrees when |z| <= 4
and both p-values are above 1e-4.
"""

# ruff: noqa: NPY002 (numba's own generator, so as to share no stream with the package)

from __future__ import annotations

import argparse
import math
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.special
import scipy.stats

import balaclava as bl

INSTANCE_1 = tuple(round(0.3 + 0.05 * i, 2) for i in range(9))  # Wang and Zhu (2024), K = 9
HALF_WAY = (0.6, 0.35)  # the gap is the threshold of the second phase: a coin decides
FAR_APART = (0.9, 0.1)

loop = numba.njit(nogil=True)


# What the loops share. Each loop seeds numba's own generator, which every thread has to itself.


@loop
def coin(p):
    return 1.0 if np.random.random() < p else 0.0


@loop
def laplace(scale):
    u = np.random.random() - 0.5
    return -scale * math.copysign(1.0, u) * math.log(1.0 - 2.0 * abs(u))


@loop
def first_largest(index):
    best = 0
    for i in range(1, index.size):
        if index[i] > index[best]:
            best = i
    return best


@loop
def clip01(x):
    return min(1.0, max(0.0, x))


@loop
def block(mean, pulls):
    """The sum of a number of rewards of an arm."""
    total = 0.0
    for _ in range(pulls):
        total += coin(mean)
    return total


@loop
def shared_out(pulls, arms, rounds):
    """The rest of the game within a phase: the arms in turn, in the order given."""
    for j in range(arms.size):
        pulls[arms[j]] += rounds // arms.size
        if j < rounds % arms.size:
            pulls[arms[j]] += 1


@loop
def truncated_laplace(n, epsilon, delta):
    """Wang and Zhu (2024), Lemma 15: the noise of a mean of n rewards."""
    s = 1.0 if np.random.random() < 0.5 else -1.0
    v = np.random.random()
    if epsilon == 0.0:
        return s * v / (2.0 * n * delta)
    q = 1.0 / (1.0 + 2.0 * delta / math.expm1(epsilon))
    return -s * math.log1p(-v * q) / (n * epsilon)


@loop
def kl(p, q):
    d = 0.0
    if p > 0.0:
        if q <= 0.0:
            return math.inf
        d += p * math.log(p / q)
    if p < 1.0:
        if q >= 1.0:
            return math.inf
        d += (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    return max(d, 0.0)


@loop
def private_kl(x, y, epsilon):
    """min over z between x and y of epsilon |z - x| + kl(z, y)."""
    if x > y:
        x, y = 1.0 - x, 1.0 - y
    mass = 1.0 - y + y * math.exp(-epsilon)
    if x >= y * math.exp(-epsilon) / mass:
        return kl(x, y)
    return -epsilon * x - math.log(mass)


# Wang and Zhu (2024).


@loop
def dp_ftpl_gauss(means, horizon, epsilon, delta, seed):
    np.random.seed(seed)
    arms = means.size
    start = 1.0 / (4.0 * math.pi * delta**2)
    if epsilon > 0.0:
        start = min(start, math.log(math.e / (4.0 * math.pi * delta**2)) / epsilon**2)
    start = max(1, math.ceil(start))
    pulls, sums, theta = np.zeros(arms), np.zeros(arms), np.empty(arms)
    for t in range(horizon):
        if t < start * arms:
            arm = t % arms
        else:
            for i in range(arms):
                theta[i] = np.random.normal(sums[i] / pulls[i], math.sqrt(2.0 / pulls[i]))
            arm = first_largest(theta)
        sums[arm] += coin(means[arm])
        pulls[arm] += 1
    return pulls


@loop
def dp_ftpl_beta(means, horizon, epsilon, delta, seed):
    np.random.seed(seed)
    arms = means.size
    start = 40.0 * math.e / (9.0 * math.pi * delta**2)
    if epsilon > 0.0:
        by_epsilon = 8000.0 * math.log(math.e / (2.0 * math.pi * delta**2)) / (81.0 * epsilon**2)
        start = min(start, by_epsilon)
    start = math.ceil(max(start, 1000.0 * math.e / (9.0 * math.pi)))
    pulls, sums, theta = np.zeros(arms), np.zeros(arms), np.empty(arms)
    for t in range(horizon):
        if t < start * arms:
            arm = t % arms
        else:
            for i in range(arms):
                k = math.floor(pulls[i] / 8.0) + 1.0
                theta[i] = np.random.beta(sums[i] + 1.0 + k, pulls[i] - sums[i] + 1.0 + k)
            arm = first_largest(theta)
        sums[arm] += coin(means[arm])
        pulls[arm] += 1
    return pulls


@loop
def dp_ftpl_new(means, horizon, epsilon, delta, seed):
    np.random.seed(seed)
    arms, big = means.size, float(horizon)
    growth = math.expm1(epsilon)
    if epsilon == 0.0:
        lead = (1.0 - 2.0 / big) / (2.0 * delta)
    else:
        top = big * growth + 2.0 * big * delta
        lead = math.log(top / (2.0 * growth + 2.0 * big * delta)) / epsilon
    pulls, sums, theta = np.zeros(arms), np.zeros(arms), np.empty(arms)
    for t in range(horizon):
        arm = t
        if t >= arms:
            for i in range(arms):
                n = pulls[i]
                centre = sums[i] / n + math.sqrt(math.log(big) / n) + lead / n
                theta[i] = centre + truncated_laplace(n, epsilon, delta)
            arm = first_largest(theta)
        sums[arm] += coin(means[arm])
        pulls[arm] += 1
    return pulls


@loop
def gdp_elim_new(means, horizon, epsilon, delta, tight, seed):
    np.random.seed(seed)
    arms, big = means.size, float(horizon)
    growth = math.expm1(epsilon)
    share = delta if tight else delta / 2.0
    delta = 2.0 * share  # a phase is as long as the noise that is drawn asks for
    pulls, theta, everyone = np.zeros(arms), np.empty(arms), np.arange(arms)
    left, gap = horizon, 1.0
    while True:
        gap /= 2.0
        if epsilon == 0.0:
            private = 4.0 / gap * (big**2 - 2.0) / (big**2 * delta)
        else:
            private = math.log(
                (big**2 * growth + big**2 * delta) / (2.0 * growth + big**2 * delta)
            ) * (4.0 / (gap * epsilon))
        n = math.ceil(max(32.0 * math.log(big) / gap**2, private))
        if n * arms > left:
            shared_out(pulls, np.random.permutation(everyone), left)  # blocks are permuted
            return pulls
        for i in range(arms):
            theta[i] = block(means[i], n) / n + truncated_laplace(n, epsilon, share)
        pulls += n
        left -= n * arms
        best = first_largest(theta)
        second = -math.inf
        for i in range(arms):
            if i != best:
                second = max(second, theta[i])
        if theta[best] >= second + gap:
            pulls[best] += left
            return pulls


# Sajed and Sheffet (2019).


@loop
def dp_se(means, horizon, epsilon, seed):
    np.random.seed(seed)
    pulls, active = np.zeros(means.size), np.arange(means.size)
    left, epoch = horizon, 0
    while active.size > 1:
        epoch += 1
        gap = 2.0**-epoch
        wide = math.log(8.0 * active.size * epoch**2 * horizon)
        narrow = math.log(4.0 * active.size * epoch**2 * horizon)
        n = math.ceil(max(32.0 * wide / gap**2, 8.0 * narrow / (epsilon * gap)) + 1.0)
        if n * active.size > left:
            break
        left -= n * active.size
        noisy = np.empty(active.size)
        for j in range(active.size):
            pulls[active[j]] += n
            noisy[j] = block(means[active[j]], n) / n + laplace(1.0 / (epsilon * n))
        h, c = math.sqrt(wide / (2.0 * n)), narrow / (epsilon * n)
        active = active[noisy.max() - noisy <= 2.0 * h + 2.0 * c]
    shared_out(pulls, np.random.permutation(active), left)  # blocks are permuted
    return pulls


# Tossou and Dimitrakakis (2016): UCB on private sums.


@loop
def into_tree(nodes, noisy, count, x, levels, scale):
    """Chan, Shi and Song (2011): item `count` of one arm's tree; returns its private sum."""
    level = 0
    while count >> level & 1 == 0:
        level += 1
    total = x
    for j in range(level):
        total += nodes[j]
        nodes[j] = 0.0
        noisy[j] = 0.0
    nodes[level] = total
    noisy[level] = total + laplace(scale)
    return sum_of_bits(noisy, count, levels)


@loop
def sum_of_bits(noisy, count, levels):
    total = 0.0
    for j in range(levels):
        if count >> j & 1:
            total += noisy[j]
    return total


@loop
def dp_ucb(means, horizon, epsilon, bound, seed):
    """Each arm's sum by the hybrid mechanism, which only the pulled arm's reward enters."""
    np.random.seed(seed)
    arms = means.size
    pulls, index = np.zeros(arms, np.int64), np.empty(arms)
    true_log, noisy_log, power = np.zeros(arms), np.zeros(arms), np.zeros(arms, np.int64)
    nodes, noisy, private = np.zeros((arms, 64)), np.zeros((arms, 64)), np.zeros(arms)
    log_noise = np.zeros(arms)
    for t in range(1, horizon + 1):
        arm = t - 1
        if t > arms:
            for i in range(arms):
                n = pulls[i]
                index[i] = private[i] / n + math.sqrt(2.0 * math.log(t) / n)
                if bound:
                    nu = math.sqrt(8.0) / epsilon * math.log(4.0 * float(t) ** 4)
                    if n & (n - 1) != 0:
                        nu *= 1.0 + math.log(n)
                    index[i] += nu / n
            arm = first_largest(index)
        x = coin(means[arm])
        true_log[arm] += x
        pulls[arm] += 1
        n = pulls[arm]
        if n & (n - 1) == 0:
            log_noise[arm] += laplace(2.0 / epsilon)
            noisy_log[arm] = true_log[arm] + log_noise[arm]
            if n > 1:
                power[arm] += 1
            nodes[arm] = 0.0
            noisy[arm] = 0.0
            private[arm] = noisy_log[arm]
        else:
            levels = power[arm]
            within = n - (1 << levels)
            private[arm] = noisy_log[arm] + into_tree(
                nodes[arm], noisy[arm], within, x, levels, 2.0 * levels / epsilon
            )
    return pulls.astype(np.float64)


def refresh_interval(epsilon: float, delta: float, v: float) -> int:
    """The smallest f whose releases at n = f, 2f, 3f, ... spend epsilon at most.

    The sum over j of e_j (exp(e_j) - 1), with e_j = (j f)^(-v/2), term by term of the exponential.
    """
    f = 0
    spent = math.inf
    while spent > epsilon:
        f += 1
        drift = sum(
            f ** (-v * (k + 1) / 2) * scipy.special.zeta(v * (k + 1) / 2) / math.factorial(k)
            for k in range(1, 40)
        )
        spent = drift + math.sqrt(2 * math.log(1 / delta) * f**-v * scipy.special.zeta(v))
    return f


@loop
def dp_ucb_int(means, horizon, f, v, seed):
    np.random.seed(seed)
    arms = means.size
    pulls, sums, index = np.zeros(arms), np.zeros(arms), np.zeros(arms)
    for t in range(1, horizon + 1):
        arm = (t - 1) % arms if t <= arms * f else first_largest(index)
        sums[arm] += coin(means[arm])
        pulls[arm] += 1
        n = pulls[arm]
        if n % f == 0:
            noise = laplace(n ** -(1.0 - v / 2.0))
            index[arm] = sums[arm] / n + noise + math.sqrt(2.0 * math.log(t) / n)
    return pulls


# Mishra and Thakurta (2015).


@loop
def private_ucb(means, horizon, epsilon, split, seed):
    np.random.seed(seed)
    arms = means.size
    each = epsilon / arms if split else epsilon
    levels = 1
    while 1 << levels <= horizon:
        levels += 1
    log_t = math.log(horizon)
    gamma = log_t**2 * math.log(arms * horizon * log_t / 0.1) / each
    pulls, private, index = np.zeros(arms, np.int64), np.zeros(arms), np.empty(arms)
    nodes, noisy = np.zeros((arms, levels)), np.zeros((arms, levels))
    for t in range(1, horizon + 1):
        arm = t - 1
        if t > arms:
            for i in range(arms):
                n = pulls[i]
                index[i] = private[i] / n + math.sqrt(2.0 * math.log(t) / n) + gamma / n
            arm = first_largest(index)
        pulls[arm] += 1
        x = coin(means[arm])
        private[arm] = into_tree(nodes[arm], noisy[arm], pulls[arm], x, levels, levels / each)
    return pulls.astype(np.float64)


# Azize and Basu (2022).


@loop
def kl_upper(p, level):
    low, high = p, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if kl(p, middle) <= level:
            low = middle
        else:
            high = middle
    return low


@loop
def adap(means, horizon, epsilon, use_kl, seed):
    np.random.seed(seed)
    arms, alpha = means.size, 3.1
    pulls, mean, length, index = np.zeros(arms), np.empty(arms), np.ones(arms), np.empty(arms)
    for i in range(arms):
        pulls[i] = 1.0
        mean[i] = coin(means[i]) + laplace(1.0 / epsilon)
    t = arms + 1
    while t <= horizon:
        for i in range(arms):
            log_part, n = alpha * math.log(t), length[i]
            if use_kl:
                index[i] = kl_upper(clip01(mean[i] + log_part / (epsilon * n)), log_part / n)
            else:
                index[i] = mean[i] + math.sqrt(log_part / (2.0 * n)) + log_part / (epsilon * n)
        arm = first_largest(index)
        n = int(pulls[arm])
        if t + n - 1 > horizon:
            pulls[arm] += horizon - t + 1
            break
        mean[arm] = block(means[arm], n) / n + laplace(1.0 / (epsilon * n))
        length[arm] = n
        pulls[arm] += n
        t += n
    return pulls


# Hu and Hegde (2022), Hu, Huang and Mehta (2021): lazy means.


@loop
def lazy(means, horizon, epsilon, thompson, seed):
    np.random.seed(seed)
    arms = means.size
    pulls, index, sums, new = np.zeros(arms), np.empty(arms), np.zeros(arms), np.zeros(arms)
    mean, size, wanted = np.zeros(arms), np.zeros(arms), np.ones(arms)
    for t in range(1, horizon + 1):
        arm = t - 1
        if t > arms:
            for i in range(arms):
                o = size[i]
                offset = 3.0 * math.log(t) / (epsilon * o)
                if thompson:
                    m = clip01(mean[i] + offset)
                    index[i] = np.random.beta(m * o + 1.0, (1.0 - m) * o + 1.0)
                else:
                    index[i] = mean[i] + math.sqrt(3.0 * math.log(t) / o) + offset
            arm = first_largest(index)
        pulls[arm] += 1.0
        sums[arm] += coin(means[arm])
        new[arm] += 1.0
        if new[arm] == wanted[arm]:
            size[arm] = new[arm]
            mean[arm] = (sums[arm] + laplace(1.0 / epsilon)) / size[arm]
            sums[arm] = new[arm] = 0.0
            wanted[arm] *= 2.0
    return pulls


# Azize, Wu, Honda, Orabona, Ito and Basu (2025).


@loop
def private_kl_upper(x, level, epsilon):
    if private_kl(x, 1.0, epsilon) <= level:
        return 1.0
    low, high = x, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if private_kl(x, middle, epsilon) <= level:
            low = middle
        else:
            high = middle
    return low


@loop
def growing_batches(means, horizon, epsilon, ratio, first, imed, seed):
    """DP-KLUCB and DP-IMED: an arm has n_m = ceil(first ratio^(m-1)) pulls after m batches."""
    np.random.seed(seed)
    arms = means.size
    pulls, sums, mean, index = np.zeros(arms), np.zeros(arms), np.zeros(arms), np.empty(arms)
    batch = np.zeros(arms, np.int64)
    t, turn = 1, 0
    while t <= horizon:
        arm = turn
        if turn >= arms:
            best = mean.max()
            for i in range(arms):
                n = pulls[i]
                if imed:
                    index[i] = -(n * private_kl(mean[i], best, epsilon) + math.log(n))
                else:
                    index[i] = private_kl_upper(mean[i], math.log(t) / n, epsilon)
            arm = first_largest(index)
        turn += 1
        n = max(math.ceil(first * ratio ** batch[arm]), pulls[arm] + 1) - pulls[arm]
        n = int(n)
        batch[arm] += 1
        if t + n - 1 > horizon:
            pulls[arm] += horizon - t + 1
            break
        sums[arm] += block(means[arm], n) + laplace(1.0 / epsilon)
        pulls[arm] += n
        mean[arm] = clip01(sums[arm] / pulls[arm])
        t += n
    return pulls


# Ren, Zhou, Liu and Shroff (2020).


@loop
def ldp_ucb(means, horizon, epsilon, by_laplace, seed):
    np.random.seed(seed)
    arms = means.size
    pulls, sums, index = np.zeros(arms), np.zeros(arms), np.empty(arms)
    for t in range(1, horizon + 1):
        arm = -1
        for i in range(arms):
            if pulls[i] == 0 or (by_laplace and pulls[i] <= 4.0 * math.log(t + 1.0)):
                arm = i
                break
        if arm < 0:
            for i in range(arms):
                index[i] = sums[i] / pulls[i] + math.sqrt(2.0 * math.log(t) / pulls[i])
                if by_laplace:
                    index[i] += math.sqrt(32.0 * math.log(t) / (epsilon**2 * pulls[i]))
            arm = first_largest(index)
        x = coin(means[arm])
        if by_laplace:
            sums[arm] += x + laplace(1.0 / epsilon)
        else:
            grown = math.exp(epsilon)
            sums[arm] += coin((x * grown + 1.0 - x) / (1.0 + grown))
        pulls[arm] += 1.0
    return pulls


# The comparison.


@dataclass(frozen=True)
class Case:
    """One policy at one setting, with its parameters in the package and in the loop above."""

    policy: str
    epsilon: float
    delta: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    means: tuple[float, ...] = INSTANCE_1

    @property
    def setting(self) -> str:
        parts = [f"ε={self.epsilon:g}"]
        if self.delta is not None:
            parts.append(f"δ={self.delta:g}")
        parts += [f"{name}={value}" for name, value in self.options.items()]
        if self.means != INSTANCE_1:
            parts.append("means " + ", ".join(f"{mean:g}" for mean in self.means))
        return " ".join(parts)

    @property
    def seed(self) -> int:
        """One seed a case: with the same rewards, cases would err to the same side."""
        return zlib.crc32(f"{self.policy} {self.setting}".encode()) >> 1

    def ours(self, horizon: int, runs: int, workers: int = 2) -> np.ndarray:
        """The final regrets of the package's policy."""
        parameters = dict(self.options, arms=len(self.means), epsilon=self.epsilon)
        if self.delta is not None:
            parameters["delta"] = self.delta
        if self.policy in NEED_HORIZON:
            parameters["horizon"] = horizon
        results = bl.simulate(
            bl.policy(self.policy, **parameters),
            bl.environment("bernoulli", means=list(self.means)),
            horizon=horizon,
            repetitions=runs,
            seed=self.seed,
            checkpoints=[horizon],
            workers=workers,
        )
        return results.final_regret(self.policy)

    def independent(self, horizon: int, runs: int, workers: int = 2) -> np.ndarray:
        """The final regrets of the loop."""
        means = np.array(self.means)
        play, arguments = LOOPS[self.policy], self._arguments()

        def run(repetition: int) -> float:
            pulls = play(means, horizon, *arguments, self.seed + 1 + repetition)
            if pulls.sum() != horizon:
                raise RuntimeError(f"the loop of {self.policy} played {pulls.sum()} rounds")
            return float(pulls @ (means.max() - means))

        with ThreadPoolExecutor(workers) as pool:
            return np.array(list(pool.map(run, range(runs))))

    def _arguments(self) -> tuple[Any, ...]:
        epsilon = float(self.epsilon)
        delta = float(self.delta or 0.0)
        match self.policy:
            case "dp-ftpl-gauss" | "dp-ftpl-beta" | "dp-ftpl-new":
                return epsilon, delta
            case "gdp-elim-new":
                return epsilon, delta, self.options.get("tight_delta", False)
            case "dp-ucb-int":
                v = self.options.get("v", 1.1)
                return refresh_interval(epsilon, delta, v), v
            case "private-ucb":
                return epsilon, self.options.get("split_epsilon", False)
            case "dp-klucb" | "dp-imed":
                imed = self.policy == "dp-imed"
                ratio = self.options.get("batch_ratio", 1.5 if imed else 1.25)
                first = self.options.get("first_batch", 30.0 / epsilon)
                return epsilon, float(ratio), float(first), imed
            case "dp-se":
                return (epsilon,)
            case _:  # two rules in one loop
                return epsilon, self.policy in SECOND_RULE


LOOPS: dict[str, Callable[..., np.ndarray]] = {
    "dp-ftpl-gauss": dp_ftpl_gauss,
    "dp-ftpl-beta": dp_ftpl_beta,
    "dp-ftpl-new": dp_ftpl_new,
    "gdp-elim-new": gdp_elim_new,
    "dp-se": dp_se,
    "dp-ucb": dp_ucb,
    "dp-ucb-bound": dp_ucb,
    "dp-ucb-int": dp_ucb_int,
    "private-ucb": private_ucb,
    "adap-ucb": adap,
    "adap-klucb": adap,
    "lazy-dp-ts": lazy,
    "lazy-dp-ucb": lazy,
    "dp-klucb": growing_batches,
    "dp-imed": growing_batches,
    "ldp-ucb-laplace": ldp_ucb,
    "ldp-ucb-bernoulli": ldp_ucb,
}
SECOND_RULE = {"dp-ucb-bound", "adap-klucb", "lazy-dp-ts", "ldp-ucb-laplace"}
NEED_HORIZON = {"dp-ftpl-new", "gdp-elim-new", "dp-se", "private-ucb"}
# A step of these costs next to nothing, and some have heavy tails: four times the runs.
CHEAP = {"gdp-elim-new", "dp-se", "adap-ucb", "adap-klucb", "dp-klucb", "dp-imed"}
# And these draw from a beta distribution for each arm and round: half the runs.
COSTLY = {"dp-ftpl-beta", "lazy-dp-ts"}
PUBLISHED_BATCHES = {"batch_ratio": 2.0, "first_batch": 2}
PAPER = {"index": "paper", "batches": "ratio"}

CASES = [
    Case("dp-ftpl-gauss", 1, 0.01),
    Case("dp-ftpl-gauss", 0.37, 1e-3),
    Case("dp-ftpl-gauss", 7.3, 1e-3),
    Case("dp-ftpl-gauss", 0, 0.2),
    Case("dp-ftpl-gauss", 0.05, 0.01),
    Case("dp-ftpl-beta", 1, 0.01),
    Case("dp-ftpl-beta", 0.37, 1e-3),
    Case("dp-ftpl-beta", 0, 0.2),
    Case("dp-ftpl-new", 1, 0.01),
    Case("dp-ftpl-new", 0.37, 0),
    Case("dp-ftpl-new", 0, 1e-3),
    Case("dp-ftpl-new", 7.3, 0.2),
    Case("gdp-elim-new", 1, 0.01),
    Case("gdp-elim-new", 1, 0.01, means=FAR_APART),
    Case("gdp-elim-new", 1, 0.01, means=HALF_WAY),
    Case("gdp-elim-new", 0.01, 1e-3, means=HALF_WAY),
    Case("gdp-elim-new", 0.01, 1e-3, {"tight_delta": True}, means=HALF_WAY),
    Case("gdp-elim-new", 0, 1e-3, means=HALF_WAY),
    Case("gdp-elim-new", 0.037, 0, means=HALF_WAY),
    Case("gdp-elim-new", 7.3, 0.2, means=HALF_WAY),
    Case("dp-se", 1),
    Case("dp-se", 0.37),
    Case("dp-se", 7.3),
    Case("dp-se", 0.01, means=FAR_APART),
    Case("dp-ucb", 1),
    Case("dp-ucb", 0.37),
    Case("dp-ucb", 7.3),
    Case("dp-ucb-bound", 1),
    Case("dp-ucb-bound", 0.37),
    Case("dp-ucb-bound", 7.3),
    Case("dp-ucb-int", 1, 0.01),
    Case("dp-ucb-int", 0.37, 1e-3),
    Case("dp-ucb-int", 7.3, 0.2),
    Case("dp-ucb-int", 1, 1e-3, {"v": 1.5}),
    Case("private-ucb", 1),
    Case("private-ucb", 0.37),
    Case("private-ucb", 7.3),
    Case("private-ucb", 1, None, {"split_epsilon": True}),
    Case("private-ucb", 7.3, None, {"split_epsilon": True}),
    Case("adap-ucb", 1),
    Case("adap-ucb", 0.37),
    Case("adap-ucb", 7.3),
    Case("adap-klucb", 1),
    Case("adap-klucb", 0.37),
    Case("adap-klucb", 7.3),
    Case("lazy-dp-ts", 1),
    Case("lazy-dp-ts", 0.37),
    Case("lazy-dp-ts", 7.3),
    Case("lazy-dp-ucb", 1),
    Case("lazy-dp-ucb", 0.37),
    Case("lazy-dp-ucb", 7.3),
    Case("dp-klucb", 1),
    Case("dp-klucb", 0.37),
    Case("dp-klucb", 7.3),
    Case("dp-klucb", 1, None, PUBLISHED_BATCHES),
    Case("dp-klucb", 0.37, None, PUBLISHED_BATCHES),
    Case("dp-klucb", 7.3, None, PUBLISHED_BATCHES),
    Case("dp-imed", 1, None, PAPER),
    Case("dp-imed", 0.37, None, PAPER),
    Case("dp-imed", 7.3, None, PAPER),
    Case("dp-imed", 1, None, PUBLISHED_BATCHES | PAPER),
    Case("dp-imed", 0.37, None, {"batch_ratio": 3.0, "first_batch": 3} | PAPER),
    Case("dp-imed", 7.3, None, PUBLISHED_BATCHES | PAPER),
    Case("ldp-ucb-laplace", 1),
    Case("ldp-ucb-laplace", 0.37),
    Case("ldp-ucb-laplace", 7.3),
    Case("ldp-ucb-bernoulli", 1),
    Case("ldp-ucb-bernoulli", 0.37),
    Case("ldp-ucb-bernoulli", 7.3),
]


class Agreement(NamedTuple):
    """How near two samples of regrets are."""

    means: tuple[float, float]
    errors: tuple[float, float]
    medians: tuple[float, float]
    z: float
    kolmogorov_smirnov: float
    mann_whitney: float
    heavy: bool  # a few runs carry the mean: z says little

    @property
    def agrees(self) -> bool:
        return abs(self.z) <= 4 and min(self.kolmogorov_smirnov, self.mann_whitney) > 1e-4


def compare(ours: np.ndarray, theirs: np.ndarray) -> Agreement:
    """Compare two samples of final regrets."""
    both = [np.round(sample, 6) for sample in (ours, theirs)]  # one regret, summed in two orders
    means = tuple(float(sample.mean()) for sample in both)
    errors = tuple(float(sample.std(ddof=1) / math.sqrt(sample.size)) for sample in both)
    error, difference = math.hypot(*errors), means[0] - means[1]
    if error == 0:
        z = 0.0 if difference == 0 else math.copysign(math.inf, difference)
    else:
        z = difference / error
    pooled = np.concatenate(both)
    return Agreement(
        means=(means[0], means[1]),
        errors=(errors[0], errors[1]),
        medians=(float(np.median(both[0])), float(np.median(both[1]))),
        z=z,
        kolmogorov_smirnov=float(scipy.stats.ks_2samp(*both).pvalue),
        mann_whitney=float(scipy.stats.mannwhitneyu(*both).pvalue),
        heavy=bool(pooled.std() > pooled.mean() or pooled.max() > 5 * np.median(pooled)),
    )


HEAD = (
    "| policy | setting | ours | independent | z | medians | KS p | MW p | agrees |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def row(case: Case, found: Agreement) -> str:
    """A line of the table."""
    shown = [f"{m:.1f} ± {e:.1f}" for m, e in zip(found.means, found.errors, strict=True)]
    cells = [
        case.policy,
        case.setting,
        *shown,
        f"{found.z:+.1f}" + (" (heavy tail)" if found.heavy else ""),
        f"{found.medians[0]:.1f}, {found.medians[1]:.1f}",
        f"{found.kolmogorov_smirnov:.2g}",
        f"{found.mann_whitney:.2g}",
        "yes" if found.agrees else "NO",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Print the table; the exit status is 1 where a row disagrees."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("policies", nargs="*", help="these policies only")
    parser.add_argument("--quick", action="store_true", help="20,000 rounds, 40 runs")
    chosen = parser.parse_args()
    horizon, runs = (20_000, 40) if chosen.quick else (1_000_000, 50)
    cases = [case for case in CASES if not chosen.policies or case.policy in chosen.policies]
    started, apart = time.perf_counter(), 0
    print(f"final regret after {horizon:,} rounds, {runs} runs each,")
    print(f"{4 * runs} of {', '.join(sorted(CHEAP))}; {runs // 2} of {', '.join(sorted(COSTLY))}")
    print(f"\n{HEAD}", flush=True)
    for case in cases:
        times = 4 * runs if case.policy in CHEAP else runs
        times = runs // 2 if case.policy in COSTLY else times
        found = compare(case.ours(horizon, times), case.independent(horizon, times))
        apart += not found.agrees
        print(row(case, found), flush=True)
    took = time.perf_counter() - started
    print(f"\n{len(cases) - apart} of {len(cases)} agree; {took:.0f} s")
    return 1 if apart else 0


if __name__ == "__main__":
    raise SystemExit(main())

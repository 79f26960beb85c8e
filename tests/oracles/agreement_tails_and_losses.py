"""Do the policies for heavy tails, outliers, losses and experts play as their papers say?

As in `agreement.py`: each policy is written here a second time, straight from the published rule,
in plain loops with their own random streams, and both are played on the same problems.

    python -m tests.oracles.agreement_tails_and_losses            # every case, some fifteen minutes
    python -m tests.oracles.agreement_tails_and_losses dpr-se     # these policies only

A row agrees when |z| <= 4 and the p-values are above 1e-4. Besides those of `agreement.py`,
Brown and Forsythe's test compares the spread. Noise of half the size moves the mean regret of exp3
and exp4 by less than its error, but halves its standard deviation.
"""

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
import scipy.stats

import balaclava as bl
from tests.oracles.agreement import HEAD, compare, first_largest, row, shared_out

loop = numba.njit(nogil=True)

PARETO, STUDENT, TWO_POINT = range(3)


# The problems, drawn anew here.


class Tails(NamedTuple):
    """Rewards of each arm: a law with two numbers an arm, and outliers at one value."""

    law: int
    first: np.ndarray  # the least reward; the mean; the value
    second: np.ndarray  # the shape; the degrees; the chance
    fraction: float
    outlier: float


class Losses(NamedTuple):
    """Losses that change once; coins with these chances, or the numbers themselves."""

    before: np.ndarray
    after: np.ndarray
    switch: int
    coins: bool


@loop
def reward(world, arm, rng):
    if world.fraction > 0.0 and rng.random() < world.fraction:
        return world.outlier
    if world.law == PARETO:
        return world.first[arm] * (1.0 - rng.random()) ** (-1.0 / world.second[arm])
    if world.law == STUDENT:  # a normal over the root of a mean square
        degrees = world.second[arm]
        chi_squared = 2.0 * rng.standard_gamma(degrees / 2.0)
        return world.first[arm] + rng.standard_normal() / math.sqrt(chi_squared / degrees)
    return world.first[arm] if rng.random() < world.second[arm] else 0.0


@loop
def mean_loss(world, t, arm):
    return world.before[arm] if t <= world.switch else world.after[arm]


@loop
def loss(world, t, arm, rng):
    level = mean_loss(world, t, arm)
    if world.coins:
        return 1.0 if rng.random() < level else 0.0
    return level


@loop
def laplace(scale, rng):
    """The difference of two exponentials."""
    return scale * (rng.standard_exponential() - rng.standard_exponential())


@loop
def drawn(chances, rng):
    left = rng.random() * chances.sum()
    for i in range(chances.size):
        left -= chances[i]
        if left < 0.0:
            return i
    return chances.size - 1


@loop
def zeroed(x, bound):
    return x if abs(x) <= bound else 0.0


# Tao, Wu, Zhao and Wang (2022).


@loop
def dpr_ucb(world, horizon, epsilon, v, u, scale, rng):
    arms, log_t = world.first.size, math.log(horizon)
    small = min(epsilon, 1.0)
    levels = 0
    while 2**levels <= horizon:
        levels += 1
    exact, noisy = np.zeros((arms, levels)), np.zeros((arms, levels))
    pulls, sums, index = np.zeros(arms, np.int64), np.zeros(arms), np.zeros(arms)
    for t in range(1, horizon + 1):
        arm = t - 1
        if t > arms:
            for a in range(arms):
                width = math.log(2.0 * float(t) ** 4) * log_t ** (1.5 + 1.0 / v)
                width = (
                    18.0 * u ** (1.0 / (1.0 + v)) * (width / (pulls[a] * small)) ** (v / (1 + v))
                )
                index[a] = sums[a] / pulls[a] + scale * width
            arm = first_largest(index)
        pulls[arm] += 1
        n = pulls[arm]
        bound = (small * u * n / log_t**1.5) ** (1.0 / (1.0 + v))
        item = zeroed(reward(world, arm, rng), bound)
        level = 0
        while n % 2 ** (level + 1) == 0:
            level += 1
        exact[arm, level] = exact[arm, :level].sum() + item
        exact[arm, :level] = 0.0
        noisy[arm, :level] = 0.0
        noisy[arm, level] = exact[arm, level] + laplace(2.0 * bound * levels / epsilon, rng)
        sums[arm] = noisy[arm].sum()  # the levels of bits that are not set hold 0
    return pulls.astype(np.float64)


@loop
def dpr_se(world, horizon, epsilon, v, u, beta, scale, rng):
    pulls, active = np.zeros(world.first.size), np.arange(world.first.size)
    small, left, tau = min(epsilon, 1.0), horizon, 0
    while active.size > 1:
        tau += 1
        ell = math.log(4.0 * active.size * tau**2 / beta)
        power = (24.0 * scale * 2.0**tau) ** ((1.0 + v) / v)
        length = np.ceil(u ** (1.0 / v) * power * ell / small + 1.0)
        if length * active.size > left:
            break
        each = int(length)
        left -= each * active.size
        bound = (u * each * small / ell) ** (1.0 / (1.0 + v))
        means = np.zeros(active.size)
        for j in range(active.size):
            for _ in range(each):
                means[j] += zeroed(reward(world, active[j], rng), bound)
            means[j] = means[j] / each + laplace(2.0 * bound / (each * epsilon), rng)
            pulls[active[j]] += each
        err = u ** (1.0 / (1.0 + v)) * (ell / (each * small)) ** (v / (1.0 + v))
        active = active[means.max() - means <= 12.0 * scale * err]
    shared_out(pulls, active, left)
    return pulls


@loop
def ldpr_se(world, horizon, epsilon, v, u, beta, scale, rng):
    pulls, active = np.zeros(world.first.size), np.arange(world.first.size)
    left, tau = horizon, 0
    while active.size > 1:
        tau += 1
        ell = math.log(8.0 * active.size * tau**2 / beta)
        power = (28.0 * scale * 2.0**tau) ** (2.0 * (1.0 + v) / v) / epsilon**2
        length = np.ceil(u ** (2.0 / v) * power * ell + max(1.0, epsilon**2) * ell)
        if length * active.size > left:
            break
        each = int(length)
        left -= each * active.size
        bound = (u * epsilon * math.sqrt(each / ell)) ** (1.0 / (1.0 + v))
        means = np.zeros(active.size)
        for j in range(active.size):
            for _ in range(each):
                means[j] += zeroed(reward(world, active[j], rng), bound)
                means[j] += laplace(2.0 * bound / epsilon, rng)
            means[j] /= each
            pulls[active[j]] += each
        err = u ** (1.0 / (1.0 + v)) * (math.sqrt(ell / each) / epsilon) ** (v / (1.0 + v))
        active = active[means.max() - means <= 14.0 * scale * err]
    shared_out(pulls, active, left)
    return pulls


# Wu, Zhou, Tao and Wang (2023). Rewards are divided by the root of the moment bound.


@loop
def prae_raw(world, horizon, epsilon, k, unit, alpha, delta, threshold, counted, scale, rng):
    arms = world.first.size
    pulls, active = np.zeros(arms), np.arange(arms)
    left, batch = horizon, 1
    while active.size > 1 and left > 0:
        batch *= 2
        if batch < threshold:
            played = min(batch, left)
            pulls[rng.integers(0, arms)] += played
            left -= played
            continue
        if batch * active.size > left:
            break
        left -= batch * active.size
        bound = (batch * min(epsilon, 4.5 * (k - 1.0)) / math.log(1.0 / delta)) ** (1.0 / k)
        if alpha > 0.0:
            bound = min(bound, alpha ** (-1.0 / k))
        noise = 2.0 * bound / (batch * epsilon)
        if counted:
            six = math.log(6.0 / delta)
            beta = math.sqrt(2.0 * six / batch) + 2.0 * bound * six / (3.0 * batch)
            beta += bound ** (1.0 - k) + 2.0 * alpha * (bound + 1.0)
            beta += noise * math.log(3.0 / delta)
        else:
            four = math.log(4.0 / delta)
            beta = math.sqrt(2.0 * (1.0 + alpha * bound**2) * four / batch)
            beta += 2.0 * bound * four / (3.0 * batch) + bound ** (1.0 - k)
            beta += alpha * (bound + 1.0) + noise * math.log(2.0 / delta)
        means = np.zeros(active.size)
        for j in range(active.size):
            for _ in range(batch):
                means[j] += zeroed(reward(world, active[j], rng) / unit, bound)
            means[j] = means[j] / batch + laplace(noise, rng)
            pulls[active[j]] += batch
        active = active[means.max() - means <= 2.0 * scale * beta]
    shared_out(pulls, active, left)
    return pulls


@loop
def prae_central(world, horizon, epsilon, k, unit, alpha, delta, threshold, reach, scale, rng):
    arms, reach = world.first.size, reach / unit
    out = 0.1 if alpha == 0.0 else (alpha + 0.25) / 2.0
    r = 10.0 ** (1.0 / k) if alpha == 0.0 else ((1.0 - alpha) / (out - alpha)) ** (1.0 / k)
    gap = (1.0 - out) / 3.0 - out
    bins = math.ceil(2.0 * (reach + r) / r)
    needed = 8.0 / gap**2 * math.log(8.0 * bins / delta)
    needed = max(needed, 8.0 / (gap * epsilon) * math.log(4.0 * bins / delta))
    if threshold < 0.0:
        threshold = 2.0 * needed
    c = 1.0 + 2.0 * r
    pulls, active = np.zeros(arms), np.arange(arms)
    counts = np.zeros(bins)
    left, batch = horizon, 1
    while active.size > 1 and left > 0:
        batch *= 2
        n = batch // 2
        if batch < threshold:
            played = min(batch, left)
            pulls[rng.integers(0, arms)] += played
            left -= played
            continue
        if batch * active.size > left:
            break
        left -= batch * active.size
        bound = (n * min(epsilon, 4.5 * (k - 1.0)) / math.log(1.0 / delta)) ** (1.0 / k)
        if alpha > 0.0:
            bound = min(bound, alpha ** (-1.0 / k))
        bound *= c
        noise, eight = 2.0 * bound / (n * epsilon), math.log(8.0 / delta)
        beta = c * math.sqrt(2.0 * (1.0 + alpha * (bound / c) ** 2) * eight / n)
        beta += 2.0 * bound * eight / (3.0 * n) + c**k * bound ** (1.0 - k)
        beta += alpha * (bound + c) + noise * math.log(4.0 / delta)
        means = np.zeros(active.size)
        for j in range(active.size):
            counts[:] = 0.0
            for _ in range(n):
                place = (reward(world, active[j], rng) / unit + reach + r) / r
                if 0.0 <= place < bins:
                    counts[int(place)] += 1.0
            for b in range(bins):
                counts[b] = counts[b] / n + laplace(2.0 / (n * epsilon), rng)
            centre = -reach - r + r * first_largest(counts)
            for _ in range(n):
                means[j] += zeroed(reward(world, active[j], rng) / unit - centre, bound)
            means[j] = centre + means[j] / n + laplace(noise, rng)
            pulls[active[j]] += batch
        active = active[means.max() - means <= 2.0 * scale * beta]
    shared_out(pulls, active, left)
    return pulls


# Losses: Asi, Raman and Talwar (2025). A base decides once a batch and is told the noisy mean loss;
# a batch of one round and noise 0 is the base itself. With advice it chooses an expert, who is
# asked anew in every round of the batch. The loops return what was lost, in the mean of the coins.


@loop
def batch_of(world, advice, chosen, t, rounds, rng):
    """The observed losses of the rounds after t, and their means."""
    seen, lost = 0.0, 0.0
    for s in range(t, t + rounds):
        arm = chosen
        if advice.shape[0] > 0:
            arm = drawn(advice[s % advice.shape[0], chosen], rng)
        seen += loss(world, s + 1, arm, rng)
        lost += mean_loss(world, s + 1, arm)
    return seen, lost


@loop
def exp3(world, advice, many, horizon, batch, noise, eta, gamma, anytime, rng):
    logs = np.zeros(many)
    total, t, turn = 0.0, 0, 0
    while t < horizon:
        turn += 1
        rate = eta / math.sqrt(turn) if anytime else eta
        weights = np.exp(-rate * (logs - logs.min()))
        chances = (1.0 - gamma) * weights / weights.sum() + gamma / many
        chosen = drawn(chances, rng)
        rounds = min(batch, horizon - t)
        seen, lost = batch_of(world, advice, chosen, t, rounds, rng)
        t, total = t + rounds, total + lost
        if rounds == batch:
            logs[chosen] += (seen / batch + laplace(noise, rng)) / chances[chosen]
    return total


@loop
def least_perturbed(losses, eta, rng):
    best, least = 0, math.inf
    for i in range(losses.size):
        value = losses[i] + laplace(1.0 / eta, rng)
        if value < least:
            best, least = i, value
    return best


@loop
def ftpl(world, advice, many, horizon, batch, noise, eta, most, rng):
    losses = np.zeros(many)
    total, t = 0.0, 0
    while t < horizon:
        chosen = least_perturbed(losses, eta, rng)
        rounds = min(batch, horizon - t)
        seen, lost = batch_of(world, advice, chosen, t, rounds, rng)
        t, total = t + rounds, total + lost
        if rounds == batch:
            waited = 1
            while waited < most and least_perturbed(losses, eta, rng) != chosen:
                waited += 1
            losses[chosen] += (seen / batch + laplace(noise, rng)) * waited
    return total


@loop
def tsallis(scaled, alpha):
    """The x on the simplex that has the least <scaled, x> - alpha sum x^(1/alpha)."""
    p = alpha / (alpha - 1.0)
    raised = scaled - scaled.min()
    z, climb = 1.0, 1.0
    while climb > 1e-13 * z:  # Newton from below, which never oversteps
        x = (raised + z) ** -p
        climb = (x.sum() - 1.0) / (p * (x / (raised + z)).sum())
        z += climb
    x = (raised + z) ** -p
    return x / x.sum()


@loop
def htinf(world, advice, many, horizon, batch, noise, alpha, sigma, rate, skips, rng):
    """Without skips and with alpha = 2, Tsallis-INF of Zimmert and Seldin (2021)."""
    theta = 1.0 - 2.0 ** (-(alpha - 1.0) / (2.0 * alpha - 1.0))
    if alpha < 2.0:
        theta = min(theta, (2.0 - 2.0 / alpha) ** (1.0 / (2.0 - alpha)))
    losses = np.zeros(many)
    total, t, turn = 0.0, 0, 0
    while t < horizon:
        turn += 1
        growth = sigma * turn ** (1.0 / alpha)
        x = tsallis(losses * rate / growth, alpha)
        chosen = drawn(x, rng)
        rounds = min(batch, horizon - t)
        seen, lost = batch_of(world, advice, chosen, t, rounds, rng)
        t, total = t + rounds, total + lost
        if rounds == batch:
            told = seen / batch + laplace(noise, rng)
            if not skips or abs(told) <= theta * growth * x[chosen] ** (1.0 / alpha):
                losses[chosen] += told / x[chosen]
    return total


@loop
def mixed_advice(logs, advice, gamma):
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    chances = np.full(advice.shape[1], gamma / advice.shape[1])
    for j in range(logs.size):
        for i in range(chances.size):
            chances[i] += (1.0 - gamma) * weights[j] * advice[j, i]
    return chances


@loop
def exp4(world, advice, horizon, noise, eta, gamma, rng):
    experts = advice.shape[1]
    logs, lost = np.zeros(experts), 0.0
    for t in range(1, horizon + 1):
        now = advice[(t - 1) % advice.shape[0]]
        chances = mixed_advice(logs, now, gamma)
        arm = drawn(chances, rng)
        told = loss(world, t, arm, rng) + laplace(noise, rng)
        lost += mean_loss(world, t, arm)
        for j in range(experts):
            logs[j] -= eta * now[j, arm] * told / chances[arm]
    return lost


@loop
def dp_exp4(world, advice, horizon, batch, noise, eta, gamma, rng):
    experts = advice.shape[1]
    logs, lost, t = np.zeros(experts), 0.0, 0
    while t < horizon:
        sums, n = np.zeros(experts), 0
        while n < batch and t < horizon:
            now = advice[t % advice.shape[0]]
            t += 1
            n += 1
            chances = mixed_advice(logs, now, gamma)
            arm = drawn(chances, rng)
            estimate = loss(world, t, arm, rng) / chances[arm]
            lost += mean_loss(world, t, arm)
            for j in range(experts):
                sums[j] += now[j, arm] * estimate
        if n == batch:
            for j in range(experts):
                logs[j] -= eta * (sums[j] / batch + laplace(noise, rng))
    return lost


# The comparison.

S1 = (0.9, 0.7, 0.5, 0.3, 0.1)  # Tao et al. (2022)
ELEVEN = tuple(round(1.0 - 0.08 * i, 2) for i in range(11))
NO_ADVICE = np.zeros((0, 0, 0))


def pareto(v: float, means: tuple[float, ...] = S1) -> dict[str, Any]:
    """The arms of Tao et al. with moments of order 1 + v."""
    return {"name": "pareto", "means": list(means), "shape": 1.05 + v}


def student(degrees: float, *means: float) -> dict[str, Any]:
    """Student's t about these means."""
    return {"name": "student-t", "means": list(means), "degrees": degrees}


def coins(*means: float) -> dict[str, Any]:
    """Losses 0 and 1."""
    return {"name": "stochastic-losses", "means": list(means)}


def dirty(inner: dict[str, Any], value: float, fraction: float = 0.1) -> dict[str, Any]:
    """With outliers at a value."""
    return {
        "name": "contaminated",
        "inner": inner,
        "fraction": fraction,
        "outliers": {"kind": "point", "value": value},
    }


def switching(before: list[float], after: list[float], share: float) -> dict[str, Any]:
    """Losses that change after a share of the horizon."""
    return {"name": "switching", "before": before, "after": after, "switch": share}


def advised(losses: dict[str, Any], advice: list[Any]) -> dict[str, Any]:
    """Losses with experts beside them."""
    return {"name": "advice", "losses": losses, "advice": advice}


@dataclass(frozen=True)
class Case:
    """One policy at one setting, with its parameters in the package and in the loop above."""

    policy: str
    horizon: int
    runs: int
    world: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def setting(self) -> str:
        parts = [f"T={self.horizon}"]
        parts += [f"{SHORT.get(name, name)}={_short(x)}" for name, x in self.options.items()]
        return " ".join([*parts, "on", _said(self.world)])

    @property
    def seed(self) -> int:
        """One seed a case: with the same rewards, cases would err to the same side."""
        return zlib.crc32(f"{self.policy} {self.setting}".encode()) >> 1

    def environment(self) -> Any:
        """The package's."""
        placed = _placed(self.world, self.horizon)
        return bl.environment(placed.pop("name"), **placed)

    def ours(self, workers: int = 2) -> np.ndarray:
        """The final regrets of the package's policy."""
        results = bl.simulate(
            self.made(),
            self.environment(),
            horizon=self.horizon,
            repetitions=self.runs,
            seed=self.seed,
            checkpoints=[self.horizon],
            workers=workers,
        )
        return results.final_regret(self.policy)

    def made(self) -> Any:
        """The package's policy."""
        world = self.environment()
        needed: dict[str, Any] = {"arms": world.arms}
        if self.policy not in NO_HORIZON:
            needed["horizon"] = self.horizon
        if world.experts is not None:
            needed["experts"] = world.experts
        return bl.policy(self.policy, **{**needed, **self.options})

    def independent(self, arguments: tuple[Any, ...] | None = None, workers: int = 2) -> np.ndarray:
        """The final regrets of the loop, with its own arguments or with others."""
        play, arguments = LOOPS[self.policy], arguments or self.arguments()
        seeds = np.random.SeedSequence([self.seed, 1]).spawn(self.runs)
        gaps, least = self._rivals()

        def run(seed: Any) -> float:
            played = play(*arguments, np.random.default_rng(seed))
            if gaps is None:
                return float(played) - least
            if played.sum() != self.horizon:
                raise RuntimeError(f"the loop of {self.policy} played {played.sum()} rounds")
            return float(played @ gaps)

        with ThreadPoolExecutor(workers) as pool:
            return np.array(list(pool.map(run, seeds)))

    def _rivals(self) -> tuple[np.ndarray | None, float]:
        """The gaps of the arms, or what the best arm or expert loses."""
        problem, advice = _problem(self.world, self.horizon)
        if isinstance(problem, Tails):
            means = problem.first.copy()
            if problem.law == PARETO:
                means *= problem.second / (problem.second - 1)
            elif problem.law == TWO_POINT:
                means *= problem.second
            return means.max() - means, 0.0
        late = self.horizon - problem.switch
        if advice.size == 0:
            return None, float((problem.switch * problem.before + late * problem.after).min())
        times = np.arange(self.horizon)
        each = np.where(times[:, None] < problem.switch, problem.before, problem.after)
        followed = advice[times % len(advice)]
        return None, float(np.einsum("tnk,tk->n", followed, each).min())

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the loop, by the published rules, without the random stream."""
        problem, advice = _problem(self.world, self.horizon)
        T, o = self.horizon, self.options
        epsilon, scale = float(o.get("epsilon", math.inf)), float(o.get("radius_scale", 1.0))
        if isinstance(problem, Tails):
            order, u = float(o["moment_order"]), float(o.get("moment_bound", 1.0))
            beta = float(o.get("failure_probability", 1.0 / T))
            if self.policy == "dpr-ucb":
                return problem, T, epsilon, order - 1.0, u, scale
            if self.policy in ("dpr-se", "ldpr-se"):
                return problem, T, epsilon, order - 1.0, u, beta, scale
            alpha, unit = float(o.get("contamination", 0.0)), u ** (1.0 / order)
            if self.policy == "prae-raw":
                counted = o.get("radius") == "paper"
                threshold = 3.0 / alpha * math.log(3.0 / beta) if counted else 0.0
                threshold = float(o.get("threshold", threshold))
                return problem, T, epsilon, order, unit, alpha, beta, threshold, counted, scale
            threshold, reach = float(o.get("threshold", -1.0)), float(o["mean_range"])
            return problem, T, epsilon, order, unit, alpha, beta, threshold, reach, scale
        if self.policy.endswith("exp4"):
            return self._exp4(problem, advice, epsilon)
        many = advice.shape[1] if advice.size else problem.before.size
        local = self.policy.startswith("ldp-")
        batch = 1
        if self.policy.startswith("dp-"):
            batch = o.get("batch", math.ceil(1.0 / epsilon - 1e-9))
        noise = 1.0 / (batch * epsilon)
        start = (problem, advice, many, T, batch, noise)
        # Without privacy no noise is added, yet the rates may be told of some.
        lam = float(o.get("loss_noise", noise))
        n, rate = (T if local else T // batch), float(o.get("learning_rate_scale", 1.0))
        if "htinf" in self.policy or "tsallis" in self.policy:
            sigma = float(o.get("sigma", math.sqrt(1.0 + 2.0 * lam**2)))
            alpha = float(o.get("moment_order", 2.0))
            return *start, alpha, sigma, rate, "htinf" in self.policy
        log, log_k = math.log(many * n), math.log(many)
        if "ftpl" in self.policy:
            most = o.get("resamples", math.ceil(math.sqrt(many * n)))
            eta = min(
                math.sqrt(log_k / (many * n * (1.0 + 10.0 * lam**2 * log**2))),
                1.0 / (most * (1.0 + lam * max(4.0 * math.log(n), math.sqrt(10.0) * log))),
            )
            return *start, float(o.get("eta", eta)) * rate, most
        if self.policy == "exp3" and not o.get("horizon"):
            eta = o.get("eta")
            if eta is None:
                return *start, rate * math.sqrt(log_k / many), 0.0, True
            return *start, float(eta) * rate, float(o["gamma"]), False
        eta = math.sqrt(log_k / (2.0 * n * many * (1.0 + 10.0 * max(lam, lam**2) * log**2)))
        gamma = min(4.0 * eta * rate * many * lam * log, 1.0)
        return *start, eta * rate, gamma, False

    def _exp4(self, problem: Losses, advice: np.ndarray, epsilon: float) -> tuple[Any, ...]:
        T, N, K = self.horizon, advice.shape[1], problem.before.size
        rate = float(self.options.get("learning_rate_scale", 1.0))
        if self.policy == "exp4":
            eta = rate * math.sqrt(2.0 * math.log(N) / (T * K))
            return problem, advice, T, 0.0, eta, float(self.options.get("mixing", 0.0))
        if self.policy == "ldp-exp4":
            x = math.log(K * T) / epsilon
            eta = rate * math.sqrt(math.log(N) / (3.0 * T * K * (1.0 + 10.0 * x**2)))
            gamma = 4.0 * eta * K * x
            return problem, advice, T, 1.0 / epsilon, eta, gamma
        n, L, few = N * math.log(1.0 / self.options["delta"]), math.log(N * T), math.log(N)
        eta = n ** (1 / 6) * L ** (1 / 3) * few ** (1 / 3) / (T ** (1 / 3) * K**0.5)
        eta *= rate / epsilon ** (1 / 3)
        tau = n ** (1 / 3) * L ** (2 / 3) * T ** (1 / 3) / (epsilon ** (2 / 3) * few ** (1 / 3))
        gamma = max(
            eta ** (1 / 3)
            * n ** (1 / 3)
            * K ** (2 / 3)
            * L ** (2 / 3)
            / (epsilon * tau) ** (2 / 3),
            12.0 * eta * K * math.sqrt(n) * L / (epsilon * tau),
        )
        batch = math.ceil(tau)
        noise = 3.0 * K * math.sqrt(n) / (gamma * batch * epsilon)
        return problem, advice, T, batch, noise, eta, gamma


LOOPS: dict[str, Callable[..., Any]] = {
    "dpr-ucb": dpr_ucb,
    "dpr-se": dpr_se,
    "ldpr-se": ldpr_se,
    "prae-raw": prae_raw,
    "prae-central": prae_central,
    "exp3": exp3,
    "dp-exp3": exp3,
    "ldp-exp3": exp3,
    "dp-exp3-experts": exp3,
    "ftpl": ftpl,
    "dp-ftpl": ftpl,
    "dp-ftpl-experts": ftpl,
    "htinf": htinf,
    "dp-htinf": htinf,
    "dp-htinf-experts": htinf,
    "tsallis-inf": htinf,
    "dp-tsallis-inf": htinf,
    "exp4": exp4,
    "ldp-exp4": exp4,
    "dp-exp4": dp_exp4,
}
NO_HORIZON = {"exp3", "htinf", "tsallis-inf"}  # exp3 takes one as an option
SHORT = {
    "epsilon": "ε",
    "delta": "δ",
    "moment_order": "order",
    "moment_bound": "u",
    "radius_scale": "c",
    "learning_rate_scale": "rate",
}


def _short(x: Any) -> str:
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def _said(world: dict[str, Any]) -> str:
    """A short description of the world."""
    if "inner" in world:
        return f"{_said(world['inner'])} + {world['fraction']:g} at {world['outliers']['value']:g}"
    if "advice" in world:
        shape = np.shape(world["advice"])
        return f"{_said(world['losses'])}, {shape[-2]} experts" + ", turning" * (len(shape) == 3)
    first = world.get("means", world.get("values", world.get("before")))
    numbers = [v for k, v in world.items() if k in ("shape", "degrees", "switch")]
    return " ".join([world["name"], f"K={len(first)}", *(f"{x:g}" for x in numbers)])


def _placed(world: dict[str, Any], horizon: int) -> dict[str, Any]:
    """The world at a horizon: the switch, given as a share of it, in rounds."""
    if "losses" in world:
        advice = np.array(world["advice"], float)
        if advice.ndim == 3:
            advice = np.tile(advice, (-(-horizon // len(advice)), 1, 1))[:horizon]
        return {**world, "losses": _placed(world["losses"], horizon), "advice": advice}
    if world["name"] == "switching":
        return {**world, "horizon": horizon, "switch": round(world["switch"] * horizon)}
    return dict(world)


def _problem(world: dict[str, Any], horizon: int) -> tuple[Any, np.ndarray]:
    """The world as the loops take it, and the advice."""
    if "losses" in world:
        problem, _ = _problem(world["losses"], horizon)
        advice = np.array(world["advice"], float)
        return problem, advice if advice.ndim == 3 else advice[None]
    if "inner" in world:
        problem, _ = _problem(world["inner"], horizon)
        value = float(world["outliers"]["value"])
        return problem._replace(fraction=world["fraction"], outlier=value), NO_ADVICE
    match world["name"]:
        case "pareto":
            shape = world["shape"]
            first = np.array(world["means"]) * (shape - 1) / shape
            return Tails(PARETO, first, np.full(first.size, shape), 0.0, 0.0), NO_ADVICE
        case "student-t":
            first = np.array(world["means"], float)
            degrees = np.full(first.size, float(world["degrees"]))
            return Tails(STUDENT, first, degrees, 0.0, 0.0), NO_ADVICE
        case "two-point":
            first = np.array(world["values"], float)
            return Tails(TWO_POINT, first, np.array(world["probabilities"]), 0.0, 0.0), NO_ADVICE
        case "stochastic-losses":
            means = np.array(world["means"])
            return Losses(means, means, horizon, True), NO_ADVICE
        case _:
            before, after = np.array(world["before"]), np.array(world["after"])
            return Losses(before, after, round(world["switch"] * horizon), False), NO_ADVICE


U9, U5 = 8.142063093163385, 5.594637409335428  # the moments of the arms of Tao et al.
ABOUT_0 = student(5, 0.0, 0.4, 0.8)
ABOUT_2 = student(5, 2.0, 2.8, -1.0)
RARE = {"name": "two-point", "values": [5.0, 10.0], "probabilities": [0.1, 0.03]}
FAR = (0.9, 0.1)
TWO, THREE = coins(0.3, 0.6), coins(0.5, 0.5, 0.2)
MANY = coins(*(round(0.2 + 0.06 * i, 2) for i in range(11)))
TURNED = switching([0.5, 0.9], [0.5, 0.1], 0.3)
PANEL = [[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0], [0.6, 0.4, 0.0]]
LEANING = [[1.0, 0.0], [0.5, 0.5], [0.1, 0.9]]
CHANGING = [
    [[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 1.0, 0.0]],
    [[0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]],
]


def case(policy: str, horizon: int, runs: int, world: dict[str, Any], /, **options: Any) -> Case:
    """A case, with some options written short."""
    long = {short: name for name, short in SHORT.items()}
    return Case(policy, horizon, runs, world, {long.get(k, k): v for k, v in options.items()})


CASES = [
    case("dpr-ucb", 20_000, 1500, pareto(0.9), epsilon=1.0, order=1.9, u=U9, c=0.02),
    case("dpr-ucb", 20_000, 200, pareto(0.9), epsilon=1.0, order=1.9, u=U9),
    case("dpr-ucb", 20_000, 400, pareto(0.9), epsilon=3.0, order=1.9, u=U9, c=0.05),
    case("dpr-ucb", 20_000, 1000, pareto(0.9), epsilon=0.03, order=1.9, u=U9, c=0.05),
    case("dpr-ucb", 20_000, 1000, pareto(0.2, FAR), epsilon=1.0, order=1.2, u=2.0, c=0.1),
    case("dpr-ucb", 20_000, 400, pareto(1.0, ELEVEN), epsilon=1.0, order=2.0, u=0.2, c=0.1),
    case("dpr-ucb", 50_000, 400, student(2.5, 0, 2), epsilon=0.5, order=2.0, u=7.0, c=0.05),
    case("dpr-se", 100_000, 1500, pareto(0.9), epsilon=1.0, order=1.9, u=U9, c=0.05),
    case("dpr-se", 100_000, 600, pareto(0.9), epsilon=1.0, order=1.9, u=U9, c=0.1),
    case("dpr-se", 100_000, 1500, pareto(0.5), epsilon=1.0, order=1.5, u=U5, c=0.03),
    case("dpr-se", 100_000, 1500, pareto(0.9), epsilon=0.03, order=1.9, u=U9, c=0.02),
    case("dpr-se", 100_000, 600, pareto(0.9), epsilon=3.0, order=1.9, u=U9, c=0.1),
    case("dpr-se", 100_000, 600, student(2.5, 0, 0.5), epsilon=0.5, order=2.0, u=5.5, c=0.1),
    case(
        "dpr-se",
        100_000,
        2500,
        pareto(1.0, ELEVEN),
        epsilon=1.0,
        order=2.0,
        u=30.0,
        c=0.03,
        failure_probability=0.01,
    ),
    case("dpr-se", 100_000, 10_000, pareto(0.2, FAR), epsilon=1.0, order=1.2, u=2.0, c=0.02),
    case("dpr-se", 100_000, 2500, RARE, epsilon=1.0, order=1.9, u=2.4, c=0.1),
    case("dpr-se", 100_000, 600, pareto(0.9), epsilon=1.0, order=1.9, u=0.05, c=0.3),
    case("ldpr-se", 100_000, 1500, pareto(0.9), epsilon=1.0, order=1.9, u=U9, c=0.02),
    case("ldpr-se", 100_000, 3000, pareto(0.9), epsilon=3.0, order=1.9, u=U9, c=0.02),
    case("ldpr-se", 100_000, 2000, pareto(0.9), epsilon=10.0, order=1.9, u=2.0, c=0.05),
    case("ldpr-se", 100_000, 2000, pareto(0.5), epsilon=5.0, order=1.5, u=U5, c=0.01),
    case("ldpr-se", 100_000, 5000, pareto(0.2, FAR), epsilon=3.0, order=1.2, u=2.0, c=0.01),
    case("ldpr-se", 100_000, 5000, student(2.5, 0, 2), epsilon=0.1, order=2.0, u=6.0, c=0.01),
    case(
        "ldpr-se",
        100_000,
        3000,
        pareto(1.0, ELEVEN),
        epsilon=2.0,
        order=2.0,
        u=1.0,
        c=0.03,
        failure_probability=0.01,
    ),
    case("prae-raw", 100_000, 200, ABOUT_0, epsilon=1.0, order=2, u=2.4),
    case("prae-raw", 100_000, 800, ABOUT_0, epsilon=1.0, order=2, u=2.4, c=0.2),
    case("prae-raw", 100_000, 800, ABOUT_0, epsilon=0.03, order=2, u=2.4, c=0.2),
    case("prae-raw", 100_000, 800, ABOUT_0, epsilon=20.0, order=2, u=2.4, c=0.3),
    case("prae-raw", 100_000, 800, ABOUT_0, epsilon=3.0, order=4, u=50.0, c=0.2),
    case(
        "prae-raw",
        100_000,
        400,
        dirty(ABOUT_0, 50.0),
        epsilon=1.0,
        order=4,
        u=30.0,
        c=0.2,
        contamination=0.1,
    ),
    case(
        "prae-raw",
        30_000,
        2000,
        dirty(ABOUT_0, 1.0),
        epsilon=1.0,
        order=2,
        u=2.4,
        c=0.05,
        contamination=0.1,
        radius="paper",
    ),
    case(
        "prae-raw",
        30_000,
        30_000,
        dirty(ABOUT_0, 1.0),
        epsilon=1.0,
        order=2,
        u=2.4,
        c=0.05,
        contamination=0.1,
        radius="paper",
        threshold=64,
    ),
    case(
        "prae-raw",
        30_000,
        6000,
        pareto(2.0, ELEVEN),
        epsilon=1.0,
        order=3,
        u=25.0,
        c=0.2,
        failure_probability=0.05,
    ),
    case(
        "prae-central",
        100_000,
        600,
        student(5, 10, 10.8),
        epsilon=1.0,
        order=2,
        u=1.7,
        c=0.2,
        mean_range=50,
    ),
    case("prae-central", 100_000, 600, ABOUT_2, epsilon=1.0, order=4, u=25.0, c=0.1, mean_range=9),
    case(
        "prae-central",
        30_000,
        10_000,
        ABOUT_2,
        epsilon=0.03,
        order=2,
        u=0.15,
        c=0.1,
        mean_range=3,
        threshold=64,
    ),
    case(
        "prae-central",
        100_000,
        1000,
        dirty(ABOUT_2, 30.0),
        epsilon=3.0,
        order=4,
        u=25.0,
        c=0.05,
        mean_range=50,
        contamination=0.1,
        threshold=50,
    ),
    case(
        "prae-central",
        100_000,
        500,
        dirty(ABOUT_2, 4.0),
        epsilon=20.0,
        order=2,
        u=1.7,
        c=0.2,
        mean_range=50,
        contamination=0.1,
    ),
    case(
        "prae-central",
        20_000,
        10_000,
        pareto(2.0, ELEVEN),
        epsilon=1.0,
        order=2,
        u=0.5,
        c=0.05,
        mean_range=5,
        threshold=0,
    ),
    case("exp3", 10_000, 400, THREE),
    case("exp3", 10_000, 200, THREE, horizon=10_000),
    case("exp3", 10_000, 200, MANY, horizon=10_000, loss_noise=0.5, rate=5.0),
    case("exp3", 10_000, 400, TURNED, eta=0.01, gamma=0.05),
    case("exp3", 10_000, 200, MANY, rate=3.0),
    case("dp-exp3", 20_000, 200, THREE, epsilon=0.5),
    case("dp-exp3", 20_000, 400, THREE, epsilon=0.03, rate=20.0),
    case("dp-exp3", 20_000, 400, TWO, epsilon=3.0, rate=5.0),
    case("dp-exp3", 20_000, 2000, TURNED, epsilon=0.3, batch=7, rate=10.0),
    case("dp-exp3", 20_000, 200, MANY, epsilon=1.0, rate=10.0),
    case("ldp-exp3", 20_000, 200, THREE, epsilon=0.5, rate=10.0),
    case("ldp-exp3", 20_000, 200, MANY, epsilon=3.0, rate=5.0),
    case("ldp-exp3", 20_000, 800, TURNED, epsilon=0.03, rate=50.0),
    case("ldp-exp3", 20_000, 400, TWO, epsilon=1.0),
    case("ftpl", 5_000, 200, THREE),
    case("ftpl", 5_000, 100, MANY, loss_noise=0.3, rate=5.0),
    case("ftpl", 5_000, 600, TURNED, eta=0.02, resamples=9),
    case("dp-ftpl", 10_000, 200, THREE, epsilon=0.5, rate=20.0),
    case("dp-ftpl", 10_000, 400, TWO, epsilon=0.03, rate=30.0),
    case("dp-ftpl", 10_000, 50, MANY, epsilon=3.0, rate=10.0),
    case("dp-ftpl", 10_000, 400, TURNED, epsilon=0.3, batch=7, rate=50.0),
    case("htinf", 10_000, 300, THREE),
    case("htinf", 10_000, 300, MANY, order=1.5, sigma=2.0),
    case("htinf", 10_000, 600, TURNED, loss_noise=1.0, rate=2.0),
    case("htinf", 10_000, 300, THREE, order=1.1, sigma=0.7),
    case("dp-htinf", 20_000, 400, THREE, epsilon=0.5),
    case("dp-htinf", 20_000, 600, TWO, epsilon=0.03),
    case("dp-htinf", 20_000, 100, MANY, epsilon=3.0),
    case("dp-htinf", 20_000, 600, TURNED, epsilon=0.3, batch=7, rate=2.0),
    case("dp-htinf", 20_000, 200, MANY, epsilon=0.2, batch=1),
    case("tsallis-inf", 10_000, 400, THREE),
    case("tsallis-inf", 10_000, 400, TURNED, sigma=3.0),
    case("dp-tsallis-inf", 20_000, 1500, THREE, epsilon=0.5),
    case("dp-tsallis-inf", 20_000, 600, TURNED, epsilon=0.1, rate=0.5),
    case("exp4", 10_000, 400, advised(THREE, PANEL)),
    case("exp4", 10_000, 400, advised(THREE, CHANGING), mixing=0.1, rate=3.0),
    case("exp4", 10_000, 400, advised(TURNED, LEANING), rate=5.0),
    case("ldp-exp4", 10_000, 400, advised(THREE, PANEL), epsilon=1.0),
    case("ldp-exp4", 10_000, 400, advised(THREE, CHANGING), epsilon=0.2, rate=10.0),
    case("ldp-exp4", 10_000, 400, advised(TURNED, LEANING), epsilon=20.0, rate=5.0),
    case("dp-exp4", 100_000, 100, advised(TWO, LEANING), epsilon=1.0, delta=1e-3),
    case("dp-exp4", 100_000, 100, advised(THREE, CHANGING), epsilon=0.5, delta=1e-2, rate=0.3),
    case(
        "dp-exp4",
        50_000,
        200,
        advised(TURNED, [[1.0, 0.0], [0.0, 1.0]]),
        epsilon=1.0,
        delta=1e-5,
        rate=0.5,
    ),
    case("dp-htinf-experts", 20_000, 400, advised(THREE, PANEL), epsilon=0.5),
    case("dp-htinf-experts", 20_000, 400, advised(THREE, CHANGING), epsilon=0.1, batch=4, rate=2.0),
    case("dp-htinf-experts", 20_000, 200, advised(TURNED, LEANING), epsilon=3.0),
    case("dp-exp3-experts", 20_000, 400, advised(THREE, PANEL), epsilon=0.5, rate=20.0),
    case("dp-ftpl-experts", 10_000, 200, advised(THREE, PANEL), epsilon=0.5, rate=20.0),
]


def same_spread(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The p-value of Brown and Forsythe's test; 1 where nothing varies."""
    if ours.std() < 1e-6 and theirs.std() < 1e-6:
        return 1.0
    return float(scipy.stats.levene(ours, theirs, center="median").pvalue)


def main() -> int:
    """Print the table; the exit status is 1 where a row disagrees."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("policies", nargs="*", help="these policies only")
    chosen = parser.parse_args().policies
    cases = [one for one in CASES if not chosen or one.policy in chosen]
    started, apart = time.perf_counter(), 0
    head, line = HEAD.split("\n")
    print(f"final regret\n\n{head} spread |\n{line}---|", flush=True)
    for one in cases:
        ours, theirs = one.ours(), one.independent()
        found, spread = compare(ours, theirs), same_spread(ours, theirs)
        apart += not (found.agrees and spread > 1e-4)
        print(f"{row(one, found)} {spread:.2g} |", flush=True)
    took = time.perf_counter() - started
    print(f"\n{len(cases) - apart} of {len(cases)} agree; {took:.0f} s")
    return 1 if apart else 0


if __name__ == "__main__":
    raise SystemExit(main())

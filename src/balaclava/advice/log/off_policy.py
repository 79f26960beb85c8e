"""What another policy would have earned on a log: IPS, SNIPS and doubly robust estimates.

Two policies are fitted on one half of the log and evaluated on the other, both ways: the best
single arm, and the arm with the highest prediction of a linear model of its own. What is estimated
is the average reward of the policies that were fitted so; no row is judged by a model that it took
part in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from balaclava._core.extras import require_extra
from balaclava.simulation.analysis.statistics import NORMAL_REACH

OFF_POLICY_METHODS = ("doubly robust", "SNIPS", "IPS")
ONE_ARM, BY_FEATURES = "best single arm", "linear, by features"
_PRIOR = 2.0  # ridge by which an arm's coefficients are pulled to those of all arms
_FLOOR = 0.01  # of an estimated propensity
_MOST_ROWS = 50_000  # that propensities are fitted to
_CHUNK = 100_000


class IntervalEstimate(NamedTuple):
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float


class PolicyValue(NamedTuple):
    """What a policy would have earned a decision, by each method."""

    policy: str
    effective: float  # rows that would be as good if all of them had followed the policy
    estimates: dict[str, IntervalEstimate]


class OffPolicyEvaluation(NamedTuple):
    """Both policies, and what features gain over none."""

    values: tuple[PolicyValue, PolicyValue]
    gain: dict[str, IntervalEstimate]
    estimated: bool  # whether propensities were


def evaluate_off_policy(
    arms: np.ndarray,
    rewards: np.ndarray,
    rows: np.ndarray,
    propensities: np.ndarray | None,
    people: np.ndarray | None = None,
    seed: int = 1,
) -> OffPolicyEvaluation:
    """Evaluate both policies; `rows` are those of `Scaling`, an intercept first.

    All rows of a person are in the same half, and count as one in the intervals.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> x, arms = rng.choice([-1.0, 1.0], 4_000), rng.integers(0, 2, 4_000)
        >>> rewards = (rng.random(4_000) < 0.5 + 0.2 * x * (2 * arms - 1)).astype(float)
        >>> rows = np.column_stack([np.ones(4_000), x])
        >>> done = evaluate(arms, rewards, rows, np.full(4_000, 0.5))
        >>> gain = done.gain["doubly robust"]
        >>> gain.low < 0.2 < gain.high, round(gain.value, 2)
        (True, 0.21)
    """
    groups = np.arange(rewards.size) if people is None else people
    sides = np.random.default_rng(seed).permutation(int(groups.max()) + 1) % 2
    half = sides[groups]
    weights = {name: np.zeros(rewards.size) for name in (ONE_ARM, BY_FEATURES)}
    robust = {name: np.zeros(rewards.size) for name in weights}
    count = int(arms.max()) + 1
    for side in (0, 1):
        past, now = half != side, half == side
        if propensities is None:
            model = fit_propensities(rows[past], arms[past], count)
            chances = np.maximum(model.chances(rows, arms), _FLOOR)
        else:
            chances = propensities
        theta = fit_arms(rows[past], arms[past], rewards[past], count)
        best = _best_arm(arms[past], rewards[past], 1 / chances[past], count)
        choices = {
            ONE_ARM: np.full(int(now.sum()), best),
            BY_FEATURES: _highest(rows[now], theta),
        }
        logged = np.einsum("ij,ij->i", rows[now], theta[arms[now]])
        for name, choice in choices.items():
            weight = (choice == arms[now]) / chances[now]
            weights[name][now] = weight
            predicted = np.einsum("ij,ij->i", rows[now], theta[choice])
            robust[name][now] = predicted + weight * (rewards[now] - logged)
    terms = {name: _terms(weights[name], rewards, robust[name]) for name in weights}
    values = [
        PolicyValue(
            name,
            float(weights[name].sum() ** 2 / max((weights[name] ** 2).sum(), 1e-300)),
            {method: _estimate(*terms[name][method], people) for method in OFF_POLICY_METHODS},
        )
        for name in weights
    ]
    gain = {}
    for method in OFF_POLICY_METHODS:
        (after, moves), (before, moves_2) = terms[BY_FEATURES][method], terms[ONE_ARM][method]
        gain[method] = _estimate(after - before, moves - moves_2, people)
    return OffPolicyEvaluation((values[0], values[1]), gain, propensities is None)


def _terms(
    weights: np.ndarray, rewards: np.ndarray, robust: np.ndarray
) -> dict[str, tuple[float, np.ndarray]]:
    """By each method the estimate, and by how much each row moves it (times the rows)."""
    total = max(float(weights.mean()), 1e-300)
    ips = weights * rewards
    snips = float(ips.mean()) / total
    return {
        "IPS": (float(ips.mean()), ips - ips.mean()),
        "SNIPS": (snips, weights * (rewards - snips) / total),
        "doubly robust": (float(robust.mean()), robust - robust.mean()),
    }


def _estimate(value: float, moves: np.ndarray, people: np.ndarray | None) -> IntervalEstimate:
    sums = moves if people is None else np.bincount(people, weights=moves)
    reach = NORMAL_REACH * float(np.sqrt((sums**2).sum())) / moves.size
    return IntervalEstimate(value, value - reach, value + reach)


def fit_arms(rows: np.ndarray, arms: np.ndarray, rewards: np.ndarray, count: int) -> np.ndarray:
    """Coefficients [arm, feature]: ridge regression towards that of all arms together."""
    ridge = _PRIOR * np.eye(rows.shape[1])
    shared = np.linalg.solve(rows.T @ rows + 1e-6 * ridge, rows.T @ rewards)
    theta = np.empty((count, rows.shape[1]))
    for arm in range(count):
        mine = rows[arms == arm]
        rest = rewards[arms == arm] - mine @ shared
        theta[arm] = shared + np.linalg.solve(mine.T @ mine + ridge, mine.T @ rest)
    return theta


def coefficient_posterior(
    rows: np.ndarray, arms: np.ndarray, rewards: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of each arm, and a root of the covariance that their fit leaves open."""
    theta = fit_arms(rows, arms, rewards, count)
    roots = np.empty((count, rows.shape[1], rows.shape[1]))
    usual = float(rewards.var())
    for arm in range(count):
        mine = rows[arms == arm]
        errors = rewards[arms == arm] - mine @ theta[arm]
        gram = mine.T @ mine + _PRIOR * np.eye(rows.shape[1])
        # One error of the usual size more: an arm without a success may yet have some.
        spread = float((errors**2).sum() + usual) / (errors.size + 1)
        roots[arm] = np.linalg.cholesky((spread + 1e-12) * np.linalg.inv(gram))
    return theta, roots


def _best_arm(arms: np.ndarray, rewards: np.ndarray, weights: np.ndarray, count: int) -> int:
    """The arm with the highest weighted mean, pulled to that of all rows as models are."""
    sums = np.bincount(arms, weights * rewards, count)
    totals = np.bincount(arms, weights, count)
    each = np.bincount(arms, minlength=count)
    means = sums / np.maximum(totals, 1e-300)
    overall = float((weights * rewards).sum() / weights.sum())
    pull = 2 * _PRIOR  # an intercept of (1, u) / sqrt 2 has half the weight of a row
    return int(np.argmax((each * means + pull * overall) / (each + pull)))


def _highest(rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The arm with the highest prediction, for each row."""
    starts = range(0, len(rows), _CHUNK)
    return np.concatenate([np.argmax(rows[i : i + _CHUNK] @ theta.T, axis=1) for i in starts])


class PropensityModel(NamedTuple):
    """Chances of the arms given a row: softmax of linear scores."""

    scores: np.ndarray  # [feature, arm]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        heights = rows @ self.scores
        heights -= heights.max(axis=1, keepdims=True)
        shares = np.exp(heights)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def chances(self, rows: np.ndarray, arms: np.ndarray) -> np.ndarray:
        """Those of one arm in each row."""
        parts = [slice(i, i + _CHUNK) for i in range(0, len(rows), _CHUNK)]
        picked = [np.take_along_axis(self(rows[part]), arms[part, None], 1) for part in parts]
        return np.concatenate(picked)[:, 0]


def fit_propensities(rows: np.ndarray, arms: np.ndarray, count: int) -> PropensityModel:
    """Multinomial logistic regression, with a ridge of one row on the coefficients."""
    require_extra("scipy", "estimating propensities")
    from scipy.optimize import minimize

    rows, arms = rows[:_MOST_ROWS], arms[:_MOST_ROWS]
    chosen = arms[:, None] == np.arange(count)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        scores = flat.reshape(rows.shape[1], count)
        shares = PropensityModel(scores)(rows)
        likely = np.log(np.maximum(shares[np.arange(arms.size), arms], 1e-300)).sum()
        slope = rows.T @ (shares - chosen) + scores
        return float(0.5 * (scores**2).sum() - likely), slope.ravel()

    start = np.zeros((rows.shape[1], count))
    start[0] = np.log(np.maximum(np.bincount(arms, minlength=count), 1) / arms.size) / rows[0, 0]
    done = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 100})
    return PropensityModel(done.x.reshape(rows.shape[1], count))

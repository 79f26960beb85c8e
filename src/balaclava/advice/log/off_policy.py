"""Off-policy evaluation on a log: IPS, SNIPS and doubly robust estimates of two policies.

The policies are the best single arm, and the arm with the highest prediction of its own linear
model. Both are fitted on one half of the log and evaluated on the other, and the reverse. So no
model is evaluated on rows that it was fitted to.
"""

from typing import NamedTuple

import numpy as np

from balaclava._core.extras import require_extra
from balaclava.advice.log.arm_estimates import clustered_root
from balaclava.simulation.analysis.statistics import NORMAL_REACH

OFF_POLICY_METHODS = ("doubly robust", "SNIPS", "IPS")
ONE_ARM, BY_FEATURES = "best single arm", "linear, by features"
_RIDGE_ROWS = 2.0  # prior weight of all arms' coefficients, in rows: affects power, not validity
_PROPENSITY_FLOOR = 0.01  # of an estimated propensity: caps a weight at 100
_PROPENSITY_FIT_ROWS = 50_000  # rows that propensities are fitted to, for speed
_PREDICTION_CHUNK_ROWS = 100_000  # rows predicted at once, for memory
_TINY = 1e-300  # avoids division by 0


class IntervalEstimate(NamedTuple):
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float


class PolicyValue(NamedTuple):
    """Mean reward per decision that a policy would have earned, by each method."""

    policy: str
    effective: float  # effective sample size of the rows that follow the policy
    estimates: dict[str, IntervalEstimate]


class OffPolicyEvaluation(NamedTuple):
    """The values of both policies, and the gain of features over the best single arm."""

    values: tuple[PolicyValue, PolicyValue]
    gain: dict[str, IntervalEstimate]
    estimated: bool  # whether propensities were estimated


def evaluate_off_policy(
    arms: np.ndarray,
    rewards: np.ndarray,
    rows: np.ndarray,
    propensities: np.ndarray | None,
    participants: np.ndarray | None = None,
    seed: int = 1,
) -> OffPolicyEvaluation:
    """Evaluate both policies; `rows` are those of `FeatureScaling`, an intercept first.

    All rows of a participant are in the same half, and count as one in the intervals.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> x, arms = rng.choice([-1.0, 1.0], 4_000), rng.integers(0, 2, 4_000)
        >>> rewards = (rng.random(4_000) < 0.5 + 0.2 * x * (2 * arms - 1)).astype(float)
        >>> rows = np.column_stack([np.ones(4_000), x])
        >>> gain = evaluate_off_policy(arms, rewards, rows, np.full(4_000, 0.5)).gain
        >>> each = gain["doubly robust"]
        >>> each.low < 0.2 < each.high, round(each.value, 2)
        (True, 0.21)
    """
    groups = np.arange(rewards.size) if participants is None else participants
    sides = np.random.default_rng(seed).permutation(int(groups.max()) + 1) % 2
    half = sides[groups]
    weights = {name: np.zeros(rewards.size) for name in (ONE_ARM, BY_FEATURES)}
    robust = {name: np.zeros(rewards.size) for name in weights}
    count = int(arms.max()) + 1
    for side in (0, 1):
        fitting, now = half != side, half == side
        if propensities is None:
            model = fit_propensities(rows[fitting], arms[fitting], count)
            chances = np.maximum(model.chances(rows, arms), _PROPENSITY_FLOOR)
        else:
            chances = propensities
        theta = fit_arms(rows[fitting], arms[fitting], rewards[fitting], count)
        best = _best_arm(arms[fitting], rewards[fitting], 1 / chances[fitting], count)
        choices = {ONE_ARM: np.full(int(now.sum()), best), BY_FEATURES: _highest(rows[now], theta)}
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
            float(weights[name].sum() ** 2 / max((weights[name] ** 2).sum(), _TINY)),
            {each: _estimate(*terms[name][each], participants) for each in OFF_POLICY_METHODS},
        )
        for name in weights
    ]
    gain = {}
    for method in OFF_POLICY_METHODS:
        linear, single = terms[BY_FEATURES][method], terms[ONE_ARM][method]
        gain[method] = _estimate(linear[0] - single[0], linear[1] - single[1], participants)
    return OffPolicyEvaluation((values[0], values[1]), gain, propensities is None)


def _terms(
    weights: np.ndarray, rewards: np.ndarray, robust: np.ndarray
) -> dict[str, tuple[float, np.ndarray]]:
    """By method: the estimate, and the influence of each row on it (times the rows)."""
    total = max(float(weights.mean()), _TINY)
    ips = weights * rewards
    snips = float(ips.mean()) / total
    return {
        "IPS": (float(ips.mean()), ips - ips.mean()),
        "SNIPS": (snips, weights * (rewards - snips) / total),
        "doubly robust": (float(robust.mean()), robust - robust.mean()),
    }


def _estimate(
    value: float, influence: np.ndarray, participants: np.ndarray | None
) -> IntervalEstimate:
    reach = NORMAL_REACH * clustered_root(influence, participants) / influence.size
    return IntervalEstimate(value, value - reach, value + reach)


def fit_arms(rows: np.ndarray, arms: np.ndarray, rewards: np.ndarray, count: int) -> np.ndarray:
    """Coefficients [arm, feature] by ridge regression towards those of all arms together."""
    ridge = _RIDGE_ROWS * np.eye(rows.shape[1])
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
    """Coefficients of each arm, and a root of the covariance of their errors.

    Fitted coefficients of equal arms differ too, so both are shrunk towards the average arm: by
    the factor 1 - d / Q of James and Stein, not below 0. Q is the sum of the squared differences in
    units of their errors, and d = (arms - 1) features is its mean for equal arms.
    """
    theta = fit_arms(rows, arms, rewards, count)
    roots = np.empty((count, rows.shape[1], rows.shape[1]))
    usual = float(rewards.var())
    for arm in range(count):
        mine = rows[arms == arm]
        errors = rewards[arms == arm] - mine @ theta[arm]
        gram = mine.T @ mine + _RIDGE_ROWS * np.eye(rows.shape[1])
        # One more error of the usual size, so that an arm without a success has a spread.
        spread = float((errors**2).sum() + usual) / (errors.size + 1)
        roots[arm] = np.linalg.cholesky((spread + 1e-12) * np.linalg.inv(gram))
    centre = np.average(theta, axis=0, weights=np.bincount(arms, minlength=count))
    scaled = np.linalg.solve(roots, (theta - centre)[:, :, None])
    freedom = (count - 1) * rows.shape[1]
    keep = max(1 - freedom / max(float((scaled**2).sum()), _TINY), 0.0)
    return centre + keep * (theta - centre), np.sqrt(keep) * roots


def _best_arm(arms: np.ndarray, rewards: np.ndarray, weights: np.ndarray, count: int) -> int:
    """The arm with the highest weighted mean, shrunk to that of all rows as the models are."""
    sums = np.bincount(arms, weights * rewards, count)
    totals = np.bincount(arms, weights, count)
    each = np.bincount(arms, minlength=count)
    means = sums / np.maximum(totals, _TINY)
    overall = float((weights * rewards).sum() / weights.sum())
    pull = 2 * _RIDGE_ROWS  # an intercept of (1, u) / sqrt 2 has half the weight of a row
    return int(np.argmax((each * means + pull * overall) / (each + pull)))


def _highest(rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The arm with the highest prediction, for each row."""
    return np.concatenate([np.argmax(rows[part] @ theta.T, axis=1) for part in _chunks(rows)])


def _chunks(rows: np.ndarray) -> list[slice]:
    size = _PREDICTION_CHUNK_ROWS
    return [slice(i, i + size) for i in range(0, len(rows), size)]


class PropensityModel(NamedTuple):
    """Probabilities of the arms given a row: softmax of linear scores."""

    scores: np.ndarray  # [feature, arm]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        heights = rows @ self.scores
        heights -= heights.max(axis=1, keepdims=True)
        shares = np.exp(heights)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def chances(self, rows: np.ndarray, arms: np.ndarray) -> np.ndarray:
        """The probability of one arm in each row."""
        parts = _chunks(rows)
        picked = [np.take_along_axis(self(rows[part]), arms[part, None], 1) for part in parts]
        return np.concatenate(picked)[:, 0]


def fit_propensities(rows: np.ndarray, arms: np.ndarray, count: int) -> PropensityModel:
    """Multinomial logistic regression, with a ridge of one row on the coefficients."""
    require_extra("scipy", "estimating propensities")
    from scipy.optimize import minimize

    rows, arms = rows[:_PROPENSITY_FIT_ROWS], arms[:_PROPENSITY_FIT_ROWS]
    chosen = arms[:, None] == np.arange(count)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        scores = flat.reshape(rows.shape[1], count)
        shares = PropensityModel(scores)(rows)
        likely = np.log(np.maximum(shares[np.arange(arms.size), arms], _TINY)).sum()
        slope = rows.T @ (shares - chosen) + scores
        return float(0.5 * (scores**2).sum() - likely), slope.ravel()

    start = np.zeros((rows.shape[1], count))
    start[0] = np.log(np.maximum(np.bincount(arms, minlength=count), 1) / arms.size) / rows[0, 0]
    done = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 100})
    return PropensityModel(done.x.reshape(rows.shape[1], count))

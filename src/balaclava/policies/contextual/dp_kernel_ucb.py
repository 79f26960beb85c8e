"""DP-KernelUCB: kernel regression on randomised rewards (after Valko et al. 2013, Algorithm 1).

Proof of privacy: `dp_kernel_ucb.proof.md` beside this file.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, RadiusScale, Range
from balaclava._core.kernels import kernel, kernel_by_columns
from balaclava._core.states import range_faults
from balaclava.estimators import kernel_rows
from balaclava.frames import pending
from balaclava.policies.base import ArmRelease, Kernels, PrivateBoundedPolicy, register
from balaclava.policies.contextual import linear_context
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report

LINEAR_MODEL, KERNEL_MODEL = 0, 1  # models
# Log odds of the kernel model before any report. On tables 8 is better than 3 and 0 until 10,000
# rounds; where means are linear it costs up to a third more regret until then.
PRIOR_ODDS = 8.0

LandmarkCount = Annotated[int, Range(0, 10_000, "most landmarks; 0 for a linear model")]


class Params(NamedTuple):
    arms: int
    features: int
    disjoint: bool
    reward_range: tuple[float, float]
    feature_bound: float
    reach: float  # standard deviations of the index above the mean
    landmarks: int
    outstanding: int
    epsilon: float
    report_variance: float


class State(NamedTuple):
    """The posteriors of the coefficients given the reports, of two models: linear, and kernel."""

    landmarks: kernel_rows.Landmarks
    inverse: np.ndarray  # [model, block, size, size]: the covariance P^-1
    theta: np.ndarray  # [model, block, size]: the mean
    evidence: np.ndarray  # [model]: log density of the reports
    asked: np.ndarray  # [block]: decisions
    reports: np.ndarray  # [block]: reports received
    pending: pending.Pending  # rows of open decisions
    product: np.ndarray  # [size]: scratch space, P^-1 phi

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, asked=self.asked, reports=self.reports)
        variances = np.einsum("mbii->mbi", self.inverse)
        yield from range_faults(0.0, 1.0 + 1e-6, variances=variances)
        if not (np.isfinite(self.theta).all() and np.isfinite(self.evidence).all()):
            yield "a coefficient or the evidence is not finite"


@kernel
def begin(params: Params) -> State:
    d, size = params.features, params.features + params.landmarks
    blocks = params.arms if params.disjoint else 1
    inverse = np.zeros((2, blocks, size, size))
    for block in range(blocks):
        for i in range(size):
            inverse[LINEAR_MODEL, block, i, i] = 1.0
            inverse[KERNEL_MODEL, block, i, i] = 1.0
    state = State(
        landmarks=kernel_rows.begin_landmarks(d, params.landmarks),
        inverse=inverse,
        theta=np.zeros((2, blocks, size)),
        evidence=np.zeros(2),
        asked=np.zeros(blocks, np.int64),
        reports=np.zeros(blocks, np.int64),
        pending=pending.begin_pending(params.outstanding, d),
        product=np.zeros(size),
    )
    state.evidence[KERNEL_MODEL] = PRIOR_ODDS
    return state


@kernel(borrows=True)
def model_in_use(state: State) -> int:
    """The model that is likelier given the reports."""
    return (
        KERNEL_MODEL
        if state.evidence[KERNEL_MODEL] > state.evidence[LINEAR_MODEL]
        else LINEAR_MODEL
    )


@kernel(borrows=True)
def model_size(state: State, model: int) -> int:
    """Elements of phi that the model uses: the features alone if it is linear."""
    return state.landmarks.points.shape[1] + model * state.landmarks.count[0]


@kernel(borrows=True)
def squared_width(state: State, model: int, block: int, size: int) -> float:
    """phi' P^-1 phi of the expanded row; leaves P^-1 phi in `product`."""
    row, product = state.landmarks.row, state.product
    kernel_rows.multiply(state.inverse[model, block], row, size, product)
    return max(kernel_rows.dot(product, row, size), 0.0)


def best_of_rows(params: Params, state: State, context: np.ndarray) -> int:
    """`best_arm` in Python, for all arms at once."""
    model = model_in_use(state)
    size = model_size(state, model)
    phi = kernel_rows.expanded(state.landmarks, context, params.feature_bound)[:, :size]
    products = kernel_rows.products_of_rows(phi, state.inverse[model])
    widths = np.sqrt(np.maximum(kernel_rows.dots_of_rows(products, phi), 0.0))
    means = kernel_rows.dots_of_rows(state.theta[model][:, :size], phi)
    return linear_context.highest_of(means + params.reach * widths, state.asked)


@kernel_by_columns(best_of_rows, kernel_rows.always)
def best_arm(params: Params, state: State, context: np.ndarray) -> int:
    """The arm with the highest index; of several the one with the fewest decisions."""
    model = model_in_use(state)
    best, highest, fewest, size = 0, -math.inf, 0, model_size(state, model)
    for arm in range(params.arms):
        if arm == 0 or not params.disjoint:
            row = linear_context.context_row(context, arm)
            kernel_rows.expand(state.landmarks, context[row], params.feature_bound)
        block = linear_context.coefficient_block(state.asked.size, arm)
        width = math.sqrt(squared_width(state, model, block, size))
        mean = kernel_rows.dot(state.theta[model, block], state.landmarks.row, size)
        index, asked = mean + params.reach * width, state.asked[block]
        if index > highest or (index == highest and asked < fewest):
            best, highest, fewest = arm, index, asked
    return best


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: np.ndarray, rng: Any) -> tuple[int, int]:
    best = best_arm(params, state, context)
    return best, note_decision(params, state, best, context)


@kernel(borrows=True)
def note_decision(params: Params, state: State, arm: int, context: np.ndarray) -> int:
    """Keep the row of a decision until its report comes; it may become a landmark."""
    row = context[linear_context.context_row(context, arm)]
    if state.landmarks.count[0] < params.landmarks:
        kernel_rows.expand(state.landmarks, row, params.feature_bound)
        kernel_rows.add_landmark(state.landmarks)
    state.asked[linear_context.coefficient_block(state.asked.size, arm)] += 1
    note = state.pending.notes[pending.new_note(state.pending)]
    for i in range(note.size):
        note[i] = row[i]
    return state.pending.count[0]


@kernel(borrows=True)
def learn_report(
    params: Params, state: State, t: int, arm: int, bit: float, phase: int, rng: Any
) -> None:
    """Bayes' rule for the report 1/2 + (y - 1/2) / tanh(epsilon/2), whose mean is the reward's."""
    number = pending.take_note(state.pending, phase)
    if number == pending.FORGOTTEN:
        return
    note = state.pending.notes[number]
    kernel_rows.expand(state.landmarks, note, params.feature_bound)
    for i in range(note.size):
        note[i] = 0.0  # saves compress what is not needed
    block = linear_context.coefficient_block(state.asked.size, arm)
    state.reports[block] += 1
    report = 0.5 + (bit - 0.5) / math.tanh(0.5 * params.epsilon)
    for model in (LINEAR_MODEL, KERNEL_MODEL):
        update(params, state, model, block, report)


@kernel(borrows=True)
def update(params: Params, state: State, model: int, block: int, report: float) -> None:
    """Condition a model on a report of the expanded row, and add its log density before that."""
    size, theta = model_size(state, model), state.theta[model, block]
    variance = params.report_variance + squared_width(state, model, block, size)
    residual = report - kernel_rows.dot(theta, state.landmarks.row, size)
    state.evidence[model] -= 0.5 * (math.log(variance) + residual * residual / variance)
    for i in range(size):
        theta[i] += residual / variance * state.product[i]
    kernel_rows.subtract_square(state.inverse[model, block], state.product, 1.0 / variance, size)


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    learn_report(params, state, t, arm, bernoulli_report(rng, reward, params.epsilon), phase, rng)


class KernelPolicy(linear_context.ContextualPolicy):
    """The parameters of kernel regression on randomised rewards."""

    examples = ({"landmarks": 8, "outstanding": 512},)
    kernels = Kernels(begin, choose, learn, pending.forget_note)
    rule = linear_context.Rule(linear_context.sure(best_arm), note_decision)
    epsilon: Epsilon
    radius_scale: RadiusScale = 0.85
    landmarks: LandmarkCount = 64

    def constants(self) -> Params:
        spread = linear_context.REWARD_SPREAD / math.tanh(0.5 * self.epsilon)
        reach = self.radius_scale * math.sqrt(2.0 * math.log(self.arms))
        return self.fill(Params, reach=reach, report_variance=spread * spread)

    def released(self, state: Any) -> Sequence[ArmRelease]:
        """The reports, one entry per coefficient vector; there are no means of arms."""
        return [
            ArmRelease(arm=block, rewards=count, mean=math.nan, draws=count, batches=count)
            for block, count in enumerate(state.reports.tolist())
        ]

    def propensity(self, state: Any, arm: int) -> float | None:
        """1: the arm is determined by the reports and the contexts."""
        return 1.0


@register
class DPKernelUCB(KernelPolicy, PrivateBoundedPolicy):
    r"""Play the arm with the highest posterior quantile, by a kernel, from randomised rewards.

    The first choice for rewards that must be protected if the features of participants are known
    and may be public. Means need not be linear in the features. If they are known to be, and the
    arms share the coefficients, dp-linucb with a radius_scale of 0.3 has less regret in long runs.
    ldp-kernel-ucb is the same policy for rewards that devices report.

    A reward r in [0, 1] is released once, as y = 1 with probability 1/2 + (r - 1/2)
    tanh(epsilon/2), otherwise y = 0. The policy learns from 1/2 + (y - 1/2) / tanh(epsilon/2),
    which has mean r and a variance of at most s^2 = 1 / (4 tanh^2(epsilon/2)). The mean reward is a
    Gaussian process with the prior covariance

    .. math:: \langle x, z \rangle + \frac{1/4}{1 + 4 |x - z|^2}

    for features divided by `feature_bound`. Its second part is projected onto the first rows that
    differ from those before, at most `landmarks`. That makes it Bayesian linear regression on
    features phi(x) (`balaclava.estimators.kernel_rows`). With mean mu and precision P of the
    coefficients play the arm with the largest

    .. math:: \langle \mu, \varphi(x) \rangle
        + q \sqrt{2 \log K} \sqrt{\varphi(x)' P^{-1} \varphi(x)},

    q = `radius_scale`. A linear model, without the second part, is fitted beside it, and decides
    while the reports are e^8 times more likely under it.

    Privacy:
        epsilon-differential privacy of the whole trajectory; contexts are public and not
        protected, and must not depend on unreleased rewards. Each reward is in one report, and
        landmarks are contexts.

    Parameters:
        radius_scale: q; never affects privacy.

    Example:
        >>> world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
        >>> policy = bl.policy("dp-kernel-ucb", arms=5, features=3, epsilon=1.0)
        >>> results = bl.simulate(policy, world, horizon=5_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("dp-kernel-ucb").mean()))
        81
    """

    name = "dp-kernel-ucb"
    reference = "after Valko, Korda, Munos, Flaounas, Cristianini 2013"
    cites = "Valko, Korda, Munos, Flaounas, Cristianini 2013; Engel, Mannor, Meir 2004"
    see_also = "ldp-kernel-ucb, dp-linucb, dp-lin-ts, dp-imed"
    assumptions = (linear_context.CONTEXT_IS_PUBLIC,)

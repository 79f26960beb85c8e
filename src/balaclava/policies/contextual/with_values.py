"""A contextual policy, with estimates of its value and of others (Horvitz, Thompson 1952).

Proof: `value_batches.proof.md` beside this file.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, Range, check
from balaclava._core.kernels import kernel
from balaclava.errors import EstimateError, ParameterError
from balaclava.frames import pending
from balaclava.frames.pools import UNLEARNED
from balaclava.frames.ridge import dot
from balaclava.policies.base import POLICIES, ArmRelease, Estimation, Kernels, Policy, register
from balaclava.policies.contextual import value_batches as batches
from balaclava.policies.contextual.linear_context import (
    ContextualPolicy,
    Rule,
    coefficient_block,
    context_row,
)
from balaclava.policies.contextual.value_estimates import (
    PublicWeights,
    ValueEstimate,
    ValueEstimates,
    value_interval,
)
from balaclava.privacy.guarantee import Guarantee, Model, Scope
from balaclava.theory.confidence_sequences import REWARD_GRID

# Decisions of the first batch, in least chances times epsilon. Then the noise of a fixed arm's
# value has a standard deviation of 0.35 after the first release; it falls as 1/n. A guess.
_FIRST_VALUE_BATCH = 4.0
_CLOSES_BATCH = 0  # in place of a phase: the open batch ends

Confidence = Annotated[
    float, Range(0, 1, "chance that all intervals hold", open_low=True, open_high=True)
]
LeastChance = Annotated[
    float, Range(0, 0.5, "p_min: least chance of each arm in each decision", open_low=True)
]
Target = Annotated[
    np.ndarray | None,
    Range(meaning="coefficients of a linear rule to evaluate: a row, with disjoint one per arm"),
]


class Params(NamedTuple):
    base: Any  # parameters of the base's kernels
    arms: int
    least: float  # p_min
    most: float  # chance of the arm that a sure rule chooses
    rule_share: float  # rho: weight of the rule's entry beside those of the arms
    sensitivity: float
    epsilon: float
    first_batch: int
    target: np.ndarray  # [block, d]; without rows if there is none


class State(NamedTuple):
    base: Any
    values: batches.ValueBatches
    chances: np.ndarray  # [arm]: of the last decision

    def faults(self, decisions: int) -> Iterator[str]:
        if not abs(self.chances.sum() - 1.0) < 1e-6:
            yield "chances do not add up to 1"


@kernel(borrows=True)
def target_arm(params: Params, context: np.ndarray) -> int:
    """The arm of the target with these features; no arm without a target."""
    best, highest = -1, -math.inf
    for arm in range(params.arms if params.target.size > 0 else 0):
        row = params.target[coefficient_block(params.target.shape[0], arm)]
        index = dot(row, context[context_row(context, arm)])
        if index > highest:
            best, highest = arm, index
    return best


@kernel(borrows=True)
def note_weights(params: Params, state: State, arm: int, own: float, context: np.ndarray) -> int:
    """Note the weights of a decision, whose arm the rule has with the chance `own`.

    The phase of the base is in the note already.
    """
    chances, values, target = state.chances, state.values, target_arm(params, context)
    note = values.pending.notes[pending.free_note(values.pending)]
    of_arm = min(params.least / chances[arm], 1.0)
    note[batches.OF_ARM] = of_arm
    note[batches.OF_RULE] = params.rule_share * min(own / chances[arm] * params.most, 1.0)
    note[batches.OF_TARGET] = of_arm if target == arm else 0.0
    squares, of_rule = note[batches.FIRST_SQUARE :], 0.0
    for a in range(params.arms):
        chance = (chances[a] - params.least) / (1.0 - params.arms * params.least)  # the rule's own
        of_rule += chance * chance / chances[a]
        squares[1 + a] = params.least * params.least / chances[a]
    squares[0] = of_rule * (params.rule_share * params.most) ** 2
    if target >= 0:
        squares[1 + params.arms] = squares[1 + target]
    return batches.join_value_batch(values, params.first_batch)


@kernel(borrows=True)
def take_weights(state: State, phase: int) -> int:
    """The row of a decision's note, once; FORGOTTEN if it has none."""
    return pending.take_note(state.values.pending, phase)


@kernel(borrows=True)
def settle_one(params: Params, state: State, note: np.ndarray, rng: Any) -> None:
    """Await one decision less of its batch, and release what is settled."""
    state.values.left[int(note[1]) % batches.VALUE_ROWS] -= 1
    for i in range(note.size):
        note[i] = 0.0  # saves compress what is not needed
    batches.release_values(state.values, params.sensitivity, params.epsilon, rng)


@functools.cache
def kernels_with_values(
    base: Kernels, rule: Rule, prepare: Callable[..., float]
) -> tuple[Kernels, Callable[..., float]]:
    """Wrap the kernels of a contextual policy, and its `prepare`."""
    begin_base, _, learn_base, forget_base = base
    weigh, note_decision = rule

    @kernel
    def begin(params: Any) -> State:
        entries = 1 + params.arms + min(params.target.size, 1)
        room = params.base.outstanding
        return State(
            base=begin_base(params.base),
            values=batches.begin_value_batches(entries, room),
            chances=np.full(params.arms, 1.0 / params.arms),
        )

    @kernel(borrows=True)
    def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
        """Draw each arm with the chance p_min, and else by the rule of the base."""
        chances = state.chances
        weigh(params.base, state.base, context, chances)
        left, chosen, own = rng.random(), params.arms - 1, chances[params.arms - 1]
        for arm in range(params.arms):
            of_rule = chances[arm]
            chances[arm] = params.least + (1.0 - params.arms * params.least) * of_rule
            left -= chances[arm]
            if left < 0.0 <= left + chances[arm]:
                chosen, own = arm, of_rule
        free = pending.free_note(state.values.pending)
        if free == pending.FORGOTTEN:
            return chosen, UNLEARNED
        phase = note_decision(params.base, state.base, chosen, context)
        if phase == UNLEARNED:
            return chosen, UNLEARNED
        state.values.pending.notes[free][0] = phase
        return chosen, note_weights(params, state, chosen, own, context)

    @kernel(borrows=True)
    def learn(
        params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        row = take_weights(state, phase)
        if row == pending.FORGOTTEN:
            return
        values, note = state.values, state.values.pending.notes[row]
        learn_base(params.base, state.base, t, arm, reward, int(note[0]), rng)
        batches.add_reward_of_note(values, note, arm, reward)
        settle_one(params, state, note, rng)

    @kernel(borrows=True)
    def forget(params: Any, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
        if phase == _CLOSES_BATCH:
            batches.close_value_batch(state.values)
            batches.release_values(state.values, params.sensitivity, params.epsilon, rng)
            return
        row = take_weights(state, phase)
        if row != pending.FORGOTTEN:
            note = state.values.pending.notes[row]
            forget_base(params.base, state.base, t, arm, int(note[0]), rng)
            settle_one(params, state, note, rng)

    @kernel(borrows=True)
    def prepare_reward(params: Any, reward: float) -> float:
        return prepare(params.base, reward)

    return Kernels(begin, choose, learn, forget), prepare_reward


@register
class WithValues(Policy):
    r"""A contextual policy with estimates of its value, and of that of each fixed arm.

    Use it to learn whether context helps: `agent.values()` compares the rule of the base with the
    best fixed arm. It costs regret and epsilon. Without it the base decides alone.

    In each decision every arm is drawn with the chance p_min (`least_chance`), and otherwise the
    base decides, so that the chance p of its arm is known and is at least p_min. The reward adds
    r/p to the sum of its arm, q r/p to that of the rule, where q is the rule's own chance of the
    arm, and r/p to that of the target if the target plays this arm too. Weights are at most
    1/p_min, and none is clipped further. All decisions are in batches that double; the sums of a
    batch are released once, together, with Laplace noise. A value is estimated by the sum of its
    weighted rewards over the sum of its weights.

    One reward moves one arm's sum, by at most 1/p_min, and the target's as much. Where it moves
    the rule's sum far, the arm's weight is small. So the value of the rule needs no further noise.

    Privacy:
        That of the base, with its epsilon plus `value_epsilon`: each reward is released a second
        time, in one sum of values. Features are protected if the base protects them.

    Parameters:
        base: a contextual policy whose chances are known: dp-kernel-ucb, dp-linucb or
            dp-squarecb; or a mapping with its `name` and parameters.
        value_epsilon: privacy loss of the estimates, added to that of the base.
        least_chance: p_min, at most 1/(2 K). Values have noise and sampling errors as 1/p_min.
        target: the linear rule plays the arm with the largest product of its row and the features.
        value_batch: decisions of the first batch, 4/(p_min value_epsilon) by default.

    Example:
        >>> base = bl.policy("dp-kernel-ucb", arms=2, features=["one", "age"], disjoint=True,
        ...                  epsilon=0.8)
        >>> policy = bl.policy("with-values", arms=2, base=base, value_epsilon=0.2,
        ...                    least_chance=0.1, value_batch=500)
        >>> policy.guarantee.epsilon
        1.0
        >>> agent = policy.agent(seed=1)
        >>> for t in range(4_000):
        ...     age = 0.4 if t % 2 else -0.4
        ...     decision = agent.ask({"one": 0.7, "age": age})
        ...     agent.tell(decision, reward=float((decision.arm == 0) == (age > 0)))
        >>> print(agent.values())
        policy        rewards   value     low    high
        rule            4,000  0.9999  0.9755  1.0000
        always arm 0    4,000  0.5352  0.3288  0.7388
        always arm 1    4,000  0.4556  0.2574  0.6589
        At 0.95 confidence, context helps: the rule minus the best fixed arm is in [0.2367, 0.6712].
    """

    name = "with-values"
    reference = "Horvitz, Thompson 1952"
    see_also = "dp-kernel-ucb, dp-squarecb, dp-linucb"
    model: ClassVar[Model] = "central"
    scope: ClassVar[Scope] = "trajectory"  # of an object: that of its base
    rewards = "bounded"
    fixed_arms = ContextualPolicy.fixed_arms
    examples = (
        {
            "base": {
                "name": "dp-kernel-ucb", "features": 2, "epsilon": 1.0, "disjoint": True,
                "landmarks": 8, "outstanding": 512,
            },
            "value_epsilon": 0.5, "least_chance": 0.1, "value_batch": 12,
        },
        {
            "base": {
                "name": "dp-squarecb", "features": 2, "epsilon": 1.0, "delta": 1e-3,
                "first_batch": 12, "outstanding": 512,
            },
            "value_epsilon": 0.5, "least_chance": 0.1, "value_batch": 12,
            "target": [[1.0, 0.5]],
        },
    )  # fmt: skip
    base: Annotated[Policy, Range(meaning="the contextual policy that decides")]
    value_epsilon: Epsilon
    least_chance: LeastChance
    target: Target = None
    value_batch: Annotated[int, Range(1, 2**53, "decisions of the first batch")] | None = None

    def __post_init__(self) -> None:
        base: Any = self.base
        if isinstance(base, Mapping):
            base = {"arms": self.arms, **base}
            object.__setattr__(self, "base", POLICIES.from_mapping(self._label("base"), base))
        super().__post_init__()
        base = self.base
        if self.arms != base.arms:
            raise self.refuse("arms", f"differs from the base; give its number, {base.arms}")
        if not isinstance(base, ContextualPolicy):
            raise self._refuse_base("has no features; give a contextual policy")
        if base.model != "central":
            raise self._refuse_base(
                "releases no sums, but values need them: give dp-kernel-ucb, dp-linucb or "
                "dp-squarecb"
            )
        if base.rule is None:
            raise self._refuse_base(
                "draws an arm with a chance that is not known, and values divide by it; give "
                "dp-kernel-ucb, dp-linucb or dp-squarecb"
            )
        if self.least_chance * 2 * self.arms > 1.0:
            raise self.refuse(
                "least_chance", f"is more than 1/(2 arms); give at most 1/{2 * self.arms}"
            )
        shape = (self.arms if base.disjoint else 1, base.features)
        if self.target is not None and self.target.shape != shape:
            raise self.refuse("target", f"must have the shape {shape}")
        for name in ("scope", "assumptions", "feature_names", "lost_reward"):
            object.__setattr__(self, name, getattr(base, name))

    def _refuse_base(self, why: str) -> ParameterError:
        return ParameterError(f"{self._label('base')}: {self.base.name} {why}")

    @functools.cached_property
    def _wrapped(self) -> tuple[Kernels, Callable[..., float]]:
        base: Any = self.base
        return kernels_with_values(base.kernels, base.rule, base.prepare())

    @property
    def kernels(self) -> Kernels:  # type: ignore[override]
        return self._wrapped[0]

    def prepare(self) -> Callable[..., float]:
        return self._wrapped[1]

    @property
    def _most(self) -> float:
        return 1.0 - (self.arms - 1) * self.least_chance

    @property
    def _targets(self) -> int:
        return 0 if self.target is None else 1

    @property
    def _rule_share(self) -> float:
        """rho: with it every decision has weights that add up to 1, and 1 for a target."""
        return (1 + self._targets) * (1.0 - self.least_chance / self._most)

    @property
    def _sensitivity(self) -> float:
        """Of the released vector: all weights of one decision; of two if features may differ."""
        return (1.0 + self._targets) * (2.0 if self.scope == "joint" else 1.0)

    def constants(self) -> Params:
        first = math.ceil(_FIRST_VALUE_BATCH / (self.least_chance * self.value_epsilon))
        return Params(
            base=self.base.constants(),
            arms=int(self.arms),
            least=self.least_chance,
            most=self._most,
            rule_share=self._rule_share,
            sensitivity=self._sensitivity,
            epsilon=self.value_epsilon,
            first_batch=self.value_batch or min(first, 2**53),
            target=np.zeros((0, 1)) if self.target is None else np.array(self.target),
        )

    @property
    def guarantee(self) -> Guarantee:
        """That of the base, with the loss of the second release of each reward."""
        return dataclasses.replace(self.base.guarantee, epsilon=self.epsilon)

    @property
    def epsilon(self) -> float:
        """The sum; what it is rounded by is below the spare steps of exact noise."""
        return self.base.epsilon + self.value_epsilon

    def value_estimates(self, state: Any, confidence: float) -> ValueEstimates:
        """Values of the rule, of each fixed arm and of the target."""
        confidence = check("confidence", confidence, Confidence)
        values, entries = state.values, []
        kinds = ["rule", *["arm"] * self.arms, *["target"] * self._targets]
        labels = ["rule", *(f"always {self._arm_name(a)}" for a in range(self.arms)), "target"]
        rewards, draws = int(values.rewards[0]), int(values.draws[0])
        slack = 1.0 + (len(kinds) + 3) * REWARD_GRID  # of exact noise, see `exact_noise`
        noise = slack * self._sensitivity / self.value_epsilon
        for entry, kind in enumerate(kinds):
            share = self._rule_share if kind == "rule" else 1.0
            unit = self._most if kind == "rule" else self.least_chance
            total, weights = values.released[entry] / share, values.weights[entry] / share
            public = PublicWeights(weights, values.squares[entry] / share**2)
            interval = value_interval(
                total, None if self.scope == "joint" else public, rewards, draws, noise / share,
                unit, (1.0 - confidence) / len(kinds),
            )  # fmt: skip
            whole = rewards * unit if self.scope == "joint" else weights
            value = self.in_units(min(max(total / whole, 0.0), 1.0)) if whole > 0.0 else None
            low, high = map(self.in_units, interval)
            entries.append(ValueEstimate(labels[entry], kind, rewards, value, (low, high)))
        return ValueEstimates(entries, confidence)

    def _arm_name(self, arm: int) -> str:
        return f"arm {arm}" if self.arm_labels is None else self.arm_label(arm)

    def closing_decisions(self, state: Any, rng: Any) -> Iterator[tuple[int, int]]:
        yield 0, _CLOSES_BATCH

    # What the rest of the package asks of a policy is that of the base.

    @property
    def delta(self) -> float:
        return self.base.delta

    @property
    def outside(self) -> Literal["refuse", "clip"]:
        return self.base.outside

    @property
    def accepts(self) -> tuple[float, float]:
        return self.base.accepts

    @property
    def features(self) -> int | None:
        return self.base.features

    @property
    def catalogue(self) -> Any:
        return self.base.catalogue

    @property
    def disjoint(self) -> bool:
        return self.base.disjoint

    @property
    def feature_bound(self) -> float:
        return self.base.feature_bound

    @property
    def blocks(self) -> int:
        return self.base.blocks

    @property
    def practice_context(self) -> Any:
        return self.base.practice_context

    def checked_context(self, context: Any) -> Any:
        return self.base.checked_context(context)

    def in_units(self, value: float) -> float:
        return self.base.in_units(value)

    def chances(self, state: Any) -> np.ndarray:
        return np.asarray(state.chances)

    def released(self, state: Any) -> Sequence[ArmRelease] | None:
        return self.base.released(state.base)

    def require_estimates(self, failure: float) -> Estimation:
        raise EstimateError(
            f"{self.name} has no means of arms: a mean depends on the features. See "
            "its values: those of the rule and of fixed arms, with intervals"
        )

    def faults(self, state: Any, decisions: int) -> Iterator[str]:
        yield from self.base.faults(state.base, decisions)

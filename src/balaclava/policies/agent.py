"""The online side: ask for a decision, tell its reward."""

from __future__ import annotations

import base64
import dataclasses
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import brief
from balaclava.errors import (
    BalaclavaError,
    DecisionError,
    ParameterError,
    RewardError,
    SavedStateError,
    require_arm,
)
from balaclava.policies.base import REGISTRY, Policy
from balaclava.privacy.guarantee import Guarantee, not_private
from balaclava.privacy.randomness import SystemRandomness, seeded
from balaclava.privacy.report import checked_number

SCHEMA = 1
_CONFIDENTIAL = "holds rewards or sums of them: keep it as secret as the rewards themselves"

_GOES_ON_ONCE = (
    "of the saved agent and what was restored from it only one went on: every copy that goes on "
    "releases the same rewards again and costs epsilon again"
)


class Decision(NamedTuple):
    """One arm, handed out once. `id` counts the decisions of an agent from 1."""

    id: int
    arm: int
    phase: int


class Agent:
    """A policy at work: interpreted kernels and randomness that is safe to release.

    Rewards may come late, in any order, or never; each counts once. A seeded agent repeats itself
    exactly, which makes it good for tests and worthless for privacy.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("ucb1", arms=3).agent()
        >>> first, second = agent.ask(), agent.ask()
        >>> agent.tell(second, reward=0.5)
        >>> agent.tell(first, reward=0.25)
        >>> agent.tell(first, reward=0.25)
        Traceback (most recent call last):
        ...
        balaclava.errors.DecisionError: decision 1 has its reward already; each is told once
    """

    def __init__(self, policy: Policy, *, seed: int | None = None) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ParameterError(
                f"seed = {brief(seed)} is not allowed; give a whole number or None"
            )
        self._policy = policy
        self._params = policy.constants()
        self._prepare = policy.prepare()
        self._state = policy.kernels.begin(self._params)
        self._seeded = seed is not None
        self._rng: Any = SystemRandomness() if seed is None else seeded(seed)
        self._restored = False
        self._clock = 0
        self._open: dict[int, Decision] = {}
        self._lost: list[Decision] = []
        self._lock = threading.Lock()

    @property
    def policy(self) -> Policy:
        """The policy and its parameters."""
        return self._policy

    @property
    def guarantee(self) -> Guarantee:
        """The policy's guarantee; "none" when the agent was seeded."""
        if self._seeded:
            return not_private(
                "the agent was seeded: who knows the seed can take the noise away", ""
            )
        guarantee = self._policy.guarantee
        if self._restored and guarantee.private:
            return dataclasses.replace(
                guarantee, assumptions=(*guarantee.assumptions, _GOES_ON_ONCE)
            )
        return guarantee

    def ask(self, context: Any = None) -> Decision:
        """The next decision. Never waits for a reward.

        `context` is what the policy decides by where it takes any: advice[expert, arm], each row
        a distribution over the arms, for policies that follow experts.
        """
        context = self._policy.checked_context(context)
        with self._lock:
            t = self._clock + 1
            if self._lost:
                _, arm, phase = self._lost.pop()
                arm = self._policy.arm_again(context, arm, phase, self._rng)
            else:
                arm, phase = self._policy.kernels.choose(
                    self._params, self._state, t, context, self._rng
                )
            require_arm(self._policy.name, t, arm, self._policy.arms)
            decision = Decision(t, int(arm), int(phase))
            self._clock = t
            self._open[t] = decision
            return decision

    def tell(self, decision: Decision, reward: float) -> None:
        """The reward of a decision: in any order, each once."""
        prepared = self._prepare(self._params, checked_reward(self._policy, reward))
        self._learn(self._policy.kernels.learn, decision, prepared)

    def report_level(self, decision: Decision) -> float:
        """The public level that is sent to the owner of the decision's reward, for its report.

        For policies of local privacy: the owner's device calls `policy.report(reward, level)`.
        It depends on earlier reports only, and the report is as private at any other level.
        """
        level = self._policy.report_level
        if level is None:
            raise RewardError(f"{self._policy.name} takes rewards, not reports; use tell")
        with self._lock:
            known = self._known(decision)
            return float(level(self._params, self._state, known.arm, known.phase))

    def tell_report(self, decision: Decision, report: float) -> None:
        """What the owner of the reward reported (`policy.report`), for policies of local privacy.

        The agent then never sees the reward.
        """
        learn = self._policy.learn_report
        if learn is None:
            raise RewardError(f"{self._policy.name} takes rewards, not reports; use tell")
        value = checked_number(self._policy.name, "report", report, *self._policy.reports)
        self._learn(learn, decision, value)

    def _learn(self, learn: Callable[..., None], decision: Decision, value: float) -> None:
        with self._lock:
            known = self._known(decision)
            # First: if learning is interrupted, the reward may be lost but never counts twice.
            del self._open[known.id]
            learn(self._params, self._state, known.id, known.arm, value, known.phase, self._rng)

    def cancel(self, decision: Decision) -> None:
        """The reward of this decision will never come.

        A policy that plays whole phases hands the pull out again, so that its phase can end; to
        others a missing reward makes no difference. Cancel for reasons that have nothing to do
        with the reward: the choice is not covered by the guarantee.
        """
        with self._lock:
            decision = self._known(decision)
            del self._open[decision.id]
            if self._policy.phased and decision.phase >= 0:
                self._lost.append(decision)

    def save(self) -> dict[str, Any]:
        """Everything needed to go on later, as a JSON-able dict for `bl.restore`.

        Only one agent may go on from it: where the saved one, or a second one restored from the
        same save, goes on too, unfinished batches are released twice and epsilon doubles.

        It holds raw sums: keep it as secret as the rewards. Secure randomness is not part of it,
        a seeded agent's generator is.
        """
        policy = self._policy
        parts = (getattr(policy, name) for name in policy.annotations)
        for part in (policy, *(part for part in parts if isinstance(part, Policy))):
            if REGISTRY.classes().get(part.name) is not type(part):
                raise SavedStateError(
                    f"{type(part).__name__} is not registered, so it could not be restored; "
                    "call bl.register on it first"
                )
        with self._lock:
            return {
                "schema": SCHEMA,
                "confidential": _CONFIDENTIAL,
                "policy": {"name": policy.name, "parameters": policy.parameters},
                "clock": self._clock,
                "open": [list(decision) for decision in self._open.values()],
                "lost": [list(decision) for decision in self._lost],
                "state": {name: _pack(array) for name, array in _arrays(self._state)},
                "generator": _plain_state(self._rng.bit_generator.state) if self._seeded else None,
            }

    def _known(self, decision: Decision) -> Decision:
        identity = decision.id if isinstance(decision, Decision) else decision
        if isinstance(identity, bool) or not isinstance(identity, int):
            # It may be a reward, given in the wrong place: it is not repeated.
            raise DecisionError(
                f"a {type(decision).__name__} is not a decision; give what ask() returned"
            )
        known = self._open.get(identity)
        if known is None:
            if 1 <= identity <= self._clock:
                raise DecisionError(
                    f"decision {identity} has its reward already; each is told once"
                )
            raise DecisionError(
                f"decision {identity} was never made; this agent has made {self._clock}"
            )
        if isinstance(decision, Decision) and decision != known:
            raise DecisionError(
                f"decision {identity} was for arm {known.arm} in phase {known.phase}, not for "
                f"arm {decision.arm} in phase {decision.phase}; give what ask() returned"
            )
        return known

    def __repr__(self) -> str:
        return (
            f"<Agent of {self._policy.name}: {self._clock} decisions, {len(self._open)} rewards "
            f"to come, {self.guarantee}>"
        )


def checked_reward(policy: Policy, reward: Any) -> float:
    """The reward as a float that the policy takes, or an error that does not repeat it."""
    limits = (-math.inf, math.inf) if policy.clips else policy.accepts
    return checked_number(policy.name, "reward", reward, *limits)


def restore(saved: dict[str, Any]) -> Agent:
    """The agent that `agent.save()` described, going on exactly where that one stood."""
    if not isinstance(saved, dict):
        raise SavedStateError(f"a saved agent is a dict, not a {type(saved).__name__}")
    if saved.get("schema") != SCHEMA:
        raise SavedStateError(
            f"saved with schema {brief(saved.get('schema'))}; this version reads schema {SCHEMA}"
        )
    try:
        policy = REGISTRY.create(saved["policy"]["name"], saved["policy"]["parameters"])
        agent = Agent(policy, seed=None if saved["generator"] is None else 0)
        if saved["generator"] is not None:
            agent._rng.bit_generator.state = _array_state(saved["generator"])
        agent._restored = True
        agent._clock = int(saved["clock"])
        decisions = [Decision(*(int(part) for part in item)) for item in saved["open"]]
        agent._open = {decision.id: decision for decision in decisions}
        agent._lost = [Decision(*(int(part) for part in item)) for item in saved["lost"]]
        for decision in (*decisions, *agent._lost):
            if not (1 <= decision.id <= agent._clock and 0 <= decision.arm < policy.arms):
                raise ValueError("a decision that was never made")
        for name, array in _arrays(agent._state):
            array[...] = _unpack(name, saved["state"][name], array)
    except BalaclavaError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise SavedStateError(
            f"the saved agent is incomplete or damaged ({type(error).__name__}); use an intact copy"
        ) from None
    return agent


def _arrays(state: Any, prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a state by name; a state may hold others."""
    for name, part in zip(state._fields, state, strict=True):
        if isinstance(part, np.ndarray):
            yield prefix + name, part
        else:
            yield from _arrays(part, f"{prefix}{name}.")


def _pack(array: np.ndarray) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def _unpack(name: str, packed: dict[str, Any], like: np.ndarray) -> np.ndarray:
    if packed["dtype"] != like.dtype.str or tuple(packed["shape"]) != like.shape:
        raise SavedStateError(
            f"the saved state's {name!r} has another shape or type than this version's; restore it "
            "with the version that saved it"
        )
    data = base64.b64decode(packed["data"], validate=True)
    return np.frombuffer(data, dtype=like.dtype).reshape(like.shape)


def _plain_state(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _plain_state(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        return {"uint64": [int(word) for word in state]}
    return state


def _array_state(state: Any) -> Any:
    if isinstance(state, dict):
        if set(state) == {"uint64"}:
            return np.array(state["uint64"], dtype=np.uint64)
        return {key: _array_state(value) for key, value in state.items()}
    return state

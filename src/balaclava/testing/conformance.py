"""Tools of the conformance checks: how they fail, and runs of a policy with fixed seeds."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from balaclava.agents.agent import Agent
from balaclava.agents.decisions import Decision, id_parts
from balaclava.environments.base import Environment
from balaclava.errors import DecisionError, ParameterError
from balaclava.policies.base import POLICIES, Policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation import engine
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.reward_delays import LOST, Delay, draw_delay
from balaclava.testing.examples import matching_environment

POLICY_SEED = 20_240  # any fixed number: a check must not fail by chance
_LOSSY_PATIENCE = 20  # decisions after which a reward of a lossy run is given up
CHECK_ROUNDS = 300  # rounds of most runs: enough for several batches of every policy


class ConformanceError(AssertionError):
    """A policy or an environment breaks its contract."""


def require(subject: Any, condition: bool, promise: str) -> None:
    """Raise with the subject's name and the broken promise unless the condition holds."""
    if not condition:
        raise ConformanceError(f"{getattr(subject, 'name', repr(subject))}: {promise}")


def require_error(
    subject: Any, expected: type[Exception], what: str, action: Callable[..., Any], *arguments: Any
) -> Exception:
    try:
        action(*arguments)
    except expected as error:
        return error
    except Exception as error:
        fault = f"{what}: raised {type(error).__name__} instead of {expected.__name__}"
        raise ConformanceError(f"{subject.name}: {fault}") from error
    fault = f"{what}: accepted instead of refused with {expected.__name__}"
    raise ConformanceError(f"{subject.name}: {fault}")


def require_named(subject: Any, name: str, what: str, parameters: dict[str, Any]) -> None:
    """Fail unless the class refuses the parameters with an error that names `name`."""
    error = require_error(subject, ParameterError, what, type(subject).create, parameters)
    require(subject, name in str(error), f"{what}: the error does not name {name!r}")


def reward_source(policy: Policy) -> Callable[[Decision], float]:
    """Rewards that depend on the decision alone, so every run sees the same ones."""
    environment = matching_environment(policy)
    scene = environment.scene.open(environment.constants())

    def reward(decision: Decision) -> float:
        t = round_of(decision)
        environment.scene.renew(scene, t, seeded(POLICY_SEED, t, engine.CONTEXT_STREAM))
        return float(environment.draw(scene, t, decision.arm, seeded(POLICY_SEED, t)))

    return reward


def round_of(decision: Decision) -> int:
    """The ordinal of a decision among those of its agent, from 1."""
    parts = id_parts(decision.id)
    if parts is None:
        raise ConformanceError(f"{decision.id} is not a decision id")
    return parts[1]


def played(
    policy: Policy,
    agent: Agent,
    rounds: int,
    *,
    delay: int = 0,
    start: int = 1,
    pending: list[Decision] | None = None,
) -> Iterator[tuple[Decision, list[Decision]]]:
    """Ask and tell for rounds `start` to `rounds`, each reward `delay` rounds late."""
    rewards = reward_source(policy)
    waiting = list(pending or [])
    for _ in range(start, rounds + 1):
        decision = agent.ask(policy.practice_context)
        waiting.append(decision)
        while len(waiting) > delay:
            late = waiting.pop(0)
            agent.tell(late, rewards(late))
        yield decision, list(waiting)


class EnvironmentRounds:
    """The rounds of an environment in one repetition, on the same streams as `simulate`."""

    def __init__(self, environment: Environment, repetition: int) -> None:
        self.environment = environment
        self.scene = environment.scene.open(environment.constants())
        self.rng = seeded(POLICY_SEED, repetition, engine.ENVIRONMENT_STREAM)
        self.context_rng = seeded(POLICY_SEED, repetition, engine.CONTEXT_STREAM)

    def context(self, t: int) -> Any:
        """The context of round t; call it once for each round."""
        self.environment.scene.renew(self.scene, t, self.context_rng)
        return self.environment.advise(self.scene, t)

    def reward(self, t: int, arm: int) -> tuple[float, float]:
        """The reward of round t, and its contribution to the regret."""
        reward = self.environment.draw(self.scene, t, arm, self.rng)
        return reward, self.environment.scene.score(self.scene, t, arm, reward)


def regret_of(environment: Environment, arms: np.ndarray, scores: np.ndarray) -> np.ndarray:
    pulls = np.cumsum(np.eye(environment.arms, dtype=np.int64)[arms], axis=0)
    return environment.regret(np.arange(1, arms.size + 1), pulls, np.cumsum(scores))


def interpreted_run(
    policy: Policy, environment: Environment, repetition: int
) -> tuple[np.ndarray, np.ndarray]:
    """Arms and scores of one interpreted repetition."""
    params, rounds = policy.constants(), EnvironmentRounds(environment, repetition)
    begin, choose, learn, _ = policy.kernels
    prepare = policy.prepare()
    policy_rng = seeded(POLICY_SEED, repetition, engine.POLICY_STREAM)
    state = begin(params)
    arms, scores = np.zeros(CHECK_ROUNDS, np.int64), np.zeros(CHECK_ROUNDS)
    for t in range(1, CHECK_ROUNDS + 1):
        arm, phase = choose(params, state, t, rounds.context(t), policy_rng)
        reward, scores[t - 1] = rounds.reward(t, arm)
        learn(params, state, t, arm, prepare(params, reward), phase, policy_rng)
        arms[t - 1] = arm
    return arms, scores


def late_run(
    policy: Policy,
    environment: Environment,
    repetition: int,
    feedback: Feedback,
    length: int = CHECK_ROUNDS,
) -> tuple[np.ndarray, np.ndarray]:
    """Arms and scores of an agent with late rewards, on the same streams as `simulate`."""
    agent = policy.agent(seed=POLICY_SEED, **feedback.settling._asdict())
    agent._runner.rng = seeded(POLICY_SEED, repetition, engine.POLICY_STREAM)
    rounds = EnvironmentRounds(environment, repetition)
    delay_rng = seeded(POLICY_SEED, repetition, engine.DELAY_STREAM)
    law = (feedback.delay or Delay(mean=0, law="fixed")).constants()
    due: dict[int, list[tuple[Decision, float]]] = {}
    arms, scores = np.zeros(length, np.int64), np.zeros(length)
    for t in range(1, length + 1):
        decision = agent.ask(rounds.context(t))
        arms[t - 1] = decision.arm
        reward, scores[t - 1] = rounds.reward(t, decision.arm)
        delay = draw_delay(law, delay_rng)
        if delay != LOST:
            due.setdefault(t + delay, []).append((decision, reward))
        for late, due_reward in due.pop(t, []):
            with contextlib.suppress(DecisionError):  # the decision was given up
                agent.tell(late, due_reward)
    return arms, scores


def share_of_best(policy: Policy, best: int, rounds: int, lossy: bool) -> float:
    """How often an agent plays the best arm in the second half of an easy world.

    The best arm has the best reward or loss, the others the worst. If `lossy`, one decision in ten
    has no reward, more at first: half of these are cancelled, half time out. Others are late.
    """
    agent = policy.agent(seed=POLICY_SEED + best, patience=_LOSSY_PATIENCE)
    fates = np.random.default_rng(POLICY_SEED + best)
    worst_value, best_value = policy.accepts if np.isfinite(policy.accepts).all() else (0.0, 1.0)
    if policy.rewards == "loss":
        worst_value, best_value = best_value, worst_value
    due: dict[int, list[tuple[Decision, float]]] = {}
    pulls = 0
    for t in range(rounds):
        decision = agent.ask(policy.practice_context)
        pulls += t >= rounds // 2 and decision.arm == best
        reward = best_value if decision.arm == best else worst_value
        fate = fates.random() if lossy else 1.0
        if lossy and t < 4 * policy.arms and t % 2 == 0:
            fate *= 0.1  # lost
        if fate < 0.05:
            agent.cancel(decision)
        elif fate >= 0.1:
            due.setdefault(t + (7 if fate < 0.3 else 0), []).append((decision, reward))
        for late, due_reward in due.pop(t, []):
            agent.tell(late, due_reward)
    return pulls / (rounds - rounds // 2)


def saved_text(agent: Agent) -> str:
    """The agent's saved state as text; its repr for an unregistered policy."""
    if POLICIES.classes().get(agent.policy.name) is type(agent.policy):
        return json.dumps(agent.save())
    return repr(agent)

"""The contract of a policy, as checks."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from balaclava.agents.agent import Agent
from balaclava.agents.decisions import Decision, id_parts
from balaclava.agents.restoring import restore
from balaclava.environments.base import Environment
from balaclava.errors import DecisionError, ParameterError, RewardError
from balaclava.policies.base import REGISTRY, Policy
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.base import mechanism_of
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import (
    CONTEXT_STREAM,
    DELAY_STREAM,
    ENVIRONMENT_STREAM,
    POLICY_STREAM,
    repetition_player,
    simulate,
)
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.reward_delays import LOST, Delay, draw_delay
from balaclava.testing.conformance import require, require_error
from balaclava.testing.examples import matching_environment

SEED = 20_240
ROUNDS = 300


def check_policy(policy: Policy) -> None:
    """Run every check; the first that fails raises `ConformanceError`."""
    require(
        isinstance(policy, Policy),
        f"{policy!r} is not a policy; give an object such as Mine(arms=3)",
    )
    for check in POLICY_CHECKS:
        check(policy)


def describes_itself(policy: Policy) -> None:
    """A title, a guarantee that fits the class, parameters that survive JSON."""
    cls = type(policy)
    require(bool((cls.__doc__ or "").strip()), f"{policy.name} has no docstring")
    guarantee = policy.guarantee
    require(isinstance(guarantee, Guarantee), f"{policy.name}.guarantee is not a Guarantee")
    require(
        (guarantee.model, guarantee.scope) == (cls.model, cls.scope),
        f"{policy.name}: the guarantee says {guarantee.model}, {guarantee.scope}; the class says "
        f"{cls.model}, {cls.scope}",
    )
    again = cls.create(json.loads(json.dumps(policy.parameters)))
    require(again == policy, f"{policy.name}: parameters do not survive JSON")
    require_error(
        dataclasses.FrozenInstanceError,
        lambda: setattr(policy, "arms", 5),
        f"{policy.name}: changing a parameter",
    )


def refuses_bad_parameters(policy: Policy) -> None:
    """Unknown, missing and absurd parameters are named."""
    create, good = type(policy).create, policy.parameters
    error = require_error(
        ParameterError, lambda: create({**good, "armz": 3}), f"{policy.name}: an unknown parameter"
    )
    require("armz" in str(error), "the error does not name the unknown parameter")
    missing = {name: value for name, value in good.items() if name != "arms"}
    error = require_error(ParameterError, lambda: create(missing), f"{policy.name}: no arms")
    require("arms" in str(error), "the error does not name the missing parameter")
    for absurd in (0, -1, 2.5, math.nan, math.inf, "three", None, True):
        error = require_error(
            ParameterError,
            lambda absurd=absurd: create({**good, "arms": absurd}),  # type: ignore[misc]
            f"{policy.name}: arms = {absurd!r}",
        )
        require("arms" in str(error), f"the error for arms = {absurd!r} does not name it")


def decides_within_its_arms(policy: Policy) -> None:
    """Every decision is an arm and a phase; ids count from 1; the guarantee of a seed is none."""
    agent = policy.agent(seed=SEED)
    require(agent.guarantee.model == "none", f"{policy.name}: a seeded agent claims privacy")
    for t, (decision, _) in enumerate(played(policy, agent, ROUNDS), start=1):
        require(round_of(decision) == t, f"{policy.name}: decision {t} has id {decision.id}")
        chance = decision.propensity
        require(
            chance is None or (0 < chance <= 1 and policy.scope != "decision"),
            f"{policy.name}: the chance of decision {t} is {chance}",
        )
        require(0 <= decision.arm < policy.arms, f"{policy.name}: arm {decision.arm} at {t}")
        require(decision.phase >= -1, f"{policy.name}: phase {decision.phase} at {t}")


def works_without_a_seed(policy: Policy) -> None:
    """With the operating system's randomness too."""
    agent = policy.agent()
    claimed = dataclasses.replace(agent.guarantee, assumptions=policy.guarantee.assumptions)
    require(claimed == policy.guarantee, f"{policy.name}: the agent's guarantee differs")
    for _ in played(policy, agent, 60):
        pass


def repeats_with_the_seed(policy: Policy) -> None:
    """The same seed gives the same decisions."""
    first = [d.arm for d, _ in played(policy, policy.agent(seed=SEED), ROUNDS)]
    second = [d.arm for d, _ in played(policy, policy.agent(seed=SEED), ROUNDS)]
    require(first == second, f"{policy.name}: two agents with one seed disagree")


def does_not_depend_on_workers(policy: Policy) -> None:
    """Nor on what else is played."""
    environment = matching_environment(policy)
    kinds: dict[str, Any] = {"horizon": ROUNDS, "repetitions": 4, "seed": SEED}
    alone = simulate(policy, environment, **kinds, workers=1).pulls(policy.name)
    beside = simulate({"a": policy, "b": policy}, environment, **kinds, workers=3)
    for label in ("a", "b"):
        require(
            np.array_equal(alone, beside.pulls(label)),
            f"{policy.name}: the results depend on the number of workers or on other policies",
        )


def compiles_to_what_it_says(policy: Policy) -> None:
    """Interpreted and compiled runs on the same streams make the same decisions."""
    environment = matching_environment(policy)
    results = simulate(
        policy, environment, horizon=ROUNDS, repetitions=2, seed=SEED, checkpoints=ROUNDS, workers=1
    )
    for repetition in range(2):
        arms, scores = interpreted_run(policy, environment, repetition)
        regret = regret_of(environment, arms, scores)
        pulls = np.bincount(arms, minlength=policy.arms)
        require(
            np.allclose(results.regret(policy.name)[repetition], regret, rtol=1e-12, atol=1e-9)
            and np.array_equal(results.pulls(policy.name)[repetition], pulls),
            f"{policy.name}: compiled decisions differ from interpreted ones",
        )


def decides_alike_with_delays(policy: Policy) -> None:
    """An agent and the simulator's loop, interpreted, where rewards come late or never."""
    agrees_with_delays(policy, interpreted=True)


def compiles_to_what_it_says_with_delays(policy: Policy) -> None:
    """An agent and the compiled loop, where rewards come late or never."""
    agrees_with_delays(policy, interpreted=False)


def agrees_with_delays(policy: Policy, interpreted: bool) -> None:
    """Rewards come late, out of order, or never, and are given up; or count after a window."""
    environment = matching_environment(policy)
    missing = policy.accepts[0] if math.isfinite(policy.accepts[0]) else 0.0
    for feedback in (
        Feedback.create(Delay(mean=7, lost=0.1), patience=40),
        Feedback.create(Delay(mean=3, law="uniform", lost=0.1), 5, "window", missing),
    ):
        rounds = np.arange(1, ROUNDS + 1)
        play = repetition_player(
            policy.name, policy, environment, rounds, SEED, feedback, interpreted=interpreted
        )
        run = play(0, np.zeros(2, np.int64))
        regret = regret_of(environment, *late_run(policy, environment, 0, feedback))
        require(
            np.allclose(run.regret, regret, rtol=1e-12, atol=1e-9),
            f"{policy.name}: with delays ({feedback}) an agent and the simulator differ",
        )


def survives_save_and_restore(policy: Policy) -> None:
    """At any step, with rewards outstanding, through JSON."""
    if REGISTRY.classes().get(policy.name) is not type(policy):
        return  # save() says that such a policy must be registered first
    agent, expected = policy.agent(seed=SEED), []
    steps = {0, 1, 2, 3, 7, policy.arms, 2 * policy.arms + 1, 50, ROUNDS - 1}
    saves: dict[int, tuple[dict[str, Any], list[Decision]]] = {0: (agent.save(), [])}
    for step, (decision, waiting) in enumerate(played(policy, agent, ROUNDS, delay=4), start=1):
        expected.append(decision[1:])
        if step in steps:
            saves[step] = agent.save(), waiting
    for step, (saved, waiting) in saves.items():
        restored = restore(json.loads(json.dumps(saved)))
        again = restored.save()
        own = ("agent", "origins", "digest")  # a restored agent has a name of its own
        changed = [key for key in saved if saved[key] != again[key] and key not in own]
        require(not changed, f"{policy.name}: restoring changes {', '.join(changed)} of a save")
        last = ROUNDS if step == 50 else min(step + 40, ROUNDS)
        rest = played(policy, restored, last, delay=4, start=step + 1, pending=waiting)
        require(
            [decision[1:] for decision, _ in rest] == expected[step:last],
            f"{policy.name}: an agent restored at step {step} goes on differently",
        )


def takes_late_rewards(policy: Policy) -> None:
    """Batches of decisions, rewards in any order, each once."""
    agent = policy.agent(seed=SEED)
    order = np.random.default_rng(SEED)
    rewards = reward_source(policy)
    for batch in (1, 2, 7, 40, 3, 100):
        decisions = [agent.ask(policy.practice_context) for _ in range(batch)]
        for i in order.permutation(batch):
            agent.tell(decisions[i], rewards(decisions[i]))
        before = saved_text(agent)
        require_error(
            DecisionError,
            lambda last=decisions[-1]: agent.tell(last, rewards(last)),  # type: ignore[misc]
            f"{policy.name}: a reward told twice",
        )
        require(saved_text(agent) == before, f"{policy.name}: a refused reward changed the agent")


def takes_reports(policy: Policy) -> None:
    """A local policy: a level with each decision, a report on the device, no reward told."""
    if policy.model != "local":
        return
    report = policy.report
    require(report is not None, f"{policy.name} is local but has no report; derive LocalPolicy")
    agent, rewards = policy.agent(seed=SEED), reward_source(policy)
    for _ in range(20):
        decision = agent.ask(policy.practice_context)
        level = agent.report_level(decision)
        require(0 < level < math.inf, f"{policy.name}: the level of a report is {level!r}")
        agent.tell_report(decision, report(rewards(decision), level))  # type: ignore[misc]
    for bad in (0.0, -1.0, math.nan, math.inf):
        require_error(
            ParameterError,
            lambda bad=bad: report(rewards(decision), bad),  # type: ignore[misc]
            f"{policy.name}: a report at level {bad!r}",
        )


def does_without_missing_rewards(policy: Policy) -> None:
    """After any pattern of rewards that were given up, decisions and releases go on."""
    undisturbed = policy.agent(seed=SEED)
    for _ in played(policy, undisturbed, ROUNDS):
        pass
    agent = policy.agent(seed=SEED)
    lost = np.random.default_rng(SEED)
    rewards = reward_source(policy)
    settling = settled_batches(undisturbed) > 0
    for t in range((7 if settling else 2) * ROUNDS):
        if t >= 2 * ROUNDS and t % ROUNDS == 0 and settled_batches(agent) > 0:
            break
        decision = agent.ask(policy.practice_context)
        require(0 <= decision.arm < policy.arms, f"{policy.name}: arm {decision.arm}")
        if t < ROUNDS // 3 or lost.random() < 0.3:  # nothing at all comes at first
            agent.cancel(decision)
        else:
            agent.tell(decision, rewards(decision))
    require(
        settled_batches(agent) > 0 or not settling,
        f"{policy.name}: rewards that were given up keep its batches from settling",
    )
    silent = policy.agent(seed=SEED)
    for _ in range(ROUNDS):
        silent.ask(policy.practice_context)


def settled_batches(agent: Agent) -> int:
    """How many batches an agent has released; 0 where it releases decisions only."""
    released = agent.policy.released(agent._runner.state)
    return sum(arm.batches for arm in released or ())


class Notes:
    """A seeded generator that keeps what each mechanism was given."""

    def __init__(self, seed: int) -> None:
        self._generator = seeded(seed)
        self.inputs: list[Any] = []

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """Let the mechanism answer."""
        names = mechanism_of(body).arguments  # `out` holds the answer before, and no input
        inputs = [
            argument for name, argument in zip(names, arguments, strict=True) if name != "out"
        ]
        self.inputs.append([np.asarray(argument).tolist() for argument in inputs])
        return body(self._generator, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def keeps_batches_whatever_comes_first(policy: Policy) -> None:
    """Which rewards are summed together follows from the order of decisions alone."""
    if policy.released(policy.kernels.begin(policy.constants())) is None or policy.model == "local":
        return
    inputs = []
    for order in (1, -1):
        params, notes = policy.constants(), Notes(SEED)
        state, rewards = policy.kernels.begin(params), np.random.default_rng(SEED).random(ROUNDS)
        decisions = [
            policy.kernels.choose(params, state, t, policy.practice_context, notes)
            for t in range(1, ROUNDS + 1)
        ]
        for t, (arm, phase) in list(enumerate(decisions, start=1))[::order]:
            reward = policy.prepare()(params, float(rewards[t - 1]))
            policy.kernels.learn(params, state, t, arm, reward, phase, notes)
        inputs.append(sorted(notes.inputs))
    require(
        inputs[0] == inputs[1], f"{policy.name}: its batches depend on which reward comes first"
    )


def shows_nothing_of_arrivals(policy: Policy) -> None:
    """With windows: told at once, told late, or never told where `missing` says the same."""
    low, _ = policy.accepts
    missing = low if math.isfinite(low) else 0.0
    views = []
    for lateness in (0, 3, 5):
        agent = policy.agent(seed=SEED, patience=5, settle="window", missing=missing)
        agent._book.name = "0" * 32
        lines: list[Any] = []
        waiting: list[Decision] = []
        for t in range(1, 121):
            waiting.append(agent.ask(policy.practice_context))
            lines += [waiting[-1], agent.status(), str(agent.status()), repr(agent)]
            if len(waiting) > lateness:
                late = waiting.pop(0)
                if t % 3 or lateness == 0:
                    agent.tell(late, missing)
                elif t % 2:
                    agent.cancel(late)
        views.append(lines)
    require(
        views[0] == views[1] == views[2],
        f"{policy.name}: what an agent shows depends on when or whether rewards came",
    )


def refuses_bad_rewards(policy: Policy) -> None:
    """Not a number, infinite, out of range, of no decision: refused, and nothing is lost."""
    agent = policy.agent(seed=SEED)
    decision = agent.ask(policy.practice_context)
    before = saved_text(agent)
    low, high = policy.accepts
    bad: list[Any] = [math.nan, math.inf, -math.inf, "1", None, [1.0], 1j]
    bad += [low - 0.123456] if math.isfinite(low) else []
    bad += [high + 0.123456] if math.isfinite(high) else []
    for reward in bad:
        error = require_error(
            RewardError,
            lambda reward=reward: agent.tell(decision, reward),  # type: ignore[misc]
            f"{policy.name}: a bad reward",
        )
        require("123456" not in str(error), f"{policy.name}: an error shows a reward")
    fine = reward_source(policy)(decision)
    strangers: list[Any] = [
        decision._replace(id=f"{decision.id[:32]}-99"),
        decision._replace(arm=decision.arm + 1),
        policy.agent(seed=SEED).ask(policy.practice_context),
        "1",
        None,
        -1,
        1,
    ]
    for stranger in strangers:
        require_error(
            DecisionError,
            lambda stranger=stranger: agent.tell(stranger, fine),  # type: ignore[misc]
            f"{policy.name}: the decision {stranger!r}",
        )
    require(saved_text(agent) == before, f"{policy.name}: a refused call changed the agent")
    agent.tell(decision, fine)


def plays_one_arm(policy: Policy) -> None:
    """With one arm there is one thing to do, or a clear refusal."""
    try:
        single = type(policy).create({**policy.parameters, "arms": 1})
    except ParameterError:
        return
    agent = single.agent(seed=SEED)
    require(
        all(decision.arm == 0 for decision, _ in played(single, agent, 100)),
        f"{policy.name}: not arm 0 of one",
    )


def plays_short_horizons(policy: Policy) -> None:
    """A horizon that ends in the first phase is fine."""
    environment = matching_environment(policy)
    for horizon in (1, 2, policy.arms):
        results = simulate(policy, environment, horizon=horizon, repetitions=1, seed=SEED)
        require(int(results.pulls(policy.name).sum()) == horizon, f"{policy.name}: lost rounds")


def keeps_rewards_to_itself(policy: Policy) -> None:
    """A marked reward is in no repr and in no text of the agent or its parts."""
    low, high = policy.accepts
    low, high = (low, high) if math.isfinite(low) and math.isfinite(high) else (0.0, 1.0)
    marked = low + (high - low) * 0.7310585786300049
    agent = policy.agent(seed=SEED)
    for _ in range(3 * policy.arms):
        agent.tell(agent.ask(policy.practice_context), marked)
    texts = [
        repr(agent),
        str(agent),
        repr(policy),
        str(agent.guarantee),
        repr(agent.ask(policy.practice_context)),
    ]
    texts += [repr(vars(policy))]
    if REGISTRY.classes().get(policy.name) is type(policy):
        texts.append(json.dumps(agent.save()))
    for text in texts:
        require(f"{marked:.6f}" not in text, f"{policy.name}: a reward shows in {text[:40]}...")


def bounds_its_regret(policy: Policy) -> None:
    """A regret bound is None, or a number between 0 and all rounds at the largest gap."""
    world = matching_environment(policy)
    bound = policy.regret_bound(world, ROUNDS)
    require(
        bound is None or (isinstance(bound, float) and 0 <= bound <= ROUNDS * world.largest_gap),
        f"{policy.name}: regret_bound gives {bound!r}",
    )


POLICY_CHECKS: list[Callable[[Policy], None]] = [
    describes_itself,
    refuses_bad_parameters,
    decides_within_its_arms,
    works_without_a_seed,
    repeats_with_the_seed,
    does_not_depend_on_workers,
    compiles_to_what_it_says,
    decides_alike_with_delays,
    compiles_to_what_it_says_with_delays,
    survives_save_and_restore,
    takes_late_rewards,
    takes_reports,
    does_without_missing_rewards,
    keeps_batches_whatever_comes_first,
    shows_nothing_of_arrivals,
    refuses_bad_rewards,
    plays_one_arm,
    plays_short_horizons,
    keeps_rewards_to_itself,
    bounds_its_regret,
]


def reward_source(policy: Policy) -> Callable[[Decision], float]:
    """Rewards that depend on the decision alone, so that every replay sees the same ones."""
    environment = matching_environment(policy)
    scene = environment.scene.open(environment.constants())

    def reward(decision: Decision) -> float:
        t = round_of(decision)
        environment.scene.renew(scene, t, seeded(SEED, t, CONTEXT_STREAM))
        return float(environment.draw(scene, t, decision.arm, seeded(SEED, t)))

    return reward


def round_of(decision: Decision) -> int:
    """The number of a decision among those of its agent."""
    parts = id_parts(decision.id)
    require(parts is not None, f"{decision.id} is not the id of a decision")
    return parts[1] if parts else 0


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


class Rounds:
    """An environment's rounds of one repetition, by the same streams as `simulate`."""

    def __init__(self, environment: Environment, repetition: int) -> None:
        self.environment = environment
        self.scene = environment.scene.open(environment.constants())
        self.rng = seeded(SEED, repetition, ENVIRONMENT_STREAM)
        self.context_rng = seeded(SEED, repetition, CONTEXT_STREAM)

    def context(self, t: int) -> Any:
        """That of round t: called once for each round."""
        self.environment.scene.renew(self.scene, t, self.context_rng)
        return self.environment.advise(self.scene, t)

    def reward(self, t: int, arm: int) -> tuple[float, float]:
        """The reward of round t, and what it counts in a total."""
        reward = self.environment.draw(self.scene, t, arm, self.rng)
        return reward, self.environment.scene.score(self.scene, t, arm, reward)


def regret_of(environment: Environment, arms: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The regret after each round."""
    pulls = np.cumsum(np.eye(environment.arms, dtype=np.int64)[arms], axis=0)
    return environment.regret(np.arange(1, arms.size + 1), pulls, np.cumsum(scores))


def interpreted_run(
    policy: Policy, environment: Environment, repetition: int
) -> tuple[np.ndarray, np.ndarray]:
    """Arms and scores of one repetition, without the compiler."""
    params, rounds = policy.constants(), Rounds(environment, repetition)
    begin, choose, learn, _ = policy.kernels
    prepare = policy.prepare()
    policy_rng = seeded(SEED, repetition, POLICY_STREAM)
    state = begin(params)
    arms, scores = np.zeros(ROUNDS, np.int64), np.zeros(ROUNDS)
    for t in range(1, ROUNDS + 1):
        arm, phase = choose(params, state, t, rounds.context(t), policy_rng)
        reward, scores[t - 1] = rounds.reward(t, arm)
        learn(params, state, t, arm, prepare(params, reward), phase, policy_rng)
        arms[t - 1] = arm
    return arms, scores


def interpreted_arms(policy: Policy, environment: Environment, repetition: int) -> np.ndarray:
    """The decisions of `interpreted_run`."""
    return interpreted_run(policy, environment, repetition)[0]


def late_run(
    policy: Policy,
    environment: Environment,
    repetition: int,
    feedback: Feedback,
    length: int = ROUNDS,
) -> tuple[np.ndarray, np.ndarray]:
    """Arms and scores of an agent whose rewards come late, by the same streams as `simulate`."""
    agent = policy.agent(seed=SEED, **feedback.settling._asdict())
    agent._runner.rng = seeded(SEED, repetition, POLICY_STREAM)
    rounds, delay_rng = Rounds(environment, repetition), seeded(SEED, repetition, DELAY_STREAM)
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
            with contextlib.suppress(DecisionError):  # it was given up
                agent.tell(late, due_reward)
    return arms, scores


def saved_text(agent: Agent) -> str:
    """The agent's whole state as text, or what can be had of it for an unregistered policy."""
    if REGISTRY.classes().get(agent.policy.name) is type(agent.policy):
        return json.dumps(agent.save())
    return repr(agent)

"""The contract of a policy, as a list of checks."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava.agents.agent import Agent
from balaclava.agents.decisions import Decision
from balaclava.agents.restoring import restore
from balaclava.auditing.enumeration.exhaustive_audit import audit_exhaustively
from balaclava.auditing.enumeration.small_worlds import with_parameters
from balaclava.auditing.state_copies import copy_state
from balaclava.errors import DecisionError, ParameterError, RewardError
from balaclava.policies.base import POLICIES, Policy
from balaclava.policies.leased_policy import LeasedPolicy
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.base import declared_mechanism
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import repetition_player, simulate
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.reward_delays import Delay
from balaclava.testing.conformance import (
    CHECK_ROUNDS,
    POLICY_SEED,
    ConformanceError,
    interpreted_run,
    late_run,
    played,
    regret_of,
    require,
    require_error,
    require_named,
    reward_source,
    round_of,
    saved_text,
    share_of_best,
)
from balaclava.testing.examples import matching_environment

# The check of learning: rounds, tried in this order; parameters with which it is fast; the least
# share above 1/arms with all rewards, and the least part of it with some lost. All guesses.
_LEARNING_ROUNDS, _LEARNING_ARMS = (600, 2_400), 3
_CLEAR_EPSILON, _LARGEST_RADIUS_SCALE = 20.0, 0.1
_LEAST_GAIN, _LEAST_LEARNING = 0.25, 0.4


def check_policy(policy: Policy) -> None:
    """Run every check of a policy's contract.

    Args:
        policy: An instance of the policy, such as `Mine(arms=3)`.

    Raises:
        ConformanceError: If a check fails; the message says which promise is broken.
    """
    if not isinstance(policy, Policy):
        raise ConformanceError(f"{policy!r} is not a policy; pass an instance such as Mine(arms=3)")
    for check in POLICY_CHECKS:
        check(policy)


def describes_itself(policy: Policy) -> None:
    """It has a docstring, a guarantee that fits its class, and parameters that survive JSON."""
    cls = type(policy)
    require(policy, bool((cls.__doc__ or "").strip()), "has no docstring")
    guarantee = policy.guarantee
    require(policy, isinstance(guarantee, Guarantee), "guarantee is not a Guarantee")
    claimed, declared = (guarantee.model, guarantee.scope), (policy.model, policy.scope)
    require(policy, claimed == declared, f"its guarantee says {claimed}, the policy {declared}")
    again = cls.create(json.loads(json.dumps(policy.parameters)))
    require(policy, again == policy, "parameters do not survive JSON")
    frozen = dataclasses.FrozenInstanceError
    require_error(policy, frozen, "changing a parameter", setattr, policy, "arms", 5)


def refuses_bad_parameters(policy: Policy) -> None:
    """It refuses unknown, missing and absurd parameters, with errors that name them."""
    good = policy.parameters
    require_named(policy, "armz", "an unknown parameter", {**good, "armz": 3})
    missing = {name: value for name, value in good.items() if name != "arms"}
    require_named(policy, "arms", "a missing parameter", missing)
    for absurd in (0, -1, 2.5, math.nan, math.inf, "three", None, True):
        require_named(policy, "arms", f"arms = {absurd!r}", {**good, "arms": absurd})


def decides_within_its_arms(policy: Policy) -> None:
    """Decisions have valid arms, phases and ids; a seeded agent claims no privacy."""
    agent = policy.agent(seed=POLICY_SEED)
    require(policy, agent.guarantee.model == "none", "a seeded agent claims privacy")
    for t, (decision, _) in enumerate(played(policy, agent, CHECK_ROUNDS), start=1):
        require(policy, round_of(decision) == t, f"decision {t} has id {decision.id}")
        p = decision.propensity
        valid = p is None or (0 < p <= 1 and policy.scope != "decision")
        require(policy, valid, f"the propensity of decision {t} is {p}")
        require(policy, 0 <= decision.arm < policy.arms, f"decision {t} is arm {decision.arm}")
        require(policy, decision.phase >= -1, f"decision {t} has phase {decision.phase}")


def knows_its_propensities(policy: Policy) -> None:
    """A decision with propensity 1 would be the same with other random numbers."""
    agent = policy.agent(seed=POLICY_SEED)
    runner, rewards = agent._runner, reward_source(policy)
    if isinstance(policy, LeasedPolicy):
        return  # its propensity is given the decider, which is drawn
    for t in range(1, CHECK_ROUNDS + 1):
        before, context = copy_state(runner.state), policy.practice_context
        decision = agent.ask(context)
        if decision.propensity == 1.0:
            again = policy.kernels.choose(runner.params, before, t, context, seeded(POLICY_SEED, t))
            require(
                policy, again[0] == decision.arm,
                f"decision {t} has propensity 1, but other random numbers choose another arm; let "
                "`propensity` return None, or the arm's chance",
            )  # fmt: skip
        agent.tell(decision, rewards(decision))


def works_without_a_seed(policy: Policy) -> None:
    """It also plays with the operating system's randomness, and where rewards are lost."""
    agent = policy.agent()
    claimed = dataclasses.replace(agent.guarantee, assumptions=policy.guarantee.assumptions)
    require(policy, claimed == policy.guarantee, "the agent's guarantee differs")
    for _ in played(policy, agent, 60):
        pass
    agent, rewards = policy.agent(), reward_source(policy)
    for t in range(CHECK_ROUNDS):  # `forget` must draw noise through mechanisms, too
        decision = agent.ask(policy.practice_context)
        if t % 2:
            agent.cancel(decision)
        else:
            agent.tell(decision, rewards(decision))


def repeats_with_the_seed(policy: Policy) -> None:
    """The same seed gives the same decisions."""
    first = [d.arm for d, _ in played(policy, policy.agent(seed=POLICY_SEED), CHECK_ROUNDS)]
    second = [d.arm for d, _ in played(policy, policy.agent(seed=POLICY_SEED), CHECK_ROUNDS)]
    require(policy, first == second, "two agents with one seed disagree")


def does_not_depend_on_workers(policy: Policy) -> None:
    """Results do not depend on the number of workers, or on other policies."""
    environment = matching_environment(policy)
    options: dict[str, Any] = {"horizon": CHECK_ROUNDS, "repetitions": 4, "seed": POLICY_SEED}
    alone = simulate(policy, environment, **options, workers=1).pulls(policy.name)
    beside = simulate({"a": policy, "b": policy}, environment, **options, workers=3)
    for label in ("a", "b"):
        alike = np.array_equal(alone, beside.pulls(label))
        require(policy, alike, "the results depend on the number of workers or on other policies")


def compiles_to_what_it_says(policy: Policy) -> None:
    """Interpreted and compiled runs on the same random streams decide alike."""
    environment = matching_environment(policy)
    results = simulate(
        policy, environment, horizon=CHECK_ROUNDS, repetitions=2, seed=POLICY_SEED,
        checkpoints=CHECK_ROUNDS, workers=1,
    )  # fmt: skip
    for repetition in range(2):
        arms, scores = interpreted_run(policy, environment, repetition)
        regret = regret_of(environment, arms, scores)
        pulls = np.bincount(arms, minlength=policy.arms)
        compiled = results.regret(policy.name)[repetition]
        alike = np.allclose(compiled, regret, rtol=1e-12, atol=1e-9)
        alike &= np.array_equal(results.pulls(policy.name)[repetition], pulls)
        require(policy, alike, "compiled decisions differ from interpreted ones")


def decides_alike_with_delays(policy: Policy) -> None:
    """An agent and the interpreted loop of the simulator agree when rewards come late or never."""
    agrees_with_delays(policy, interpreted=True)


def compiles_to_what_it_says_with_delays(policy: Policy) -> None:
    """An agent and the compiled loop agree when rewards come late or never."""
    agrees_with_delays(policy, interpreted=False)


def agrees_with_delays(policy: Policy, interpreted: bool) -> None:
    """Compare an agent and the simulator, with patience and with a window."""
    environment = matching_environment(policy)
    missing = policy.accepts[0] if math.isfinite(policy.accepts[0]) else 0.0
    for feedback in (
        Feedback.create(Delay(mean=7, lost=0.1), patience=40),
        Feedback.create(Delay(mean=3, law="uniform", lost=0.1), 5, "window", missing),
    ):
        rounds = np.arange(1, CHECK_ROUNDS + 1)
        play = repetition_player(
            policy.name, policy, environment, rounds, POLICY_SEED, feedback, interpreted=interpreted
        )
        run = play(0, np.zeros(2, np.int64))
        regret = regret_of(environment, *late_run(policy, environment, 0, feedback))
        alike = np.allclose(run.regret, regret, rtol=1e-12, atol=1e-9)
        require(policy, alike, f"with delays ({feedback}) an agent and the simulator differ")


def survives_save_and_restore(policy: Policy) -> None:
    """An agent survives a save as JSON at any step, with rewards outstanding."""
    if POLICIES.classes().get(policy.name) is not type(policy):
        return  # save() refuses unregistered policies
    agent, expected = policy.agent(seed=POLICY_SEED), []
    steps = {0, 1, 2, 3, 7, policy.arms, 2 * policy.arms + 1, 50, CHECK_ROUNDS - 1}
    saves: dict[int, tuple[dict[str, Any], list[Decision]]] = {0: (agent.save(), [])}
    decisions = played(policy, agent, CHECK_ROUNDS, delay=4)
    for step, (decision, waiting) in enumerate(decisions, start=1):
        expected.append(decision[1:])
        if step in steps:
            saves[step] = agent.save(), waiting
    for step, (saved, waiting) in saves.items():
        restored = restore(json.loads(json.dumps(saved)))
        again = restored.save()
        own = ("agent", "origins", "digest")  # a restored agent has a new name
        changed = [key for key in saved if saved[key] != again[key] and key not in own]
        require(policy, not changed, f"restoring changes {', '.join(changed)} of a save")
        last = CHECK_ROUNDS if step == 50 else min(step + 40, CHECK_ROUNDS)
        rest = played(policy, restored, last, delay=4, start=step + 1, pending=waiting)
        alike = [decision[1:] for decision, _ in rest] == expected[step:last]
        require(policy, alike, f"an agent restored at step {step} continues differently")


def takes_late_rewards(policy: Policy) -> None:
    """It accepts rewards of many decisions in any order, and each reward once."""
    agent = policy.agent(seed=POLICY_SEED)
    order = np.random.default_rng(POLICY_SEED)
    rewards = reward_source(policy)
    for batch in (1, 2, 7, 40, 3, 100):
        decisions = [agent.ask(policy.practice_context) for _ in range(batch)]
        for i in order.permutation(batch):
            agent.tell(decisions[i], rewards(decisions[i]))
        before = saved_text(agent)
        last, reward = decisions[-1], rewards(decisions[-1])
        require_error(policy, DecisionError, "a reward told twice", agent.tell, last, reward)
        require(policy, saved_text(agent) == before, "a refused reward changed the agent")


def takes_reports(policy: Policy) -> None:
    """A local policy sends a level with each decision and accepts reports instead of rewards."""
    if policy.model != "local":
        return
    report: Any = policy.report
    require(policy, report is not None, "has no `report` method; derive it from LocalPolicy")
    agent, rewards = policy.agent(seed=POLICY_SEED), reward_source(policy)
    for _ in range(20):
        decision = agent.ask(policy.practice_context)
        level = agent.report_level(decision)
        require(policy, 0 < level < math.inf, f"the level of a report is {level!r}")
        agent.tell_report(decision, report(rewards(decision), level))
    for bad in (0.0, -1.0, math.nan, math.inf):
        what, reward = f"a report at level {bad!r}", rewards(decision)
        require_error(policy, ParameterError, what, report, reward, bad)


def does_without_missing_rewards(policy: Policy) -> None:
    """Decisions and releases continue, whichever rewards are given up."""
    undisturbed = policy.agent(seed=POLICY_SEED)
    for _ in played(policy, undisturbed, CHECK_ROUNDS):
        pass
    agent = policy.agent(seed=POLICY_SEED)
    lost = np.random.default_rng(POLICY_SEED)
    rewards = reward_source(policy)
    releases = released_batches(undisturbed) > 0
    lost_at_first = min(CHECK_ROUNDS, policy.horizon or CHECK_ROUNDS) // 3
    for t in range((7 if releases else 2) * CHECK_ROUNDS):
        if t >= 2 * CHECK_ROUNDS and t % CHECK_ROUNDS == 0 and released_batches(agent) > 0:
            break
        decision = agent.ask(policy.practice_context)
        require(policy, 0 <= decision.arm < policy.arms, f"decision {t + 1} is arm {decision.arm}")
        if t < lost_at_first or lost.random() < 0.3:
            agent.cancel(decision)
        else:
            agent.tell(decision, rewards(decision))
    released = released_batches(agent) > 0 or not releases
    require(policy, released, "rewards that are given up keep its batches from being released")
    without_rewards = policy.agent(seed=POLICY_SEED)
    for _ in range(CHECK_ROUNDS):
        without_rewards.ask(policy.practice_context)


def learns_without_some_rewards(policy: Policy) -> None:
    """Lost and late rewards do not end its learning.

    In an easy world, with each arm as the best in turn, it plays the best arm nearly as often as
    with all rewards. A policy that ignores rewards plays it with share 1/arms on average. If it
    does not learn in these rounds even with all rewards, the check says nothing.
    """
    scale = min(policy.parameters.get("radius_scale", 1.0), _LARGEST_RADIUS_SCALE)
    changes = {"epsilon": _CLEAR_EPSILON, "radius_scale": scale}
    for name, value in (*changes.items(), ("arms", min(policy.arms, _LEARNING_ARMS))):
        policy = with_parameters(policy, {name: value})
    even, arms = 1.0 / policy.arms, range(policy.arms)
    stalls = False
    for rounds in _LEARNING_ROUNDS:  # phases are longer if rewards are lost
        subject = with_parameters(policy, {"horizon": rounds})
        whole = np.mean([share_of_best(subject, arm, rounds, lossy=False) for arm in arms])
        if whole < even + _LEAST_GAIN:
            continue
        some = np.mean([share_of_best(subject, arm, rounds, lossy=True) for arm in arms])
        stalls = bool(some - even < _LEAST_LEARNING * (whole - even))
        if not stalls:
            return
    promise = "it stops learning when a reward is lost or late; see `forget` of bl.Kernels"
    require(policy, not stalls, promise)


def keeps_its_claim_in_small_worlds(policy: Policy) -> None:
    """The exact law of its decisions in a few rounds is within its guarantee."""
    result = audit_exhaustively(policy, POLICY_SEED, games=False)
    require(policy, result.verdict in ("consistent", "does not apply"), str(result))


def released_batches(agent: Agent) -> int:
    """Batches that an agent has released; 0 if it only releases decisions."""
    released = agent.policy.released(agent._runner.state)
    return sum(arm.batches for arm in released or ())


class InputRecorder:
    """A seeded generator that keeps the inputs of each mechanism."""

    def __init__(self, seed: int) -> None:
        self._generator = seeded(seed)
        self.inputs: list[Any] = []

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """Keep the inputs and let the mechanism answer."""
        named = zip(declared_mechanism(body).arguments, arguments, strict=True)
        self.inputs.append([np.asarray(value).tolist() for name, value in named if name != "out"])
        return body(self._generator, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def batches_ignore_arrival_order(policy: Policy) -> None:
    """Only the order of decisions determines which rewards are summed together."""
    if policy.released(policy.kernels.begin(policy.constants())) is None or policy.model == "local":
        return
    inputs = []
    for order in (1, -1):
        params, notes = policy.constants(), InputRecorder(POLICY_SEED)
        state = policy.kernels.begin(params)
        rewards = np.random.default_rng(POLICY_SEED).random(CHECK_ROUNDS)
        decisions = [
            policy.kernels.choose(params, state, t, policy.practice_context, notes)
            for t in range(1, CHECK_ROUNDS + 1)
        ]
        for t, (arm, phase) in list(enumerate(decisions, start=1))[::order]:
            reward = policy.prepare()(params, float(rewards[t - 1]))
            policy.kernels.learn(params, state, t, arm, reward, phase, notes)
        inputs.append(sorted(notes.inputs, key=repr))  # numbers and lists
    require(policy, inputs[0] == inputs[1], "its batches depend on the order in which rewards come")


def displays_nothing_of_arrivals(policy: Policy) -> None:
    """With a window, an agent displays the same if rewards are prompt, late, or missing."""
    low, _ = policy.accepts
    missing = low if math.isfinite(low) else 0.0
    views = []
    for lateness in (0, 3, 5):
        agent = policy.agent(seed=POLICY_SEED, patience=5, settle="window", missing=missing)
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
    alike = views[0] == views[1] == views[2]
    require(policy, alike, "what an agent displays depends on when or whether rewards came")


def refuses_bad_rewards(policy: Policy) -> None:
    """It refuses bad rewards, and rewards of unknown decisions; the agent stays unchanged."""
    agent = policy.agent(seed=POLICY_SEED)
    decision = agent.ask(policy.practice_context)
    before = saved_text(agent)
    low, high = policy.accepts
    bad: list[Any] = [math.nan, math.inf, -math.inf, "1", None, [1.0], 1j]
    bad += [low - 0.123456] if math.isfinite(low) else []
    bad += [high + 0.123456] if math.isfinite(high) else []
    for reward in bad:
        error = require_error(policy, RewardError, "a bad reward", agent.tell, decision, reward)
        require(policy, "123456" not in str(error), "an error shows a reward")
    fine = reward_source(policy)(decision)
    misplaced: Any = 0.123456  # a reward
    strangers: list[Any] = [
        *(decision._replace(id=misplaced), decision._replace(arm=misplaced)),
        decision._replace(phase=misplaced),
        decision._replace(id=f"{decision.id[:32]}-99"),
        decision._replace(arm=decision.arm + 1),
        policy.agent(seed=POLICY_SEED).ask(policy.practice_context),
        *("1", None, -1, 1),
    ]
    for stranger in strangers:
        what = f"the decision {stranger!r}"
        error = require_error(policy, DecisionError, what, agent.tell, stranger, fine)
        require(policy, "123456" not in str(error), "an error shows a reward in place of an arm")
    require(policy, saved_text(agent) == before, "a refused call changed the agent")
    agent.tell(decision, fine)


def plays_one_arm(policy: Policy) -> None:
    """With one arm it plays that arm, or refuses to be created."""
    try:
        single = type(policy).create({**policy.parameters, "arms": 1})
    except ParameterError:
        return
    agent = single.agent(seed=POLICY_SEED)
    first = all(decision.arm == 0 for decision, _ in played(single, agent, 100))
    require(policy, first, "with one arm it plays another")


def lets_arms_come_and_leave(policy: Policy) -> None:
    """It offers only live and available arms, or refuses to change its arms and says why."""
    agent, rewards = policy.agent(seed=POLICY_SEED), reward_source(policy)
    if policy.fixed_arms:
        require_error(policy, ParameterError, "an arm added", agent.add_arm, "another")
        return

    def play(available: list[int] | None) -> None:
        decision = agent.ask(available=available)
        offered = available or [arm for arm in range(policy.arms + 2) if arm != 0]
        require(policy, decision.arm in offered, "it plays an arm that is not available")
        drawn = rewards(decision._replace(arm=decision.arm % policy.arms))
        agent.tell(decision, drawn)

    for label in ("another", "one more"):
        agent.add_arm(label)
    agent.retire_arm(0)
    for _ in range(CHECK_ROUNDS):
        play(None)
        play([policy.arms])
    if POLICIES.classes().get(policy.name) is type(policy):
        saved = agent.save()
        again = restore(json.loads(json.dumps(saved))).save()
        alike = all(saved[part] == again[part] for part in ("roster", "state"))
        require(policy, alike, "its arms are not restored")


def plays_short_horizons(policy: Policy) -> None:
    """It plays horizons that end in the first phase."""
    environment = matching_environment(policy)
    for horizon in (1, 2, policy.arms):
        results = simulate(policy, environment, horizon=horizon, repetitions=1, seed=POLICY_SEED)
        pulls = int(results.pulls(policy.name).sum())
        require(policy, pulls == horizon, f"a horizon of {horizon} has {pulls} pulls")


def keeps_rewards_to_itself(policy: Policy) -> None:
    """No repr, string or save of an agent contains a reward."""
    low, high = policy.accepts
    low, high = (low, high) if math.isfinite(low) and math.isfinite(high) else (0.0, 1.0)
    marked = low + (high - low) * 0.7310585786300049
    agent = policy.agent(seed=POLICY_SEED)
    for _ in range(3 * policy.arms):
        agent.tell(agent.ask(policy.practice_context), marked)
    texts = [repr(agent), str(agent), repr(policy), str(agent.guarantee), repr(vars(policy))]
    texts.append(repr(agent.ask(policy.practice_context)))
    if POLICIES.classes().get(policy.name) is type(policy):
        texts.append(json.dumps(agent.save()))
    for text in texts:
        require(policy, f"{marked:.6f}" not in text, f"a reward shows in {text[:40]}...")


def bounds_its_regret(policy: Policy) -> None:
    """Its regret bound is None, or between 0 and the largest gap in every round."""
    world = matching_environment(policy)
    bound = policy.regret_bound(world, CHECK_ROUNDS)
    most = CHECK_ROUNDS * world.largest_gap
    valid = bound is None or (isinstance(bound, float) and 0 <= bound <= most)
    require(policy, valid, f"regret_bound gives {bound!r}")


POLICY_CHECKS: list[Callable[[Policy], None]] = [
    describes_itself,
    refuses_bad_parameters,
    decides_within_its_arms,
    knows_its_propensities,
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
    learns_without_some_rewards,
    keeps_its_claim_in_small_worlds,
    batches_ignore_arrival_order,
    displays_nothing_of_arrivals,
    refuses_bad_rewards,
    plays_one_arm,
    lets_arms_come_and_leave,
    plays_short_horizons,
    keeps_rewards_to_itself,
    bounds_its_regret,
]

"""Record a run of a scenario, and replay it with rewards changed.

A replay compares what an observer sees: every decision with its phase and, after some rounds, what
an agent displays of its state: the arm's propensity, estimates, released values, coefficients, and
what the policy says of its arms.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from balaclava.agents.restoring import through_a_save
from balaclava.auditing.rare_answers import RareAnswers
from balaclava.auditing.scenario import Neighbour, Scenario
from balaclava.auditing.state_copies import copy_state, fingerprint
from balaclava.auditing.tape import Divergence, MovedInput, Recorder, Replayer, TapeEntry
from balaclava.errors import PrivacyError, require_arm
from balaclava.policies.base import Policy

DIFFERENT_DECISION = "the decision of round {} differs although every mechanism answered alike"
FEWER_QUERIES = (
    "in round {} it made fewer queries to the randomness; look for what depends on a reward "
    "without noise, as the length of a batch or whether a sum is released"
)
DIVERGES = "in round {} {}"
IRREPRODUCIBLE = (
    "a second run with the same rewards and answers differs ({}): keep what the policy remembers "
    "in its state"
)
FAILS_HERE = "in round {} it fails with {}, and not on the other stream"
FAILS_THERE = "in round {} it does not fail, as on the other stream: {}"
DIFFERENT_DISPLAY = (
    "after round {} an agent displays another propensity, estimate, release or statement about its "
    "arms although every mechanism answered alike"
)
# The display, which is slow, is compared after the first 8 releases, and then every 64 rounds.
_DISPLAYED_RELEASES, _DISPLAY_INTERVAL = 8, 64
# The state's fingerprint is kept after the first 16 releases, then after every 16th. With fewer,
# a replay notices later that it has returned to the recorded state.
_FINGERPRINTED_RELEASES = 16
_CONFIDENCE = 0.95  # of displayed answers

# A decision, what an agent displays beside it, or where and how it failed ("" if it did not).
Observation = tuple[int, int] | bytes | str


@dataclass
class RecordedRun:
    """A recorded run: decisions, answers, and the position on the tape by round."""

    scenario: Scenario
    decisions: list[tuple[int, int]]  # by slot
    tape: list[TapeEntry]
    round_starts: list[int] = field(default_factory=list)  # length of the tape by round; end
    choice_ends: list[int] = field(default_factory=list)  # and right after each choice
    release_rounds: set[int] = field(default_factory=set)
    fingerprints: dict[int, bytes] = field(default_factory=dict)  # of the state, by round
    displays: dict[int, bytes] = field(default_factory=dict)  # of an agent, by round
    rare: bool = False  # whether its answers are rare ones
    failure: str = ""  # where and how it failed, in its last round
    error: Exception | None = None  # with which it failed

    def failure_in(self, i: int) -> str:
        """The failure of the i-th round, from 0, or ""."""
        return self.failure if i + 1 == self.scenario.rounds else ""


class ReplayOutcome(NamedTuple):
    """The result of a replay."""

    moves: list[MovedInput] = []  # noqa: RUF012 (never changed)
    fault: str = ""  # how it differs although every answer is the same
    round: int | None = None  # from 0, in which an observer sees a difference
    seen: Observation = (0, 0)  # what the observer sees there


def displayed_answers(policy: Policy, state: Any) -> list[Any]:
    """The answers of the policy itself that an agent displays beside its estimates."""
    return [
        policy.named_arm(state, _CONFIDENCE),
        policy.named_set(state, _CONFIDENCE),
        policy.recommended_arm(state),
    ]


class ScenarioRunner:
    """Runs the kernels of a policy on a scenario."""

    def __init__(self, policy: Policy, scenario: Scenario) -> None:
        self.policy, self.scenario = policy, scenario
        self.params, self.prepare = policy.constants(), policy.prepare()
        self.place = ""  # of the last call of a kernel

    def failure(self, error: Exception) -> str:
        """Where and how a kernel failed; an observer sees that it did."""
        return f"{type(error).__name__} {self.place}"

    def begin(self) -> Any:
        if self.scenario.initial_state is None:
            return self.policy.kernels.begin(self.params)
        return copy_state(self.scenario.initial_state)

    def choose(self, state: Any, i: int, rng: Any) -> tuple[int, int]:
        """The i-th decision, from 0."""
        t, context = int(self.scenario.times[i]), self.scenario.context(i)
        self.place = f"in the choice of round {t}"
        arm, phase = self.policy.kernels.choose(self.params, state, t, context, rng)
        require_arm(self.policy.name, t, arm, self.policy.arms)
        return int(arm), int(phase)

    def apply_event(
        self, state: Any, item: int, decision: tuple[int, int], rng: Any, reward: float | None
    ) -> None:
        """Tell a reward, by default that of the scenario, or cancel a decision."""
        slot, (arm, phase) = abs(item) - 1, decision
        t = int(self.scenario.times[slot])
        self.place = f"after the choice, with the decision of round {t}"
        if item < 0:
            self.policy.kernels.forget(self.params, state, t, arm, phase, rng)
            return
        value = float(self.scenario.rewards[slot, arm]) if reward is None else reward
        prepared = self.prepare(self.params, value)
        self.policy.kernels.learn(self.params, state, t, arm, prepared, phase, rng)

    def apply_events(
        self,
        state: Any,
        i: int,
        decisions: list[tuple[int, int]],
        rng: Any,
        neighbour: Neighbour | None = None,
        first: int = 0,
    ) -> None:
        """Apply the events of the i-th round, from number `first` on."""
        for item in self.scenario.events(i)[first:]:
            changed = neighbour is not None and item == neighbour.slot + 1
            reward = neighbour.reward if neighbour is not None and changed else None
            self.apply_event(state, item, decisions[abs(item) - 1], rng, reward)

    def display(self, state: Any, arm: int) -> bytes:
        """What an agent displays of a state with its decision for an arm; see `Agent`."""
        policy = self.policy
        statements: list[Any] = [policy.changed_arms(state), policy.restarts(state)]
        if policy.coefficients is not None:
            statements.append(policy.coefficients(state))
        if policy.value_estimates is not None:
            statements.append(policy.value_estimates(state, _CONFIDENCE))
        if policy.scope == "decision":  # its rewards may not be displayed in any other way
            return repr(statements).encode()
        numbers = [policy.propensity(state, arm)]
        for row in policy.released(state) or ():
            numbers += row
        if policy.estimation is not None:
            for each in range(policy.arms):
                numbers += policy.estimation.read(self.params, state, each)
        statements += displayed_answers(policy, state)
        values = np.array([-1.0 if number is None else number for number in numbers])
        return values.tobytes() + repr(statements).encode()

    def end_round(self, state: Any, i: int, decisions: list[tuple[int, int]], rng: Any) -> Any:
        """The state after the i-th round: the last may finish the trial; some save and restore."""
        if self.scenario.ends and i + 1 == self.scenario.rounds:
            self.finish(state, i, decisions, rng)
        if i not in self.scenario.restore_rounds:
            return state
        player = through_a_save(self.policy, state, int(self.scenario.times[i]))
        self.params = player.params
        return player.state

    def finish(self, state: Any, i: int, decisions: list[tuple[int, int]], rng: Any) -> None:
        """Give up open decisions, and those that close unfinished batches, as `Agent.finish`."""
        t = int(self.scenario.times[i])
        for slot in self.scenario.unanswered():
            self.apply_event(state, -(slot + 1), decisions[slot], rng, None)
        for arm, phase in self.policy.closing_decisions(state, rng):
            self.policy.kernels.forget(self.params, state, t, arm, phase, rng)


def record(
    policy: Policy,
    scenario: Scenario,
    seed: int,
    rounds_after_release: int | None = None,
    rare: RareAnswers | None = None,
) -> RecordedRun:
    """Run a scenario once and record it, with rare answers if given.

    With `rounds_after_release`, the scenario ends that many rounds after the first release.
    """
    runner, recorder = ScenarioRunner(policy, scenario), Recorder(seed, rare=rare)
    state, before = runner.begin(), fingerprint(runner.params)
    rounds, last = scenario.rounds, scenario.rounds
    pending = [(int(arm), int(phase)) for arm, phase in scenario.pending]
    decisions = [*([(0, 0)] * rounds), *pending]
    run = RecordedRun(scenario, decisions, recorder.tape, rare=rare is not None)
    for i in range(rounds):
        if i >= last:
            break
        run.round_starts.append(len(recorder.tape))
        try:
            run.decisions[i] = runner.choose(state, i, recorder)
            run.choice_ends.append(len(recorder.tape))
            runner.apply_events(state, i, run.decisions, recorder)
            state = runner.end_round(state, i, run.decisions, recorder)
        except Exception as error:
            run.failure, run.error, last = runner.failure(error), error, i + 1
            run.choice_ends[i:] = [len(recorder.tape)]
            break
        if any(entry.terms for entry in recorder.tape[run.round_starts[-1] :]):
            run.release_rounds.add(i)
            releases = len(run.release_rounds)
            if releases <= _FINGERPRINTED_RELEASES or releases % _FINGERPRINTED_RELEASES == 0:
                run.fingerprints[i] = fingerprint(state)
            if rounds_after_release is not None and last == rounds:
                last = min(i + 1 + rounds_after_release, rounds)
        early = i in run.release_rounds and len(run.displays) < _DISPLAYED_RELEASES
        if early or (i + 1) % _DISPLAY_INTERVAL == 0 or i + 1 == last:
            run.displays[i] = runner.display(state, run.decisions[i][0])
    run.round_starts.append(len(recorder.tape))
    if last < rounds:
        scenario.truncate(last)
        run.decisions = [*run.decisions[:last], *pending]
    if fingerprint(runner.params) != before:
        raise PrivacyError(
            "the kernels write to params, which a replay cannot follow; write to the state instead"
        )
    return run


def replay_all(
    policy: Policy, run: RecordedRun, neighbours: list[Neighbour]
) -> Iterator[tuple[Neighbour, ReplayOutcome]]:
    """Replay each neighbour with the recorded answer to every query."""
    runner, replayer = ScenarioRunner(policy, run.scenario), Replayer(run.tape, 0)
    state, fault = runner.begin(), ""
    waiting = defaultdict(list)
    for neighbour in neighbours:
        waiting[neighbour.slot].append(neighbour)
    try:
        for i in range(run.scenario.rounds):
            runner.choose(state, i, replayer)
            for order, item in enumerate(run.scenario.events(i)):
                if item > 0:
                    for neighbour in waiting.pop(item - 1, ()):
                        branch = Replayer(run.tape, replayer.position)
                        begun = copy_state(state)
                        yield neighbour, replay_one(runner, begun, run, branch, neighbour, i, order)
                runner.apply_event(state, item, run.decisions[abs(item) - 1], replayer, None)
            state = runner.end_round(state, i, run.decisions, replayer)
            if not waiting:
                return
    except Exception as error:
        if run.failure != runner.failure(error):
            fault = IRREPRODUCIBLE.format(runner.failure(error))
    for neighbour in (neighbour for late in waiting.values() for neighbour in late):
        yield neighbour, ReplayOutcome([], fault)  # without a fault its reward was never told


def replay_one(
    runner: ScenarioRunner,
    state: Any,
    run: RecordedRun,
    replayer: Replayer,
    neighbour: Neighbour | None = None,
    first: int = 0,
    order: int = 0,
) -> ReplayOutcome:
    """Replay a run until something differs.

    With a neighbour it continues from event number `order` of round `first`, until the state equals
    the recorded one. Without one, all rewards are those of the runner's scenario.
    """
    for i in range(first, run.scenario.rounds):
        t, failure = run.scenario.times[i], run.failure_in(i)
        try:
            if neighbour is None or i > first:
                decision = runner.choose(state, i, replayer)
                if decision != run.decisions[i]:
                    return ReplayOutcome(replayer.moves, DIFFERENT_DECISION.format(t), i, decision)
            skipped = order if i == first else 0
            runner.apply_events(state, i, run.decisions, replayer, neighbour, skipped)
            state = runner.end_round(state, i, run.decisions, replayer)
        except Divergence as divergence:
            if failure and replayer.position == len(run.tape):  # a query where the other failed
                return ReplayOutcome(replayer.moves, FAILS_THERE.format(t, failure), i, "")
            return ReplayOutcome(replayer.moves, DIVERGES.format(t, divergence))
        except Exception as error:
            if (seen := runner.failure(error)) == failure:
                break
            fault = FAILS_HERE.format(t, type(error).__name__)
            return ReplayOutcome(replayer.moves, fault, i, seen)
        if failure:
            return ReplayOutcome(replayer.moves, FAILS_THERE.format(t, failure), i, "")
        if replayer.position != run.round_starts[i + 1]:
            return ReplayOutcome(replayer.moves, FEWER_QUERIES.format(t))
        recorded = None if neighbour is None else run.fingerprints.get(i)
        if recorded is not None and fingerprint(state) == recorded:
            break
        if i in run.displays:
            display = runner.display(state, run.decisions[i][0])
            if display != run.displays[i]:
                return ReplayOutcome(replayer.moves, DIFFERENT_DISPLAY.format(t), i, display)
    return ReplayOutcome(replayer.moves)


def replay_stream(policy: Policy, run: RecordedRun, rewards: np.ndarray) -> ReplayOutcome:
    """Replay with other rewards in every round."""
    scenario = dataclasses.replace(run.scenario, rewards=rewards)
    runner = ScenarioRunner(policy, scenario)
    replayer = Replayer(run.tape, 0, note_moves=False)
    return replay_one(runner, runner.begin(), run, replayer)


def find_leaking_pair(
    policy: Policy, run: RecordedRun, rewards: np.ndarray
) -> tuple[RecordedRun, Neighbour, ReplayOutcome] | None:
    """Two neighbouring streams between the run's and this one that an observer distinguishes.

    All rewards are changed at once. If the replay then has a fault, bisection over the number of
    changed rewards finds the reward with which the fault begins.
    """
    if not replay_stream(policy, run, rewards).fault:
        return None
    low, high = 0, len(run.scenario.times)  # rewards changed: without a fault, with one

    def hybrid(changed: int) -> np.ndarray:
        return np.concatenate([rewards[:changed], run.scenario.rewards[changed:]])

    while high - low > 1:
        middle = (low + high) // 2
        if replay_stream(policy, run, hybrid(middle)).fault:
            high = middle
        else:
            low = middle
    scenario = dataclasses.replace(run.scenario, rewards=hybrid(low))
    slot = high - 1
    neighbour = Neighbour(slot, float(rewards[slot, run.decisions[slot][0]]))
    changed_run = dataclasses.replace(run, scenario=scenario)
    return changed_run, neighbour, replay_stream(policy, run, hybrid(high))

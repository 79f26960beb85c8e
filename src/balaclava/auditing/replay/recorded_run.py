"""Playing a life once with a recorder, and again with one reward changed.

What an observer sees is compared: every decision with its phase, and beside it, now and then, what
an agent shows of its state: the chance of the arm, estimates, and what it calls released.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from balaclava.agents.restoring import carried_over
from balaclava.auditing.rare_answers import RareAnswers
from balaclava.auditing.scenario import Neighbour, Scenario, copy_state, fingerprint
from balaclava.auditing.tape import Divergence, Entry, MovedInput, Recorder, Replayer
from balaclava.errors import PrivacyError, require_arm
from balaclava.policies.base import Policy

DIFFERS = "the decision of round {} differs though every mechanism answered alike"
FEWER = "in round {} fewer questions were asked of the randomness"
SHOWS = (
    "after round {} an agent shows another chance, estimate or release though every mechanism "
    "answered alike"
)
_LOOK = 64  # rounds between two looks at what an agent shows, beside those with a release,
_LOOKS = 8  # as long as there were no more looks than that

_CLOSE = 16  # releases after each of which a state is kept; of later ones, one in so many

Observation = tuple[int, int] | bytes  # a decision, or what an agent shows beside it


@dataclass
class RecordedRun:
    """A recorded run: what was decided, what was answered, and where the tape stood."""

    life: Scenario
    decisions: list[tuple[int, int]]  # by slot
    tape: list[Entry]
    marks: list[int] = field(default_factory=list)  # length of the tape before each choice; end
    chosen: list[int] = field(default_factory=list)  # and right after each choice
    releases: set[int] = field(default_factory=set)  # rounds with one
    fingerprints: dict[int, bytes] = field(default_factory=dict)  # of the state after some of them
    shown: dict[int, bytes] = field(default_factory=dict)  # by an agent, after some rounds
    rare: bool = False  # whether answers were chosen that seldom come


class ReplayOutcome(NamedTuple):
    """What became of a neighbour."""

    moves: list[MovedInput] = []  # noqa: RUF012 (never changed)
    fault: str = ""  # how it went another way, though every answer was the same
    differs: int | None = None  # the round, from 0, in which something else was seen
    seen: Observation = (0, 0)  # what it was


class ScenarioRunner:
    """The kernels of a policy at work on a life."""

    def __init__(self, policy: Policy, life: Scenario) -> None:
        self.policy, self.life = policy, life
        self.params, self.prepare = policy.constants(), policy.prepare()

    def begin(self) -> Any:
        """The state in which the life begins."""
        if self.life.start is None:
            return self.policy.kernels.begin(self.params)
        return copy_state(self.life.start)

    def choose(self, state: Any, i: int, rng: Any) -> tuple[int, int]:
        """The i-th decision, from 0."""
        t = int(self.life.times[i])
        arm, phase = self.policy.kernels.choose(self.params, state, t, self.life.context(i), rng)
        require_arm(self.policy.name, t, arm, self.policy.arms)
        return int(arm), int(phase)

    def happen(
        self, state: Any, item: int, decision: tuple[int, int], rng: Any, reward: float | None
    ) -> None:
        """A reward comes (another one than the life's, where given), or a decision is given up."""
        slot, (arm, phase) = abs(item) - 1, decision
        t = int(self.life.times[slot])
        if item < 0:
            self.policy.kernels.forget(self.params, state, t, arm, phase, rng)
            return
        value = float(self.life.rewards[slot, arm]) if reward is None else reward
        prepared = self.prepare(self.params, value)
        self.policy.kernels.learn(self.params, state, t, arm, prepared, phase, rng)

    def shown(self, state: Any, arm: int) -> bytes:
        """What an agent shows of a state beside its decision for an arm; see `Agent`."""
        policy = self.policy
        if policy.scope == "decision":
            return b""
        numbers = [policy.propensity(state, arm)]
        for row in policy.released(state) or ():
            numbers += row
        if policy.estimation is not None:
            for each in range(policy.arms):
                numbers += policy.estimation.shown(self.params, state, each)
        return np.array([-1.0 if number is None else number for number in numbers]).tobytes()

    def restore(self, state: Any, i: int) -> Any:
        """The state after the i-th round: what comes back where an agent is saved and restored."""
        if i not in self.life.restored:
            return state
        player = carried_over(self.policy, state, int(self.life.times[i]))
        self.params = player.params
        return player.state


def record(
    policy: Policy,
    life: Scenario,
    seed: int,
    beyond: int | None = None,
    rare: RareAnswers | None = None,
) -> RecordedRun:
    """Play a life once and write everything down, with rare answers where given.

    With `beyond`, the life ends so many rounds after the first release, if there is one.
    """
    course, recorder = ScenarioRunner(policy, life), Recorder(seed, rare=rare)
    state, before = course.begin(), fingerprint(course.params)
    rounds, last = life.rounds, life.rounds
    held = [(int(arm), int(phase)) for arm, phase in life.held]
    game = RecordedRun(life, [*([(0, 0)] * rounds), *held], recorder.tape, rare=rare is not None)
    for i in range(rounds):
        if i >= last:
            life.shortened(last)
            game.decisions = [*game.decisions[:last], *held]
            break
        game.marks.append(len(recorder.tape))
        game.decisions[i] = course.choose(state, i, recorder)
        game.chosen.append(len(recorder.tape))
        for item in life.happenings(i):
            course.happen(state, item, game.decisions[abs(item) - 1], recorder, None)
        state = course.restore(state, i)
        if any(entry.terms for entry in recorder.tape[game.marks[-1] :]):
            game.releases.add(i)
            if len(game.releases) <= _CLOSE or len(game.releases) % _CLOSE == 0:
                game.fingerprints[i] = fingerprint(state)
            if beyond is not None and last == rounds:
                last = min(i + 1 + beyond, rounds)
        often = i in game.releases and len(game.shown) < _LOOKS
        if often or (i + 1) % _LOOK == 0 or i + 1 == last:
            game.shown[i] = course.shown(state, game.decisions[i][0])
    game.marks.append(len(recorder.tape))
    if fingerprint(course.params) != before:
        raise PrivacyError("the kernels write to params, which no replay can follow; use the state")
    return game


def replay_all(
    policy: Policy, game: RecordedRun, neighbours: list[Neighbour]
) -> Iterator[tuple[Neighbour, ReplayOutcome]]:
    """What becomes of each neighbour when every question gets the recorded answer."""
    course, player = ScenarioRunner(policy, game.life), Replayer(game.tape, 0)
    state = course.begin()
    waiting = defaultdict(list)
    for neighbour in neighbours:
        waiting[neighbour.slot].append(neighbour)
    for i in range(game.life.rounds):
        course.choose(state, i, player)
        for order, item in enumerate(game.life.happenings(i)):
            if item > 0:
                for neighbour in waiting.pop(item - 1, ()):
                    branch = Replayer(game.tape, player.position)
                    begun = copy_state(state)
                    yield neighbour, replay_one(course, begun, game, neighbour, i, order, branch)
            course.happen(state, item, game.decisions[abs(item) - 1], player, None)
        state = course.restore(state, i)
        if not waiting:
            return
    for neighbour in (neighbour for late in waiting.values() for neighbour in late):
        yield neighbour, ReplayOutcome()  # its reward was never told


def replay_one(
    course: ScenarioRunner,
    state: Any,
    game: RecordedRun,
    neighbour: Neighbour,
    first: int,
    order: int,
    player: Replayer,
) -> ReplayOutcome:
    """Go on from a changed reward until the state is the recorded one again, or to the end."""
    life = game.life
    for i in range(first, life.rounds):
        t = life.times[i]
        try:
            if i > first:
                decision = course.choose(state, i, player)
                if decision != game.decisions[i]:
                    return ReplayOutcome(player.moves, DIFFERS.format(t), i, decision)
            for item in life.happenings(i)[order if i == first else 0 :]:
                reward = neighbour.reward if item == neighbour.slot + 1 else None
                course.happen(state, item, game.decisions[abs(item) - 1], player, reward)
        except Divergence as divergence:
            return ReplayOutcome(player.moves, f"in round {t} {divergence}")
        if player.position != game.marks[i + 1]:
            return ReplayOutcome(player.moves, FEWER.format(t))
        state = course.restore(state, i)
        if i in game.fingerprints and fingerprint(state) == game.fingerprints[i]:
            break
        if (seen := changed_display(course, state, game, i)) is not None:
            return ReplayOutcome(player.moves, SHOWS.format(t), i, seen)
    return ReplayOutcome(player.moves)


def changed_display(course: ScenarioRunner, state: Any, game: RecordedRun, i: int) -> bytes | None:
    """What an agent shows after the i-th round, if it was looked at and is another now."""
    if i not in game.shown:
        return None
    seen = course.shown(state, game.decisions[i][0])
    return None if seen == game.shown[i] else seen


def replay_stream(policy: Policy, game: RecordedRun, rewards: np.ndarray) -> ReplayOutcome:
    """How other rewards show though every answer is the recorded one; no fault if they do not."""
    life = dataclasses.replace(game.life, rewards=rewards)
    course, player = ScenarioRunner(policy, life), Replayer(game.tape, 0, charging=False)
    state = course.begin()
    for i in range(life.rounds):
        t = life.times[i]
        try:
            decision = course.choose(state, i, player)
            if decision != game.decisions[i]:
                return ReplayOutcome([], DIFFERS.format(t), i, decision)
            for item in life.happenings(i):
                course.happen(state, item, game.decisions[abs(item) - 1], player, None)
        except Divergence as divergence:
            return ReplayOutcome([], f"in round {t} {divergence}")
        if player.position != game.marks[i + 1]:
            return ReplayOutcome([], FEWER.format(t))
        state = course.restore(state, i)
        if (seen := changed_display(course, state, game, i)) is not None:
            return ReplayOutcome([], SHOWS.format(t), i, seen)
    return ReplayOutcome()


def find_leaking_pair(
    policy: Policy, game: RecordedRun, rewards: np.ndarray
) -> tuple[RecordedRun, Neighbour, ReplayOutcome] | None:
    """Two neighbouring streams, between the game's and this one, of which one goes another way.

    All rewards are changed at once. If that shows, they are changed one after the other, and the
    one with which it begins to show is found by bisection.
    """
    if not replay_stream(policy, game, rewards).fault:
        return None
    low, high = 0, len(game.life.times)  # so many rewards are changed: does not show, shows

    def hybrid(changed: int) -> np.ndarray:
        return np.concatenate([rewards[:changed], game.life.rewards[changed:]])

    while high - low > 1:
        middle = (low + high) // 2
        if replay_stream(policy, game, hybrid(middle)).fault:
            high = middle
        else:
            low = middle
    life = dataclasses.replace(game.life, rewards=hybrid(low))
    base = dataclasses.replace(game, life=life)
    slot = high - 1
    neighbour = Neighbour(slot, float(rewards[slot, game.decisions[slot][0]]))
    return base, neighbour, replay_stream(policy, game, hybrid(high))

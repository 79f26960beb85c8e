"""Playing a life once with a recorder, and again with one reward changed."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from balaclava.auditing.lives import Life, copy_state, fingerprint
from balaclava.auditing.rare import RareAnswers
from balaclava.auditing.recorder import Divergence, Entry, Move, Player, Recorder
from balaclava.errors import PrivacyError, require_arm
from balaclava.policies.base import Policy
from balaclava.policies.restoring import carried_over

DIFFERS = "the decision of round {} differs though every mechanism answered alike"
FEWER = "in round {} fewer questions were asked of the randomness"


class Neighbour(NamedTuple):
    """Another reward in one slot of a life."""

    slot: int
    reward: float


@dataclass
class Game:
    """A recorded run: what was decided, what was answered, and where the tape stood."""

    life: Life
    decisions: list[tuple[int, int]]  # by slot
    tape: list[Entry]
    marks: list[int] = field(default_factory=list)  # length of the tape before each choice; end
    chosen: list[int] = field(default_factory=list)  # and right after each choice
    fingerprints: dict[int, bytes] = field(default_factory=dict)  # after rounds with a release
    rare: bool = False  # whether answers were chosen that seldom come


class Outcome(NamedTuple):
    """What became of a neighbour."""

    moves: list[Move] = []  # noqa: RUF012 (never changed)
    fault: str = ""  # how it went another way, though every answer was the same
    differs: int | None = None  # the round, from 0, whose decision was another
    decision: tuple[int, int] = (0, 0)  # what it was


class Course:
    """The kernels of a policy at work on a life."""

    def __init__(self, policy: Policy, life: Life) -> None:
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

    def restore(self, state: Any, i: int) -> Any:
        """The state after the i-th round: what comes back where an agent is saved and restored."""
        if i not in self.life.restored:
            return state
        player = carried_over(self.policy, state, int(self.life.times[i]))
        self.params = player.params
        return player.state


def record(
    policy: Policy,
    life: Life,
    seed: int,
    beyond: int | None = None,
    rare: RareAnswers | None = None,
) -> Game:
    """Play a life once and write everything down, with rare answers where given.

    With `beyond`, the life ends so many rounds after the first release, if there is one.
    """
    course, recorder = Course(policy, life), Recorder(seed, rare=rare)
    state, before = course.begin(), fingerprint(course.params)
    rounds, last = life.rounds, life.rounds
    held = [(int(arm), int(phase)) for arm, phase in life.held]
    game = Game(life, [*([(0, 0)] * rounds), *held], recorder.tape, rare=rare is not None)
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
            game.fingerprints[i] = fingerprint(state)
            if beyond is not None and last == rounds:
                last = min(i + 1 + beyond, rounds)
    game.marks.append(len(recorder.tape))
    if fingerprint(course.params) != before:
        raise PrivacyError("the kernels write to params, which no replay can follow; use the state")
    return game


def replay_all(
    policy: Policy, game: Game, neighbours: list[Neighbour]
) -> Iterator[tuple[Neighbour, Outcome]]:
    """What becomes of each neighbour when every question gets the recorded answer."""
    course, player = Course(policy, game.life), Player(game.tape, 0)
    state = course.begin()
    waiting = defaultdict(list)
    for neighbour in neighbours:
        waiting[neighbour.slot].append(neighbour)
    for i in range(game.life.rounds):
        course.choose(state, i, player)
        for order, item in enumerate(game.life.happenings(i)):
            if item > 0:
                for neighbour in waiting.pop(item - 1, ()):
                    branch = Player(game.tape, player.position)
                    begun = copy_state(state)
                    yield neighbour, replay_one(course, begun, game, neighbour, i, order, branch)
            course.happen(state, item, game.decisions[abs(item) - 1], player, None)
        state = course.restore(state, i)
        if not waiting:
            return
    for neighbour in (neighbour for late in waiting.values() for neighbour in late):
        yield neighbour, Outcome()  # its reward was never told


def replay_one(
    course: Course,
    state: Any,
    game: Game,
    neighbour: Neighbour,
    first: int,
    order: int,
    player: Player,
) -> Outcome:
    """Go on from a changed reward until the state is the recorded one again, or to the end."""
    life = game.life
    for i in range(first, life.rounds):
        t = life.times[i]
        try:
            if i > first:
                decision = course.choose(state, i, player)
                if decision != game.decisions[i]:
                    return Outcome(player.moves, DIFFERS.format(t), i, decision)
            for item in life.happenings(i)[order if i == first else 0 :]:
                reward = neighbour.reward if item == neighbour.slot + 1 else None
                course.happen(state, item, game.decisions[abs(item) - 1], player, reward)
        except Divergence as divergence:
            return Outcome(player.moves, f"in round {t} {divergence}")
        if player.position != game.marks[i + 1]:
            return Outcome(player.moves, FEWER.format(t))
        state = course.restore(state, i)
        if i in game.fingerprints and fingerprint(state) == game.fingerprints[i]:
            break
    return Outcome(player.moves)


def strays(policy: Policy, game: Game, rewards: np.ndarray) -> tuple[int, str, tuple[int, int]]:
    """The first round, from 0, in which other rewards show though every answer is the recorded one.

    Also how they show, and the decision of that round. The number of rounds where they never do.
    """
    life = dataclasses.replace(game.life, rewards=rewards)
    course, player = Course(policy, life), Player(game.tape, 0, charging=False)
    state, decision = course.begin(), (0, 0)
    for i in range(life.rounds):
        try:
            decision = course.choose(state, i, player)
            if decision != game.decisions[i]:
                return i, DIFFERS.format(life.times[i]), decision
            for item in life.happenings(i):
                course.happen(state, item, game.decisions[abs(item) - 1], player, None)
        except Divergence as divergence:
            return i, f"in round {life.times[i]} {divergence}", game.decisions[i]
        if player.position != game.marks[i + 1]:
            return i, FEWER.format(life.times[i]), game.decisions[i]
        state = course.restore(state, i)
    return life.rounds, "", decision


def find_stray(
    policy: Policy, game: Game, rewards: np.ndarray
) -> tuple[Game, Neighbour, Outcome] | None:
    """Two neighbouring streams, between the game's and this one, of which one goes another way.

    All rewards are changed at once. If that shows, they are changed one after the other, and the
    one with which it begins to show is found by bisection.
    """
    if strays(policy, game, rewards)[0] == game.life.rounds:
        return None
    low, high = 0, len(game.life.times)  # so many rewards are changed: does not show, shows

    def hybrid(changed: int) -> np.ndarray:
        return np.concatenate([rewards[:changed], game.life.rewards[changed:]])

    while high - low > 1:
        middle = (low + high) // 2
        if strays(policy, game, hybrid(middle))[0] == game.life.rounds:
            low = middle
        else:
            high = middle
    at, fault, decision = strays(policy, game, hybrid(high))
    life = dataclasses.replace(game.life, rewards=hybrid(low))
    base = dataclasses.replace(game, life=life)
    slot = high - 1
    neighbour = Neighbour(slot, float(rewards[slot, game.decisions[slot][0]]))
    differs = at if decision != game.decisions[at] else None
    return base, neighbour, Outcome([], fault, differs, decision)


def forced(
    policy: Policy,
    game: Game,
    rng: Any,
    rounds: int,
    look: Callable[[int, tuple[int, int]], bool],
    neighbour: Neighbour | None = None,
) -> None:
    """Play with other answers, but go on by the recorded decisions; `look` may end it."""
    course = Course(policy, game.life)
    state = course.begin()
    for i in range(rounds):
        if look(i, course.choose(state, i, rng)):
            return
        for item in game.life.happenings(i):
            changed = neighbour is not None and item == neighbour.slot + 1
            reward = neighbour.reward if neighbour is not None and changed else None
            course.happen(state, item, game.decisions[abs(item) - 1], rng, reward)
        state = course.restore(state, i)


def chance_decides(
    policy: Policy, game: Game, neighbour: Neighbour, outcome: Outcome, seed: int, times: int = 48
) -> bool:
    """Whether randomness reaches the decision that differs: other answers, another decision.

    A plain draw anywhere before it counts as reaching it.
    """
    at = outcome.differs
    assert at is not None  # the caller has looked
    if any(entry.terms is None for entry in game.tape[: game.chosen[at]]):
        return True
    for number in range(times):
        side = number % 2
        expected = outcome.decision if side else game.decisions[at]
        last: list[tuple[int, int]] = []

        def look(i: int, decision: tuple[int, int], last: list[Any] = last) -> bool:
            last[:] = [decision]
            return i == at

        try:
            forced(policy, game, Recorder(seed, number), at + 1, look, neighbour if side else None)
        except (PrivacyError, ArithmeticError, IndexError, ValueError):
            return True
        if last[0] != expected:
            return True
    return False


def readers(policy: Policy, game: Game, place: int, seed: int, redraws: int = 3) -> np.ndarray:
    """Which rounds' decisions change when one answer of the tape is another: [rounds] of bool."""
    entry, changed = game.tape[place], np.zeros(game.life.rounds, bool)
    assert entry.terms is not None and entry.body is not None  # noqa: PT018
    span = 50.0 * entry.terms.sensitivity / max(entry.terms.epsilon, 1e-3)
    answer = np.asarray(entry.answer, float)
    others = [answer + span, answer - span]
    noise = np.random.default_rng([seed, place]).laplace(0.0, span / 50.0, redraws)
    others += [answer + shift for shift in noise]
    for other in others:
        value = float(other) if other.ndim == 0 else tuple(other.tolist())
        tape = [*game.tape[:place], entry._replace(answer=value), *game.tape[place + 1 :]]

        def look(i: int, decision: tuple[int, int]) -> bool:
            changed[i] |= decision != game.decisions[i]
            return False

        at = 0
        try:
            forced(policy, game, Player(tape, 0, lenient=True), game.life.rounds, look)
        except Divergence:
            # From here on it asks other things: what was released steers what is asked.
            at = int(np.searchsorted(game.marks, place, side="right"))
            changed[at:] = True
        except (PrivacyError, ArithmeticError, IndexError, ValueError):
            continue
    return changed

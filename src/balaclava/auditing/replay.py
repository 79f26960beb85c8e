"""The grey-box audit: replay a neighbouring stream with the same mechanism answers.

If every mechanism answers alike and the decisions still differ, a reward reached a decision past
the mechanisms. If the decisions agree, privacy is what the mechanisms say: each input may move by
its sensitivity at most, and the losses of those that moved must add up to the claim. That is the
proof of privacy of every policy here, checked on real runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from balaclava.auditing.local_reports import first_level
from balaclava.auditing.recorder import Divergence, Entry, Move, Player, Recorder
from balaclava.errors import PrivacyError, require_arm
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee

_TOLERANCE = 1e-9  # of floating-point sums
_ROUNDING = 2.0**-21  # of a sensitivity: what the spare step of `privacy.secure` pays for
_HUGE = 1e30  # a reward that no honest sensitivity covers, where rewards are not bounded
_FURTHEST = 1e240  # the largest level that is tried; a device refuses more
_DELAY = 8  # rounds by which rewards are late in some streams
_FAR = 1_000  # rounds of a few streams: some faults show late


@dataclass(frozen=True)
class ReplayAudit:
    """What replaying neighbouring streams showed."""

    verdict: str
    pairs: int
    moved: int  # pairs in which some mechanism's input moved
    epsilon: float  # the largest loss found
    delta: float
    fault: str  # what was wrong, or ""

    def __str__(self) -> str:
        if self.fault:
            return f"{self.verdict} ({self.pairs:,} pairs tried): {self.fault}"
        delta = f", delta {self.delta:.3g}" if self.delta else ""
        return (
            f"{self.verdict}: {self.pairs:,} neighbouring pairs, {self.moved:,} of which moved a "
            f"mechanism's input; decisions agreed; largest loss epsilon {self.epsilon:.4g}{delta}"
        )


class Neighbour(NamedTuple):
    """Another reward in one round."""

    place: int
    reward: float


@dataclass
class _Game:
    """A recorded run: what was decided, what was answered, and where the tape stood."""

    rewards: np.ndarray
    decisions: list[tuple[int, int]]
    tape: list[Entry]
    marks: list[int]  # length of the tape before each round's choice; last: the end
    tells: list[list[int]]  # the rounds whose rewards are told after each round's choice
    fingerprints: dict[int, bytes]  # the state after rounds in which something was released


def audit_by_replay(
    policy: Policy, claim: Guarantee, *, rounds: int, pairs: int, seed: int
) -> ReplayAudit:
    """Try `pairs` neighbours spread over many streams: what one stream hides another shows."""
    if claim.scope == "report" and policy.report_kernel is None:
        fault = "claims that each reward is reported by its owner, but has no report_kernel"
        return ReplayAudit("violated", 0, 0, 0.0, 0.0, fault)
    if policy.report_kernel is not None and (fault := fault_of_reports(policy, claim, seed)):
        return ReplayAudit("violated", 0, 0, 0.0, 0.0, fault)
    streams = max(6, pairs // 20)
    far = max(rounds, min(_FAR, getattr(policy, "horizon", None) or _FAR))
    rng = np.random.default_rng([seed, 0])
    tried = moved = 0
    epsilon = delta = 0.0
    widths: list[float] = []
    for number in range(streams):
        length = far if number % 10 == 5 else rounds
        tells = schedule(length, _DELAY if number % 3 == 2 else 0, rng)
        limits = about_truncation(widths, rng) if widths and number % 2 else reward_limits(policy)
        try:
            stream = reward_stream(policy, length, number, limits, rng)
            game = record(policy, stream, seed + number, tells)
        except PrivacyError as error:
            return ReplayAudit("violated", tried, moved, epsilon, delta, str(error))
        if not all(map(math.isfinite, policy.accepts)) and policy.rewards == "real":
            widths = sorted({entry.terms.sensitivity for entry in game.tape if entry.terms})
        wanted = math.ceil((pairs - tried) / (streams - number))
        neighbours = choose_neighbours(policy, game, wanted, limits, rng)
        by_round = claim.scope in ("decision", "report")
        for neighbour, outcome in replay_all(policy, game, neighbours, by_round):
            tried += 1
            fault = outcome if isinstance(outcome, str) else fault_of(outcome, claim)
            if fault:
                return ReplayAudit(
                    "violated", tried, moved, epsilon, delta, f"round {neighbour.place}: {fault}"
                )
            assert not isinstance(outcome, str)
            moved += any(outcome)
            for moves in outcome:
                spent, slack = loss_of(moves, claim)
                epsilon, delta = max(epsilon, spent), max(delta, slack)
    return ReplayAudit("consistent", tried, moved, epsilon, delta, "")


def reward_stream(
    policy: Policy,
    rounds: int,
    number: int,
    limits: tuple[float, float],
    rng: np.random.Generator,
) -> np.ndarray:
    """Rewards[round, arm]: fair coins, all least, all largest, clear winners, anything."""
    low, high = limits
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: rng.integers(0, 2, (rounds, policy.arms)).astype(float),
        lambda: rng.random((rounds, policy.arms)),
        lambda: np.zeros((rounds, policy.arms)),
        lambda: np.ones((rounds, policy.arms)),
        lambda: (rng.random((rounds, policy.arms)) < np.linspace(0.05, 0.95, policy.arms)) * 1.0,
        lambda: np.tile(rng.random(policy.arms), (rounds, 1)),
        lambda: (rng.random((rounds, policy.arms)) < rng.random(policy.arms)) * 1.0,
    ]
    stream: np.ndarray = low + (high - low) * kinds[number % len(kinds)]()
    return stream


def reward_limits(policy: Policy) -> tuple[float, float]:
    """The most extreme rewards to try."""
    low, high = policy.accepts
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    if policy.rewards == "loss":  # larger ones it may leave out, and then show nothing
        return 0.0, 1.0
    bound, order = getattr(policy, "moment_bound", None), getattr(policy, "moment_order", None)
    if bound is not None and order is not None:  # the size of rewards: most survive truncation
        size = float(bound ** (1.0 / order))
        return -size, size
    return -1e3, 1e3


def about_truncation(widths: list[float], rng: np.random.Generator) -> tuple[float, float]:
    """Rewards as large as a policy lets count, judged by the sensitivities that it asked for.

    Rewards truncated at B ask for 2 B, so that half of that is the largest one to count. If a
    policy asked for too little, larger ones count as well, and show it.
    """
    share = rng.uniform(0.4, 0.5) if rng.random() < 0.5 else 0.5 + 0.5 * rng.random() ** 3
    size = float(rng.choice(widths) * share)
    return -size, size


def schedule(rounds: int, delay: int, rng: np.random.Generator) -> list[list[int]]:
    """After which round's choice each reward is told; what would be told after the end is lost."""
    tells: list[list[int]] = [[] for _ in range(rounds)]
    for t in range(1, rounds + 1):
        due = t + (int(rng.integers(0, delay + 1)) if delay else 0)
        if due <= rounds:
            tells[due - 1].append(t)
    return tells


def record(
    policy: Policy, rewards: np.ndarray, seed: int, tells: list[list[int]] | None = None
) -> _Game:
    """Play a stream once and write everything down."""
    params, recorder = policy.constants(), Recorder(seed)
    begin, choose, learn, _ = policy.kernels
    prepare = policy.prepare()
    state = begin(params)
    before = fingerprint(params)
    tells = schedule(len(rewards), 0, np.random.default_rng(0)) if tells is None else tells
    game = _Game(rewards, [], recorder.tape, [], tells, {})
    for t in range(1, len(rewards) + 1):
        game.marks.append(len(recorder.tape))
        arm, phase = choose(params, state, t, policy.practice_context, recorder)
        require_arm(policy.name, t, arm, policy.arms)
        game.decisions.append((int(arm), int(phase)))
        for told in tells[t - 1]:
            arm, phase = game.decisions[told - 1]
            reward = prepare(params, float(rewards[told - 1, arm]))
            learn(params, state, told, arm, reward, phase, recorder)
        if any(entry.terms for entry in recorder.tape[game.marks[-1] :]):
            game.fingerprints[t] = fingerprint(state)
    game.marks.append(len(recorder.tape))
    if fingerprint(params) != before:
        raise PrivacyError("the kernels write to params, which no replay can follow; use the state")
    return game


def choose_neighbours(
    policy: Policy,
    game: _Game,
    wanted: int,
    limits: tuple[float, float],
    rng: np.random.Generator,
) -> list[Neighbour]:
    """Places at every phase boundary and at random; the opposite extreme or any reward."""
    rounds = len(game.decisions)
    phases = [phase for _, phase in game.decisions]
    edges = {1, rounds}
    for t in range(2, rounds + 1):
        if phases[t - 1] != phases[t - 2] or t in game.fingerprints:
            edges |= {t - 1, t, min(t + 1, rounds)}
    places = sorted(edges)
    if len(places) > wanted // 2:
        places = sorted(rng.choice(places, wanted // 2, replace=False).tolist())
    places += rng.integers(1, rounds + 1, max(wanted - len(places), 0)).tolist()
    neighbours = []
    for place in places:
        arm, _ = game.decisions[place - 1]
        now = game.rewards[place - 1, arm]
        if not all(map(math.isfinite, policy.accepts)) and rng.random() < 0.1:
            low, high = -_HUGE, _HUGE
        else:
            low, high = limits
        far = high if now < (low + high) / 2 else low
        other = far if rng.random() < 0.7 else low + (high - low) * rng.random()
        neighbours.append(Neighbour(int(place), float(other)))
    return sorted(neighbours)


def replay_all(
    policy: Policy, game: _Game, neighbours: list[Neighbour], by_round: bool
) -> Iterator[tuple[Neighbour, list[list[Move]] | str]]:
    """For each neighbour the moved mechanisms (of each round, or of the run), or what is wrong."""
    params = policy.constants()
    begin, choose, learn, _ = policy.kernels
    prepare = policy.prepare()
    state, player = begin(params), Player(game.tape, 0)
    waiting = defaultdict(list)
    for neighbour in neighbours:
        waiting[neighbour.place].append(neighbour)
    for t in range(1, len(game.decisions) + 1):
        choose(params, state, t, policy.practice_context, player)
        for order, told in enumerate(game.tells[t - 1]):
            start = Start(t, order, player.position)
            for neighbour in waiting.pop(told, ()):
                branch = copy_state(state)
                yield (
                    neighbour,
                    replay_one(policy, params, branch, game, neighbour, start, by_round),
                )
            arm, phase = game.decisions[told - 1]
            reward = prepare(params, float(game.rewards[told - 1, arm]))
            learn(params, state, told, arm, reward, phase, player)
        if not waiting:
            return
    for neighbour in (neighbour for late in waiting.values() for neighbour in late):
        yield neighbour, []  # its reward was never told


class Start(NamedTuple):
    """Where a changed reward is told: after which round's choice, in which order, the tape."""

    round: int
    order: int
    position: int


def replay_one(
    policy: Policy,
    params: Any,
    state: Any,
    game: _Game,
    neighbour: Neighbour,
    start: Start,
    by_round: bool,
) -> list[list[Move]] | str:
    """Go on from a changed reward until the state is the recorded one again, or to the end."""
    _, choose, learn, _ = policy.kernels
    prepare = policy.prepare()
    player = Player(game.tape, start.position)
    groups: list[list[Move]] = []
    for t in range(start.round, len(game.decisions) + 1):
        try:
            if t > start.round:
                decision = choose(params, state, t, policy.practice_context, player)
                if (int(decision[0]), int(decision[1])) != game.decisions[t - 1]:
                    return (
                        f"the decision of round {t} differs though every mechanism answered alike"
                    )
            for told in game.tells[t - 1][start.order if t == start.round else 0 :]:
                arm, phase = game.decisions[told - 1]
                changed = told == neighbour.place
                reward = neighbour.reward if changed else float(game.rewards[told - 1, arm])
                learn(params, state, told, arm, prepare(params, reward), phase, player)
        except Divergence as divergence:
            return f"in round {t} {divergence}"
        if player.position != game.marks[t]:
            return f"in round {t} fewer questions were asked of the randomness"
        if by_round:
            groups.append(player.moves)
            player.moves = []
        if t in game.fingerprints and fingerprint(state) == game.fingerprints[t]:
            break
    return groups if by_round else [player.moves]


def fault_of(groups: list[list[Move]], claim: Guarantee) -> str:
    """What is wrong with the moves of a neighbour, or ""."""
    for number, moves in enumerate(groups):
        for move in moves:
            if claim.scope == "report" and (number > 0 or not move.local):
                return f"a reward moved {move.name}, which is not its owner's report of it"
            limit = move.terms.sensitivity * (1 + _ROUNDING)
            if not move.distance <= limit:  # not a number is no distance either
                times = move.distance / move.terms.sensitivity
                return f"the input of {move.name} moved by {times:.4g} times its sensitivity"
        epsilon, delta = loss_of(moves, claim)
        if epsilon > claim.epsilon * (1 + _TOLERANCE) or delta > claim.delta * (1 + _TOLERANCE):
            return (
                f"{len(moves)} mechanisms moved, which costs epsilon {epsilon:.4g} and delta "
                f"{delta:.3g}; claimed are {claim.epsilon:.4g} and {claim.delta:.3g}"
            )
    return ""


def fault_of_reports(policy: Policy, claim: Guarantee, seed: int) -> str:
    """What is wrong with the reports that leave their owners, or "": they are replayed too."""
    params, prepare, report = policy.constants(), policy.prepare(), policy.report_kernel
    assert report is not None  # the caller has looked
    rng = np.random.default_rng([seed, 1])
    low, high = policy.accepts
    bounded = math.isfinite(low) and math.isfinite(high)
    for _ in range(100):
        # A server may send any level: the report must be private at all of them.
        reach = 6 if rng.random() < 0.8 else 180
        level = first_level(policy) * float(10.0 ** rng.integers(-reach, reach + 1))
        level = min(max(level, 1 / _FURTHEST), _FURTHEST)
        if not bounded:
            low, high = -level, level
        rewards = [low, high, *(low + (high - low) * rng.random(4))]
        one, other = rng.choice(rewards if bounded else [*rewards, 2 * high, _HUGE], 2)
        recorder = Recorder(int(rng.integers(2**32)))
        try:
            answer = report(params, prepare(params, float(one)), level, recorder)
            player = Player(recorder.tape, 0)
            again = report(params, prepare(params, float(other)), level, player)
        except (Divergence, PrivacyError) as error:
            return f"a report: {error}"
        if again != answer:
            return "a report depends on the reward though every mechanism answered alike"
        if fault := fault_of([player.moves], claim):
            return f"a report: {fault}"
    return ""


def loss_of(moves: list[Move], claim: Guarantee) -> tuple[float, float]:
    """What the moved mechanisms cost together: the sum, or advanced composition if that is less.

    Advanced composition spends the part of the claimed delta that the mechanisms leave.
    """
    epsilon = sum(move.terms.epsilon for move in moves)
    delta = sum(move.terms.delta for move in moves)
    slack = claim.delta - delta
    if epsilon > claim.epsilon and slack > 0:
        losses = np.array([move.terms.epsilon for move in moves])
        mean = float((losses * np.expm1(losses)).sum())
        advanced = mean + math.sqrt(2 * math.log(1 / slack) * float((losses**2).sum()))
        if advanced < epsilon:
            return advanced, claim.delta
    return epsilon, delta


def copy_state(state: Any) -> Any:
    """A state with arrays of its own."""
    return type(state)(
        *(part.copy() if isinstance(part, np.ndarray) else copy_state(part) for part in state)
    )


def fingerprint(state: Any) -> bytes:
    """The bytes of all arrays of a state or of parameters."""
    if isinstance(state, np.ndarray):
        return state.tobytes()
    return b"".join(map(fingerprint, state)) if isinstance(state, tuple) else b""

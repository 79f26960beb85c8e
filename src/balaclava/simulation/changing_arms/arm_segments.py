"""Play a policy while arms come and leave at given rounds: a compiled loop for each segment.

Between two segments arms are added to the state and taken out of it (`frames.arm_slots`), as an
agent does it. The unfinished batch of an arm that leaves ends, and its slot is dropped. An agent
still learns its late rewards, which change no decision and no regret (but that with memory="detect"
they may show a change); here they are dropped.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import compiled, compiling
from balaclava._core.states import ring_index
from balaclava.agents.roster import ArmRoster
from balaclava.environments.base import Environment
from balaclava.frames import arm_slots
from balaclava.frames.patience import (
    ENDLESS,
    ESTIMATED,
    LONGEST_LATE_WAIT,
    Patience,
    begin_patience,
    longest_wait,
    note_wait,
)
from balaclava.frames.pools import closing_decision
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.feedback import PROMPT, Feedback, FeedbackConstants
from balaclava.simulation.loops import NO_SUCH_ARM, SIGNAL_ROUNDS
from balaclava.simulation.open_decisions import (
    OpenDecisions,
    begin_open_decisions,
    delay_reach,
    draw_ahead,
    never_arrives,
    oldest_open,
    open_decision,
    stored_decision,
    take_due,
)

Record = tuple[np.ndarray, np.ndarray, np.ndarray]
GONE = 2**32 - 1  # in place of the slot of an open decision whose arm left


def make_segment_play(
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    prepare: Callable[..., Any],
    draw: Callable[..., Any],
    renew: Callable[..., Any],
    score: Callable[..., Any],
) -> Callable[..., Any]:
    """Close the loop of a segment over the kernels of a policy and an environment.

    It continues from `last` to round `until`, and returns the total score and the number of
    checkpoints that are recorded.
    """

    def play(
        params: Any,
        state: Any,
        scene: Any,
        arm_in_slot: np.ndarray,
        last: int,
        until: int,
        checkpoints: np.ndarray,
        done: int,
        pulls: np.ndarray,
        history: np.ndarray,
        totals: np.ndarray,
        total: float,
        policy_rng: Any,
        environment_rng: Any,
        context_rng: Any,
        signals: np.ndarray,
    ) -> tuple[float, int]:
        t = last
        while t < until and signals[1] == 0:
            t += 1
            renew(scene, t, context_rng)
            slot, phase = choose(params, state, t, None, policy_rng)
            if slot < 0 or slot >= arm_in_slot.size:
                signals[0], signals[1] = t, NO_SUCH_ARM
                return total, done
            arm = arm_in_slot[slot]
            reward = draw(scene, t, arm, environment_rng)
            total += score(scene, t, arm, reward)
            learn(params, state, t, slot, prepare(params, reward), phase, policy_rng)
            pulls[arm] += 1
            if done < checkpoints.size and t == checkpoints[done]:
                totals[done] = total
                for each in range(pulls.size):
                    history[done, each] = pulls[each]
                done += 1
            if t % SIGNAL_ROUNDS == 0:
                signals[0] = t
        signals[0] = t
        return total, done

    return play


class Progress(NamedTuple):
    """Where a loop for late rewards is, between two segments."""

    ahead: int  # the last decision whose delay is drawn
    oldest: int  # decisions before it are closed
    patience: Patience


def make_late_segment_play(
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    forget: Callable[..., Any],
    prepare: Callable[..., Any],
    draw: Callable[..., Any],
    renew: Callable[..., Any],
    score: Callable[..., Any],
) -> Callable[..., Any]:
    """As `make_segment_play` for delayed or lost rewards, in the order of `make_late_play`."""

    def play(
        params: Any,
        state: Any,
        scene: Any,
        arm_in_slot: np.ndarray,
        feedback: FeedbackConstants,
        pending: OpenDecisions,
        progress: Progress,
        last: int,
        until: int,
        checkpoints: np.ndarray,
        done: int,
        pulls: np.ndarray,
        history: np.ndarray,
        totals: np.ndarray,
        total: float,
        policy_rng: Any,
        environment_rng: Any,
        context_rng: Any,
        delay_rng: Any,
        signals: np.ndarray,
    ) -> tuple[float, int, Progress]:
        law, limit, window = feedback.law, feedback.patience, feedback.window
        longest, constant = delay_reach(law, limit, window)
        ahead, oldest, patience = progress.ahead, progress.oldest, progress.patience
        missing, size, t = prepare(params, feedback.missing), pending.delays.size, last
        while t < until and signals[1] == 0:
            if t == ahead:
                ahead = draw_ahead(pending, t, law, longest, constant, delay_rng)
            before = t + 1 - longest_wait(patience)
            while oldest < before:
                old, oldest = oldest_open(pending, oldest, t + 1, before)
                if old > 0:
                    slot, phase, _ = stored_decision(pending, ring_index(old, size))
                    if slot != GONE:
                        forget(params, state, old, slot, phase, policy_rng)
            t += 1
            renew(scene, t, context_rng)
            slot, phase = choose(params, state, t, None, policy_rng)
            if slot < 0 or slot >= arm_in_slot.size:
                signals[0], signals[1] = t, NO_SUCH_ARM
                break
            arm = arm_in_slot[slot]
            drawn = draw(scene, t, arm, environment_rng)
            total, pulls[arm] = total + score(scene, t, arm, drawn), pulls[arm] + 1
            lost = window and never_arrives(pending, t)
            reward = missing if lost else prepare(params, drawn)
            open_decision(pending, t, slot, phase, reward)
            number, index = take_due(pending, t, constant, window)
            for _ in range(number):
                wait = ring_index(t - index, size)
                is_open = t - wait >= oldest
                if limit == ESTIMATED and (is_open or wait <= LONGEST_LATE_WAIT):
                    patience = note_wait(patience, wait)
                slot, phase, reward = stored_decision(pending, index)
                if is_open and slot != GONE:
                    learn(params, state, t - wait, slot, reward, phase, policy_rng)
                index = pending.following[index]
            if done < checkpoints.size and t == checkpoints[done]:
                totals[done] = total
                for each in range(pulls.size):
                    history[done, each] = pulls[each]
                done += 1
            if t % SIGNAL_ROUNDS == 0:
                signals[0] = t
        signals[0] = t
        return total, done, Progress(ahead, oldest, patience)

    return play


class ArmSegments:
    """A state whose slots are the arms on offer."""

    def __init__(self, policy: Policy, arms: tuple[int, ...]) -> None:
        self.policy = dataclasses.replace(policy, arms=len(arms))
        self.arms = list(arms)  # of the environment, by slot
        self.roster = ArmRoster(self.policy)
        self.params = self.policy.constants()
        self.begin = self.policy.kernels.begin
        self.state = self.begin(self.params)

    @property
    def policy_in_play(self) -> Policy:
        """The policy with as many arms as are on offer."""
        return dataclasses.replace(self.policy, arms=len(self.arms))

    def change(self, arms: tuple[int, ...], t: int, rng: Any) -> list[int]:
        """Retire and add arms, before the round after t; returns the slots that stay."""
        if set(arms) == set(self.arms):
            return list(range(len(arms)))
        stay = [slot for slot, arm in enumerate(self.arms) if arm in arms]
        come = [arm for arm in arms if arm not in self.arms]
        forget = self.policy.kernels.forget
        pools = arm_slots.find_pools(self.state)
        for slot in sorted(set(range(len(self.arms))).difference(stay)):
            phase = None if pools is None else closing_decision(pools, slot)
            if phase is not None:
                forget(self.params, self.state, t, slot, phase, rng)
            self.roster.retire(self.roster.arm_in_slot[slot], 0)
        for _ in come:  # before the others are dropped: an arm must stay
            self.state = arm_slots.with_new_slot(self.begin, self.params, self.state)
            self.params = self.params._replace(arms=self.params.arms + 1)
            self.roster.added_after[len(self.roster.labels)] = t
            self.roster.arm_in_slot.append(len(self.roster.labels))
            self.roster.labels.append(f"arm {len(self.roster.labels)}")
        whole = [*self.arms, *come]
        stay += range(len(self.arms), len(whole))
        if len(stay) < len(whole):
            self.state = arm_slots.kept_slots(self.begin, self.params, self.state, stay)
        self.arms = [whole[slot] for slot in stay]
        self.roster.arm_in_slot = [self.roster.arm_in_slot[slot] for slot in stay]
        self.params = self.roster.constants(self.params)
        self.policy.renew_answer(self.params, self.state)
        return stay


class LateRewards:
    """Open decisions and the timeout, from one segment to the next."""

    def __init__(self, feedback: Feedback, rounds: np.ndarray) -> None:
        self.numbers = feedback.constants(int(rounds[-1]))
        law, limit, window = self.numbers.law, self.numbers.patience, self.numbers.window
        longest, _ = delay_reach(law, limit, window)
        self.pending = begin_open_decisions(self.numbers.most_open, longest)
        self.progress = Progress(0, 1, begin_patience(ENDLESS if window else limit))

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.numbers, self.pending, self.progress

    def move(self, stay: list[int]) -> None:
        """Give open decisions the new slots of their arms; `stay` has the old ones, in order."""
        slots = self.pending.arms
        new = np.full(max(int(slots[slots != GONE].max(initial=0)), *stay) + 1, GONE, np.uint32)
        new[stay] = np.arange(len(stay))
        slots[slots != GONE] = new[slots[slots != GONE]]


def segment_player(
    policy: Policy,
    environment: Environment,
    checkpoints: np.ndarray,
    feedback: Feedback = PROMPT,
    *,
    interpreted: bool,
) -> Callable[..., Record]:
    """The loop over all segments, with all arguments bound but its random streams."""
    offers = environment.arms_on_offer
    assert offers is not None  # checked by the caller
    _, choose, learn, forget = policy.kernels
    scene, world = environment.scene, environment.constants()
    make: Callable[..., Callable[..., Any]] = make_segment_play
    learning: tuple[Callable[..., Any], ...] = choose, learn
    if not feedback.prompt:
        make, learning = make_late_segment_play, (choose, learn, forget)
    kernels = (*learning, policy.prepare(), environment.draw, scene.renew, scene.score)
    segment = make(*kernels) if interpreted else compiled(make, *kernels)
    ends = [start - 1 for start, _ in offers[1:]]

    def play(rounds: np.ndarray, *streams_and_signals: Any) -> Record:
        policy_rng, signals = streams_and_signals[0], streams_and_signals[-1]
        late = None if feedback.prompt else LateRewards(feedback, checkpoints)
        arms, game = environment.arms, ArmSegments(policy, offers[0][1])
        pulls, history = np.zeros(arms, np.int64), np.zeros((rounds.size, arms), np.int64)
        totals, total, done, last = np.zeros(rounds.size), 0.0, 0, 0
        horizon, opened = int(rounds[-1]) if rounds.size else 0, scene.open(world)
        for (_, on_offer), end in zip(offers, [*ends, horizon], strict=True):
            if last > horizon or signals[1]:
                break
            stay = game.change(on_offer, last, policy_rng)
            if late is not None:
                late.move(stay)
            until = min(end, horizon)
            total, done, *more = segment(
                game.params, game.state, opened, np.array(game.arms),
                *(() if late is None else late.arguments), last, until, rounds, done,
                pulls, history, totals, total, *streams_and_signals,
            )  # fmt: skip
            if late is not None:
                late.progress = more[0]
            last = until
            if last == horizon:
                break
        return history, totals, np.zeros((0, arms, 3))

    if not interpreted:
        with compiling(f"{policy.name} on {environment.name}"):
            streams = 3 if feedback.prompt else 4
            play(checkpoints[:0], *map(seeded, range(streams)), np.zeros(2, np.int64))
    return functools.partial(play, checkpoints)

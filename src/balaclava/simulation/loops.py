"""The loops that play a policy in an environment; compiled with their kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava._core.kernels import is_foreign, kernel
from balaclava._core.states import ring_index
from balaclava.environments.base import nothing_new, reward_itself, same_world
from balaclava.frames.patience import (
    ENDLESS,
    ESTIMATED,
    LONGEST_LATE_WAIT,
    begin_patience,
    longest_wait,
    note_wait,
)
from balaclava.privacy.randomness import seeded
from balaclava.simulation.feedback import FeedbackConstants
from balaclava.simulation.open_decisions import (
    begin_open_decisions,
    delay_reach,
    draw_ahead,
    never_arrives,
    oldest_open,
    open_decision,
    stored_decision,
    take_due,
)

STOP, NO_SUCH_ARM = 1, 2  # values of a loop's second signal: why it ends
# Rounds between two looks at the signals: milliseconds, so that Ctrl-C works at once.
SIGNAL_ROUNDS = 1 << 16
REHEARSAL_ROUNDS = 500  # rounds that Python plays of a user's kernels: some milliseconds


@kernel(borrows=True)
def nothing_shown(params: Any, state: Any, arm: int) -> tuple[int, float, float]:
    """Stand-in for a policy's `shown` kernel if nothing is recorded."""
    return 0, 0.0, 0


@kernel
def begin_records(
    arms: int, checkpoints: int, recorded: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Allocate the pulls so far; and by checkpoint the pulls, the total score, the releases."""
    return (
        np.zeros(arms, np.int64),
        np.zeros((checkpoints, arms), np.int64),
        np.zeros(checkpoints),
        np.zeros((checkpoints if recorded else 0, arms, 3)),
    )


@kernel(borrows=True)
def record(row: np.ndarray, values: tuple[int, float, float]) -> None:
    """Write what was released about an arm: rewards, mean, noise."""
    row[0], row[1], row[2] = values


def make_play(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    prepare: Callable[..., Any],
    draw: Callable[..., Any],
    advise: Callable[..., Any],
    open_scene: Callable[..., Any] = same_world,
    renew: Callable[..., Any] = nothing_new,
    score: Callable[..., Any] = reward_itself,
    shown: Callable[..., Any] = nothing_shown,
) -> Callable[..., Any]:
    """Close the loop over the kernels of a policy and an environment.

    The loop returns the pulls of each arm and the total score at each checkpoint. The score is by
    default the reward. With `shown` it also returns the released rewards, mean and noise.
    """
    recorded = shown is not nothing_shown

    def play(
        params: Any,
        world: Any,
        arms: int,
        checkpoints: np.ndarray,
        policy_rng: Any,
        environment_rng: Any,
        context_rng: Any,
        signals: np.ndarray,  # [rounds played, 0 or why it ends]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        state, scene = begin(params), open_scene(world)
        pulls, history, totals, released = begin_records(arms, checkpoints.size, recorded)
        total = 0.0
        t = 0
        for c in range(checkpoints.size):
            while t < checkpoints[c] and signals[1] == 0:
                until = min(checkpoints[c], t + SIGNAL_ROUNDS)
                while t < until:
                    t += 1
                    renew(scene, t, context_rng)
                    arm, phase = choose(params, state, t, advise(scene, t), policy_rng)
                    if arm < 0 or arm >= arms:  # compiled code would write anywhere
                        signals[0], signals[1] = t, NO_SUCH_ARM
                        return history, totals, released
                    drawn = draw(scene, t, arm, environment_rng)
                    total += score(scene, t, arm, drawn)
                    reward = prepare(params, drawn)
                    learn(params, state, t, arm, reward, phase, policy_rng)
                    pulls[arm] += 1
                signals[0] = t
            totals[c] = total
            for arm in range(arms):  # `history[c] = pulls` takes a second longer to compile
                history[c, arm] = pulls[arm]
                if recorded:
                    record(released[c, arm], shown(params, state, arm))
        return history, totals, released

    return play


def make_late_play(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    forget: Callable[..., Any],
    prepare: Callable[..., Any],
    draw: Callable[..., Any],
    advise: Callable[..., Any],
    open_scene: Callable[..., Any] = same_world,
    renew: Callable[..., Any] = nothing_new,
    score: Callable[..., Any] = reward_itself,
    shown: Callable[..., Any] = nothing_shown,
) -> Callable[..., Any]:
    """Close the loop for delayed or lost rewards over its kernels.

    In each round the loop gives up decisions older than the patience and makes one decision. Then
    it learns the due rewards in the order of their decisions. It returns what `make_play`'s does.
    """
    recorded = shown is not nothing_shown

    def play(
        params: Any,
        world: Any,
        arms: int,
        feedback: FeedbackConstants,
        checkpoints: np.ndarray,
        policy_rng: Any,
        environment_rng: Any,
        context_rng: Any,
        delay_rng: Any,
        signals: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        state, scene = begin(params), open_scene(world)
        law, limit, window = feedback.law, feedback.patience, feedback.window
        longest, constant = delay_reach(law, limit, window)
        pending = begin_open_decisions(feedback.most_open, longest)
        patience = begin_patience(ENDLESS if window else limit)  # a window gives nothing up
        missing, size = prepare(params, feedback.missing), pending.delays.size
        pulls, history, totals, released = begin_records(arms, checkpoints.size, recorded)
        t, ahead, oldest, total = 0, 0, 1, 0.0
        for c in range(checkpoints.size):
            while t < checkpoints[c] and signals[1] == 0:
                if t == ahead:
                    ahead = draw_ahead(pending, t, law, longest, constant, delay_rng)
                before = t + 1 - longest_wait(patience)
                while oldest < before:
                    old, oldest = oldest_open(pending, oldest, t + 1, before)
                    if old > 0:
                        arm, phase, _ = stored_decision(pending, ring_index(old, size))
                        forget(params, state, old, arm, phase, policy_rng)
                until = min(checkpoints[c], ahead)
                while t < until and t - oldest < longest_wait(patience):
                    t += 1
                    renew(scene, t, context_rng)
                    arm, phase = choose(params, state, t, advise(scene, t), policy_rng)
                    if arm < 0 or arm >= arms:
                        signals[0], signals[1] = t, NO_SUCH_ARM
                        return history, totals, released
                    drawn = draw(scene, t, arm, environment_rng)
                    total, pulls[arm] = total + score(scene, t, arm, drawn), pulls[arm] + 1
                    lost = window and never_arrives(pending, t)
                    reward = missing if lost else prepare(params, drawn)
                    open_decision(pending, t, arm, phase, reward)
                    number, index = take_due(pending, t, constant, window)
                    for _ in range(number):
                        wait = ring_index(t - index, size)
                        is_open = t - wait >= oldest
                        if limit == ESTIMATED and (is_open or wait <= LONGEST_LATE_WAIT):
                            patience = note_wait(patience, wait)
                        if is_open:
                            arm, phase, reward = stored_decision(pending, index)
                            learn(params, state, t - wait, arm, reward, phase, policy_rng)
                        index = pending.following[index]
                signals[0] = t
            totals[c] = total
            for arm in range(arms):
                history[c, arm] = pulls[arm]
                if recorded:
                    record(released[c, arm], shown(params, state, arm))
        return history, totals, released

    return play


def rehearse(
    make: Callable[..., Callable[..., Any]],
    kernels: tuple[Callable[..., Any], ...],
    fixed: tuple[Any, ...],
    rounds: np.ndarray,
    streams: int,
) -> None:
    """Play a few rounds in Python if one of the kernels is a user's.

    Python checks every index, which compiled code does not, and names the faulty line.
    """
    if any(map(is_foreign, kernels)):
        few = rounds[:1].clip(max=REHEARSAL_ROUNDS)
        make(*kernels)(*fixed, few, *map(seeded, range(streams)), np.zeros(2, np.int64))

"""The compiled loops that play a policy against an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava._core.kernels import is_foreign, kernel
from balaclava._core.states import ring_index
from balaclava.environments.base import nothing_new, reward_itself, same_world
from balaclava.frames.patience import ENDLESS, FOUND, LATE, begin_patience, longest_wait, note_wait
from balaclava.privacy.randomness import seeded
from balaclava.simulation.feedback import FeedbackConstants
from balaclava.simulation.open_decisions import (
    DELAYS_AHEAD,
    begin_open_decisions,
    draw_ahead,
    given_up,
    never_comes,
    open_at,
    reach_of,
    take_due,
    wait_for,
)

STOP, NO_SUCH_ARM = 1, 2  # signals that end a game
SIGNAL_ROUNDS = 1 << 16  # rounds between two looks at the stop flag
REHEARSAL_ROUNDS = 500  # of a user's kernels, interpreted: a few milliseconds


@kernel(borrows=True)
def nothing_shown(params: Any, state: Any, arm: int) -> tuple[int, float, float]:
    """Where nobody asked for what was released."""
    return 0, 0.0, 0


@kernel
def begin_records(
    arms: int, checkpoints: int, recorded: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pulls so far; pulls, total and, where it is recorded, what was released, at checkpoints."""
    return (
        np.zeros(arms, np.int64),
        np.zeros((checkpoints, arms), np.int64),
        np.zeros(checkpoints),
        np.zeros((checkpoints if recorded else 0, arms, 3)),
    )


@kernel(borrows=True)
def record(row: np.ndarray, values: tuple[int, float, float]) -> None:
    """Keep what was released of an arm: rewards, mean, noise."""
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
    """The loop, closed over one policy's and one environment's kernels.

    It returns pulls and the total of scores (by default of rewards) at checkpoints and, where
    `shown` says what was released, that too: rewards, mean and noise of each arm.
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
        signals: np.ndarray,  # [rounds played, 0 or why to stop]
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
    """The loop where rewards come late or never.

    In each round: decisions that have waited long enough are given up, one is made, and the
    rewards that are due now come, in the order of their decisions. What it returns is
    what `make_play` returns.
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
        longest, constant = reach_of(law, limit, window)
        waiting = begin_open_decisions(feedback.most_open, longest)
        patience = begin_patience(ENDLESS if window else limit)  # a window's end gives nobody up
        missing, size = prepare(params, feedback.missing), waiting.delays.size
        pulls, history, totals, released = begin_records(arms, checkpoints.size, recorded)
        t, ahead, oldest, total = 0, 0, 1, 0.0
        for c in range(checkpoints.size):
            while t < checkpoints[c] and signals[1] == 0:
                if t == ahead:
                    draw_ahead(waiting, t, law, longest, constant, delay_rng)
                    ahead += DELAYS_AHEAD
                while t - oldest >= longest_wait(patience):
                    old, oldest = given_up(waiting, oldest, t + 1, t + 1 - longest_wait(patience))
                    if old > 0:
                        arm, phase = open_at(waiting, ring_index(old, size))
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
                    lost = window and never_comes(waiting, t)
                    wait_for(waiting, t, arm, phase, missing if lost else prepare(params, drawn))
                    number, place = take_due(waiting, t, constant, window)
                    for _ in range(number):
                        wait = ring_index(t - place, size)
                        is_open = t - wait >= oldest
                        if limit == FOUND and (is_open or wait <= LATE):
                            patience = note_wait(patience, wait)
                        if is_open:
                            (arm, phase), reward = open_at(waiting, place), waiting.rewards[place]
                            learn(params, state, t - wait, arm, reward, phase, policy_rng)
                        place = waiting.following[place]
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

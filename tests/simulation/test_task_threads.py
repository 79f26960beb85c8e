"""Tasks on threads: answers as they come, and one error stops all."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import balaclava as bl
from balaclava.simulation.simulation_batches import Simulation, simulate_all
from balaclava.simulation.task_threads import StoppedError, run_tasks


def test_all_tasks_run_at_the_same_time():
    meeting = threading.Barrier(3, timeout=30)  # passed only if all are there
    assert sorted(run_tasks(3 * [lambda raise_if_stopped: meeting.wait() >= 0], 3)) == [
        (0, True),
        (1, True),
        (2, True),
    ]


def test_one_at_a_time_stays_in_this_thread():
    here = threading.get_ident()
    for tasks in (
        [lambda raise_if_stopped: threading.get_ident()],
        2 * [lambda raise_if_stopped: threading.get_ident()],
    ):
        assert [thread for _, thread in run_tasks(tasks, 1)] == len(tasks) * [here]


@pytest.mark.parametrize("end", ["an error", "the loop is left"])
def test_the_others_are_stopped(end):
    stopped, meeting = [], threading.Barrier(3, timeout=30)

    def endless(raise_if_stopped):
        meeting.wait()
        try:
            while True:
                raise_if_stopped()
                time.sleep(0.001)
        except StoppedError:
            stopped.append(True)
            raise

    def short(raise_if_stopped):
        meeting.wait()
        if end == "an error":
            raise ValueError("of one task")
        return 1

    answers = run_tasks([endless, short, endless], 3)
    if end == "an error":
        with pytest.raises(ValueError, match="of one task"):
            next(answers)
    else:
        assert next(answers) == (1, 1)
        answers.close()
    assert stopped == [True, True]


def test_several_simulations_are_as_each_alone():
    policies = {"a": bl.policy("ucb1", arms=2), "b": bl.policy("ucb1", arms=2, radius_scale=0.1)}
    worlds = [bl.environment("bernoulli", means=[0.5, high]) for high in (0.6, 0.9)]
    told = []
    together = simulate_all(
        [Simulation(policies, world, 50, 3) for world in worlds],
        seed=4,
        checkpoints=5,
        workers=1,
        progress=lambda rounds, whole: told.append((rounds, whole)),
    )
    for world, results in zip(worlds, together, strict=True):
        alone = bl.simulate(policies, world, horizon=50, repetitions=3, seed=4, checkpoints=5)
        for label in policies:
            assert np.array_equal(results.regret(label), alone.regret(label))
            assert np.array_equal(results.pulls(label), alone.pulls(label))
    assert told[-1] == (600, 600)
    assert [rounds for rounds, _ in told] == sorted(rounds for rounds, _ in told)

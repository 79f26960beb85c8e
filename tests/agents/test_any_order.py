"""An agent in any order of ask, tell, cancel, give up, save and restore.

Rewards are on the grid of releases and sums of them are exact, so that a released sum tells which
rewards are in it: all rewards of one arm in one phase, and each in one release.
"""

import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import balaclava as bl
from balaclava.agents.saving import require_invariants
from balaclava.policies.bounded import batched, dp_se

STEP = 2.0**-20
POLICIES = {
    "dp-imed": (batched, {"first_batch": 2.0}),
    "dp-klucb": (batched, {"explore": 0.3, "holdout": 0.1}),
    "lazy-dp-ucb": (batched, {}),
    "dp-se": (dp_se, {"radius_scale": 0.03, "failure_probability": 0.1, "explore": 0.2}),
}


class AgentMachine(RuleBasedStateMachine):
    """Plays an agent, and keeps each reward beside its arm and phase until it is released."""

    name = "dp-imed"

    @initialize(
        arms=st.integers(1, 4),
        window=st.booleans(),
        patience=st.sampled_from((5, 20, None)),
        seed=st.integers(0, 2**32),
    )
    def start(self, arms, window, patience, seed):
        module, parameters = POLICIES[self.name]
        self.release = module.laplace_release
        module.laplace_release = self.note_release
        policy = bl.policy(self.name, arms=arms, epsilon=20.0, **parameters)
        wait = {"patience": patience or 20, "settle": "window", "missing": 0.0}
        self.agent = policy.agent(seed=seed, **(wait if window else {"patience": patience}))
        self.luck = np.random.default_rng(seed)
        self.open: list[bl.Decision] = []
        self.waiting: dict[Any, float] = defaultdict(float)  # what the policy was told, unreleased
        self.watch_learning()

    def watch_learning(self):
        learn = self.agent._delivery._learn

        def noted(entry, observation):
            if entry.phase > 0:
                self.waiting[entry.arm, entry.phase] += observation.value
            learn(entry, observation)

        self.agent._delivery._learn = noted

    def note_release(self, rng, value, sensitivity, epsilon):
        """The sum of one group of rewards, which is not released again."""
        groups = [group for group, total in self.waiting.items() if total == value]
        assert groups, "a sum of other rewards than those of one arm and phase"
        del self.waiting[groups[0]]
        return self.release(rng, value, sensitivity, epsilon)

    @rule(times=st.integers(1, 40))
    def ask(self, times):
        for _ in range(times):
            self.open.append(self.agent.ask())

    @precondition(lambda self: self.open)
    @rule(times=st.integers(1, 40), cancelled=st.sampled_from((0.0, 0.0, 0.2, 1.0)))
    def tell(self, times, cancelled):
        for _ in range(min(times, len(self.open))):
            decision = self.open.pop(self.luck.integers(len(self.open)))
            try:
                if self.luck.random() < cancelled:
                    self.agent.cancel(decision)
                else:
                    self.agent.tell(decision, STEP * float(self.luck.integers(1, 2**20)))
            except bl.errors.DecisionError:  # it was given up, or its window has ended
                continue

    @rule()
    def save_and_restore(self):
        self.agent = bl.restore(json.loads(json.dumps(self.agent.save())))
        self.watch_learning()

    @invariant()
    def has_no_fault(self):
        runner, decisions = self.agent._runner, self.agent.status().decisions
        require_invariants(self.agent.policy, runner.state, decisions)

    @invariant()
    def sums_hold_the_rest(self):
        """In a policy on pools, which drops no reward: the unreleased sums, to the last bit."""
        if self.name != "dp-se":
            assert self.agent._runner.state.sums.sum() == sum(self.waiting.values())

    def teardown(self):
        if not hasattr(self, "agent"):
            return
        for _ in range(12):
            self.ask(self.luck.integers(1, 30))
            self.tell(self.luck.integers(1, 30), 0.1)
        self.save_and_restore()
        self.has_no_fault()
        self.sums_hold_the_rest()
        POLICIES[self.name][0].laplace_release = self.release


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.filterwarnings("ignore::balaclava.errors.SilenceWarning")
def test_each_reward_is_in_one_release_and_no_invariant_breaks(name, monkeypatch):
    module = POLICIES[name][0]
    monkeypatch.setattr(module, "laplace_release", module.laplace_release)
    machine = type("Machine", (AgentMachine,), {"name": name})
    check = run_state_machine_as_test  # its rules and invariants assert
    check(machine, settings=settings(max_examples=12, stateful_step_count=15))

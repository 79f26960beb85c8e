"""An agent in any order of ask, tell, cancel, give up, save, restore, and arms that come and go.

Rewards are on the grid of releases and their sums are exact. So a released sum identifies its
rewards: all those of one arm in one phase, and each in one release.
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

STEP = 2.0**-20  # the grid: so fine that two sums are seldom equal by chance
POLICIES = {
    "dp-imed": (batched, {"first_batch": 2.0}),
    "dp-klucb": (batched, {"explore": 0.3, "holdout": 0.1}),
    "lazy-dp-ucb": (batched, {}),
    "dp-imed, memory 40": (batched, {"first_batch": 2.0, "memory": 40}),
    "dp-klucb, detect": (batched, {"first_batch": 2.0, "memory": "detect", "explore": 0.2}),
    # With little noise and small rewards no arm is eliminated for many short epochs, so each row
    # is used several times.
    "dp-se": (
        dp_se,
        {"epsilon": 1e4, "radius_scale": 0.02, "failure_probability": 0.1, "explore": 0.2},
    ),
}


class AgentMachine(RuleBasedStateMachine):
    """Plays an agent, and keeps each reward beside its arm and phase until it is released."""

    name = "dp-imed"  # and a memory, after a comma

    @initialize(
        arms=st.integers(1, 4),
        window=st.booleans(),
        patience=st.sampled_from((5, 20, None)),
        most=st.sampled_from((2**14, 2**17, 2**20)),
        seed=st.integers(0, 2**32),
        has_prior=st.booleans(),
    )
    def start(self, arms, window, patience, most, seed, has_prior):
        module, parameters = POLICIES[self.name]
        module.laplace_release = self.note_release
        name = self.name.partition(",")[0]
        policy = bl.policy(name, arms=arms, **{"epsilon": 20.0, **parameters})
        wait = {"patience": patience or 20, "settle": "window", "missing": 0.0}
        how = wait if window else {"patience": patience}
        if has_prior and arms > 1 and not policy.fixed_arms:
            how["prior"] = {str(arm): (0.1 * arm, 40) for arm in range(arms)}
        self.agent = policy.agent(seed=seed, **how)
        self.luck = np.random.default_rng(seed)
        self.most = most  # steps in a reward
        self.open: list[bl.Decision] = []
        self.waiting: dict[Any, list[float]] = defaultdict(list)  # unreleased rewards of a phase
        self.released = 0  # rewards
        self.watch_learning()

    def watch_learning(self):
        learn = self.agent._delivery._learn

        def noted(entry, observation):
            if entry.phase > 0:
                self.waiting[entry.arm, entry.phase].append(observation.value)
            learn(entry, observation)

        self.agent._delivery._learn = noted

    def note_release(self, rng, value, sensitivity, epsilon):
        """Require the sum of the rewards of one arm and phase, each time another."""
        groups = [group for group, rewards in self.waiting.items() if sum(rewards) == value]
        assert groups, "a sum of other rewards than those of one arm and phase"
        self.released += len(self.waiting.pop(groups[0]))
        return self.release(rng, value, sensitivity, epsilon)

    @rule(times=st.integers(1, 40))
    def ask(self, times):
        for _ in range(times):
            self.open.append(self.agent.ask())
            if self.arms_change:
                assert self.open[-1].arm in self.agent._runner.open_roster().live

    @precondition(lambda self: self.open)
    @rule(times=st.integers(1, 40), cancelled=st.sampled_from((0.0, 0.0, 0.2, 1.0)))
    def tell(self, times, cancelled):
        for _ in range(min(times, len(self.open))):
            decision = self.open.pop(self.luck.integers(len(self.open)))
            try:
                if self.luck.random() < cancelled:
                    self.agent.cancel(decision)
                else:
                    self.agent.tell(decision, STEP * float(self.luck.integers(1, self.most)))
            except bl.errors.DecisionError:  # it was given up, or its window has ended
                continue

    @property
    def arms_change(self):
        return hasattr(self, "agent") and not self.agent.policy.fixed_arms

    @precondition(lambda self: self.arms_change)
    @rule()
    def add_arm(self):
        number = len(self.agent._decisions)
        assert self.agent.add_arm(f"arm {number}") == number

    @precondition(lambda self: self.arms_change)
    @rule()
    def retire_arm(self):
        live = self.agent._runner.open_roster().live
        arm = int(self.luck.choice(live))
        if len(live) > 1:
            self.agent.retire_arm(arm)
        else:
            with pytest.raises(bl.errors.ParameterError, match="is the last one"):
                self.agent.retire_arm(arm)

    @precondition(lambda self: self.arms_change)
    @rule(times=st.integers(1, 20))
    def ask_some(self, times):
        live = self.agent._runner.open_roster().live
        for _ in range(times):
            available = self.luck.choice(live, self.luck.integers(1, len(live) + 1), replace=False)
            self.open.append(self.agent.ask(available=available.tolist()))
            assert self.open[-1].arm in available
            assert 0.0 < self.open[-1].propensity <= 1.0

    @precondition(lambda self: self.arms_change)
    @rule(most=st.sampled_from((0.0, 0.5, 1.0)))
    def set_shares(self, most):
        live = self.agent._runner.open_roster().live
        arms = self.luck.choice(live, self.luck.integers(1, len(live) + 1), replace=False)
        self.agent.set_shares({int(arm): most / len(arms) for arm in arms})

    @rule()
    def save_and_restore(self):
        self.agent = bl.restore(json.loads(json.dumps(self.agent.save())))
        self.watch_learning()

    @invariant()
    def has_no_fault(self):
        runner, decisions = self.agent._runner, self.agent.status().decisions
        require_invariants(self.agent.policy, runner.state, decisions)

    @invariant()
    def counts_released_rewards(self):
        """Unless `missing` counts: several sums of it are equal. A memory forgets rewards."""
        if not self.agent._delivery.window and "," not in self.name:
            roster = self.agent._runner.roster
            archived = sum(rewards for rewards, _, _ in roster.archived.values()) if roster else 0
            assert self.agent._runner.state.rewards.sum() + archived == self.released

    @invariant()
    def sums_hold_the_rest(self):
        """A policy on pools drops no reward: its sums are those of the unreleased rewards."""
        if self.name != "dp-se" and "," not in self.name:
            assert self.agent._runner.state.sums.sum() == sum(map(sum, self.waiting.values()))

    def teardown(self):
        if not hasattr(self, "agent"):
            return
        for _ in range(12):
            self.ask(self.luck.integers(1, 30))
            self.tell(self.luck.integers(1, 30), 0.1)
        self.save_and_restore()
        self.has_no_fault()
        self.counts_released_rewards()
        self.sums_hold_the_rest()


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.filterwarnings("ignore::balaclava.errors.SilenceWarning")
def test_each_reward_is_in_one_release_and_no_invariant_breaks(name, monkeypatch):
    module = POLICIES[name][0]
    monkeypatch.setattr(module, "laplace_release", module.laplace_release)
    noise = staticmethod(module.laplace_release)
    machine = type("Machine", (AgentMachine,), {"name": name, "release": noise})
    few = settings(max_examples=12, stateful_step_count=15)
    run_state_machine_as_test(machine, settings=few)

"""The online side, beyond what the conformance suite checks for every policy."""

from __future__ import annotations

import copy
import json
import threading

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import (
    DecisionError,
    ParameterError,
    RewardError,
    SavedStateError,
    UnknownNameError,
)


def agent_with_history(seed=3, rounds=25):
    agent = bl.policy("ucb1", arms=3).agent(seed=seed)
    for _ in range(rounds):
        decision = agent.ask()
        agent.tell(decision, decision.arm / 3)
    return agent


def test_unknown_policy_is_named_with_a_hint():
    with pytest.raises(UnknownNameError, match="did you mean 'ucb1'"):
        bl.policy("ucb")


def test_seeded_agents_are_not_private_and_say_why():
    assert "seed" in bl.policy("ucb1", arms=2).agent(seed=1).guarantee.assumptions[0]


@pytest.mark.parametrize("seed", [-1, 1.5, "x", True])
def test_bad_seed(seed):
    with pytest.raises(ParameterError, match="seed"):
        bl.policy("ucb1", arms=2).agent(seed=seed)


def test_numbers_of_every_kind_are_rewards():
    agent = bl.policy("ucb1", arms=2).agent()
    for reward in (1, 0.5, np.float32(0.25), np.int64(1), True, np.bool_(False)):
        agent.tell(agent.ask(), reward)
    again = bl.policy("ucb1", arms=2).agent()
    for reward in (1.0, 0.5, 0.25, 1.0, 1.0, 0.0):
        again.tell(again.ask(), reward)
    kept, plain = agent.save()["state"], again.save()["state"]
    assert kept == plain


def test_a_decision_may_be_given_by_its_id():
    agent = bl.policy("ucb1", arms=2).agent()
    decision = agent.ask()
    agent.tell(decision.id, 1.0)
    with pytest.raises(DecisionError, match="decision 1 has its reward already"):
        agent.tell(decision, 1.0)


def test_cancelled_decisions_cannot_be_told():
    agent = bl.policy("ucb1", arms=2).agent()
    decision = agent.ask()
    agent.cancel(decision)
    with pytest.raises(DecisionError):
        agent.tell(decision, 1.0)


def test_a_lost_first_reward_is_asked_again():
    agent = bl.policy("ucb1", arms=2).agent()
    first = agent.ask()
    agent.cancel(first)
    seen = set()
    for _ in range(10):
        decision = agent.ask()
        seen.add(decision.arm)
        agent.tell(decision, 0.5)
    assert first.arm in seen


def test_many_threads_share_an_agent():
    agent = bl.policy("ucb1", arms=4).agent()
    errors = []

    def work():
        try:
            for _ in range(200):
                agent.tell(agent.ask(), 0.5)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert agent.ask().id == 8 * 200 + 1


def damaged(change):
    saved = json.loads(json.dumps(agent_with_history().save()))
    change(saved)
    return saved


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(schema=99),
        lambda s: s.pop("schema"),
        lambda s: s.pop("state"),
        lambda s: s.pop("clock"),
        lambda s: s.update(clock="x"),
        lambda s: s["state"].pop("tally.sums"),
        lambda s: s["state"]["tally.sums"].update(shape=[4]),
        lambda s: s["state"]["tally.sums"].update(dtype="<f4"),
        lambda s: s["state"]["tally.sums"].update(data="%%%"),
        lambda s: s["state"]["tally.sums"].update(data="AAAA"),
        lambda s: s["generator"].update(bit_generator="MT19937"),
        lambda s: s.update(open=[[1]]),
        lambda s: s.update(policy=None),
    ],
)
def test_damaged_states_are_refused(change):
    with pytest.raises(SavedStateError):
        bl.restore(damaged(change))


@pytest.mark.parametrize("wrong", [None, [], "{}", 3])
def test_restoring_something_else(wrong):
    with pytest.raises(SavedStateError, match="dict"):
        bl.restore(wrong)


def test_restoring_an_unknown_policy():
    with pytest.raises(UnknownNameError):
        bl.restore(damaged(lambda s: s["policy"].update(name="nobody")))


def test_unregistered_policies_cannot_be_saved():
    class Private(bl.Policy):
        """Nobody knows it."""

        name = "nobody"
        kernels = bl.policy("ucb1", arms=2).kernels

    with pytest.raises(SavedStateError, match=r"bl\.register"):
        Private(arms=2).agent().save()


def test_an_unregistered_base_cannot_be_saved_either():
    class Mine(type(bl.policy("exp3", arms=2))):
        name = "mine-as-a-base"

    agent = bl.privatise(Mine(arms=2), epsilon=1.0).agent(seed=1)
    with pytest.raises(SavedStateError, match=r"Mine is not registered.*bl\.register"):
        agent.save()


def test_names_cannot_be_taken_twice():
    with pytest.raises(ParameterError, match="taken"):

        @bl.register
        class Thief(bl.Policy):
            """Takes a name."""

            name = "ucb1"


def test_errors_never_show_the_reward():
    agent = bl.policy("kl-ucb", arms=2).agent()
    with pytest.raises(RewardError) as caught:
        agent.tell(agent.ask(), 1234.5678)
    assert "1234" not in str(caught.value)
    assert "0 to 1" in str(caught.value)


def test_saving_does_not_disturb():
    agent = agent_with_history()
    before = copy.deepcopy(agent.save())
    assert agent.save() == before
    assert "confidential" in before


@pytest.mark.parametrize("name", ["dp-imed", "dp-se", "ldp-ucb-bernoulli", "imed", "dp-htinf"])
def test_rewards_outside_the_range_are_refused_or_clipped(name: str) -> None:
    known = {"arms": 2, "epsilon": 1.0, "horizon": 100}
    cls = next(entry.policy for entry in bl.list_policies() if entry.name == name)
    known = {key: value for key, value in known.items() if key in cls.annotations}
    strict, lenient = bl.policy(name, **known), bl.policy(name, **known, outside="clip")
    messages = set()
    for reward in (-7.25, 1.0000001, 3e300):
        agent = strict.agent(seed=1)
        with pytest.raises(RewardError) as caught:
            agent.tell(agent.ask(), reward)
        messages.add(str(caught.value))
    assert len(messages) == 1  # nothing of the value, not even on which side it lies
    assert not {"above", "below", "7.25", "larger", "smaller"} & set(messages.pop().split())
    prepare, params = lenient.prepare(), lenient.constants()
    assert prepare(params, -7.25) == prepare(params, 0.0)
    assert prepare(params, 3e300) == prepare(params, 1.0)
    agent = lenient.agent(seed=1)
    agent.tell(agent.ask(), -7.25)
    with pytest.raises(RewardError, match="not finite"):
        agent.tell(agent.ask(), float("inf"))
    if strict.guarantee.private:
        assert "outside is refused, and that it was refused is not" in strict.guarantee.explain()
        assert "outside [0, 1] are clipped to it" in lenient.guarantee.explain()
        assert "refused" not in lenient.guarantee.explain()
    assert bl.restore(lenient.agent(seed=1).save()).policy == lenient
    with pytest.raises(ParameterError, match="one of 'refuse', 'clip'"):
        bl.policy(name, **known, outside="ignore")

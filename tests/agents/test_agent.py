"""The online side, beyond what the conformance suite checks for every policy."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest

import balaclava as bl
from balaclava.agents.decisions import REMEMBERED_DECISIONS
from balaclava.agents.saving import content_digest
from balaclava.errors import (
    DecisionError,
    ParameterError,
    PrivacyError,
    RewardError,
    SavedStateError,
    SilenceWarning,
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
    with pytest.raises(DecisionError, match=f"decision {decision.id} has its reward already"):
        agent.tell(decision, 1.0)


def test_cancelled_decisions_cannot_be_told():
    agent = bl.policy("ucb1", arms=2).agent()
    decision = agent.ask()
    agent.cancel(decision)
    with pytest.raises(DecisionError, match="was cancelled"):
        agent.tell(decision, 1.0)


def test_an_arm_whose_first_reward_was_lost_is_pulled_again():
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
    agent = bl.policy("ucb1", arms=4).agent(patience=10_000)
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
    assert agent.ask().id.endswith(f"-{8 * 200 + 1}")
    assert agent.status().rewards == 8 * 200


@pytest.mark.parametrize("wrong", [None, [], "{}", 3])
def test_restoring_something_else(wrong):
    with pytest.raises(SavedStateError, match="dict"):
        bl.restore(wrong)


def test_restoring_an_unknown_policy():
    saved = agent_with_history().save()
    saved["policy"]["name"] = "nobody"
    with pytest.raises(UnknownNameError):
        bl.restore({**saved, "digest": content_digest(saved)})


def test_unregistered_policies_cannot_be_saved():
    class Private(bl.Policy):
        """A policy that is not registered."""

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
            """Registers under a name that is taken."""

            name = "ucb1"


def test_a_policy_without_kernels_is_refused_at_once():
    with pytest.raises(bl.errors.ParameterError, match=r"has no kernels; set `kernels = Kernels\("):

        @bl.register
        class Unfinished(bl.Policy):
            """Its three functions are not named as its kernels."""

            name = "unfinished"


def test_errors_never_contain_the_reward():
    agent = bl.policy("kl-ucb", arms=2).agent()
    with pytest.raises(RewardError) as caught:
        agent.tell(agent.ask(), 1234.5678)
    assert "1234" not in str(caught.value)
    assert "0 to 1" in str(caught.value)


def test_errors_name_how_a_decision_was_closed():
    agent = bl.policy("ucb1", arms=2).agent(patience=10)
    first, second, third = (agent.ask() for _ in range(3))
    agent.tell(first, 1.0)
    agent.cancel(second)
    for _ in range(11):
        agent.ask()
    stranger = bl.policy("ucb1", arms=2).agent().ask()
    sentences = {}
    for decision in (first, second, third, stranger):
        with pytest.raises(DecisionError) as caught:
            agent.tell(decision, 1.0)
        sentences[decision.id] = str(caught.value)
    words = ("has its reward already", "was cancelled", "was given up", "another agent")
    assert all(word in text for word, text in zip(words, sentences.values(), strict=True))
    for _ in range(REMEMBERED_DECISIONS):
        agent.tell(agent.ask(), 1.0)
    with pytest.raises(DecisionError, match="too long ago"):
        agent.tell(first, 1.0)


@pytest.mark.parametrize("wrong", [1, 1.0, True, None, "0.75", b"x", "7-1", "a" * 32 + "-0"])
def test_a_value_that_is_not_a_decision_is_refused_and_not_repeated(wrong):
    agent = bl.policy("ucb1", arms=2).agent()
    agent.ask()
    with pytest.raises(DecisionError, match="its id") as caught:
        agent.tell(wrong, 1.0)
    assert "0.75" not in str(caught.value)


def test_ids_are_unique_among_agents_and_after_a_restore():
    agent = bl.policy("ucb1", arms=2).agent(seed=1)
    before = [agent.ask() for _ in range(3)]
    saved = agent.save()
    lost = agent.ask()  # after the save: a crash would lose it
    twins = [bl.restore(saved) for _ in range(2)]
    following = [twin.ask() for twin in twins]
    assert len({d.id for d in (*before, lost, *following)}) == 6
    with pytest.raises(DecisionError, match="after the save"):
        twins[0].tell(lost, 1.0)
    with pytest.raises(DecisionError, match="another agent"):
        twins[0].tell(following[1], 1.0)
    twins[0].tell(before[0].id, 1.0)
    again = bl.restore(twins[0].save())  # two names before its own
    again.tell(before[1], 1.0)
    again.tell(following[0], 1.0)
    with pytest.raises(DecisionError, match="has its reward already"):
        again.tell(before[0], 1.0)


@pytest.mark.parametrize("field", ["id", "arm", "phase"])
def test_an_error_does_not_repeat_what_may_be_a_reward(field):
    agent = bl.policy("dp-imed", arms=2, epsilon=1.0).agent(seed=1)
    forged = agent.ask()._replace(**{field: 0.73105})
    for call in (lambda: agent.tell(forged, 1.0), lambda: agent.cancel(forged)):
        with pytest.raises(DecisionError) as error:
            call()
        assert "73105" not in str(error.value)


def test_patience_bounds_open_decisions():
    agent = bl.policy("ucb1", arms=2).agent(patience=20)
    first = agent.ask()
    for _ in range(20):
        agent.ask()
    agent.tell(first, 1.0)  # 20 further decisions: just in time
    for _ in range(100):
        agent.ask()
    status = agent.status()
    assert (status.open, status.given_up, status.rewards) == (21, 99, 1)
    assert status.oldest_wait == 20
    assert str(status).endswith("given up with decision 1 from now.")


def test_patience_is_estimated():
    agent = bl.policy("ucb1", arms=2).agent()
    silent = agent.ask()
    for _ in range(400):
        agent.ask()
    assert agent.status().given_up == 0  # nobody before 30 rewards have come
    for _ in range(30):
        agent.tell(agent.ask(), 1.0)
    agent.ask()
    assert agent.status().given_up > 100
    with pytest.raises(DecisionError, match="was given up"):
        agent.tell(silent, 1.0)


def test_patience_follows_delays_that_grow():
    """All rewards are 100 decisions late, then 600: the first of these are given up."""
    agent = bl.policy("ucb1", arms=2).agent()
    decisions = [agent.ask() for _ in range(100)]
    while len(decisions) < 400:
        decisions.append(agent.ask())
        agent.tell(decisions[-101], 0.5)
    while len(decisions) < 3_000:
        decisions.append(agent.ask())
        if len(decisions) > 1_000:
            with contextlib.suppress(DecisionError):
                agent.tell(decisions[-601], 0.5)
        if len(decisions) == 2_000:
            agent = bl.restore(agent.save())
    status = agent.status()
    assert 300 < status.given_up < 900
    given_up = status.given_up
    for _ in range(100):
        decisions.append(agent.ask())
        agent.tell(decisions[-601], 0.5)
    assert agent.status().given_up == given_up


def test_a_late_reward_is_noted_once():
    agent = bl.policy("ucb1", arms=2).agent()
    late = [agent.ask() for _ in range(300)]
    for _ in range(40):
        agent.tell(agent.ask(), 0.5)
    before = agent.save()["reception"]
    for _ in range(3):
        with pytest.raises(DecisionError, match="was given up"):
            agent.tell(late[0], 0.5)
    after = agent.save()["reception"]
    assert after["came"] == before["came"] + 1 == 41
    assert after["rewards"] == 40
    assert after["reach"] > before["reach"]


def test_a_lack_of_rewards_causes_one_warning():
    agent = bl.policy("ucb1", arms=2).agent()
    for _ in range(1_000):
        agent.ask()
    with pytest.warns(SilenceWarning, match=r"cancel.*patience"):
        agent.ask()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(1_500):
            agent.ask()
        heard = bl.policy("ucb1", arms=2).agent()
        for t in range(2_500):
            decision = heard.ask()
            if t % 900 == 0:
                heard.tell(decision, 1.0)
        window = bl.policy("ucb1", arms=2).agent(patience=5, settle="window", missing=0.0)
        for _ in range(1_500):
            window.ask()  # to say that nothing came would tell whether rewards came


def test_status_is_a_sentence():
    agent = bl.policy("dp-imed", arms=2, epsilon=1.0).agent(seed=1)
    assert "nothing is awaited" in str(agent.status())
    decisions = [agent.ask() for _ in range(3)]
    agent.cancel(decisions[1])
    agent.tell(decisions[2], 1.0)
    status = agent.status()
    assert (status.decisions, status.rewards, status.open, status.cancelled) == (3, 1, 1, 1)
    assert status.oldest_open == decisions[0].id
    assert "3 decisions, 1 reward, 0 given up, 1 cancelled, 1 open" in str(status)


def test_named_arms():
    names = ["plain", "friendly", "map"]
    policy = bl.policy("ucb1", arms=names)
    assert (policy.arms, policy.arm_labels) == (3, tuple(names))
    agent = policy.agent(seed=1)
    assert {agent.ask().label for _ in range(3)} == set(names)
    again = bl.restore(agent.save())
    assert again.policy == policy
    assert again.ask().label in names
    assert bl.policy("ucb1", arms=2).agent().ask().label in ("0", "1")
    for copied in (
        dataclasses.replace(policy, radius_scale=2.0),
        copy.deepcopy(policy),
        pickle.loads(pickle.dumps(policy)),
    ):
        assert (copied.arms, copied.arm_labels) == (3, tuple(names))
        assert copied.parameters["arms"] == names
    assert dataclasses.replace(policy, arms=2).arm_labels is None
    for wrong in (["a", "a"], ["a", 3], [], ["a", " "], {"a": 1}, "ab"):
        with pytest.raises(ParameterError, match="arms"):
            bl.policy("ucb1", arms=wrong)


def test_results_display_the_names_of_arms():
    world = bl.environment("bernoulli", means=[0.2, 0.8])
    named = bl.policy("ucb1", arms=["plain", "map"])
    play = {"horizon": 20, "repetitions": 1, "seed": 1}
    assert bl.simulate(named, world, **play).arm_labels == ("plain", "map")
    assert bl.simulate(bl.policy("ucb1", arms=2), world, **play).arm_labels == ("0", "1")


def test_copies_are_refused():
    agent = bl.policy("ucb1", arms=2).agent()
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError, match=r"agent\.save\("):
            copying(agent)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_is_detected(tmp_path):
    """Runs in a subprocess, so that pytest's threads are not forked."""
    script = """
        import os, balaclava as bl
        from balaclava.errors import ProcessError
        agent = bl.policy("ucb1", arms=2).agent()
        first = agent.ask()
        child = os.fork()
        if child == 0:
            for call in (agent.ask, agent.save, lambda: agent.tell(first, 1.0)):
                try:
                    call()
                except ProcessError as error:
                    assert "agent.adopt()" in str(error)
                else:
                    os._exit(1)
            agent.adopt()
            agent.tell(first, 1.0)
            second = agent.ask()
            own = second.id.endswith("-2") and second.id[:32] != first.id[:32]
            os._exit(0 if own else 2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        agent.tell(first, 1.0)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_the_guarantee_of_a_copy_names_its_assumption():
    agent = bl.policy("dp-imed", arms=2, epsilon=1.0).agent()
    agent.ask()
    assert not any(
        "only one of an agent and its copies" in text for text in agent.guarantee.assumptions
    )
    assert (
        "only one of an agent and its copies" in bl.restore(agent.save()).guarantee.assumptions[-1]
    )


def test_too_many_arms_for_memory():
    with pytest.raises(ParameterError, match="memory"):
        bl.policy("ucb1", arms=10**13).agent()


def test_saving_changes_no_decision():
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


def status_after_a_change(name, means, **more):
    agent = bl.policy(name, arms=["a", "b"], epsilon=2.0, **more).agent(seed=1)
    luck = np.random.default_rng(2)
    for now in means:
        for _ in range(1_500):
            decision = agent.ask()
            agent.tell(decision, float(luck.random() < now[decision.arm]))
    return agent


def test_status_names_a_played_arm_whose_mean_changed():
    steady, fallen = (0.3, 0.8), (0.3, 0.55)
    assert status_after_a_change("dp-imed", [steady, steady]).status().changed == ()
    agent = status_after_a_change("dp-imed", [steady, fallen])
    assert agent.status().changed == ("b",)
    assert "the mean of b changed;" in str(agent.status())
    assert bl.restore(agent.save()).status().changed == ("b",)
    agent.retire_arm("b")
    assert agent.status().changed == ()


def test_status_counts_restarts():
    agent = status_after_a_change("dp-imed", [(0.3, 0.8), (0.3, 0.1)], memory="detect")
    assert agent.status().restarts == 1
    assert "1 restart" in str(agent.status())
    epochs = bl.policy("dp-se", arms=2, epsilon=1.0, horizon=100).agent(seed=1)
    assert epochs.status().changed is None

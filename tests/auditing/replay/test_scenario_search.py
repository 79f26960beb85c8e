"""What a replay tries, and how it judges what it finds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.answer_dependence import depends_on_chance
from balaclava.auditing.replay.recorded_run import ReplayOutcome, record
from balaclava.auditing.replay.replay_audit import (
    PairAuditor,
    ReplayAudit,
    ScenarioSearch,
    UnprovedPair,
    audit_by_replay,
    clips_rewards,
)
from balaclava.auditing.replay.scenario_kinds import START_KINDS, ScenarioKind
from balaclava.auditing.scenario import Neighbour, plain_scenario
from balaclava.auditing.tape import MovedInput
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.base import Loss, Terms
from tests.oracles.violators import PROVED_CONTROLS, UNUSUAL_CONTROLS, VIOLATORS

HONEST = PROVED_CONTROLS["honest"].policy


class Traced(PairAuditor):
    """Notes each scenario that it is given."""

    def examine(self, run, neighbours, streams, deadline):
        self.trace.append((run.scenario.conditions, run.scenario.rounds, len(neighbours), run.rare))
        super().examine(run, neighbours, streams, deadline)


def auditor(policy=HONEST, ended=lambda: False, seed=0):
    made = Traced(policy, policy.guarantee, seed, False, ended)
    made.trace = []
    return made


def searched(policy=HONEST, pairs=60, rare=6, rounds=40, **changes):
    found = auditor(policy, **changes)
    search = ScenarioSearch(found, rounds, pairs, rare, 0, math.inf)
    search.try_kinds(START_KINDS)
    search.try_rare_answers()
    return found, search


def test_every_kind_gets_its_share_of_the_pairs():
    """48 pairs for 8 kinds that apply, then six scenarios with rare answers and 2 pairs each."""
    found, search = searched()
    assert found.trace == [
        ((), 40, 6, False),
        (("late rewards",), 40, 6, False),
        (("cancelled decisions", "late rewards"), 40, 6, False),
        (("special values",), 40, 6, False),
        (("a thousand rounds",), 1_000, 6, False),
        (("rewards in any order",), 40, 6, False),
        (("special values", "cancelled decisions"), 40, 6, False),
        (("most decisions cancelled",), 120, 6, False),
        (("rare answers",), 120, 2, True),
        (("rare answers", "late rewards"), 120, 2, True),
        (("rare answers", "cancelled decisions"), 120, 2, True),
        (("rare answers",), 120, 2, True),
        (("rare answers", "late rewards"), 120, 2, True),
        (("rare answers", "cancelled decisions"), 120, 2, True),
    ]
    assert (found.tried, search.number) == (60, 8 + 6)
    result = found.conclude()
    assert (result.verdict, result.epsilon, result.declared) == ("consistent", 1.0, 1.0)
    assert 30 < result.moved <= 60
    assert set(result.reached) | set(result.missed) == {
        name for conditions, *_ in found.trace for name in conditions
    }


def test_many_pairs_are_spread_over_more_scenarios():
    found, search = searched(pairs=400, rare=0)
    assert search.number == 20
    assert found.tried == 400
    sizes = [wanted for _, _, wanted, _ in found.trace]
    assert len(sizes) == 20
    assert max(sizes) - min(sizes) < 7


def test_an_audit_that_is_ended_tries_nothing_more():
    found, search = searched(ended=lambda: True)
    assert found.trace == []
    assert search.number == 8
    assert found.conclude().verdict == "not examined"


def test_scenarios_around_a_round():
    found = auditor()
    ScenarioSearch(found, 40, 60, 0, 0, math.inf).try_rounds([500])
    assert [each[0] for each in found.trace] == [("around round 500",)] * 3
    assert found.tried >= 60


def test_truncation_is_sought_by_the_sensitivities_of_earlier_runs():
    found, search = searched(PROVED_CONTROLS["truncated-far"].policy)
    assert search.sensitivities == [100.0]
    assert found.worst.epsilon > 0.3  # rewards as large as their moment tells cost 0.02
    assert searched()[1].sensitivities == []


def run_of(policy, rounds=60, reward=1.0):
    return record(policy, plain_scenario(policy, np.full((rounds, policy.arms), reward)), seed=0)


def move(epsilon, position=0, local=False, distance=1.0):
    terms = Terms(0.0, 1.0, epsilon, 0.0)
    return MovedInput("a release", terms, Loss(epsilon), local, position, distance)


def test_a_loss_within_the_claim_is_no_evidence():
    found, run = auditor(), run_of(HONEST)
    found.judge(run, Neighbour(3, 0.0), ReplayOutcome([move(0.4), move(0.6)]), {})
    assert (found.unproved, found.violation) == ([], "")
    assert (found.worst.epsilon, found.declared, found.worst.moves) == (1.0, 1.0, 2)
    found.judge(run, Neighbour(3, 0.0), ReplayOutcome([move(0.3)]), {})
    assert found.worst.epsilon == 1.0
    found.judge(run, Neighbour(3, 0.0), ReplayOutcome([move(0.5), move(0.6)]), {})
    (pair,) = found.unproved
    assert pair.excess == pytest.approx(1.1)
    assert pair.fault.startswith("round 4: 2 mechanisms moved, which costs epsilon 1.1 ")
    assert pair.fault.endswith("; claimed are epsilon 1 and delta 0")
    assert not found.done


def test_enough_evidence_ends_the_search():
    found, run = auditor(), run_of(HONEST)
    for number in range(6):
        assert not found.done
        found.judge(run, Neighbour(number, 0.0), ReplayOutcome([move(2.0)]), {})
    assert found.done
    failing = auditor()
    failing.failed = [run] * 5
    assert not failing.done
    failing.failed = [run] * 6
    assert failing.done


def test_a_central_mechanism_under_a_local_claim_is_a_violation():
    policy = bl.policy("ldp-ucb-laplace", arms=2, epsilon=1.0)
    found, run = auditor(policy), run_of(policy, 12)
    found.judge(run, Neighbour(3, 0.0), ReplayOutcome([move(0.5, local=True)]), {})
    assert found.violation == ""
    found.judge(run, Neighbour(3, 0.0), ReplayOutcome([move(0.5, local=True), move(0.1)]), {})
    assert found.violation == "round 4: a reward moved a release, which is not the device's report"
    assert found.done
    assert found.conclude().verdict == "violated"


def test_the_largest_excess_is_reported_first():
    found, run = auditor(), run_of(HONEST)
    for excess in (2.0, 9.0, 3.0):
        found.unproved.append(UnprovedPair(run, Neighbour(0, 0.0), f"excess {excess:g}", excess))
    assert found.test_unproved() == ("unproved", "excess 9")
    result = found.conclude()
    assert (result.verdict, result.fault) == ("unproved", "excess 9")


def decides(policy):
    """The losses of decisions: two releases lie between the choices of rounds 2 and 3."""
    run = run_of(policy, 12)
    run.choice_ends[:] = [1, 2, 4, *range(5, 14)]
    found = auditor(policy)
    return found, run


def test_a_decision_pays_for_what_it_draws_and_twice_for_what_it_reads():
    policy = bl.policy("dp-ftpl-new", arms=2, epsilon=1.0, delta=0.01, horizon=100)
    found, run = decides(policy)
    unread = {position: np.zeros(12, bool) for position in (1, 2, 3)}
    own = found.losses(run, [move(0.3, 2), move(0.4, 3), move(0.5, 1)], unread)
    assert [loss.epsilon for loss in own] == pytest.approx([0.5, 0.7])
    reads = np.zeros(12, bool)
    reads[[2, 7]] = True
    later = found.losses(run, [move(0.3, 2), move(0.5, 1)], {1: reads, 2: np.zeros(12, bool)})
    assert [loss.epsilon for loss in later] == pytest.approx([0.5, 1.3, 1.0])
    assert found.losses(run, [], {})[0].moves == 0
    trajectory = auditor(HONEST).losses(run, [move(0.3), move(0.4)], {})
    assert [loss.epsilon for loss in trajectory] == pytest.approx([0.7])


def no_noise():
    """Arm 0 has 9 rewards of 0.35, arm 1 has 3 of 1: with one reward less, arm 1 is better."""
    policy = VIOLATORS["no-noise"].policy
    rewards = np.tile([0.35, 1.0], (60, 1))
    return policy, record(policy, plain_scenario(policy, rewards), seed=0)


def test_a_difference_that_no_answer_explains_is_a_violation():
    policy, run = no_noise()
    found = auditor(policy)
    found.compare(run, [Neighbour(3, 0.0)], [], math.inf)
    assert found.violation.startswith("round 4: the decision of round ")
    assert found.violation.endswith("and no randomness reaches it")
    assert (found.tried, found.moved) == (1, 1)


def test_a_rare_tape_refutes_only_a_claim_without_delta():
    policy, run = no_noise()
    run = dataclasses.replace(run, rare=True)
    for delta, certain in ((0.0, True), (0.01, False)):
        found = Traced(policy, Guarantee(epsilon=1.0, delta=delta), 0, False, lambda: False)
        found.compare(run, [Neighbour(3, 0.0)], [], math.inf)
        assert bool(found.violation) is certain
        assert len(found.unproved) == (0 if certain else 1)
        if not certain:
            assert found.unproved[0].excess == 1e9


def test_a_stream_that_differs_everywhere_leads_to_one_reward():
    policy, run = no_noise()
    found = auditor(policy)
    found.compare(run, [], [run.scenario.rewards, np.tile([0.0, 1.0], (60, 1))], math.inf)
    assert "no randomness reaches it" in found.violation
    assert found.tried == 0


def test_after_the_deadline_two_streams_are_replayed_and_one_neighbour():
    found, run, seen = auditor(), run_of(HONEST), []

    class Stream(np.ndarray):
        def __getitem__(self, key):
            seen.append(id(self))
            return super().__getitem__(key)

    streams = [np.zeros((60, 2)).view(Stream) for _ in range(4)]
    found.compare(run, [Neighbour(n, 0.0) for n in range(5)], streams, -math.inf)
    assert set(seen) == {id(stream) for stream in streams[:2]}
    assert found.tried == 1


def test_a_plain_draw_before_a_difference_explains_it():
    """Two coins: one draws before the first decision, the other after the difference."""
    outcome = ReplayOutcome([], "differs", 2, (1, 1))
    run = run_of(HONEST, 24)
    assert not depends_on_chance(
        HONEST, run, Neighbour(0, 0.0), outcome._replace(seen=run.decisions[2]), 0
    )
    ties = UNUSUAL_CONTROLS["redrawn-afterwards"].policy
    run = run_of(ties, 40)
    at = next(i for i, entry in enumerate(run.tape) if entry.terms is None)
    late = next(i for i in range(40) if run.choice_ends[i] > at)
    seen = ReplayOutcome([], "differs", late, run.decisions[late])
    assert depends_on_chance(ties, run, Neighbour(0, 0.0), seen, 0)


def test_a_policy_that_always_fails_is_named_and_a_rare_failure_unproved():
    found, run = auditor(), run_of(HONEST)
    rare = dataclasses.replace(run, rare=True, error=KeyError("x"))
    found.failed = [rare]
    assert found.failed_everywhere() == (
        "it fails after an answer that is rare but possible: KeyError"
    )
    found.failed = [rare, dataclasses.replace(run, error=KeyError("y"))]
    with pytest.raises(KeyError, match="y"):
        found.failed_everywhere()
    assert found.conclude is not None
    found.failed = [rare]
    result = found.conclude()
    assert (result.verdict, "KeyError" in result.fault) == ("unproved", True)


def test_a_local_claim_needs_a_report():
    policy = VIOLATORS["says-local"].policy
    found = audit_by_replay(policy, policy.guarantee, rounds=20, pairs=4, seed=0)
    assert "has no report_kernel" in found.fault
    assert found == ReplayAudit("violated", 0, 0, 0.0, 0.0, found.fault)


def test_clipping_is_tried_on_both_sides():
    assert clips_rewards(HONEST)
    assert clips_rewards(bl.policy("dp-imed", arms=2, epsilon=1.0, reward_range=(-1.0, 3.0)))
    assert clips_rewards(bl.policy("dp-imed", arms=2, epsilon=1.0, outside="clip"))
    for name in ("unclipped", "clipped-above", "clipped-below"):
        policy = VIOLATORS[name].policy
        assert clips_rewards(policy)  # an agent accepts such rewards, so neighbours tell
        assert not clips_rewards(type(policy)(arms=2, epsilon=1.0))


def test_two_replays_of_a_seed_are_equal_and_kinds_can_be_chosen():
    kinds = (ScenarioKind(("late rewards",), delay=3),)

    def found(seed):
        return audit_by_replay(
            HONEST, HONEST.guarantee, rounds=40, pairs=40, seed=seed, kinds=kinds
        )

    assert found(3) == found(3)
    assert found(3).pairs == 40
    assert set(found(3).reached) >= {"late rewards"}
    entries = {}
    audit_by_replay(
        HONEST, HONEST.guarantee, rounds=40, pairs=20, seed=0, kinds=kinds, entries=entries
    )
    assert [key[1:] for key in entries] == [(1.0, 1.0, 0.0)]

"""Runs a policy's kernels on its state, for agents and the service."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from balaclava.agents.decision_order import DecisionOrder
from balaclava.agents.decisions import OpenDecision
from balaclava.agents.estimates import EstimateReader
from balaclava.agents.roster import ArmRoster
from balaclava.errors import (
    BalaclavaError,
    EstimateError,
    ParameterError,
    PolicyError,
    RewardError,
    failed_choice,
    failed_kernel,
    require_arm,
)
from balaclava.frames import arm_slots
from balaclava.frames.pools import closing_decision
from balaclava.policies.base import ArmRelease, NamedArms, Policy
from balaclava.policies.contextual.value_estimates import ValueEstimates
from balaclava.policies.local_policies import LocalPolicy
from balaclava.policies.priors import PRIOR_FAILURE, counted_releases, rests_by
from balaclava.privacy.device_report import checked_number
from balaclava.privacy.guarantee import Guarantee

# Assumption of the guarantee, and condition of estimates, once arms change.
ARM_CHANGES = (
    "when arms come or leave, their shares, which are available in a decision, and when decisions "
    "pause, depend on released values and on facts that would be the same had any one reward been "
    "different"
)
# The rule plays an arm more for those who could not get a better one: it selects participants.
MASKED_MEANS = (
    "each mean is over the participants who could get the arm, and does not depend on which other "
    "arms they could get"
)
PRIOR_IS_PUBLIC = (
    "the prior is public, or was released by an experiment whose guarantee covers its own "
    "participants; those who are in both have the sum of the two"
)
# Condition of estimates that count a prior.
SAME_MEANS = "each arm's mean is that of the prior, and no reward is in both"
REWARD, REPORT = "reward", "report"
KERNEL_FAILURES = (ArithmeticError, IndexError, ValueError)  # of kernels on an invalid state


class Observation(NamedTuple):
    """A reward, or a device's report of one."""

    kind: str
    value: float


class Choice(NamedTuple):
    """An arm, its phase, and its propensity given public values; None if it is not public."""

    arm: int
    phase: int
    propensity: float | None


class PolicyRunner:
    """Interpreted kernels, one state, and one source of randomness."""

    def __init__(self, policy: Policy, rng: Any) -> None:
        self.policy, self.rng = policy, rng
        self.params = policy.constants()
        self.roster: ArmRoster | None = None  # once arms may change
        self._choose = policy.kernels.choose
        # With scope "decision" a propensity would be a function of raw means.
        self._shows_chances = policy.scope != "decision"
        self._prepare = policy.prepare()
        # Estimates in the order of decisions need each report, not only the policy's sum of them.
        in_tally = policy.estimation is not None and policy.estimation.from_tally is not None
        self._report = policy.report_kernel if in_tally else None
        try:
            self.state = policy.kernels.begin(self.params)
        except (MemoryError, OverflowError):
            raise ParameterError(
                f"{policy.name}: arms = {policy.arms} do not fit into memory; give fewer"
            ) from None
        self._require_readable()

    def _require_readable(self) -> None:
        """Refuse estimates that read what the state does not have, before the first decision."""
        if self.policy.estimation is None:
            return
        try:
            self.policy.estimation.read(self.params, self.state, 0)
        except AttributeError as error:
            raise PolicyError(
                f"{self.policy.name}: its `estimation` does not fit its state ({error}); if the "
                'pools are inside the state, derive from PooledPolicy and set `pools = "..."`, the '
                "name of their field; else give `Estimation(read, limits)` for this state"
            ) from None

    def choose(self, round: int, context: Any = None, slots: Sequence[int] | None = None) -> Choice:
        """Make the decision of a round; `context` comes from `policy.checked_context`.

        With `slots` it is made among these slots of the roster. An arm with a share is drawn
        publicly, with that chance, before the policy's rule decides.
        """
        shares = {} if self.roster is None else self.roster.shares_of_slots(slots)
        own = 1.0 - math.fsum(shares.values())
        forced = self._draw_share(shares) if shares else None
        if self.roster is not None:
            arm_slots.leave_unless_offered(self.state, slots, self.roster.in_play)
        try:
            if forced is None:
                slot, phase = self._choose_among(round, context, slots)
                chance = self._chance(slot, slots)
            else:
                chance = self._chance_by_rule(forced, round, context, slots)
                slot, phase = self._choose_among(round, context, [forced])
        except KERNEL_FAILURES as error:
            raise self._failed(round, error) from None
        arms = range(self.policy.arms) if self.roster is None else self.roster.arm_in_slot
        require_arm(self.policy.name, round, slot, len(arms))
        if shares and chance is not None:
            chance = shares.get(slot, 0.0) + own * chance
        return Choice(arms[slot], phase, chance)

    def offered_slots(self, available: Any, round: int) -> list[int] | None:
        """The slots that the decision of a round may have; None if it may have all."""
        if available is None and self.roster is None:
            return None
        roster = self.open_roster()
        chosen = None if available is None else roster.checked_available(available)
        if roster.resting(round):
            self._doubt_prior(roster)
        return roster.offered_slots(chosen, round)

    def set_prior(self, prior: Any, same_means: bool = False) -> None:
        """Let arms rest that a prior makes unlikely to be the best.

        With `same_means` estimates count its releases, too.
        """
        if self.policy.fixed_arms:
            raise ParameterError(
                f"prior: {self.policy.name} takes none: {self.policy.fixed_arms}; use dp-imed"
            )
        rests, contradiction = rests_by(self.policy, prior)
        counted = counted_releases(self.policy, self.params, prior) if same_means else None
        roster = self.open_roster()
        roster.rests, roster.contradiction, roster.with_prior = rests, contradiction, True
        if counted is not None:
            roster.counted_if = counted.condition
            for label, rewards, mean, draws in counted.arms:
                roster.counted[roster.number_of(label)] = rewards, mean, draws

    def _doubt_prior(self, roster: ArmRoster) -> None:
        """End all rests once the releases of the prior's best arm are below its mean."""
        estimation = self.policy.doubt
        if roster.contradiction is None or estimation is None:
            return
        arm, limit = roster.contradiction
        released = estimation.read(self.params, self.state, roster.slot_of(arm))
        if released[0] == 0 or released == roster.doubted:
            return
        roster.doubted = released
        _, high = estimation.limits(self.params, *released, PRIOR_FAILURE)
        if arm in roster.archived or self.policy.in_units(float(high)) < limit:
            roster.rests, roster.contradiction = {}, None

    def _choose_among(
        self, round: int, context: Any, slots: Sequence[int] | None
    ) -> tuple[int, int]:
        if self.roster is not None:
            arm_slots.leave_unless_offered(self.state, slots, self.roster.in_play)
            if not arm_slots.continues_batch(self.state):
                self.roster.in_play = None if slots is None else list(slots)
        if slots is None or arm_slots.continues_batch(self.state):
            try:
                slot, phase = self._choose(self.params, self.state, round, context, self.rng)
            except TypeError as error:
                raise failed_choice(self.policy.name, error) from None
            return int(slot), int(phase)
        begin, rest = self.policy.kernels.begin, (round, context, self.rng)
        return arm_slots.choose_among(begin, self._choose, self.params, self.state, slots, *rest)

    def _draw_share(self, shares: dict[int, float]) -> int | None:
        """The slot that its share draws; None if the policy's rule decides."""
        draw = self.rng.random()
        for slot, share in shares.items():
            draw -= share
            if draw < 0.0:
                return slot
        return None

    def _chance(self, slot: int, slots: Sequence[int] | None) -> float | None:
        """The chance by the rule of the slot that it chose; None if it is not public."""
        if not self._shows_chances:
            return None
        if self.roster is None or arm_slots.find_pools(self.state) is not None:
            return self.policy.propensity(self.state, slot)
        known = self.policy.chances(self.state) is not None  # each arm with the same chance
        return 1.0 / len(slots or range(self.params.arms)) if known else None

    def _chance_by_rule(
        self, slot: int, round: int, context: Any, slots: Sequence[int] | None
    ) -> float | None:
        """The chance that the rule would have given a slot."""
        chance = self._chance(slot, slots)
        if chance is None or arm_slots.find_pools(self.state) is None:
            return chance
        offered = slots or range(self.params.arms)
        begin, rest = self.policy.kernels.begin, (round, context)
        return arm_slots.rule_chance(
            begin, self._choose, self.params, self.state, offered, slot, *rest
        )

    def slot_of(self, arm: int) -> int:
        """The arm's place in the state."""
        return arm if self.roster is None else self.roster.slot_of(arm)

    def open_roster(self) -> ArmRoster:
        """The roster, with which arms may change; `ParameterError` if the policy fixes them."""
        if self.policy.fixed_arms:
            raise ParameterError(
                f"{self.policy.name} cannot change its arms: {self.policy.fixed_arms}; make "
                "another agent, or use dp-imed"
            )
        if self.roster is None:
            self.roster = ArmRoster(self.policy)
        return self.roster

    def load_roster(self, saved: Any, clock: int) -> None:
        """Restore a roster of all arms of the policy, and begin a state with its slots."""
        self.roster = None  # that of a prior has the arms at the start
        roster = self.open_roster()
        roster.load(saved, clock)
        self.params = roster.policy.constants()
        if roster.sets_changed:
            self.params = roster.constants(self.params)
        self.state = self.policy.kernels.begin(self.params)

    def add_arm(self, label: str, round: int) -> None:
        """Add an arm after a round: in the slot of a retired one that is free, or in a new one."""
        roster, begin = self.open_roster(), self.policy.kernels.begin
        label = roster.checked_new(label)
        self.policy = replace(self.policy, arms=NamedArms([*roster.labels, label]))
        arm = len(roster.labels)
        roster.labels.append(label)
        roster.added_after[arm] = round
        for slot, before in enumerate(roster.arm_in_slot):
            if roster.may_reuse(before) and arm_slots.is_free(self.state, slot):
                roster.archived[before] = self._read(slot)
                roster.archived_releases += arm_slots.settled_batches(self.state, slot)
                arm_slots.clear_slot(begin, self.params, self.state, slot)
                roster.arm_in_slot[slot] = arm
                break
        else:
            self.state = arm_slots.with_new_slot(begin, self.params, self.state)
            roster.arm_in_slot.append(arm)
        self._renew_claims(roster)

    def retire_arm(self, arm: Any, round: int, open_decisions: Callable[[int], int]) -> None:
        """Stop offering an arm. Its unfinished batch ends with the decisions that it has.

        `open_decisions` counts those of an arm by its number.
        """
        roster = self.open_roster()
        number = roster.number_of(arm)
        if roster.live == [number]:
            raise ParameterError(
                f"arm {roster.labels[number]!r} is the last one; add another before it is retired"
            )
        roster.retire(number, open_decisions(number))
        slot, pools = roster.slot_of(number), arm_slots.find_pools(self.state)
        phase = None if pools is None else closing_decision(pools, slot)
        if phase is not None:
            self.forget_slot(round, slot, phase)
        self._renew_claims(roster)

    def _renew_claims(self, roster: ArmRoster) -> None:
        """Let the policy know which arms there are, and decide again which one it names."""
        self.params = roster.constants(self.params)
        roster.policy.renew_answer(self.params, self.state)

    def set_shares(self, shares: Any) -> None:
        """Give arms a least chance in each decision."""
        self.open_roster().set_shares(shares)

    def _read(self, slot: int) -> tuple[int, float, float]:
        """The releases of a slot; zeros if there are none, or the policy offers no estimates."""
        if self.policy.estimation is not None:
            rewards, mean, noise = self.policy.estimation.read(self.params, self.state, slot)
            if rewards > 0:
                return int(rewards), float(mean), float(noise)
        return 0, 0.0, 0.0

    def batches(self) -> int | None:
        """The number of releases so far; None if the policy releases decisions only."""
        pools = arm_slots.find_pools(self.state)
        if self.roster is not None and pools is not None:
            return int(pools.settled.sum()) + self.roster.archived_releases
        released = self.policy.released(self.state)
        return None if released is None else sum(each.batches for each in released)

    def changed_arms(self) -> tuple[str, ...] | None:
        """The offered arms whose releases show a change of the mean; None if that is unknown."""
        slots = self.policy.changed_arms(self.state)
        if slots is None:
            return None
        roster = self.roster
        arms = [slot if roster is None else roster.arm_in_slot[slot] for slot in slots]
        return tuple(
            self.policy.arm_label(arm) for arm in arms if roster is None or arm in roster.live
        )

    def level(self, arm: int, phase: int) -> float:
        """The public level that a device needs to report the decision's reward."""
        level = self.policy.report_level
        if level is None:
            raise RewardError(f"{self.policy.name} takes rewards, not reports; use tell")
        return float(level(self.params, self.state, self.slot_of(arm), phase))

    def checked(self, observation: Observation, level: float | None = None) -> Observation:
        """Check a reward, or a report at its decision's level; an error does not repeat it."""
        policy = self.policy
        if observation.kind != REPORT:
            return Observation(REWARD, policy.checked_reward(observation.value))
        if policy.learn_report is None:
            raise RewardError(f"{policy.name} takes rewards, not reports; use tell")
        if isinstance(policy, LocalPolicy):
            return Observation(REPORT, policy.checked_report(observation.value, level))
        value = checked_number(policy.name, "report", observation.value, *policy.reports)
        return Observation(REPORT, value)

    def learn(self, entry: OpenDecision, observation: Observation) -> float:
        """Learn from a checked observation of a decision; returns the number that was learned."""
        learn: Callable[..., None] = self.policy.kernels.learn
        learn_report, value = self.policy.learn_report, observation.value
        if observation.kind == REPORT and learn_report is not None:
            learn = learn_report
        else:
            value = self._prepare(self.params, value)
        try:
            if self._report is not None and learn_report is not None and learn is not learn_report:
                level = self.level(entry.arm, entry.phase)
                value = float(self._report(self.params, value, level, self.rng))
                learn = learn_report
            slot = self.slot_of(entry.arm)
            learn(self.params, self.state, entry.round, slot, value, entry.phase, self.rng)
        except KERNEL_FAILURES as error:
            raise self._failed(entry.round, error) from None
        self._close_decision(entry.arm)
        return value

    def forget(self, entry: OpenDecision) -> None:
        """Give up a decision: its reward will not come."""
        self.forget_slot(entry.round, self.slot_of(entry.arm), entry.phase)
        self._close_decision(entry.arm)

    def _close_decision(self, arm: int) -> None:
        if self.roster is not None:
            self.roster.close_decision(arm)

    def forget_slot(self, round: int, slot: int, phase: int) -> None:
        """Give up a decision of the arm in a slot of the state."""
        try:
            self.policy.kernels.forget(self.params, self.state, round, slot, phase, self.rng)
        except KERNEL_FAILURES as error:
            raise self._failed(round, error) from None

    def _failed(self, round: int, error: Exception) -> Exception:
        """Wrap a failure of a kernel; the package's own errors pass unchanged."""
        if isinstance(error, BalaclavaError):
            return error
        return failed_kernel(self.policy.name, round, error)

    def guarantee_with_changes(self, guarantee: Guarantee) -> Guarantee:
        """The guarantee, with its assumption about changes of the arms if there were any."""
        if self.roster is None or not self.roster.changed:
            return guarantee
        more = (ARM_CHANGES, PRIOR_IS_PUBLIC) if self.roster.with_prior else (ARM_CHANGES,)
        return replace(guarantee, assumptions=(*guarantee.assumptions, *more))

    def released_of(self, arms: Iterable[int]) -> dict[int, ArmRelease] | None:
        """The releases of arms that have a slot; None if the policy releases decisions only."""
        released = self.policy.released(self.state)
        slots = range(self.policy.arms) if self.roster is None else self.roster.arm_in_slot
        if released is None:
            return None
        wanted = set(arms)
        return {arm: each for arm, each in zip(slots, released, strict=True) if arm in wanted}

    def values(self, confidence: Any, condition: str | None) -> ValueEstimates:
        """Estimated values of policies; `condition` is what they assume of arrivals."""
        if self.policy.value_estimates is None:
            raise EstimateError(
                f"{self.policy.name} estimates no values of policies, for which each reward is "
                "released a second time; choose with-values around dp-kernel-ucb, dp-linucb or "
                "dp-squarecb"
            )
        values: ValueEstimates = self.policy.value_estimates(self.state, confidence)
        values.condition = condition
        return values

    def reading(
        self,
        decisions: Sequence[int],
        confidence: Any,
        condition: str | None,
        order: DecisionOrder | None = None,
    ) -> EstimateReader:
        """Estimates at a confidence, given the number of decisions of each arm.

        `condition` is what they assume of arrivals; `order` has the rewards in order, if kept.
        """
        if (roster := self.roster) is not None:
            masked = MASKED_MEANS if roster.masked else None
            same = SAME_MEANS if roster.counted else None
            clauses = [condition, masked, same, roster.counted_if]
            condition = " and ".join(dict.fromkeys(filter(None, clauses))) or None
        return EstimateReader(
            self.policy,
            self.params,
            self.state,
            decisions,
            confidence,
            condition,
            order,
            self.roster,
        )

"""`bl.Agent`: ask for a decision, tell its reward."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from balaclava import errors
from balaclava._core.declared import brief, check
from balaclava.agents.decision_order import DecisionOrder
from balaclava.agents.decisions import Decision, DecisionBook, OpenDecision, Status
from balaclava.agents.delivery import ArrivalDelivery, WindowDelivery
from balaclava.agents.estimates import EstimateReader, Estimates
from balaclava.agents.policy_runner import REPORT, REWARD, Observation, PolicyRunner
from balaclava.agents.save_files import SaveFile, WatchedRandomness
from balaclava.agents.saving import pack_state, plain_generator, seal
from balaclava.agents.settling import (
    Settle,
    Settling,
    arrival_condition,
    checked_settling,
    guarantee_after_restores,
    guarantee_when_settled,
    require_missing,
)
from balaclava.agents.stopping import StopAdvice, stop_advice
from balaclava.policies.base import CoefficientEstimate, Policy, unregistered_part
from balaclava.policies.contextual.value_estimates import ValueEstimates
from balaclava.privacy.guarantee import Guarantee, not_private
from balaclava.privacy.randomness import SystemRandomness, seeded


class Agent:
    """A running policy that makes decisions and learns from their rewards.

    Rewards may come late, in any order, or never; each counts once. A seeded agent repeats its
    decisions exactly, for tests; its noise protects nothing.

    Args:
        policy: The policy that decides.
        seed: A whole number for tests. By default the randomness is secure.
        patience: Timeout of a reward, in further decisions; the decision is then given up. By
            default it is estimated: once 30 rewards have come, 1.25 times the 97 % quantile of
            their waits, at least 256. Open decisions stay in memory until then.
        settle: "arrival": a reward counts when it comes. The guarantee then assumes that its
            arrival does not depend on its value. "window": every reward, or `missing`, counts
            after `patience` further decisions. The guarantee then covers when and whether the
            reward came; regret is that of a delay of one window.
        missing: The value that counts if no reward came in its window.
        shares: Least chances of arms, by label or number, as {"control": 0.1}; see `set_shares`.
        prior: What is known of the arms' means: `other.estimates()`, the results of the service, a
            log that `bl.release_log` released, or {label: (mean, rewards)}. Arms that it makes
            unlikely to be the best start later, by at most as many decisions as there are rewards
            behind its best mean, and at once if releases contradict it. It costs no epsilon here.
        same_means: Whether each arm's mean is known to be that of the prior, from other rewards.
            Then `estimates`, `winner` and `may_stop` count the prior, and say so; else they never
            do. If a mean differs, their claims are wrong.

    Raises:
        ParameterError: If an argument is not allowed, or does not fit the others.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("ucb1", arms=["plain", "friendly", "map"]).agent()
        >>> first, second = agent.ask(), agent.ask()
        >>> first.label, second.label
        ('plain', 'friendly')
        >>> agent.tell(second, reward=0.5)
        >>> agent.tell(first.id, reward=0.25)
        >>> print(agent.status())
        2 decisions, 2 rewards, 0 given up, 0 open; nothing is awaited.
        >>> agent.tell(first, reward=0.25)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        balaclava.errors.DecisionError: decision ...-1 has its reward already; each is told once
    """

    def __init__(
        self,
        policy: Policy,
        *,
        seed: int | None = None,
        patience: int | None = None,
        settle: Settle = "arrival",
        missing: float | None = None,
        shares: Mapping[int | str, float] | None = None,
        prior: Any = None,
        same_means: bool = False,
    ) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise errors.ParameterError(
                f"seed = {brief(seed)} is not allowed; give a whole number of at least 0, or None"
            )
        self._settling = checked_settling(patience, settle, missing)
        require_missing(policy, self._settling)
        self._policy = policy
        self._seeded = seed is not None
        self._runner = PolicyRunner(policy, SystemRandomness() if seed is None else seeded(seed))
        self._copied = False
        self._restores = 0  # from saves that another agent had continued
        self._save_file: SaveFile | None = None  # of the last save to a file
        self._unclaimed = False  # whether that save may still name another successor
        self._book = DecisionBook()
        self._delivery = self._make_delivery(self._settling)
        estimation = policy.estimation
        self._keeps_order = estimation is not None and estimation.in_order
        self._order: DecisionOrder | None = None
        if not self._delivery.window and estimation is not None and estimation.from_tally:
            self._order, self._keeps_order = DecisionOrder(policy.arms), True
        self._in_order = True  # whether estimates count rewards in the order of decisions
        self._unlearned = 0
        self._decisions = [0] * policy.arms  # by arm
        self._process = os.getpid()
        self._lock = threading.Lock()
        if shares:
            self._runner.set_shares(shares)
        same_means = check("same_means", same_means, bool)
        if prior is not None:
            self._runner.set_prior(prior, same_means)
        elif same_means:
            raise errors.ParameterError(
                "same_means = True needs a prior; give one, or leave it out"
            )

    def _make_delivery(self, settling: Settling) -> ArrivalDelivery | WindowDelivery:
        patience, settle, missing = settling
        if settle == "window" and patience is not None and missing is not None:
            observation = self._runner.checked(Observation(REWARD, missing))
            return WindowDelivery(
                self._book, patience, observation, self._learn, self._runner.checked
            )
        return ArrivalDelivery(self._book, patience, self._learn, self._forget)

    def _learn(self, entry: OpenDecision, observation: Observation) -> None:
        learned = self._runner.learn(entry, observation)
        if self._order is not None:
            self._order.close(entry, learned)

    def _forget(self, entry: OpenDecision) -> None:
        self._runner.forget(entry)
        if self._order is not None:
            self._order.close(entry, None)

    @property
    def policy(self) -> Policy:
        """The policy and its parameters."""
        return self._policy

    @property
    def guarantee(self) -> Guarantee:
        """The policy's guarantee with the agent's assumptions; "none" if the agent was seeded."""
        if self._seeded:
            return not_private(
                "the agent was seeded: an observer who knows the seed can remove the noise", ""
            )
        one = guarantee_when_settled(
            self._policy.guarantee, window=self._delivery.window, copied=self._copied
        )
        one = self._runner.guarantee_with_changes(one)
        return guarantee_after_restores(one, self._restores, "a save that was continued")

    def ask(self, context: Any = None, available: Iterable[int | str] | None = None) -> Decision:
        """Make the next decision. It never waits for a reward.

        Args:
            context: Input of a contextual policy: features[arm, feature], or advice[expert, arm]
                whose rows are distributions over the arms. None for all other policies.
            available: The arms that this participant can get, by label or number. None: all. It
                must not depend on unreleased rewards; `add_arm` says more.

        Returns:
            The decision; tell its reward by it or by its `id`.

        Raises:
            ContextError: If the context does not fit the policy.
            DecisionError: If the agent is finished.
            ParameterError: If `available` is empty or names a retired arm, or if the policy fixes
                its arms.
            UnknownNameError: If `available` names an arm that does not exist.
            ProcessError: If the process was forked after the agent was made; see `adopt`.
            SavedStateError: If another agent continued the last save to a file; see `save`.
        """
        context = self._policy.checked_context(context)
        self._require_own_process()
        with self._lock:
            self._claim_if_used()
            if self._book.finished:
                raise errors.DecisionError(
                    "the agent is finished and makes no further decisions; play the arm that it "
                    "named, or make another agent"
                )
            slots = self._runner.offered_slots(available, self._book.clock + 1)
            self._delivery.before_decision()
            self._in_order &= self._keeps_order or not self._book.open
            arm, phase, chance = self._runner.choose(self._book.clock + 1, context, slots)
            entry = self._book.enter(arm, phase)
            self._decisions[arm] += 1
            if self._order is not None:
                self._order.enter(entry)
            self._unlearned += phase < 0
            self._claim_if_used()
            return Decision(entry.id, arm, phase, self._policy.arm_label(arm), chance)

    def add_arm(self, label: str) -> int:
        """Add an arm, which the policy then explores like any other.

        Note:
            It costs no epsilon: the arm has batches of its own. When arms come or leave, and which
            arms are `available` in a decision, may depend on released values and on facts that
            would be the same had any one reward been different; so may shares and pauses. Stock
            that this experiment sells is not such a fact: it tells how many bought.

            `winner` then compares the present arms. All claims after the first change, for all
            later sets of arms, fail together with probability at most 1 - confidence: the j-th arm
            has a part of 1/(j (j + 1)). So intervals are somewhat wider than before.

        Args:
            label: The name of the arm. Names are never reused.

        Returns:
            The number of the arm.

        Raises:
            DecisionError: If the agent is finished.
            ParameterError: If the name is taken or empty, or if the policy fixes its arms.
        """
        with self._changing_arms():
            self._runner.add_arm(label, self._book.clock)
            self._policy = self._runner.policy
            self._decisions.append(0)
            if self._order is not None:
                self._order.add_arm()
            return len(self._decisions) - 1

    def retire_arm(self, arm: int | str) -> None:
        """Stop offering an arm. Its late rewards still count in its estimate.

        Its unfinished batch ends: it is released once its open decisions have their rewards. See
        `add_arm` for what the time may depend on.

        Args:
            arm: The arm, by number or name.

        Raises:
            DecisionError: If the agent is finished.
            ParameterError: If it is the last arm or was retired, or if the policy fixes its arms.
            UnknownNameError: If there is no such arm.
        """
        with self._changing_arms():
            self._runner.retire_arm(arm, self._book.clock, self._book.open_of)

    def set_shares(self, shares: Mapping[int | str, float]) -> None:
        """Give arms a least chance in each decision that offers them.

        A public draw decides whether a decision goes to one of these arms; otherwise the policy
        decides among all arms. The policy learns from both, and propensities count both. See
        `add_arm` for what the shares may depend on.

        Args:
            shares: The chances, by label or number of the arm; of all other arms 0. They add up to
                at most 1. A share of 1 in all is a fixed division, without the policy's rule.

        Raises:
            DecisionError: If the agent is finished.
            ParameterError: If a share is not allowed, an arm was retired, or the policy fixes its
                arms.
            UnknownNameError: If there is no such arm.
        """
        with self._changing_arms():
            self._runner.set_shares(shares)

    @contextmanager
    def _changing_arms(self) -> Iterator[None]:
        self._require_own_process()
        with self._lock:
            self._claim_if_used()
            if self._book.finished:
                raise errors.DecisionError("the agent is finished; its arms cannot change")
            yield
            self._claim_if_used()

    def tell(self, decision: Decision | str, reward: float) -> None:
        """Tell the reward of a decision. Tell each once, in any order.

        Args:
            decision: The decision, or its id.
            reward: A finite number in `policy.accepts`, or any finite number if the policy clips.

        Raises:
            DecisionError: If the decision is not open, or is another agent's.
            RewardError: If the policy does not accept the reward.
        """
        self._take(decision, self._runner.checked(Observation(REWARD, reward)))

    def report_level(self, decision: Decision | str) -> float:
        """The public level to send to the device with the decision, for a local policy.

        The device calls `policy.report(reward, level)`. The level depends on earlier reports only,
        and a report is as private at any other level.

        Args:
            decision: An open decision, or its id.

        Returns:
            The level.

        Raises:
            DecisionError: If the decision is not open, or is another agent's.
            RewardError: If the policy takes rewards instead of reports.
        """
        self._require_own_process()
        with self._lock:
            self._claim_if_used()
            entry = self._delivery.find(decision)
            return self._runner.level(entry.arm, entry.phase)

    def tell_report(self, decision: Decision | str, report: float) -> None:
        """Tell a device's report (`policy.report`) in place of the reward, for a local policy.

        Args:
            decision: The decision, or its id.
            report: The number that the device sent.

        Raises:
            DecisionError: If the decision is not open, or is another agent's.
            RewardError: If the policy does not accept the report.
        """
        self._take(decision, self._runner.checked(Observation(REPORT, report)))

    def cancel(self, decision: Decision | str) -> None:
        """Give up a decision whose reward will never come.

        A batch that waits for it can then settle. With `settle="window"` the reward counts as
        `missing` when its window ends.

        Warning:
            With `settle="arrival"` the reason must not depend on the reward: the guarantee assumes
            that.

        Args:
            decision: The decision, or its id.

        Raises:
            DecisionError: If the decision is not open, or is another agent's.
        """
        self._require_own_process()
        with self._lock:
            self._claim_if_used()
            self._delivery.cancel(decision)
            self._claim_if_used()

    def finish(self, confidence: float = 0.95, *, give_up_open: bool = False) -> Estimates:
        """End the trial: release the rewards that no release holds yet, and give the answer.

        Rewards that are not told by now never count. So open decisions that learn are refused,
        unless you give them up. With `settle="window"` all windows end now, and `missing` counts
        for each reward that is not told: tell the last ones first. Then each arm's unfinished batch
        is released as it is. No further decision is made. To call it again changes nothing.

        Privacy is that of the policy. A reward in an earlier release is in no open batch; each
        open batch is released once, here, with the noise of every batch, and never again. The
        time to finish must not depend on rewards that are not yet released.

        Args:
            confidence: The probability that all intervals hold, in (0, 1).
            give_up_open: Whether to give up all open decisions, for good.

        Returns:
            The final estimates, with the winner if there is one; `values` of with-values.

        Raises:
            EstimateError: If the policy offers no estimates. The agent then continues.
            DecisionError: If a decision is open, unless `give_up_open`. The agent then continues.
            ParameterError: If `confidence` is not in (0, 1).
        """
        give_up_open = check("give_up_open", give_up_open, bool)
        with_values = self._policy.value_estimates is not None
        answer: Callable[[float], Any] = self.values if with_values else self.estimates
        answer(confidence)
        self._require_own_process()
        with self._lock:
            if not (self._delivery.window or give_up_open):
                self._book.require_none_open()
            self._claim_if_used()
            if not self._book.finished:
                self._book.finished = True  # first: an interruption must not release twice
                self._delivery.finish()
                state, rng = self._runner.state, self._runner.rng
                for slot, phase in self._policy.closing_decisions(state, rng):
                    self._runner.forget_slot(self._book.clock, slot, phase)
            self._claim_if_used()
        estimates: Estimates = answer(confidence)
        return estimates

    def status(self) -> Status:
        """Counts of decisions, rewards and releases, and arms whose means seem to change.

        An arm is in `changed` if its latest releases differ from its earlier ones beyond what noise
        and chance explain. The chance that it ever is without a change is at most 1 %. The test
        costs no epsilon. It sees changes of arms that are played only.

        Returns:
            The counts. With `settle="window"` none of them depends on when rewards came.
        """
        with self._lock:
            self._claim_if_used()
            book, delivery = self._book, self._delivery
            oldest = book.oldest
            return Status(
                decisions=book.clock,
                rewards=delivery.rewards,
                open=len(book.open),
                cancelled=delivery.cancelled,
                given_up=delivery.given_up,
                closed=book.clock - len(book.open) if delivery.window else None,
                unlearned=self._unlearned,
                oldest_open=None if oldest is None else oldest.id,
                oldest_wait=0 if oldest is None else book.clock - oldest.round,
                releases=self._runner.batches(),
                awaited=delivery.awaited(),
                changed=self._runner.changed_arms(),
                restarts=self._policy.restarts(self._runner.state),
            )

    def estimates(self, confidence: float = 0.95) -> Estimates:
        """Estimate the mean of each arm, with intervals.

        The intervals hold all together and in every round, except with probability
        1 - confidence: look at any time, and stop at any time. They use released values only, so
        they cost no epsilon. They estimate the mean of all rewards of the arm; with
        `settle="window"`, with `missing` for those that did not come in time.

        Note:
            Rewards must be independent, and an arm's mean must not change. With
            `settle="arrival"`, when and whether a reward comes must not depend on its value if some
            decisions were given up or cancelled, or if the policy cannot count rewards in the order
            of decisions. The result's `condition` says so; otherwise it is None.

        Args:
            confidence: The probability that all intervals hold, in (0, 1).

        Returns:
            One entry an arm; print it for a table.

        Raises:
            EstimateError: If the policy releases decisions only, or no interval is proved.
            ParameterError: If `confidence` is not in (0, 1).
        """
        return self._reading(confidence).estimates()

    def coefficients(self) -> Sequence[CoefficientEstimate]:
        """Estimate the coefficients of the features, with intervals, from released values.

        All intervals hold together and in every round, except with the policy's
        `failure_probability`, if the mean reward is linear in the features and the norm of the
        coefficients is at most `parameter_bound`. They cost no epsilon.

        Returns:
            One entry a coefficient, for rewards rescaled to [0, 1]; arm by arm with `disjoint`.

        Raises:
            EstimateError: If the policy has no features, or no interval is proved for it.
        """
        if self._policy.coefficients is None:
            raise errors.EstimateError(
                f"{self._policy.name} offers no intervals of coefficients; use dp-linucb"
            )
        with self._lock:
            self._claim_if_used()
            estimates: Sequence[CoefficientEstimate] = self._policy.coefficients(self._runner.state)
            return estimates

    def values(self, confidence: float = 0.95) -> ValueEstimates:
        """Estimate the value of the running rule, of each fixed arm and of a target policy.

        The intervals hold all together and in every round, except with probability
        1 - confidence. They read released sums only, for which the policy has an epsilon of its
        own. `context_helps` of the result compares the rule with the best fixed arm.

        Args:
            confidence: The probability that all intervals hold, in (0, 1).

        Returns:
            One entry a policy; print it for a table.

        Raises:
            EstimateError: If the policy estimates no values.
            ParameterError: If `confidence` is not in (0, 1).
        """
        with self._lock:
            self._claim_if_used()
            return self._runner.values(confidence, self._arrival_condition(in_order=True))

    def winner(self, confidence: float = 0.95) -> int | None:
        """Name the best arm.

        The probability of ever naming a wrong arm, in any round, is at most 1 - confidence, under
        the assumptions of `estimates`, whose `condition` is on arrivals. A policy with low regret
        plays poor arms seldom, so it may take long to name one; `explore`, on policies that have
        it, gives every arm a share.

        Args:
            confidence: The probability of never naming a wrong arm, in (0, 1).

        Returns:
            The best arm; None if it is not yet known.

        Raises:
            EstimateError: If the policy offers no estimates.
        """
        self._require_comparable()
        return self.estimates(confidence).winner

    def _require_comparable(self) -> None:
        """Refuse to compare arms that different participants could get."""
        roster = self._runner.roster
        if roster is not None and roster.masked:
            raise errors.EstimateError(
                "arms cannot be compared: some decisions did not offer all of them, so their means "
                "are of different participants; see estimates()"
            )

    def difference(
        self, a: int | str, b: int | str, confidence: float = 0.95
    ) -> tuple[float, float]:
        """An interval for the mean of arm `a` minus that of arm `b`.

        All differences hold together and in every round, except with probability 1 - confidence.
        That of a named winner may include 0: its test is one-sided (`Estimates.difference`).

        Args:
            a: An arm, by number or name.
            b: Another arm.
            confidence: The probability that all intervals hold, in (0, 1).

        Returns:
            The lower and the upper limit.

        Raises:
            EstimateError: If the policy offers no estimates.
            UnknownNameError: If there is no such arm.
        """
        self._require_comparable()
        return self.estimates(confidence).difference(a, b)

    def remaining(self, confidence: float = 0.95) -> int | None:
        """Forecast how many more decisions it takes to name a winner.

        The forecast takes the released means for the true ones, and gives every arm its share of
        decisions and rewards so far.

        Args:
            confidence: The probability that all intervals hold, in (0, 1).

        Returns:
            The number of decisions. None if there is a winner, or if it is too early to tell: an
            arm has no release yet, or the leader is not ahead at even odds either.

        Raises:
            EstimateError: If the policy offers no estimates.
        """
        self._require_comparable()
        return self._reading(confidence).remaining()

    def may_stop(
        self,
        confidence: float = 0.95,
        *,
        smallest_difference: float | None = None,
        horizon: int | None = None,
    ) -> StopAdvice:
        """Say whether the trial may stop, from released values only.

        It may stop if the best arm is known ("winner"); if no arm is better than the one that the
        sentence names by `smallest_difference` or more, so that choosing it costs less than that
        ("equivalent"); or if a winner is unlikely in what is left of `horizon` ("futile", a
        forecast). Each of the first two claims is ever wrong with probability at most
        1 - confidence, however often you ask, under the assumptions of `estimates`.

        Note:
            "equivalent" is one-sided: the named arm may itself be better than the others by any
            difference. Do not publish it as equivalence; `difference` has both sides.

        Args:
            confidence: The probability that a claim holds in every round, in (0, 1).
            smallest_difference: The smallest difference of means that matters, in the unit of the
                rewards. None: none is too small.
            horizon: The number of decisions that the trial can make. None: no limit.

        Returns:
            True if it may, with `reason` and `sentence`.

        Raises:
            EstimateError: If the policy offers no estimates.
            ParameterError: If an argument is not allowed.
        """
        self._require_comparable()
        low, high = self._policy.accepts
        return stop_advice(self._reading(confidence), high - low, smallest_difference, horizon)

    def _reading(self, confidence: Any) -> EstimateReader:
        with self._lock:
            self._claim_if_used()
            condition = self._arrival_condition(self._in_order)
            decisions = tuple(self._decisions)
            return self._runner.reading(decisions, confidence, condition, self._order)

    def _arrival_condition(self, in_order: bool) -> str | None:
        """What estimates assume of arrivals; None if nothing."""
        return arrival_condition(
            window=self._delivery.window,
            in_order=in_order,
            lost=bool(self._delivery.cancelled or self._delivery.given_up),
        )

    def adopt(self) -> None:
        """Continue in this process after a fork.

        Warning:
            No other copy may continue. Both hold the same unreleased sums; if both released them,
            epsilon would count twice.
        """
        self._lock = threading.Lock()  # another thread may have held it when the process split
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._copied = True
                self._book.rename()

    def save(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Save the agent for `bl.restore`, to a file or as a dict.

        Warning:
            Only one agent may continue from a save. If the saved agent, or a second one restored
            from the same save, continues too, unfinished batches are released twice and epsilon
            doubles.

            A save in a file names its successor once: the first agent that continues is recorded
            beside the file, and any other is refused. The saved agent counts as continuing when
            it next saves, or draws noise. Only this file is watched: a second copy of the file,
            a dict, or a deleted record is not noticed.

            A save holds raw sums, and its length depends on the rewards that wait for the end of
            their windows: keep both as secret as the rewards. Its digest detects damage, not
            forgery.

        Args:
            path: The file to write, completely or not at all. None: the dict alone.

        Returns:
            A JSON-able dict. It holds the generator of a seeded agent; secure randomness has no
            state.

        Raises:
            SavedStateError: If the policy is not registered, or if another agent continued the
                last save to a file.
            ResultsFileError: If the file cannot be written.
            ProcessError: If the process was forked after the agent was made; see `adopt`.
        """
        policy = self._policy
        if (part := unregistered_part(policy)) is not None:
            raise errors.SavedStateError(
                f"{type(part).__name__} is not registered, so a save could not be restored; call "
                "bl.register on it first"
            )
        self._require_own_process()
        with self._lock:
            self._claim_if_used()
            saved = seal(self._content())
            if path is not None:
                self._write_save(path, saved)
            return saved

    def _content(self) -> dict[str, Any]:
        policy, book = self._policy, self._book
        content = {
            "policy": {"name": policy.name, "parameters": policy.parameters},
            "settling": self._settling._asdict(),
            "agent": book.name,
            "origins": [list(item) for item in book.origins.items()],
            "clock": book.clock,
            "decisions": list(self._decisions),
            "unlearned": self._unlearned,
            "open": [list(entry) for entry in book.open.values()],
            "closed": [list(item) for item in book.closed.items()],
            "reception": self._delivery.save(),
            "order": {
                "kept": self._in_order,
                "tally": None if self._order is None else self._order.save(),
            },
            "state": pack_state(self._runner.state),
            "generator": plain_generator(self._runner.rng) if self._seeded else None,
        }
        if self._restores:
            content["restores"] = self._restores
        if book.finished:
            content["finished"] = True
        if self._runner.roster is not None and self._runner.roster.changed:
            content["roster"] = self._runner.roster.save()
        return content

    def _write_save(self, path: str | os.PathLike[str], saved: dict[str, Any]) -> None:
        self._claim_save()
        before, self._save_file = self._save_file, SaveFile.write(path, saved)
        if before is not None and before.path == self._save_file.path:
            before.forget()
        self._unclaimed = True
        if not self._seeded:
            self._runner.rng = WatchedRandomness(self._runner.rng, self._policy.scope)

    def _claim_if_used(self) -> None:
        """Claim the last save to a file before anything leaves that was drawn after it."""
        rng = self._runner.rng
        if self._unclaimed and isinstance(rng, WatchedRandomness) and rng.used:
            self._claim_save()

    def _claim_save(self) -> None:
        """Become the successor of the last save to a file, or raise if another agent is."""
        if self._unclaimed and self._save_file is not None:
            self._save_file.claim(self._book.name)
            self._unclaimed = False
            if isinstance(self._runner.rng, WatchedRandomness):
                self._runner.rng = self._runner.rng.rng

    def _take(self, decision: Any, observation: Observation) -> None:
        self._require_own_process()
        with self._lock:
            self._claim_if_used()
            self._delivery.take(decision, observation)
            self._claim_if_used()

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise errors.ProcessError(
                f"this agent was made in process {self._process}, but this is process "
                f"{os.getpid()}: after a fork both would release the same rewards, and epsilon "
                "would count twice; make agents after forking, or call agent.adopt() if no other "
                "process continues with it"
            )

    def __copy__(self) -> NoReturn:
        raise errors.PrivacyError(
            "an agent cannot be copied: both copies would release the same rewards, and epsilon "
            "would count twice; make another with policy.agent(), or move it with agent.save(path) "
            "and bl.restore(path)"
        )

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise errors.PrivacyError(
            "an agent cannot be pickled: a second one would release the same rewards; use "
            "agent.save(path) and bl.restore(path), and let only one continue"
        )

    def __repr__(self) -> str:
        counts = f"{self._book.clock} decisions, {len(self._book.open)} open"
        return f"<Agent of {self._policy.name}: {counts}, {self.guarantee}>"

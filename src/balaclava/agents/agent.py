"""The online side: ask for a decision, tell its reward."""

from __future__ import annotations

import os
import threading
from typing import Any, NoReturn

from balaclava._core.declared import brief
from balaclava.agents.decisions import Decision, DecisionBook
from balaclava.agents.delivery import ArrivalDelivery, WindowDelivery
from balaclava.agents.estimates import EstimateReader, Estimates
from balaclava.agents.policy_runner import REPORT, REWARD, Observation, PolicyRunner
from balaclava.agents.saving import pack_state, plain_generator, seal
from balaclava.agents.settling import (
    Settle,
    Settling,
    checked_settling,
    guarantee_when_settled,
    require_missing,
)
from balaclava.agents.status import Status
from balaclava.errors import (
    ParameterError,
    PrivacyError,
    ProcessError,
    SavedStateError,
)
from balaclava.policies.base import Policy, unregistered_part
from balaclava.privacy.guarantee import Guarantee, not_private
from balaclava.privacy.randomness import SystemRandomness, seeded


class Agent:
    """A policy at work: interpreted kernels and randomness that is safe to release.

    Rewards may come late, in any order, or never; each counts once. A seeded agent repeats itself
    exactly, which makes it good for tests and worthless for privacy.

    Args:
        policy: what decides.
        seed: a whole number for tests; by default the randomness is fit for release.
        patience: further decisions after which one is given up: its reward then counts no more.
            By default it is found: once 30 rewards have come, 1.25 times the wait that 3 of them
            in 100 exceed, and at least 256. Open decisions are kept in memory until then.
        settle: "arrival": a reward counts when it comes; the guarantee then assumes that when and
            whether it comes does not depend on what it is. "window": every reward, or `missing`,
            counts when `patience` further decisions were made; the guarantee then covers when and
            whether it came. It costs what a delay of one window costs.
        missing: what counts where no reward came in time, with `settle="window"`.

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
    ) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ParameterError(
                f"seed = {brief(seed)} is not allowed; give a whole number or None"
            )
        self._settling = checked_settling(patience, settle, missing)
        require_missing(policy, self._settling)
        self._policy = policy
        self._seeded = seed is not None
        self._runner = PolicyRunner(policy, SystemRandomness() if seed is None else seeded(seed))
        self._copied = False
        self._book = DecisionBook()
        self._delivery = self._make_delivery(self._settling)
        self._unlearned = 0
        self._decisions = [0] * policy.arms  # made for each
        self._process = os.getpid()
        self._lock = threading.Lock()

    def _make_delivery(self, settling: Settling) -> ArrivalDelivery | WindowDelivery:
        patience, settle, missing = settling
        if settle == "window" and patience is not None and missing is not None:
            observation = self._runner.checked(Observation(REWARD, missing))
            return WindowDelivery(
                self._book, patience, observation, self._runner.learn, self._runner.checked
            )
        return ArrivalDelivery(self._book, patience, self._runner.learn, self._runner.forget)

    @property
    def policy(self) -> Policy:
        """The policy and its parameters."""
        return self._policy

    @property
    def guarantee(self) -> Guarantee:
        """The policy's guarantee with what this agent adds; "none" when the agent was seeded."""
        if self._seeded:
            return not_private(
                "the agent was seeded: who knows the seed can take the noise away", ""
            )
        return guarantee_when_settled(
            self._policy.guarantee, window=self._delivery.window, copied=self._copied
        )

    def ask(self, context: Any = None) -> Decision:
        """The next decision. Never waits for a reward.

        `context` is what the policy decides by where it takes any: advice[expert, arm], each row
        a distribution over the arms, for policies that follow experts.
        """
        policy = self._policy
        context = policy.checked_context(context)
        self._require_own_process()
        with self._lock:
            self._delivery.before_decision()
            arm, phase, chance = self._runner.choose(self._book.clock + 1, context)
            entry = self._book.enter(arm, phase)
            self._decisions[arm] += 1
            self._unlearned += phase < 0
            return Decision(entry.id, arm, phase, policy.arm_label(arm), chance)

    def tell(self, decision: Decision | str, reward: float) -> None:
        """The reward of a decision, or of its id: in any order, each once."""
        self._take(decision, self._runner.checked(Observation(REWARD, reward)))

    def report_level(self, decision: Decision | str) -> float:
        """The public level that is sent to the owner of the decision's reward, for its report.

        For policies of local privacy: the owner's device calls `policy.report(reward, level)`.
        It depends on earlier reports only, and the report is as private at any other level.
        """
        self._require_own_process()
        with self._lock:
            entry = self._delivery.find(decision)
            return self._runner.level(entry.arm, entry.phase)

    def tell_report(self, decision: Decision | str, report: float) -> None:
        """What the owner of the reward reported (`policy.report`), for policies of local privacy.

        The agent then never sees the reward.
        """
        self._take(decision, self._runner.checked(Observation(REPORT, report)))

    def cancel(self, decision: Decision | str) -> None:
        """The reward of this decision will never come.

        It is given up at once, so that a batch that waits for it can settle; with
        `settle="window"` it counts as missing when its window ends. Otherwise, cancel for reasons
        that have nothing to do with the reward: the guarantee takes that for granted.
        """
        self._require_own_process()
        with self._lock:
            self._delivery.cancel(decision)

    def status(self) -> Status:
        """How far it is. With `settle="window"` nothing in it depends on rewards that came."""
        with self._lock:
            book, delivery = self._book, self._delivery
            released = self._policy.released(self._runner.state)
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
                releases=None if released is None else sum(each.batches for each in released),
                awaited=delivery.awaited(),
            )

    def estimates(self, confidence: float = 0.95) -> Estimates:
        """What was released of each arm, with an interval for its mean: print it.

        The intervals hold all together, and in every round, except with probability
        1 - confidence: look as often as you like, and stop when you like. They are made from what
        was released, so that they cost no epsilon. What is estimated is the mean of the rewards
        that come; with `settle="window"` of the rewards with `missing` for those that do not.
        Rewards must be independent, and an arm's mean must not change.

        Raises:
            EstimateError: where the policy releases decisions only, or no interval is proved.
        """
        return self._reading(confidence).estimates()

    def winner(self, confidence: float = 0.95) -> int | None:
        """The arm that is the best, or None while it cannot be told.

        The chance that this ever names a wrong arm, in any round, is at most 1 - confidence. A
        policy that keeps regret low plays poor arms seldom, so that telling may take long;
        `explore`, on policies that have it, gives every arm a share.
        """
        return self.estimates(confidence).winner

    def difference(
        self, a: int | str, b: int | str, confidence: float = 0.95
    ) -> tuple[float, float]:
        """An interval for the mean of arm `a` less that of arm `b`, numbers or names.

        All differences hold together and in every round, with the intervals of `estimates`.
        """
        return self.estimates(confidence).difference(a, b)

    def remaining(self, confidence: float = 0.95) -> int | None:
        """About how many more decisions it would take to name a winner.

        A forecast and no promise: it takes the released means for the true ones, and gives every
        arm the share of decisions and rewards that it has had so far. None if there is a winner,
        if an arm has no release yet, or if at these means and shares there would never be one.
        """
        return self._reading(confidence).remaining()

    def _reading(self, confidence: Any) -> EstimateReader:
        with self._lock:
            return self._runner.reading(tuple(self._decisions), confidence)

    def adopt(self) -> None:
        """Go on in this process, after a fork: the caller knows that no other copy goes on.

        Both copies hold the same unfinished sums. If both went on, each would release them, and
        epsilon would count twice.
        """
        self._lock = threading.Lock()  # another thread may have held it when the process split
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._copied = True
                self._book.rename()

    def save(self) -> dict[str, Any]:
        """Everything needed to go on later, as a JSON-able dict for `bl.restore`.

        Only one agent may go on from it: where the saved one, or a second one restored from the
        same save, goes on too, unfinished batches are released twice and epsilon doubles.

        It holds raw sums, and its length tells how many rewards wait for the end of their windows:
        keep both as secret as the rewards. Secure randomness is not part of it,
        a seeded agent's generator is. A digest guards it against accidents and careless editing,
        not against somebody who holds it and wants to deceive.
        """
        policy = self._policy
        if (part := unregistered_part(policy)) is not None:
            raise SavedStateError(
                f"{type(part).__name__} is not registered, so it could not be restored; "
                "call bl.register on it first"
            )
        self._require_own_process()
        with self._lock:
            book = self._book
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
                "state": pack_state(self._runner.state),
                "generator": plain_generator(self._runner.rng) if self._seeded else None,
            }
            return seal(content)

    def _take(self, decision: Any, observation: Observation) -> None:
        self._require_own_process()
        with self._lock:
            self._delivery.take(decision, observation)

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise ProcessError(
                f"this agent was made in process {self._process}, and this is {os.getpid()}: after "
                "a fork both would release the same rewards, and epsilon would count twice; make "
                "agents after forking, or call agent.adopt() if no other process goes on with it"
            )

    def __copy__(self) -> NoReturn:
        raise PrivacyError(
            "an agent is not copied: both copies would release the same rewards, and epsilon would "
            "count twice; make another with policy.agent(), or move it with agent.save() and "
            "bl.restore"
        )

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise PrivacyError(
            "an agent is not pickled: it would become a second one that releases the same rewards; "
            "use agent.save() and bl.restore, and let only one go on"
        )

    def __repr__(self) -> str:
        counts = f"{self._book.clock} decisions, {len(self._book.open)} open"
        return f"<Agent of {self._policy.name}: {counts}, {self.guarantee}>"

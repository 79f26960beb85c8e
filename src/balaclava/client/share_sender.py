"""A device that shares rewards with two aggregators, so that neither can read them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from balaclava._core.extras import require_extra
from balaclava.client.calls import ServiceDecision
from balaclava.errors import ParameterError
from balaclava.privacy.exact_noise import GRID_BITS
from balaclava.privacy.secret_shares import MOST_BITS, reward_steps, share_text, split

_SHARE_SECONDS = 10.0  # timeout of a request
_GIVE_UP_SECONDS = 7 * 86_400.0  # an aggregator that was down this long has fixed the batch
_NOT_YET = 404  # the aggregator was not given the task yet


class OutgoingPair(NamedTuple):
    """What a decision will send, or has sent."""

    ticket: str
    due: float  # by the monotonic clock
    reward: float
    pair: tuple[int, int] | None = None  # None: not made
    left: frozenset[int] = frozenset((0, 1))  # aggregators that have not answered


class ShareSender:
    """Sends one pair of shares for each decision, at its time, whether or not a reward came.

    Call `expect` for every decision that learns, `note_reward` if a reward comes, and `send_due`
    regularly. Neither the time nor the size of what is sent depends on the reward, if `send_due` is
    called at times that do not. It keeps pairs in memory: after a restart it sends nothing for
    earlier decisions.

    Args:
        rule: "report" of the experiment.
        epsilon: The largest epsilon that the participant agreed to.
        range: The range of rewards that the participant agreed to.
        servers: The URLs of the two aggregators that the participant agreed to. A decider that
            named two of its own would see every reward.

    Raises:
        ParameterError: If the rule is not that of shares, or breaks the agreement.
    """

    def __init__(
        self,
        rule: Mapping[str, Any],
        *,
        epsilon: float,
        range: Sequence[float],
        servers: Sequence[str],
    ) -> None:
        require_extra("httpx", "sending shares")
        import httpx

        if rule.get("kind") != "shares" or rule.get("grid_bits") != GRID_BITS:
            raise ParameterError('the rule must be "report" of an experiment with aggregators')
        _check_terms(rule)
        addresses = list(rule["addresses"])
        origins = [urlsplit(each)[:2] for each in servers]
        if len(set(origins)) != 2 or [urlsplit(each)[:2] for each in addresses] != origins:
            raise ParameterError("the rule has other servers than those agreed; nothing is sent")
        if not rule["epsilon"] <= epsilon or list(rule["range"]) != list(range):
            raise ParameterError(
                "the rule has a larger epsilon or another range than agreed; nothing is sent"
            )
        self._rule, self._addresses = dict(rule), addresses
        self._known: dict[str, OutgoingPair] = {}  # that have not left
        self._sent: set[str] = set()
        self._http = httpx.Client(timeout=_SHARE_SECONDS)

    def expect(self, decision: ServiceDecision) -> None:
        """Let a pair leave for a decision, with the default unless a reward comes."""
        if not decision.learns or decision.ticket is None:
            raise ParameterError("the decision has no ticket; expect those that learn")
        due = time.monotonic() + self._rule["send_after"]
        outgoing = OutgoingPair(decision.ticket, due, self._rule["default"])
        if decision.decision_id not in self._sent:
            self._known.setdefault(decision.decision_id, outgoing)

    def note_reward(self, decision: ServiceDecision, reward: float) -> None:
        """Let this reward count, clipped to the range, if the pair has not left.

        Raises:
            ParameterError: If it is not a number, or the decision is not expected.
        """
        known = self._known.get(decision.decision_id)
        unknown = known is None and decision.decision_id not in self._sent
        if unknown or not math.isfinite(reward):
            raise ParameterError("give a finite number, for a decision that is expected")
        if known is not None and known.pair is None and time.monotonic() < known.due:
            self._known[decision.decision_id] = known._replace(reward=float(reward))

    def send_due(self) -> bool:
        """Send the pairs that are due; returns whether all of them arrived."""
        arrived = True
        for id, known in list(self._known.items()):
            if time.monotonic() >= known.due:
                if known.pair is None:
                    low, high = self._rule["range"]
                    steps = reward_steps(known.reward, low, high)
                    pair = split(steps, self._rule["modulus_bits"])
                    known = known._replace(pair=pair, reward=0.0)
                    self._known[id] = known
                left = frozenset(side for side in known.left if not self._send(id, known, side))
                self._known[id] = known._replace(left=left)
                if not left or time.monotonic() > known.due + _GIVE_UP_SECONDS:
                    del self._known[id]  # both shares together are the reward
                    self._sent.add(id)
                arrived &= not left
        return arrived

    def _send(self, id: str, known: OutgoingPair, side: int) -> bool:
        """Whether an aggregator took its share, or will never take it."""
        import httpx

        assert known.pair is not None
        bits, epsilon = self._rule["modulus_bits"], self._rule["epsilon"]
        body = {
            "share": share_text(known.pair[side], bits),
            "ticket": known.ticket,
            "epsilon": epsilon,  # an honest aggregator with other terms refuses
            "modulus_bits": bits,
        }
        try:
            status = self._http.put(f"{self._addresses[side]}/{id}", json=body).status_code
        except httpx.TransportError:
            return False
        return status < 500 and status != _NOT_YET

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _check_terms(rule: Mapping[str, Any]) -> None:
    """Raise a `ParameterError` if some rewards could not be shared: silence would reveal them."""
    bits, default, wait = rule["modulus_bits"], rule["default"], rule["send_after"]
    numbers = all(type(each) in (int, float) and math.isfinite(each) for each in (default, wait))
    if type(bits) is not int or not GRID_BITS + 1 < bits <= MOST_BITS or not numbers or wait <= 0:
        raise ParameterError(
            "the rule's default, modulus_bits or send_after is not valid: some rewards would not "
            "be sent, which reveals them; nothing is sent"
        )

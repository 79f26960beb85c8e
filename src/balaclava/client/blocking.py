"""The client that waits for its answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

from balaclava.client import calls
from balaclava.client.calls import Call, Document, Pairs, Rewarded, RewardReceipt, ServiceDecision
from balaclava.client.connection import checked_patience, connection
from balaclava.client.retries import attempts

Answer = TypeVar("Answer")


class Client:
    """Speaks to a decision service over HTTP, and tries again what may pass.

    It may be shared between threads. Close it, or use it in a `with` block.

    Parameters:
        url: where the service is, with its path if it has one.
        key: an API key; what it may do depends on its role. None for a service without keys.
        timeout: seconds that one attempt may take.
        patience: seconds after which what fails is not tried again; 0 to try once.

    Example:
        >>> from balaclava.client import Client
        >>> client = Client("https://decisions.example.org", "the key", patience=5)
        >>> client
        Client('https://decisions.example.org')
        >>> client.close()
    """

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 10.0, patience: float = 30.0
    ) -> None:
        settings = connection(url, key, timeout)
        import httpx

        self._url, self._patience = url, checked_patience(patience)
        self._http = httpx.Client(**settings)

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def _ask(self, call: Call[Answer]) -> Answer:
        import httpx

        steps = attempts(call, self._patience)
        wait = next(steps)
        while True:
            time.sleep(wait)
            outcome: httpx.Response | httpx.TransportError
            try:
                outcome = self._http.request(
                    call.method, call.path, json=call.body, params=call.query
                )
            except httpx.TransportError as error:
                outcome = error
            try:
                wait = steps.send(outcome)
            except StopIteration as end:
                return end.value

    def _record(self, pairs: Pairs, kind: str) -> list[RewardReceipt]:
        answers: list[RewardReceipt] = []
        for call in calls.rewards(pairs, kind):
            recorded = self._ask(call)
            answers += recorded
        return answers

    @overload
    def decide(
        self,
        experiment: str,
        person: str | None = None,
        request_id: str | None = None,
        count: None = None,
    ) -> ServiceDecision: ...

    @overload
    def decide(
        self,
        experiment: str,
        person: str | None = None,
        request_id: str | None = None,
        *,
        count: int,
    ) -> list[ServiceDecision]: ...

    def decide(
        self,
        experiment: str,
        person: str | None = None,
        request_id: str | None = None,
        count: int | None = None,
    ) -> ServiceDecision | list[ServiceDecision]:
        """The arm for somebody: one `ServiceDecision`, or with `count` a list of exactly so many.

        `person` is any text: the service keeps no more than a keyed digest of it, and counts by it
        how many rewards of that person it learns from. The same `request_id` gets the same
        decisions; without one the client makes one, for its own attempts.
        """
        decisions = self._ask(
            calls.decide(experiment, person, request_id, 1 if count is None else count)
        )
        return decisions[0] if count is None else decisions

    def reward(self, decision: Rewarded, value: float) -> None:
        """What came of a decision. It counts once, however often it is sent.

        An error never repeats the value. `decision` is what `decide` returned, or its
        decision_id.
        """
        self._ask(calls.reward(decision, "value", value))

    def report(self, decision: Rewarded, report: float) -> None:
        """What the owner of a reward made of it, for a local policy: see report.js."""
        self._ask(calls.reward(decision, "report", report))

    def rewards(self, pairs: Pairs) -> list[RewardReceipt]:
        """Many rewards: pairs of a decision and its value, or a mapping from ids to values.

        An answer for each, in their order: one that was not recorded says why, and does not
        keep the others from being recorded.
        """
        return self._record(pairs, "value")

    def reports(self, pairs: Pairs) -> list[RewardReceipt]:
        """The same for reports."""
        return self._record(pairs, "report")

    def experiments(self) -> list[Document]:
        """Every experiment."""
        return self._ask(calls.get_list("experiments"))

    def experiment(self, name: str) -> Document:
        """What it is, how far it is, and what it promises."""
        return self._ask(calls.get("experiments", name))

    def results(self, experiment: str, confidence: float = 0.95) -> Document:
        """Released means with intervals, the winner if there is one, and a sentence."""
        return self._ask(calls.get("experiments", experiment, "results", confidence=confidence))

    def privacy(self, experiment: str) -> Document:
        """What is promised and to whom, what was spent, what is left."""
        return self._ask(calls.get("experiments", experiment, "privacy"))

    def history(self, experiment: str, points: int = 300) -> Document:
        """Shares of decisions and released means over time."""
        return self._ask(calls.get("experiments", experiment, "history", points=points))

    def create_experiment(
        self,
        name: str,
        policy: str,
        arms: Sequence[str],
        *,
        reward_window: float,
        parameters: Document | None = None,
        **more: Any,
    ) -> Document:
        """A new experiment, or the same again; another one of that name is an error.

        `more` is what else the service takes: default_reward, settle, rewards_per_person,
        population, owner, purpose.
        """
        return self._ask(
            calls.create_experiment(name, policy, arms, reward_window, parameters, more)
        )

    def pause(self, experiment: str) -> Document:
        """Make no decisions until it is resumed."""
        return self._ask(calls.set_state(experiment, "pause"))

    def resume(self, experiment: str) -> Document:
        """Go on after a pause."""
        return self._ask(calls.set_state(experiment, "resume"))

    def finish(self, experiment: str) -> Document:
        """Serve the winner from now on, and learn nothing more."""
        return self._ask(calls.set_state(experiment, "finish"))

    def decision(self, decision: Rewarded) -> Document:
        """For admins: open, rewarded, defaulted or given up; never the value."""
        return self._ask(calls.get("decisions", calls.decision_id(decision)))

    def populations(self) -> list[Document]:
        """Every population, its total, and what is left of it."""
        return self._ask(calls.get_list("populations"))

    def set_population(self, name: str, epsilon: float, delta: float = 0.0) -> Document:
        """For admins: a population and its total, which can be raised later."""
        return self._ask(calls.set_population(name, epsilon, delta))

    def ledger(self) -> Document:
        """For admins: everything that was ever charged."""
        return self._ask(calls.get("ledger"))

    def keys(self) -> list[Document]:
        """For admins: every key but for the key itself."""
        return self._ask(calls.get_list("keys"))

    def create_key(self, role: str, label: str = "") -> Document:
        """For admins: a new key, shown this once. Not tried again: there would be two."""
        return self._ask(calls.create_key(role, label))

    def revoke_key(self, id: str) -> None:
        """For admins: a key that is not accepted any more."""
        self._ask(calls.revoke_key(id))

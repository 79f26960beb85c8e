"""`Client` and `AsyncClient`. Each call is written once, in `ServiceCalls`, for both."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import cache, partial, wraps
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from balaclava._core.extras import require_extra
from balaclava.client import calls
from balaclava.client.calls import (
    Call,
    DecisionOrId,
    Document,
    Exchange,
    Pairs,
    RewardReceipt,
    ServiceDecision,
)
from balaclava.errors import ParameterError, ServiceUnavailableError

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("balaclava.client")
_LEAST_TIMEOUT = 0.05  # seconds of an attempt just before the deadline
_INCOMPLETE = "the answer was not complete in time"
Answer = TypeVar("Answer")
One = TypeVar("One", covariant=True)
Many = TypeVar("Many", covariant=True)
P = ParamSpec("P")
Id = str | None


class endpoint(Generic[P, Answer]):  # noqa: N801  (a decorator)
    """A call that returns its answer on a `Client`, and a coroutine on an `AsyncClient`.

    The decorated function is a method that returns the exchange with the service.
    """

    def __init__(self, function: Callable[Concatenate[Any, P], Exchange[Answer]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, client: Client, owner: Any) -> Callable[P, Answer]: ...

    @overload
    def __get__(
        self, client: AsyncClient, owner: Any
    ) -> Callable[P, Coroutine[Any, Any, Answer]]: ...

    @overload
    def __get__(self, client: None, owner: Any) -> Callable[..., Any]: ...

    def __get__(self, client: Any, owner: Any) -> Any:
        method = owner._method(self._function)
        return method if client is None else MethodType(method, client)


class Decide(Protocol[One, Many]):
    """`decide` to a type checker: one decision, or a list if a `count` is given."""

    @overload
    def __call__(
        self,
        experiment: str,
        person: Id = None,
        request_id: Id = None,
        count: None = None,
        *,
        default: Id = None,
        available: Sequence[str] | None = None,
        features: Any = None,
        attributes: Mapping[str, Any] | None = None,
        sticky: bool = False,
    ) -> One: ...
    @overload
    def __call__(
        self,
        experiment: str,
        person: Id = None,
        request_id: Id = None,
        *,
        count: int,
        default: Id = None,
        available: Sequence[str] | None = None,
        features: Any = None,
        attributes: Mapping[str, Any] | None = None,
        sticky: bool = False,
    ) -> Many: ...


class deciding(endpoint[..., Any]):  # noqa: N801  (a decorator)
    """The call `decide`, whose answer depends on `count`."""

    @overload
    def __get__(
        self, client: Client, owner: Any
    ) -> Decide[ServiceDecision, list[ServiceDecision]]: ...
    @overload
    def __get__(
        self, client: AsyncClient, owner: Any
    ) -> Decide[
        Coroutine[Any, Any, ServiceDecision], Coroutine[Any, Any, list[ServiceDecision]]
    ]: ...
    @overload
    def __get__(self, client: None, owner: Any) -> Callable[..., Any]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        return super().__get__(client, owner)


def _signature(function: Callable[..., Exchange[Any]]) -> inspect.Signature:
    """The signature as a caller sees it: with the answer's type, not the exchange's."""
    signature = inspect.signature(function)
    answer = str(signature.return_annotation).removeprefix("Exchange[").removesuffix("]")
    return signature.replace(return_annotation=answer)


class ServiceCalls:
    """The calls of the service. `Client` returns their answers, `AsyncClient` awaits them.

    Every call raises a subclass of `ServiceError` if the service refuses it, and
    `ServiceUnavailableError` if the service does not answer within `patience`.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 10.0,
        patience: float = 30.0,
        deadline: float = 3.0,
    ) -> None:
        """Connect to a service.

        Args:
            url: Base URL of the service.
            key: API key. None for a service without keys.
            timeout: Seconds for one attempt.
            patience: Seconds for which transient faults are retried; 0 for one attempt.
            deadline: Seconds for a decision, with all retries: a visitor waits for it. A script
                that can wait gives more.

        Raises:
            ParameterError: An argument is not valid.
            MissingPartError: httpx is not installed.
        """
        if not isinstance(patience, int | float) or not 0.0 <= patience < float("inf"):
            raise ParameterError(f"patience must be a number of seconds >= 0, not {patience!r}")
        if not isinstance(deadline, int | float) or not 0.0 < deadline < float("inf"):
            raise ParameterError(f"deadline must be a number of seconds > 0, not {deadline!r}")
        self._url, self._patience, self._deadline = url, float(patience), float(deadline)
        self._timeout = timeout
        self._connect(_http_settings(url, key, timeout))

    def _connect(self, settings: dict[str, Any]) -> None:
        """Open the connections, with these arguments of an httpx client."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    @staticmethod
    def _method(function: Callable[..., Exchange[Any]]) -> Callable[..., Any]:
        """Make the method that runs a call's exchange."""
        return function

    def _send(self, call: Call[Answer]) -> Exchange[Answer]:
        return calls.attempts(call, self._patience)

    def _limit(self, call: Call[Any], began: float) -> float:
        """Seconds for one attempt at a call that began at this monotonic time."""
        if call.deadline is None:
            return self._timeout
        return min(self._timeout, max(began + call.deadline - time.monotonic(), _LEAST_TIMEOUT))

    @deciding
    def decide(
        self,
        experiment: str,
        person: str | None = None,
        request_id: str | None = None,
        count: int | None = None,
        *,
        default: str | None = None,
        available: Sequence[str] | None = None,
        features: Any = None,
        attributes: Mapping[str, Any] | None = None,
        sticky: bool = False,
    ) -> Exchange[ServiceDecision | list[ServiceDecision]]:
        """Ask for one decision, or for exactly `count`.

        Args:
            experiment: Its name.
            person: Any string that identifies the participant. The service stores a keyed
                digest of it, and limits how many of the participant's decisions learn.
            request_id: Idempotency key: the same id gets the same decisions. By default the
                client generates one for its own retries.
            count: How many decisions; None for one, not in a list.
            default: Label of the arm to use if the service is unavailable for `deadline` seconds.
                Such a decision has an empty decision_id, and learns nothing.
            available: Labels of the arms that the participant can get; None for all. It must not
                depend on rewards that are not released.
            features: Of a contextual policy: numbers by name, a row, or a row for each arm. They
                are public: stored with the decision, and exported.
            attributes: Public attributes of the participant, for targeting. They are not stored.
            sticky: The participant keeps the arm of the first sticky decision, which alone learns.
                Send the reward to the answer's first_decision_id.

        Returns:
            A decision, or a list of `count` decisions.

        Raises:
            ServiceUnavailableError: The service did not answer in time, and there is no default.
            ServiceConflictError: The experiment is paused, or the request_id is taken.
        """
        number = 1 if count is None else count
        more = self._deadline, available, features, attributes, sticky
        call = calls.decide(experiment, person, request_id, number, *more)
        try:
            made = yield from self._send(call)
        except ServiceUnavailableError as error:
            if default is None:
                raise
            log.warning("the default %r is used: %s", default, error)
            made = [calls.default_decision(default)] * number
        return made[0] if count is None else made

    @endpoint
    def reward(self, decision: DecisionOrId, value: float) -> Exchange[None]:
        """Record the reward of a decision. It counts once, even if it is sent again.

        Args:
            decision: The result of `decide`, or its decision_id. The reward of a default is
                ignored.
            value: The reward. Errors never repeat it.

        Raises:
            WindowOverError: The decision's reward window is over.
            RewardError: The reward is not a finite number.
        """
        return self._send_reward(decision, "value", value)

    @endpoint
    def report(self, decision: DecisionOrId, report: float) -> Exchange[None]:
        """Record a device's private report of a reward, for a local policy.

        Args:
            decision: The result of `decide`, or its decision_id.
            report: What `policy.report` or report.js made of the reward.

        Raises:
            WindowOverError: The decision's reward window is over.
        """
        return self._send_reward(decision, "report", report)

    def _send_reward(self, decision: DecisionOrId, kind: str, value: float) -> Exchange[None]:
        if isinstance(decision, ServiceDecision) and not decision.decision_id:
            return None
        return (yield from self._send(calls.reward(decision, kind, value)))

    @endpoint
    def metrics(self, decision: DecisionOrId, readings: Mapping[str, float]) -> Exchange[None]:
        """Record readings of guardrails for a decision. Each counts once, as a reward does.

        Args:
            decision: The result of `decide`, or its decision_id. Those of a default are ignored.
            readings: Numbers by metric.

        Raises:
            WindowOverError: The decision's reward window is over.
        """
        return self._send_of(decision, lambda known: calls.metrics(known, readings))

    @endpoint
    def exposed(self, decision: DecisionOrId) -> Exchange[None]:
        """Say that a decision was displayed, for the check of the sample ratio.

        Args:
            decision: The result of `decide`, or its decision_id. A default is ignored.

        Raises:
            WindowOverError: The decision's reward window is over.
        """
        return self._send_of(decision, calls.exposed)

    def _send_of(
        self, decision: DecisionOrId, call: Callable[[DecisionOrId], Call[None]]
    ) -> Exchange[None]:
        if isinstance(decision, ServiceDecision) and not decision.decision_id:
            return None
        return (yield from self._send(call(decision)))

    @endpoint
    def rewards(self, pairs: Pairs) -> Exchange[list[RewardReceipt]]:
        """Record many rewards, each independent of the others.

        Args:
            pairs: Pairs of a decision and its reward, or a mapping from decision ids to rewards.

        Returns:
            A receipt for each reward, in the same order. It says why one was not recorded.
        """
        return self._send_all(calls.rewards(pairs, "value"))

    @endpoint
    def reports(self, pairs: Pairs) -> Exchange[list[RewardReceipt]]:
        """Record many reports of a local policy, each independent of the others.

        Args:
            pairs: Pairs of a decision and its report, or a mapping from decision ids to reports.

        Returns:
            A receipt for each report, in the same order.
        """
        return self._send_all(calls.rewards(pairs, "report"))

    def _send_all(self, parts: Sequence[Call[list[Answer]]]) -> Exchange[list[Answer]]:
        answers: list[Answer] = []
        for call in parts:
            answers += yield from self._send(call)
        return answers

    @endpoint
    def experiments(self, *, archived: bool = False, search: str = "") -> Exchange[list[Document]]:
        """List the experiments.

        Args:
            archived: Whether to list archived ones, too.
            search: Text in the name, the owner or the purpose.

        Returns:
            The documents that `experiment` returns.
        """
        query = {"archived": archived, "search": search}
        return self._send(calls.get_list("experiments", **query))

    @endpoint
    def experiment(self, name: str) -> Exchange[Document]:
        """Read an experiment's definition, progress and guarantee.

        Args:
            name: The experiment.

        Returns:
            The JSON document.
        """
        return self._send(calls.get("experiments", name))

    @endpoint
    def results(
        self,
        experiment: str,
        confidence: float = 0.95,
        *,
        smallest_difference: float | None = None,
        participants: int | None = None,
    ) -> Exchange[Document]:
        """Read released means with intervals, the winner if there is one, and whether to stop.

        Args:
            experiment: Its name.
            confidence: Probability that all intervals contain their means.
            smallest_difference: The smallest difference of means that matters.
            participants: Decisions that the experiment can make; by default the policy's horizon.

        Returns:
            The JSON document. Its `sentence` sums the results up; its `condition` is what intervals
            and winner assume of arrivals, None if nothing. `may_stop` has a sentence and a reason:
            "winner", "equivalent" (no arm is better than the named one by the smallest
            difference; it may be better than the others), "futile" or None.
            `differences` has the leader's released mean minus each other's, with intervals.
            `values` has the values of policies, None unless the experiment estimates them. Where
            batches settle by arrival, `windows` counts arrived rewards: it is None unless the key
            has the role admin.
        """
        stopping = calls.stopping_query(confidence, smallest_difference, participants)
        return self._send(calls.get("experiments", experiment, "results", **stopping))

    @endpoint
    def plan(
        self,
        experiment: str,
        confidence: float = 0.95,
        *,
        smallest_difference: float | None = None,
        participants: int | None = None,
    ) -> Exchange[Document]:
        """Read how many decisions it takes to name the best arm, and whether to stop.

        Args:
            experiment: Its name.
            confidence: Probability that no wrong arm is named.
            smallest_difference: The smallest difference of means that matters.
            participants: Decisions that the experiment can make; by default the policy's horizon.

        Returns:
            The JSON document: `needed` and `soonest` count decisions that learn, from the first;
            `leader`, `differences` and `may_stop` are as in `results`.
        """
        stopping = calls.stopping_query(confidence, smallest_difference, participants)
        return self._send(calls.get("experiments", experiment, "plan", **stopping))

    @endpoint
    def privacy(self, experiment: str) -> Exchange[Document]:
        """Read the guarantee, whom it protects, and what is spent and left.

        Args:
            experiment: Its name.

        Returns:
            The JSON document.
        """
        return self._send(calls.get("experiments", experiment, "privacy"))

    @endpoint
    def history(self, experiment: str, points: int = 300) -> Exchange[Document]:
        """Read shares of decisions and released means over time.

        Args:
            experiment: Its name.
            points: The largest number of moments, 2 to 2,000.

        Returns:
            The JSON document.
        """
        return self._send(calls.get("experiments", experiment, "history", points=points))

    @endpoint
    def create_experiment(
        self,
        /,
        name: str,
        policy: str,
        arms: Sequence[str],
        *,
        reward_window: float,
        parameters: Document | None = None,
        **more: Any,
    ) -> Exchange[Document]:
        """Create an experiment. Creating the same one again changes nothing.

        Args:
            name: A new name.
            policy: Registry name of the policy.
            arms: Labels of the arms.
            reward_window: Seconds in which a decision's reward may arrive.
            parameters: Parameters of the policy.
            more: default_reward, settle, rewards_per_person, population, owner, purpose, prior,
                same_means, shares and the other fields of the service.

        Returns:
            The document that `experiment` returns.

        Raises:
            ServiceConflictError: Another experiment has this name, or the budget is too small.
        """
        definition = {
            "name": name,
            "policy": policy,
            "arms": list(arms),
            "reward_window": reward_window,
            "parameters": parameters or {},
            **more,
        }
        return self._send(Call("POST", calls.path("experiments"), calls.unchanged, definition))

    @endpoint
    def pause(self, experiment: str) -> Exchange[Document]:
        """Refuse decisions until `resume`. Rewards are still recorded.

        Args:
            experiment: Its name.

        Returns:
            The document that `experiment` returns.
        """
        return self._set_state(experiment, "pause")

    @endpoint
    def resume(self, experiment: str) -> Exchange[Document]:
        """End a pause.

        Args:
            experiment: Its name.

        Returns:
            The document that `experiment` returns.
        """
        return self._set_state(experiment, "resume")

    @endpoint
    def finish(self, experiment: str, arm: str | None = None) -> Exchange[Document]:
        """Stop learning, and serve the winner, or else the leader. This cannot be undone.

        Args:
            experiment: Its name.
            arm: Label of the arm to serve instead. Choose it from released values.

        Returns:
            The document that `experiment` returns.
        """
        return self._set_state(experiment, "finish", None if arm is None else {"arm": arm})

    @endpoint
    def clone(self, /, experiment: str, name: str, **changes: Any) -> Exchange[Document]:
        """Create an experiment like another one, with its live arms. Nothing learned is copied.

        Args:
            experiment: The name of the existing one.
            name: A new name.
            changes: population (charged for the new one; none by default), parameters that differ,
                owner, purpose.

        Returns:
            The document that `experiment` returns.
        """
        path = calls.path("experiments", experiment, "clone")
        return self._send(Call("POST", path, calls.unchanged, {"name": name, **changes}))

    @endpoint
    def version(self) -> Exchange[Document]:
        """Read the versions of the service and of its database.

        Returns:
            The JSON document.
        """
        return self._send(calls.get("version"))

    @endpoint
    def change_arms(
        self,
        experiment: str,
        *,
        add: Sequence[str] = (),
        retire: Sequence[str] = (),
        shares: Mapping[str, float] | None = None,
    ) -> Exchange[Document]:
        """Add arms, retire arms, and set least shares: all of it or nothing. Admin only.

        A repetition changes nothing. The changes may depend on released values, and on facts that
        would be the same had any one reward been different.

        Args:
            experiment: Its name.
            add: Labels of new arms. Labels are never reused.
            retire: Labels of arms to stop offering; their late rewards still count.
            shares: Least chances by label, at most 1 in all; they replace all shares. None changes
                none.

        Returns:
            The document that `experiment` returns.

        Raises:
            ServiceConflictError: The policy cannot change its arms, or the experiment is finished.
            ServiceError: A label or a share is not allowed.
        """
        arms = {"add_arms": calls.listed(add), "retire_arms": calls.listed(retire)}
        body: Document = {name: labels for name, labels in arms.items() if labels}
        if shares is not None:
            body["shares"] = dict(shares)
        path = calls.path("experiments", experiment)
        return self._send(Call("PATCH", path, calls.unchanged, body))

    @endpoint
    def edit(self, /, experiment: str, **changes: Any) -> Exchange[Document]:
        """Change owner, purpose, retention, archived or guardrail_limits. Admin only.

        Args:
            experiment: Its name.
            changes: The new values; what is not named stays.

        Returns:
            The document that `experiment` returns.
        """
        path = calls.path("experiments", experiment)
        return self._send(Call("PATCH", path, calls.unchanged, changes))

    @endpoint
    def export(
        self, experiment: str, format: str = "jsonl", *, since: float = 0.0, until: float = 1e11
    ) -> Exchange[bytes]:
        """Export definition, guarantee, releases and decisions, never a reward. Admin only.

        Args:
            experiment: Its name.
            format: "jsonl" or "parquet".
            since: Decisions made at this time or later, in seconds since 1970.
            until: Decisions made before this time.

        Returns:
            The file's content.
        """
        return self._send(calls.export(experiment, format, since, until))

    @endpoint
    def erase(self, person: str) -> Exchange[Document]:
        """Erase a person's data in all experiments. Admin only. It cannot be undone.

        Args:
            person: As given to `decide`.

        Returns:
            The JSON document, with what was erased and its limits.
        """
        path, body = calls.path("persons"), {"person": person}
        return self._send(Call("DELETE", path, calls.unchanged, body))

    @endpoint
    def webhooks(self) -> Exchange[list[Document]]:
        """List all webhooks, without their secrets. Admin only.

        Returns:
            One document per webhook.
        """
        return self._send(calls.get_list("webhooks"))

    @endpoint
    def set_webhook(
        self, name: str, url: str, events: Sequence[str], secret: str
    ) -> Exchange[Document]:
        """Create or change a webhook. Admin only.

        Args:
            name: Of the webhook.
            url: Where events are sent.
            events: Of "winner", "guardrail", "drift" and "budget".
            secret: 16 to 200 printable characters, which sign deliveries.

        Returns:
            The document, without the secret.
        """
        path, body = calls.path("webhooks", name), {"url": url, "events": list(events)}
        return self._send(Call("PUT", path, calls.unchanged, {**body, "secret": secret}))

    @endpoint
    def delete_webhook(self, name: str) -> Exchange[None]:
        """Delete a webhook, and what it still had to deliver. Admin only.

        Args:
            name: Of the webhook.
        """
        return self._send(Call("DELETE", calls.path("webhooks", name), calls.nothing))

    def _set_state(
        self, experiment: str, verb: str, body: Document | None = None
    ) -> Exchange[Document]:
        path = calls.path("experiments", experiment, verb)
        return self._send(Call("POST", path, calls.unchanged, body))

    @endpoint
    def decision(self, decision: DecisionOrId) -> Exchange[Document]:
        """Read the state of a decision: open, rewarded, defaulted or given up. Admin only.

        Args:
            decision: The result of `decide`, or its decision_id.

        Returns:
            The JSON document, without the reward.
        """
        return self._send(calls.get("decisions", calls.decision_id(decision)))

    @endpoint
    def populations(self) -> Exchange[list[Document]]:
        """List the privacy budgets: total, spent and left.

        Returns:
            One document per population.
        """
        return self._send(calls.get_list("populations"))

    @endpoint
    def set_population(self, name: str, epsilon: float, delta: float = 0.0) -> Exchange[Document]:
        """Create a population with a total budget, or raise its total. Admin only.

        Args:
            name: The population.
            epsilon: Total epsilon of all its experiments.
            delta: Total delta.

        Returns:
            The budget.

        Raises:
            ServiceConflictError: The total would fall.
        """
        body = {"epsilon": epsilon, "delta": delta}
        return self._send(Call("PUT", calls.path("populations", name), calls.unchanged, body))

    @endpoint
    def charge_release(
        self, population: str, release: str, epsilon: float, delta: float = 0.0
    ) -> Exchange[Document]:
        """Charge a population for a release made elsewhere, before it is made. Admin only.

        Each call is a charge of its own. `bl.release_log(..., charge=...)` calls it.

        Args:
            population: Whose data is released.
            release: What it is, for the ledger: as "log of spring".
            epsilon: Its privacy loss.
            delta: The same.

        Returns:
            The budget.

        Raises:
            ServiceConflictError: It does not fit into the budget; nothing is charged.
        """
        return self._send(calls.charge_release(population, release, epsilon, delta))

    @endpoint
    def ledger(self) -> Exchange[Document]:
        """Read all budgets and all ledger entries. Admin only.

        Returns:
            The JSON document.
        """
        return self._send(calls.get("ledger"))

    @endpoint
    def keys(self) -> Exchange[list[Document]]:
        """List all API keys, without the keys themselves. Admin only.

        Returns:
            One document per key.
        """
        return self._send(calls.get_list("keys"))

    @endpoint
    def create_key(
        self,
        role: str,
        label: str = "",
        *,
        lifetime: float | None = None,
        experiments: Sequence[str] | None = None,
    ) -> Exchange[Document]:
        """Create an API key. Admin only, and never retried: that could create two.

        Args:
            role: "decide", "read" or "admin".
            label: What the key is for.
            lifetime: Seconds until the key expires; None for a key that does not.
            experiments: For which a key of role decide or read is valid; None for all.

        Returns:
            The document with the key. The service does not return it again.
        """
        body: Document = {"role": role, "label": label, "lifetime": lifetime}
        if experiments is not None:
            body["experiments"] = list(experiments)
        path = calls.path("keys")
        return self._send(Call("POST", path, calls.unchanged, body, idempotent=False))

    @endpoint
    def revoke_key(self, id: str) -> Exchange[None]:
        """Revoke an API key. Admin only.

        Args:
            id: The key's id, as `keys` lists it.
        """
        return self._send(Call("DELETE", calls.path("keys", id), calls.nothing))


class Client(ServiceCalls):
    """Call a decision service over HTTP, with retries.

    Threads may share a client. Close it, or use it in a `with` block.

    Example:
        >>> from balaclava.client import Client
        >>> client = Client("https://decisions.example.org", "the key", patience=5)
        >>> client
        Client('https://decisions.example.org')
        >>> client.close()
    """

    def _connect(self, settings: dict[str, Any]) -> None:
        import httpx

        self._http = httpx.Client(**settings)

    @staticmethod
    @cache
    def _method(function: Callable[..., Exchange[Any]]) -> Callable[..., Any]:
        @wraps(function)
        def call(self: Client, *arguments: Any, **named: Any) -> Any:
            return self._run(function(self, *arguments, **named))

        call.__signature__ = _signature(function)  # type: ignore[attr-defined]
        return call

    def _run(self, exchange: Exchange[Answer]) -> Answer:
        import httpx

        outcome: httpx.Response | httpx.TransportError | None = None
        began = time.monotonic()
        while True:
            try:
                wait, call = exchange.send(outcome)  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                return end.value
            time.sleep(wait)
            limit = self._limit(call, began)
            send = partial(self._attempt, call, limit)
            try:
                outcome = send() if call.deadline is None else _within(limit, send)
            except httpx.TransportError as error:
                outcome = error

    def _attempt(self, call: Call[Any], limit: float) -> httpx.Response:
        return self._http.request(
            call.method, call.path, json=call.body, params=call.query, timeout=limit
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient(ServiceCalls):
    """The calls of `Client` as coroutines.

    Example:
        >>> import asyncio
        >>> from balaclava.client import AsyncClient
        >>> async def serve_visitor(visitor: str) -> str:
        ...     async with AsyncClient("http://127.0.0.1:8765", "the key") as client:
        ...         decision = await client.decide("landing-page", person=visitor)
        ...         await client.reward(decision, 1.0)
        ...     return decision.label
    """

    def _connect(self, settings: dict[str, Any]) -> None:
        import httpx

        self._http = httpx.AsyncClient(**settings)

    @staticmethod
    @cache
    def _method(function: Callable[..., Exchange[Any]]) -> Callable[..., Any]:
        @wraps(function)
        async def call(self: AsyncClient, *arguments: Any, **named: Any) -> Any:
            return await self._run(function(self, *arguments, **named))

        call.__signature__ = _signature(function)  # type: ignore[attr-defined]
        return call

    async def _run(self, exchange: Exchange[Answer]) -> Answer:
        import anyio
        import httpx

        outcome: httpx.Response | httpx.TransportError | None = None
        began = time.monotonic()
        while True:
            try:
                wait, call = exchange.send(outcome)  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                return end.value
            await anyio.sleep(wait)
            try:
                limit = self._limit(call, began)
                with anyio.fail_after(None if call.deadline is None else limit):
                    outcome = await self._http.request(
                        call.method, call.path, json=call.body, params=call.query, timeout=limit
                    )
            except httpx.TransportError as error:
                outcome = error
            except TimeoutError:
                outcome = httpx.ReadTimeout(_INCOMPLETE)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _within(seconds: float, send: Callable[[], httpx.Response]) -> httpx.Response:
    """Send in a thread that is left behind after so long.

    A timeout of httpx is of one read: an answer that comes byte by byte never ends.
    """
    import httpx

    answer: Future[httpx.Response] = Future()

    def run() -> None:
        try:
            answer.set_result(send())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="balaclava-client", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        raise httpx.ReadTimeout(_INCOMPLETE) from None


def _http_settings(url: str, key: str | None, timeout: float) -> dict[str, Any]:
    """Arguments of an httpx client. Raises `ParameterError` if one is not valid."""
    require_extra("httpx", "the client of the service")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ParameterError(
            f"url must be the service's address, such as http://127.0.0.1:8765, not {url!r}"
        )
    headers = {"accept": "application/json"}
    if key is not None:
        if not (isinstance(key, str) and key.isascii() and key.isprintable() and key.strip()):
            raise ParameterError(
                "key (not repeated here) must be a string of printable ASCII characters, as the "
                "service printed it"
            )
        headers["authorization"] = f"Bearer {key.strip()}"
    return {"base_url": url, "headers": headers, "timeout": timeout}

"""The client of programs with an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

from balaclava.client import calls
from balaclava.client.calls import Call, Document, Pairs, Rewarded, RewardReceipt, ServiceDecision
from balaclava.client.connection import checked_patience, connection
from balaclava.client.retries import attempts

Answer = TypeVar("Answer")


class AsyncClient:
    """As `Client`, with methods to await.

    Example:
        >>> import asyncio
        >>> from balaclava.client import AsyncClient
        >>> async def serve_visitor(visitor: str) -> str:
        ...     async with AsyncClient("http://127.0.0.1:8765", "the key") as client:
        ...         decision = await client.decide("landing-page", person=visitor)
        ...         await client.reward(decision, 1.0)
        ...     return decision.label
    """

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 10.0, patience: float = 30.0
    ) -> None:
        settings = connection(url, key, timeout)
        import httpx

        self._url, self._patience = url, checked_patience(patience)
        self._http = httpx.AsyncClient(**settings)

    def __repr__(self) -> str:
        return f"AsyncClient({self._url!r})"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def _ask(self, call: Call[Answer]) -> Answer:
        import anyio
        import httpx

        steps = attempts(call, self._patience)
        wait = next(steps)
        while True:
            await anyio.sleep(wait)
            outcome: httpx.Response | httpx.TransportError
            try:
                outcome = await self._http.request(
                    call.method, call.path, json=call.body, params=call.query
                )
            except httpx.TransportError as error:
                outcome = error
            try:
                wait = steps.send(outcome)
            except StopIteration as end:
                return end.value

    async def _record(self, pairs: Pairs, kind: str) -> list[RewardReceipt]:
        answers: list[RewardReceipt] = []
        for call in calls.rewards(pairs, kind):
            recorded = await self._ask(call)
            answers += recorded
        return answers

    @overload
    async def decide(
        self,
        experiment: str,
        person: str | None = None,
        request_id: str | None = None,
        count: None = None,
    ) -> ServiceDecision: ...

    @overload
    async def decide(
        self,
        experiment: str,
        person: str | None = None,
        request_id: str | None = None,
        *,
        count: int,
    ) -> list[ServiceDecision]: ...

    async def decide(
        self,
        experiment: str,
        person: str | None = None,
        request_id: str | None = None,
        count: int | None = None,
    ) -> ServiceDecision | list[ServiceDecision]:
        """As `Client.decide`."""
        decisions = await self._ask(
            calls.decide(experiment, person, request_id, 1 if count is None else count)
        )
        return decisions[0] if count is None else decisions

    async def reward(self, decision: Rewarded, value: float) -> None:
        """As `Client.reward`."""
        await self._ask(calls.reward(decision, "value", value))

    async def report(self, decision: Rewarded, report: float) -> None:
        """As `Client.report`."""
        await self._ask(calls.reward(decision, "report", report))

    async def rewards(self, pairs: Pairs) -> list[RewardReceipt]:
        """As `Client.rewards`."""
        return await self._record(pairs, "value")

    async def reports(self, pairs: Pairs) -> list[RewardReceipt]:
        """As `Client.reports`."""
        return await self._record(pairs, "report")

    async def experiments(self) -> list[Document]:
        """As `Client.experiments`."""
        return await self._ask(calls.get_list("experiments"))

    async def experiment(self, name: str) -> Document:
        """As `Client.experiment`."""
        return await self._ask(calls.get("experiments", name))

    async def results(self, experiment: str, confidence: float = 0.95) -> Document:
        """As `Client.results`."""
        return await self._ask(
            calls.get("experiments", experiment, "results", confidence=confidence)
        )

    async def privacy(self, experiment: str) -> Document:
        """As `Client.privacy`."""
        return await self._ask(calls.get("experiments", experiment, "privacy"))

    async def history(self, experiment: str, points: int = 300) -> Document:
        """As `Client.history`."""
        return await self._ask(calls.get("experiments", experiment, "history", points=points))

    async def create_experiment(
        self,
        name: str,
        policy: str,
        arms: Sequence[str],
        *,
        reward_window: float,
        parameters: Document | None = None,
        **more: Any,
    ) -> Document:
        """As `Client.create_experiment`."""
        return await self._ask(
            calls.create_experiment(name, policy, arms, reward_window, parameters, more)
        )

    async def pause(self, experiment: str) -> Document:
        """As `Client.pause`."""
        return await self._ask(calls.set_state(experiment, "pause"))

    async def resume(self, experiment: str) -> Document:
        """As `Client.resume`."""
        return await self._ask(calls.set_state(experiment, "resume"))

    async def finish(self, experiment: str) -> Document:
        """As `Client.finish`."""
        return await self._ask(calls.set_state(experiment, "finish"))

    async def decision(self, decision: Rewarded) -> Document:
        """As `Client.decision`."""
        return await self._ask(calls.get("decisions", calls.decision_id(decision)))

    async def populations(self) -> list[Document]:
        """As `Client.populations`."""
        return await self._ask(calls.get_list("populations"))

    async def set_population(self, name: str, epsilon: float, delta: float = 0.0) -> Document:
        """As `Client.set_population`."""
        return await self._ask(calls.set_population(name, epsilon, delta))

    async def ledger(self) -> Document:
        """As `Client.ledger`."""
        return await self._ask(calls.get("ledger"))

    async def keys(self) -> list[Document]:
        """As `Client.keys`."""
        return await self._ask(calls.get_list("keys"))

    async def create_key(self, role: str, label: str = "") -> Document:
        """As `Client.create_key`."""
        return await self._ask(calls.create_key(role, label))

    async def revoke_key(self, id: str) -> None:
        """As `Client.revoke_key`."""
        await self._ask(calls.revoke_key(id))

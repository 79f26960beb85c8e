"""Who waits for an answer of the writer: a thread, or an event loop on behalf of a request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from balaclava.service.problems import Problem

Waiter = Future[Any] | asyncio.Future[Any]


def resolve(answers: Sequence[tuple[Waiter, Any]]) -> None:
    """Hand out answers; those for one loop all at once, since to wake it is what takes time."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for waiter, answer in answers:
        if isinstance(waiter, Future):
            if waiter.set_running_or_notify_cancel():
                _settle(waiter, answer)
        else:
            loops.setdefault(waiter.get_loop(), []).append((waiter, answer))
    for loop, some in loops.items():
        with contextlib.suppress(RuntimeError):  # it is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle_all, some)


def _settle_all(answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for waiter, answer in answers:
        if not waiter.done():  # whoever asked may have gone
            _settle(waiter, answer)


def _settle(waiter: Waiter, answer: Any) -> None:
    if isinstance(answer, Problem):
        waiter.set_exception(answer)
    else:
        waiter.set_result(answer)

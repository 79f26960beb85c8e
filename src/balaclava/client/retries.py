"""How often a request is sent, how long is waited between, and what its answer means.

The same for both clients: `attempts` is a generator that says how many seconds to wait before it
is sent (again), and is sent back what came of it. It does no I/O itself.
"""

from __future__ import annotations

import email.utils
import itertools
import random
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from balaclava.client.calls import Call
from balaclava.errors import (
    ServiceConflictError,
    ServiceError,
    ServiceKeyError,
    ServiceLookupError,
    ServiceRequestError,
    ServiceUnavailableError,
    WindowOverError,
)

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0  # seconds
_PASSING = (502, 503, 504)
_ERRORS: dict[int, type[ServiceError]] = {
    401: ServiceKeyError,
    403: ServiceKeyError,
    404: ServiceLookupError,
    409: ServiceConflictError,
    410: WindowOverError,
}


def attempts(
    call: Call[Answer],
    patience: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    chance: Callable[[], float] = random.random,
) -> Generator[float, httpx.Response | httpx.TransportError, Answer]:
    """Seconds to wait before each time it is sent; returns the answer, or raises what is wrong.

    Faults that may pass (no connection, 502, 503, 504) are tried again for `patience` seconds,
    twice as long apart each time, at random so that many clients do not come back as one, and not
    before the service's own Retry-After. Nothing else is sent twice.
    """
    end = clock() + patience
    wait = 0.0
    for attempt in itertools.count():
        outcome = yield wait
        if not _may_pass(outcome, call):
            return call.read(_document(outcome))
        longest = min(FIRST_WAIT * 2.0 ** min(attempt, 30), LONGEST_WAIT)
        wait = _retry_after(outcome) + longest * (0.5 + 0.5 * chance())
        if clock() + wait > end:
            raise _unavailable(outcome, attempt + 1, call)
    raise AssertionError  # never: the count has no end


def _may_pass(outcome: httpx.Response | httpx.TransportError, call: Call[Any]) -> bool:
    import httpx

    if isinstance(outcome, httpx.Response):
        return outcome.status_code in _PASSING and call.repeatable
    if isinstance(outcome, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        raise outcome
    if isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout) or call.repeatable:
        return True
    raise ServiceUnavailableError(
        f"the connection broke while a request that cannot be sent twice was under way "
        f"({call.method} {call.path}): look whether it was done, before you ask for it again"
    ) from outcome


def _retry_after(outcome: httpx.Response | httpx.TransportError) -> float:
    """Seconds that the service asks for, given as a number or as a date; 0 if it does not."""
    text = getattr(outcome, "headers", {}).get("retry-after", "")
    if text.isdecimal():
        return float(text)
    try:
        until = email.utils.parsedate_to_datetime(text).timestamp()
    except ValueError:
        return 0.0
    return max(until - time.time(), 0.0)


def _unavailable(
    outcome: httpx.Response | httpx.TransportError, sent: int, call: Call[Any]
) -> ServiceUnavailableError:
    status = getattr(outcome, "status_code", 0)
    why = (_detail(outcome) if status else "") or str(outcome) or type(outcome).__name__
    again = "send the same again later: it counts once"
    if isinstance(call.body, dict) and "request_id" in call.body:
        again = f"ask again later with request_id={call.body['request_id']!r}"
    times = "once" if sent == 1 else f"{sent} times"
    return ServiceUnavailableError(
        f"the service is not available (asked {times}): {why}; {again}", status
    )


def _document(response: Any) -> Any:
    """What a response says; an error if it is one, or is not from a balaclava service."""
    status = response.status_code
    if status == 204:
        return None
    if not 200 <= status < 300:
        detail = _detail(response) or (
            "that is no answer of a balaclava service; check the address, and what lies between"
        )
        kind = _ERRORS.get(status, ServiceRequestError if 400 <= status < 500 else ServiceError)
        raise kind(f"{detail} (HTTP {status})", status)
    try:
        return response.json()
    except ValueError:
        raise ServiceError(
            f"the answer of {response.url} is not JSON; check that it is the address of a "
            "balaclava service",
            status,
        ) from None


def _detail(response: Any) -> str:
    """The sentence of a problem document; nothing if it is none."""
    try:
        document = response.json()
    except ValueError:
        return ""
    detail = document.get("detail") if isinstance(document, dict) else None
    return detail if isinstance(detail, str) else ""

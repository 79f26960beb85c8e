"""`balaclava serve --aggregator`: the HTTP interface of one aggregator of secret shares."""

import hmac
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Self, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError, model_validator
from sqlalchemy import func, select
from starlette.requests import ClientDisconnect

from balaclava.privacy.secret_shares import MOST_BITS, share_digits
from balaclava.service import share_messages as messages
from balaclava.service.aggregation import aggregator
from balaclava.service.credentials import ApiKey, is_decision_id, key_digest
from balaclava.service.http import endpoints
from balaclava.service.http.app import add_error_handlers, complete_schema, require_right
from balaclava.service.http.metrics import Metrics
from balaclava.service.http.middleware import LARGEST_BODY, RequestMiddleware, too_large
from balaclava.service.http.payloads import Payload, RewardOut
from balaclava.service.http.server import ServerSettings, serve
from balaclava.service.problems import Problem, StartError
from balaclava.service.service import Service
from balaclava.service.store.schema import experiments

# Bytes
_LARGEST_SHARE = 1_000  # of a device, which has no key

Uid = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Secret = Annotated[str, Field(min_length=32, max_length=200, pattern=r"^[\x21-\x7e]+$")]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Ids = Annotated[list[str], Field(max_length=messages.MOST_IN_BATCH)]


class ShareTaskIn(Payload):
    """A task, as the decider's operator gives it to the aggregator's."""

    side: Annotated[int, Field(ge=0, le=1, description="0 for one aggregator, 1 for the other")]
    epsilon: Annotated[float, Field(ge=1e-100, le=1e100, description="of this server's noise")]
    range: Annotated[list[float], Field(min_length=2, max_length=2)]
    default: float
    modulus_bits: Annotated[int, Field(ge=1, le=MOST_BITS)]
    decider_key: Secret
    ticket_key: Secret
    peer_key: Annotated[Secret, Field(description="of the two aggregators, not of the decider")]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.range
        if not (math.isfinite(high - low) and low <= self.default <= high and low < high):
            raise ValueError("range must be [smallest, largest], with the default in it")
        return self

    def task(self, uid: str) -> aggregator.ShareTask:
        """The task as it is stored, with a digest of the decider's key."""
        values = self.model_dump()
        digest = key_digest(values.pop("decider_key"))
        return aggregator.ShareTask(uid=uid, decider_digest=digest, **values)


class ShareTaskOut(Payload):
    """What anyone may know of a task."""

    uid: str
    side: int
    epsilon: float
    range: list[float]
    default: float
    modulus_bits: int


class ShareIn(Payload):
    """A share: hexadecimal digits, as many for every reward."""

    share: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]
    ticket: Annotated[str, Field(max_length=64, description="of the decision")]
    epsilon: Annotated[float, Field(gt=0, description="the most that the device agrees to")]
    modulus_bits: Annotated[int, Field(ge=1, le=MOST_BITS, description="of the device's shares")]


class BatchIn(Payload):
    """The decisions of a batch."""

    ids: Ids

    @model_validator(mode="after")
    def _proper(self) -> Self:
        if len(set(self.ids)) != len(self.ids) or not all(map(is_decision_id, self.ids)):
            raise ValueError("ids must be decision ids, each once")
        return self


class FixedBatchOut(Payload):
    """The missing decisions of a fixed batch, and the statement for the other aggregator."""

    missing: list[str]
    statement: str


class ReleaseIn(BatchIn):
    """The other aggregator's answer, with the decisions."""

    missing: Ids
    statement: Annotated[str, Field(max_length=64)]

    @model_validator(mode="after")
    def _of_the_batch(self) -> Self:
        # Two ids joined by a newline have the digest of both, but would not be left out.
        if len(set(self.missing)) != len(self.missing) or not set(self.missing) <= set(self.ids):
            raise ValueError("missing must be decisions of the batch, each once")
        return self


class NoisySumOut(Payload):
    """A release: a noisy sum modulo a power of two, and whose rewards it sums."""

    size: int
    agreed: str
    noisy_sum: str


Body = TypeVar("Body", bound=BaseModel)


async def _read(request: Request, model: type[Body], most: int) -> Body:
    """The request's body, if it has at most `most` bytes; errors name fields, never values."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise too_large(most)
    except ClientDisconnect:  # as an error of the server it would fill the log
        raise Problem(400, "the request ended within its body") from None
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        names = sorted({str(fault["loc"][0]) for fault in error.errors() if fault["loc"]})
        known = [name for name in names if name in model.model_fields]
        raise Problem(422, f"not valid: {', '.join(known) or 'body'}") from None


def _documented(body: type[BaseModel], answer: type[BaseModel]) -> dict[str, Any]:
    """Document an endpoint that checks its caller before it reads the body."""
    content = {"application/json": {"schema": body.model_json_schema()}}
    return {
        "response_model": None,
        "responses": {200: {"model": answer}},
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


class TaskReader:
    """The tasks of an aggregator, cached: they never change."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, aggregator.ShareTask] = {}

    async def find(self, uid: str) -> aggregator.ShareTask:
        """The task; raises if there is none."""
        if uid not in self._known:
            self._known[uid] = await self._service.await_job(aggregator.ReadTask(uid))
        return self._known[uid]

    async def find_for_decider(self, uid: str, request: Request) -> aggregator.ShareTask:
        """The task, if the request has the decider's key."""
        task = await self.find(uid)
        _, _, key = request.headers.get("authorization", "").partition(" ")
        if not hmac.compare_digest(key_digest(key.strip()), task.decider_digest):
            raise Problem(401, "send the decider's key of this task as Authorization: Bearer <key>")
        return task


def _add_shares(router: APIRouter, service: Service, tasks: TaskReader) -> None:
    @router.get("/v1/tasks/{uid}", response_model=ShareTaskOut)
    async def read_task(uid: Uid) -> dict[str, Any]:
        """Return what anyone may know of a task: the epsilon of its noise, and how to share."""
        return (await tasks.find(uid)).public

    @router.put("/v1/tasks/{uid}/shares/{decision_id}", **_documented(ShareIn, RewardOut))
    async def record_share(uid: Uid, decision_id: str, request: Request) -> JSONResponse:
        """Record a decision's share. The first one counts; a later one gets the same answer."""
        task = await tasks.find(uid)
        received = await _read(request, ShareIn, _LARGEST_SHARE)
        # First: with other bits, whether the share fits would depend on the share.
        bits = task.modulus_bits
        if not task.epsilon <= received.epsilon or received.modulus_bits != bits:
            raise Problem(
                409,
                f"the task has epsilon {task.epsilon!r} and {bits} bits, and the device agreed to "
                f"epsilon {received.epsilon!r} and {received.modulus_bits} bits; nothing was "
                "recorded",
            )
        digits = share_digits(bits)
        if len(received.share) != digits or int(received.share, 16) >> bits:
            raise Problem(422, f"a share of this task has {digits} digits, {bits} bits")
        expected = messages.ticket(task.ticket_key, decision_id)
        if not is_decision_id(decision_id) or not hmac.compare_digest(
            expected.encode(), received.ticket.encode("utf-8", "surrogatepass")
        ):
            raise Problem(403, "the ticket is not that of this decision; send the decision's own")
        job = aggregator.RecordShare(uid, decision_id, received.share)
        return JSONResponse(await service.await_job(job))


def _add_batches(router: APIRouter, service: Service, tasks: TaskReader) -> None:
    @router.put("/v1/tasks/{uid}/batches/{label}", **_documented(BatchIn, FixedBatchOut))
    async def fix_batch(uid: Uid, label: Label, request: Request) -> JSONResponse:
        """Fix the set of a batch for good: the decisions that have a share."""
        await tasks.find_for_decider(uid, request)
        payload = await _read(request, BatchIn, messages.LARGEST_MESSAGE)
        return JSONResponse(await service.await_job(aggregator.FixBatch(uid, label, payload.ids)))

    @router.post("/v1/tasks/{uid}/batches/{label}/release", **_documented(ReleaseIn, NoisySumOut))
    async def release_batch(uid: Uid, label: Label, request: Request) -> JSONResponse:
        """Release the noisy sum of a fixed batch, once; a repetition gets the same answer."""
        await tasks.find_for_decider(uid, request)
        payload = await _read(request, ReleaseIn, messages.LARGEST_MESSAGE)
        terms = payload.ids, payload.missing, payload.statement
        job = aggregator.ReleaseBatch(service.ledger, uid, label, *terms)
        return JSONResponse(await service.await_job(job))


def _add_tasks(router: APIRouter, service: Service, key_of: endpoints.KeyOf) -> None:
    @router.put("/v1/tasks/{uid}", status_code=201, response_model=ShareTaskOut)
    async def add_task(
        uid: Uid, payload: ShareTaskIn, key: Annotated[ApiKey, Depends(key_of)]
    ) -> JSONResponse:
        """Add a task. The same task again answers 200; another one of the same id is refused."""
        task = payload.task(uid)
        new = await service.await_job(aggregator.AddTask(service.ledger, task, key.actor))
        return JSONResponse(task.public, 201 if new else 200)

    @router.delete("/v1/tasks/{uid}", response_model=ShareTaskOut)
    async def end_task(uid: Uid, key: Annotated[ApiKey, Depends(key_of)]) -> dict[str, Any]:
        """End a task for good, and delete its shares that were not released."""
        return await service.await_job(aggregator.EndTask(service.ledger, uid, key.actor))


def create_aggregator_app(service: Service, *, keys: bool = True) -> FastAPI:
    """Build the ASGI application on an open database, which it closes when the server stops."""
    with service.storage.reading() as connection:
        if connection.scalar(select(func.count()).select_from(experiments)):
            raise StartError(
                "this database has experiments: an aggregator needs a database of its own; give "
                "another --database"
            )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="balaclava aggregator",
        description="Adds up secret shares of rewards, and releases noisy sums.",
        version="1",
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # paths have decision ids
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    tasks, metrics = TaskReader(service), Metrics(service)
    devices, decider = APIRouter(tags=["device"]), APIRouter(tags=["decide"])
    _add_shares(devices, service, tasks)
    _add_batches(decider, service, tasks)
    administrator = require_right(service, keys, "admin")
    administration = APIRouter(dependencies=[Depends(administrator)], tags=["admin"])
    _add_tasks(administration, service, administrator)
    endpoints.add_keys(administration, service, administrator)
    endpoints.add_metrics(administration, metrics)
    for router in (devices, decider, administration):
        app.include_router(router)
    endpoints.add_health(app, service)
    app.add_middleware(  # devices send from pages of any origin, without a key
        CORSMiddleware, allow_origins=["*"], allow_methods=["PUT"], allow_headers=["Content-Type"]
    )
    app.add_middleware(
        RequestMiddleware,
        metrics=metrics,
        local=not keys,
        root_path=service.root_path,
        largest_body=max(messages.LARGEST_MESSAGE, LARGEST_BODY),
    )
    add_error_handlers(app)
    complete_schema(app, keys)
    return app


def serve_aggregator(settings: ServerSettings, greet: Callable[[str, str | None], None]) -> None:
    """Serve until stopped; `greet` gets the URL, and the first admin key if it is new."""
    if settings.database.startswith("postgresql"):
        raise StartError("an aggregator takes an SQLite file; give --database a path")
    if settings.restored:
        aggregator.end_tasks(settings.database)
    serve(settings, greet, create_aggregator_app)

"""Export of an experiment: definition, guarantee, releases and decisions; never rewards.

It has no person, no request, and no state of a decision: that says whether a reward came. Decisions
are read in pages of short transactions: an export holds up neither writers nor SQLite's log.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import func, select, tuple_

from balaclava.service.documents import for_readers
from balaclava.service.problems import Problem
from balaclava.service.store.schema import decisions

if TYPE_CHECKING:
    from balaclava.service.engine.served_experiment import ServedExperiment
    from balaclava.service.service import Service

ExportFormat = Literal["jsonl", "parquet"]
MEDIA_TYPES = {"jsonl": "application/jsonl", "parquet": "application/vnd.apache.parquet"}
_PAGE = 10_000  # decisions in a transaction
_READ_BYTES = 1 << 20  # bytes of a file in an answer
_EXPORTED_COLUMNS = ("id", "arm", "learns", "propensity", "level", "made", "closes", "features")
Rows = list[dict[str, Any]]


def export(
    service: Service, name: str, form: ExportFormat, since: float, until: float
) -> Iterator[bytes]:
    """The bytes of an export, with the decisions made in [since, until)."""
    if form == "parquet" and find_spec("pyarrow") is None:
        raise Problem(
            422, "format=parquet needs pyarrow on the server (balaclava[files]); use format=jsonl"
        )
    experiment = service.committed(name)
    until = min(until, service.clock.now())
    head = {
        "experiment": service.experiment(name),
        "privacy": service.privacy(name),
        "results": for_readers(service.results(name)) | {"awaited": awaited(service, name)},
        "history": service.history(name, 2_000),
    }
    pages = _pages(service, experiment, since, until)
    if form == "jsonl":
        return _json_lines(head, pages)
    return _parquet_file(head, pages)


def awaited(service: Service, name: str) -> dict[str, Any] | None:
    """Windows of a finished experiment that are not over, and when the last is; None if all are.

    It depends on clocks and decisions only, also where rewards settle by arrival.
    """
    experiment = service.committed(name)
    if not experiment.counters.closing:
        return None
    ends = decisions.c.closes
    mine = (decisions.c.experiment == experiment.id) & decisions.c.learns
    wanted = select(func.count(), func.max(ends)).where(mine & (ends > service.clock.now()))
    with service.storage.reading() as connection:
        count, last = connection.execute(wanted).one()
    return {"windows": count, "until": last}


def _pages(
    service: Service, experiment: ServedExperiment, since: float, until: float
) -> Iterator[Rows]:
    """Decisions in the order in which they were made."""
    place = tuple_(decisions.c.made, decisions.c.id)
    columns = [decisions.c[name] for name in _EXPORTED_COLUMNS]
    mine = (decisions.c.experiment == experiment.id) & (decisions.c.made < until)
    ordered = select(*columns).where(mine).order_by(decisions.c.made, decisions.c.id).limit(_PAGE)
    wanted = ordered.where(decisions.c.made >= since)
    while True:
        with service.storage.reading() as connection:
            rows = connection.execute(wanted).all()
        if not rows:
            return
        yield [_decision(experiment, row) for row in rows]
        last = rows[-1]
        wanted = ordered.where(place > tuple_(last.made, last.id), decisions.c.made >= last.made)


def _decision(experiment: ServedExperiment, row: Any) -> dict[str, Any]:
    answer = dict(row._mapping)
    answer["decision_id"] = answer.pop("id")
    answer["label"] = experiment.arms[row.arm]
    features = answer.pop("features")
    if features is not None:
        answer["features"] = json.loads(features)
    return answer


def _json_lines(head: dict[str, Any], pages: Iterator[Rows]) -> Iterator[bytes]:
    """One document per line; the last one counts the decisions, and proves that it is whole."""
    for kind, document in head.items():
        yield json.dumps({"type": kind, **document}).encode() + b"\n"
    count = 0
    for rows in pages:
        count += len(rows)
        yield b"".join(json.dumps({"type": "decision", **row}).encode() + b"\n" for row in rows)
    yield json.dumps({"type": "end", "decisions": count}).encode() + b"\n"


def _parquet_file(head: dict[str, Any], pages: Iterator[Rows]) -> Iterator[bytes]:
    """Decisions as Parquet; all else is JSON in the schema's metadata.

    The file has no name while it is written, so nothing is left of it after a crash.
    """
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {
        **dict.fromkeys(("decision_id", "label"), pa.string()),
        "arm": pa.int32(),
        "learns": pa.bool_(),
        **dict.fromkeys(("propensity", "level", "made", "closes"), pa.float64()),
    }
    if head["experiment"]["features"] is not None:
        kinds["features"] = pa.list_(pa.list_(pa.float64()))
    metadata = {f"balaclava.{kind}": json.dumps(document) for kind, document in head.items()}
    schema = pa.schema(list(kinds.items()), metadata=metadata)
    with tempfile.TemporaryFile() as file:
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            for rows in pages:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        file.seek(0)
        while chunk := file.read(_READ_BYTES):
            yield chunk

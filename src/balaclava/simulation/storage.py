"""Results on disk: one Parquet file, a row for each repetition of each policy.

What is not a number stands in the schema's metadata under the key `balaclava`, as JSON. Nothing in
the file depends on when or where it was written: equal results give equal bytes.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import balaclava
from balaclava._declared import Range
from balaclava.environments.base import REGISTRY as ENVIRONMENTS
from balaclava.environments.base import Environment
from balaclava.errors import (
    BalaclavaError,
    IncompatibleError,
    ResultsFileError,
    UnknownNameError,
)
from balaclava.policies.base import REGISTRY as POLICIES
from balaclava.simulation.results import Results, Run

SCHEMA = 1
_KEY = b"balaclava"
_COLUMNS = ("label", "repetition", "regret", "pulls")


@contextmanager
def atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; what was written appears under `path` whole, or not at all."""
    target = Path(path)
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.tmp{target.suffix}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ResultsFileError(
            f"{target} cannot be written: {reason}; choose a folder that exists, may be written "
            "to and has room"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def save(results: Results, path: str | os.PathLike[str]) -> None:
    """Write everything into one file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    runs = [run for label in results.labels for run in results._of(label)]
    schema = pa.schema(
        [
            ("label", pa.string()),
            ("repetition", pa.int64()),
            ("regret", pa.list_(pa.float64())),
            ("pulls", pa.list_(pa.int64())),
        ],
        metadata={_KEY: json.dumps(_description(results), ensure_ascii=False)},
    )
    columns = dict(zip(Run._fields, zip(*runs, strict=True), strict=True)) if runs else {}
    table = pa.table({name: list(columns.get(name, ())) for name in _COLUMNS}, schema=schema)
    with atomically(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def load(path: str | os.PathLike[str]) -> Results:
    """The results in a file that `save` wrote."""
    table = _read(Path(path))
    found = (table.schema.metadata or {}).get(_KEY)
    if found is None:
        raise ResultsFileError(
            f"{path} is a Parquet file, but not one of balaclava's; give a file that "
            "results.save(path) wrote"
        )
    try:
        description = json.loads(found)
        schema = description["schema"]
        if schema != SCHEMA:
            advice = "upgrade balaclava" if schema > SCHEMA else "use the version that wrote it"
            raise ResultsFileError(
                f"{path} has schema {schema}, and this version reads {SCHEMA}; {advice}"
            )
        return _rebuild(path, description, table)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, BalaclavaError):
            raise
        raise _damaged(path, type(error).__name__) from error


def _read(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.is_dir():
        raise ResultsFileError(f"{path} is a folder; give the results file in it")
    try:
        if path.stat().st_size == 0:
            raise _damaged(path, "it is empty")
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read()
    except FileNotFoundError:
        raise ResultsFileError(f"{path} does not exist; check the path") from None
    except PermissionError:
        raise ResultsFileError(f"{path} may not be read; check its permissions") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, "it is truncated or not Parquet") from error


def _damaged(path: str | os.PathLike[str], why: str) -> ResultsFileError:
    return ResultsFileError(
        f"{path} is not an intact results file ({why}); use a good copy or simulate again"
    )


def _description(results: Results) -> dict[str, Any]:
    world = results.environment
    return {
        "schema": SCHEMA,
        "policies": {
            label: {
                "name": policy.name,
                "parameters": policy.parameters,
                "guarantee": str(policy.guarantee),
            }
            for label, policy in results.policies.items()
        },
        "environment": {
            "name": getattr(world, "family", world.name),
            "parameters": world.public_parameters,
            "holds_data": world.holds_data,
            "gaps": world.gaps.tolist(),
        },
        "horizon": results.horizon,
        "seed": results.seed,
        "checkpoints": results.checkpoints.tolist(),
        "versions": results.versions or _versions(),
    }


def _versions() -> dict[str, str]:
    return {
        "balaclava": balaclava.__version__,
        "numpy": np.__version__,
        "numba": version("numba"),
        "python": platform.python_version(),
    }


def _environment(saved: dict[str, Any]) -> Environment:
    if not saved["holds_data"]:
        return ENVIRONMENTS.create(saved["name"], saved["parameters"])
    return Recorded(family=saved["name"], known=saved["parameters"], regrets=saved["gaps"])


class Recorded(Environment):
    """What a results file keeps of an environment that holds somebody's rewards: no reward."""

    name = "recorded"
    family: str
    known: dict  # type: ignore[type-arg]
    regrets: Annotated[np.ndarray, Range(0), 1]

    @property
    def gaps(self) -> np.ndarray:
        return self.regrets

    @property
    def arms(self) -> int:
        return int(self.regrets.size)

    @property
    def holds_data(self) -> bool:
        return True

    @property
    def public_parameters(self) -> dict[str, Any]:
        return self.known

    @property
    def draw(self) -> Callable[..., float]:
        raise IncompatibleError(
            f"the results file does not hold the rewards of its {self.family} environment; make "
            "the environment again from the data"
        )

    @property
    def reward_range(self) -> tuple[float, float]:
        return (-math.inf, math.inf)


def _rebuild(path: str | os.PathLike[str], description: dict[str, Any], table: Any) -> Results:
    try:
        policies = {
            label: POLICIES.create(saved["name"], saved["parameters"])
            for label, saved in description["policies"].items()
        }
        world = description["environment"]
        environment = _environment(world)
    except UnknownNameError as error:
        raise ResultsFileError(
            f"{path}: {error}; if it is your own, import what registers it, then load again"
        ) from error
    except BalaclavaError as error:
        wrote = description["versions"]["balaclava"]
        raise ResultsFileError(
            f"{path}: {error}; the file was written by balaclava {wrote}"
        ) from error
    if not np.array_equal(world["gaps"], environment.gaps):
        raise _damaged(path, "its gaps are not those of its environment")
    checkpoints = np.array(description["checkpoints"], dtype=np.int64)
    results = Results.empty(
        policies,
        environment,
        horizon=int(description["horizon"]),
        seed=int(description["seed"]),
        checkpoints=checkpoints,
    )
    results.versions = description["versions"]
    for row in table.select(_COLUMNS).to_pylist():
        regret = np.array(row["regret"], dtype=np.float64)
        pulls = np.array(row["pulls"], dtype=np.int64)
        if regret.shape != checkpoints.shape or pulls.shape != (environment.arms,):
            raise _damaged(path, "a row has the wrong length")
        results.add(Run(row["label"], row["repetition"], regret, pulls))
    return results

"""Results on disk: one Parquet file with a row per repetition of each policy.

The schema's metadata describe the rest as JSON, under the key `balaclava`. Equal results give equal
bytes: the file contains neither time nor place.
"""

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import balaclava
from balaclava._core.atomic_files import atomically
from balaclava._core.declared import Range, brief
from balaclava._core.extras import require_extra
from balaclava.environments.base import ENVIRONMENTS, Environment
from balaclava.environments.contextual_environment import ContextualEnvironment
from balaclava.errors import BalaclavaError, IncompatibleError, ResultsFileError, UnknownNameError
from balaclava.policies.base import POLICIES, Policy
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.gpu.device import numba_cuda_version
from balaclava.simulation.results import Results, Run

RESULTS_SCHEMA = 1  # version of the format; raise it when a reader must change
_METADATA_KEY = b"balaclava"
_DIGEST_KEY = b"sha256"  # of the metadata and the numbers: Parquet checks its pages only
_RESULT_COLUMNS = ("label", "repetition", "regret", "pulls")
_RELEASED = "released"  # optional column: simulations with winners=True


def save(results: Results, path: str | os.PathLike[str]) -> None:
    content = encode(results)
    with atomically(path) as temporary:
        temporary.write_bytes(content)


def encode(results: Results) -> bytes:
    require_extra("pyarrow", "a results file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    runs = [run for label in results.labels for run in results._finished_runs(label)]
    header = json.dumps(_description(results), ensure_ascii=False).encode()
    columns = {
        "label": pa.array([run.label for run in runs], pa.string()),
        "repetition": pa.array([run.repetition for run in runs], pa.int64()),
        "regret": pa.array([run.regret for run in runs], pa.list_(pa.float64())),
        "pulls": pa.array([run.pulls for run in runs], pa.list_(pa.int64())),
    }
    if any(run.released is not None for run in runs):
        flat = [None if run.released is None else run.released.ravel() for run in runs]
        columns[_RELEASED] = pa.array(flat, pa.list_(pa.float64()))
    table = pa.table(columns, metadata={_METADATA_KEY: header, _DIGEST_KEY: _digest(header, runs)})
    with pa.BufferOutputStream() as stream:
        pq.write_table(table, stream, compression="zstd", write_page_checksum=True)
        return stream.getvalue().to_pybytes()


def _digest(header: bytes, runs: Sequence[Run]) -> bytes:
    digest = hashlib.sha256(header)
    for run in runs:
        digest.update(f"\0{run.label}\0{run.repetition}\0".encode())
        digest.update(run.regret.astype("<f8").tobytes())
        digest.update(run.pulls.astype("<i8").tobytes())
        if run.released is not None:
            digest.update(run.released.astype("<f8").tobytes())
    return digest.hexdigest().encode()


def load(path: str | os.PathLike[str]) -> Results:
    """Read results from a file that `results.save(path)` wrote.

    Args:
        path: the file.

    Returns:
        The results, equal to the saved ones.

    Raises:
        ResultsFileError: if the file is missing, damaged or in a newer format, or if a policy or
            environment of it is not registered.
    """
    with _intact(path):
        return _rebuild(path, *read(path))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Run]]:
    """Read the description and the runs of a file, checked against its digest."""
    table = _read(Path(path))
    metadata = table.schema.metadata or {}
    header = metadata.get(_METADATA_KEY)
    if header is None:
        raise ResultsFileError(
            f"{path} is a Parquet file, but not a results file; give one that results.save(path) "
            "wrote"
        )
    with _intact(path):
        description = json.loads(header)
        schema = description["schema"]
        if schema != RESULTS_SCHEMA:
            raise unknown_schema(path, schema, RESULTS_SCHEMA)
        columns = [table.column(name) for name in _RESULT_COLUMNS]
        labels, repetitions = (column.to_pylist() for column in columns[:2])
        regret, pulls = (_rows(column) for column in columns[2:])
        released: list[np.ndarray | None] = [None] * len(labels)
        if _RELEASED in table.column_names:
            rows = [row.as_py() for row in table.column(_RELEASED)]
            released = [
                None if row is None else np.array(row).reshape(-1, arms.size, 3)
                for row, arms in zip(rows, pulls, strict=True)
            ]
        runs = list(map(Run, labels, repetitions, regret, pulls, released))
    if metadata.get(_DIGEST_KEY, b"") not in (b"", _digest(header, runs)):
        raise _damaged(path, "its digest does not match")
    return description, runs


def _rows(column: Any) -> list[np.ndarray]:
    """A column of lists as arrays."""
    lists = column.combine_chunks()
    if len(lists) == 0:
        return []
    offsets = lists.offsets.to_numpy()
    return np.split(lists.flatten().to_numpy(), offsets[1:-1] - offsets[0])


@contextmanager
def _intact(path: str | os.PathLike[str]) -> Iterator[None]:
    """Report missing or malformed content as damage to the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, BalaclavaError):
            raise
        raise _damaged(path, type(error).__name__) from error


def _read(path: Path) -> Any:
    require_extra("pyarrow", "a results file")
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
        raise ResultsFileError(f"{path} is not readable; check its permissions") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, "it is truncated or not Parquet") from error


def _damaged(path: str | os.PathLike[str], why: str) -> ResultsFileError:
    return ResultsFileError(
        f"{path} is not an intact results file ({why}); restore a copy or simulate again"
    )


def unknown_schema(path: str | os.PathLike[str], schema: Any, known: int) -> ResultsFileError:
    """The error for a file in a format that this version does not read."""
    if not isinstance(schema, int):
        return _damaged(path, f"its format is {brief(schema)}")
    newer = schema > known
    advice = "upgrade balaclava" if newer else "use the version of balaclava that wrote it"
    return ResultsFileError(f"{path} has format {schema}, but this version reads {known}; {advice}")


def _description(results: Results) -> dict[str, Any]:
    return {
        "schema": RESULTS_SCHEMA,
        "policies": {
            label: {
                "name": policy.name,
                "parameters": policy.parameters,
                "guarantee": str(policy.guarantee),
            }
            for label, policy in results.policies.items()
        },
        "environment": describe_environment(results.environment),
        "horizon": results.horizon,
        "seed": results.seed,
        "checkpoints": results.checkpoints.tolist(),
        **described_feedback(results.feedback),
        **({"device": "cuda"} if results.device == "cuda" else {}),
        "versions": results.versions or versions(results.device),
    }


def describe_environment(world: Environment) -> dict[str, Any]:
    """Describe an environment in a file: everything but its data."""
    return {
        "name": world.family,
        "parameters": world.public_parameters,
        "holds_data": world.holds_data,
        "gaps": world.gaps.tolist(),
    }


def described_feedback(feedback: Feedback) -> dict[str, Any]:
    """Describe delays in a file; empty for the default."""
    return {"feedback": feedback.description} if feedback.description else {}


def versions(device: str = "cpu") -> dict[str, str]:
    """The versions that simulated numbers depend on."""
    require_extra("numba", "simulation")
    return {
        "balaclava": balaclava.__version__,
        "numpy": np.__version__,
        "numba": version("numba"),
        "python": platform.python_version(),
        **({"numba-cuda": numba_cuda_version()} if device == "cuda" else {}),
    }


def described_policies(saved: dict[str, Any]) -> dict[str, Policy]:
    return {
        label: POLICIES.create(policy["name"], policy["parameters"])
        for label, policy in saved.items()
    }


def described_environment(saved: dict[str, Any]) -> Environment:
    if not saved["holds_data"]:
        return ENVIRONMENTS.create(saved["name"], saved["parameters"])
    name, known = saved["name"], saved["parameters"]
    return RecordedEnvironment(family=name, known=known, regrets=saved["gaps"])


class RecordedEnvironment(Environment):
    """An environment made from data, as a results file describes it: without rewards or means."""

    name = "recorded"
    holds_data = True
    independent = False  # its laws are unknown
    reward_range = (-math.inf, math.inf)
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
    def dimension(self) -> int | None:
        """0 if its contexts are withheld; None without contexts."""
        kind = ENVIRONMENTS.classes().get(self.family, Environment)
        return 0 if issubclass(kind, ContextualEnvironment) else None

    @property
    def public_parameters(self) -> dict[str, Any]:
        return self.known

    @property
    def draw(self) -> Callable[..., float]:
        raise self._withheld("rewards")

    @property
    def means(self) -> np.ndarray:
        raise self._withheld("means")

    def _withheld(self, what: str) -> IncompatibleError:
        return IncompatibleError(
            f"the results file does not contain the {what} of its {self.family} environment; make "
            "the environment again from the data"
        )


def _rebuild(
    path: str | os.PathLike[str], description: dict[str, Any], runs: Sequence[Run]
) -> Results:
    try:
        policies = described_policies(description["policies"])
        world = description["environment"]
        environment = described_environment(world)
    except UnknownNameError as error:
        raise ResultsFileError(f"{path}: {error}") from error
    except BalaclavaError as error:
        wrote = description["versions"]["balaclava"]
        raise ResultsFileError(
            f"{path}: {error}; the file was written by balaclava {wrote}"
        ) from error
    if not np.array_equal(world["gaps"], environment.gaps):
        raise _damaged(path, "its gaps do not match its environment")
    checkpoints = np.array(description["checkpoints"], dtype=np.int64)
    results = Results.empty(
        policies,
        environment,
        horizon=int(description["horizon"]),
        seed=int(description["seed"]),
        checkpoints=checkpoints,
        feedback=Feedback.create(**description.get("feedback", {})),
    )
    results.versions = description["versions"]
    results.device = description.get("device", "cpu")
    if results.device not in ("cpu", "cuda"):
        raise _damaged(path, "its device is unknown")
    for run in runs:
        shapes = run.regret.shape == checkpoints.shape and run.pulls.shape == (environment.arms,)
        if not shapes or (run.released is not None and len(run.released) != checkpoints.size):
            raise _damaged(path, "a row has the wrong length")
        results.add(run)
    return results

"""Rewards resampled from a log."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.environments._moments import average_moment, checked_order, checked_rewards
from balaclava.environments.base import Environment, register
from balaclava.errors import ParameterError

Label = int | str


class World(NamedTuple):
    """What the kernel needs: the rewards of arm a are rewards[starts[a]:starts[a + 1]]."""

    rewards: np.ndarray
    starts: np.ndarray


@kernel
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    start = world.starts[arm]
    size = world.starts[arm + 1] - start
    return float(world.rewards[start + int(rng.random() * size)])


@register
class Empirical(Environment):
    """Each arm resampled, with replacement, from a log: try a policy on your own data.

    The rewards of an arm are taken as independent draws of one law, whatever the order and the
    reason in which they were logged. Where the log was made by a policy that looked at rewards or
    at people, its averages may be biased, and so is what is simulated here.

    Arms are sorted by label: by number where all labels are whole numbers, else as text. Rewards
    are somebody's data: neither `repr` nor an error shows one.

    Parameters:
        samples: the rewards themselves: one list for each arm, or a mapping from label to list.
        path: or a CSV or Parquet file with one row a decision.
        arm: the name of the file's column of labels.
        reward: the name of the file's column of rewards.

    Example:
        >>> import balaclava as bl
        >>> world = bl.environment("empirical", samples={"old": [0, 1, 0, 1], "new": [1, 1, 0, 1]})
        >>> world.arm_labels, world.means.tolist()
        (('new', 'old'), [0.75, 0.5])

    See Also:
        table
    """

    name = "empirical"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"samples": [[0.0, 1.0], [2.0], [0.5, -3.0, 4.0]]},
        {"samples": {"b": [1.0, 2.0], "a": [0.0]}},
    )
    samples: object = None
    path: str | None = None
    arm: str = "arm"
    reward: str = "reward"

    def __post_init__(self) -> None:
        if (self.samples is None) == (self.path is None):
            raise ParameterError(f"{self.name}: give either `samples` or `path`, and not both")
        if isinstance(self.path, os.PathLike):
            object.__setattr__(self, "path", os.fspath(self.path))
        super().__post_init__()
        # Kept here, so that what happens later to the list or the file changes nothing.
        object.__setattr__(self, "samples", self._read())

    def _read(self) -> dict[Label, np.ndarray]:
        if self.path is not None:
            return read_log(self._label("path"), self.path, self.arm, self.reward)
        given: Any = self.samples
        if not isinstance(given, Mapping):
            if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
                raise ParameterError(
                    f"{self._label('samples')} is of type {type(given).__name__}; give one list of "
                    "rewards for each arm, or a mapping from label to list"
                )
            given = dict(enumerate(given))
        if not given:
            raise ParameterError(f"{self._label('samples')} is empty; give at least one arm")
        named = {str(label): rewards for label, rewards in given.items()}
        if len(named) < len(given):
            raise ParameterError(f"{self._label('samples')}: two labels read the same as text")
        return {
            label: checked_rewards(self._label(f"samples[{label!r}]"), named[str(label)], 1)
            for label in in_order(list(named))
        }

    def __repr__(self) -> str:
        source = f"path={self.path!r}" if self.path is not None else "samples=..."
        return f"Empirical({source}, arm_labels={self.arm_labels})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The path where there is one; otherwise the rewards themselves, as plain lists."""
        samples: Any = None
        if self.path is None:
            samples = {str(label): rewards.tolist() for label, rewards in self._samples.items()}
            if self.arm_labels == tuple(range(self.arms)):
                samples = list(samples.values())
        return {"samples": samples, "path": self.path, "arm": self.arm, "reward": self.reward}

    @property
    def _samples(self) -> dict[Label, np.ndarray]:
        samples: Any = self.samples
        checked: dict[Label, np.ndarray] = samples
        return checked

    @property
    def arm_labels(self) -> tuple[Label, ...]:
        """What the log calls arm 0, arm 1, ..."""
        return tuple(self._samples)

    @cached_property
    def _world(self) -> World:
        sizes = [rewards.size for rewards in self._samples.values()]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return World(np.concatenate(list(self._samples.values())), starts)

    def constants(self) -> World:
        return self._world

    @cached_property
    def means(self) -> np.ndarray:
        return np.array([rewards.mean() for rewards in self._samples.values()])

    @property
    def holds_data(self) -> bool:
        return True

    @property
    def public_parameters(self) -> dict[str, Any]:
        count = sum(rewards.size for rewards in self._samples.values())
        samples = None if self.path else f"withheld: {count} rewards"
        return {**self.parameters, "samples": samples}

    @property
    def draw(self) -> Callable[..., float]:
        return draw

    @property
    def reward_range(self) -> tuple[float, float]:
        return (float(self._world.rewards.min()), float(self._world.rewards.max()))

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        order = checked_order(order)
        return np.array(
            [average_moment(rewards, order, central=central) for rewards in self._samples.values()]
        )


def in_order(names: Sequence[str]) -> list[Label]:
    """The labels, sorted: as numbers if all are whole numbers, else as text."""
    if all(re.fullmatch(r"0|-?[1-9][0-9]*", name) for name in names):
        return sorted(int(name) for name in names)
    return sorted(names)


def read_log(label: str, path: str, arm: str, reward: str) -> dict[Label, np.ndarray]:
    """The rewards of each arm in a CSV or Parquet file; errors name rows, never rewards."""
    table = read_columns(f"{label} = {path!r}", path, arm, reward)
    where = f"{label} = {path!r}: column"
    names = _as_text(f"{where} {arm!r}", table.column(arm).combine_chunks())
    rewards = _as_numbers(f"{where} {reward!r}", table.column(reward).combine_chunks())
    if rewards.size == 0:
        raise ParameterError(f"{label} = {path!r} has no rows; give at least one")
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy()
    known = encoded.dictionary.to_pylist()
    by_arm = np.split(rewards[np.argsort(codes, kind="stable")], np.cumsum(np.bincount(codes))[:-1])
    groups = dict(zip(known, by_arm, strict=True))
    for group in groups.values():
        group.flags.writeable = False
    return {label: groups[str(label)] for label in in_order(known)}


def read_columns(label: str, path: str, arm: str, reward: str) -> Any:
    """The two columns as a pyarrow table; those of a CSV as text."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    columns = list(dict.fromkeys([arm, reward]))
    broken: list[int | None] = []

    def refuse_row(row: Any) -> str:
        broken.append(row.number)
        return "error"

    reading = csv.ReadOptions(use_threads=False)  # so that a broken row has its number
    parsing = csv.ParseOptions(invalid_row_handler=refuse_row)
    try:
        with Path(path).open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet:
            _require_columns(label, parquet.read_schema(path).names, columns)
            return parquet.read_table(path, columns=columns)
        with csv.open_csv(path, reading, parsing) as reader:
            _require_columns(label, reader.schema.names, columns)
        return csv.read_csv(
            path,
            reading,
            parsing,
            csv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "it is damaged"
        raise ParameterError(f"{label} cannot be read: {why}; give a CSV or Parquet file") from None
    except pa.ArrowException:
        # pyarrow's own message would quote the row.
        row = f" at line {broken[0]}" if broken and broken[0] else ""
        raise ParameterError(
            f"{label} is not a well-formed CSV or Parquet file{row}; give text in UTF-8 with as "
            "many cells in each row as in the first"
        ) from None


def _require_columns(label: str, names: list[str], columns: list[str]) -> None:
    for column in columns:
        if names.count(column) != 1:
            fault = "no column" if column not in names else "more than one column"
            if (separator := other_separator(names)) is not None:
                raise ParameterError(
                    f"{label} has {fault} {column!r}: its cells seem to be separated by "
                    f"{separator}; save it with commas"
                )
            # Without a header the first rewards would stand here.
            found = "not named in its first row" if headless(names) else ", ".join(map(repr, names))
            raise ParameterError(
                f"{label} has {fault} {column!r}; its columns are {found}: "
                "set `arm` and `reward` to the two that are meant"
            )


def other_separator(names: Sequence[str]) -> str | None:
    """In words, what seems to stand between the cells of a first row instead of commas."""
    marks = {";": "semicolons", "\t": "tabs", "|": "bars"}
    return next((word for mark, word in marks.items() if any(mark in name for name in names)), None)


def headless(names: Sequence[str]) -> bool:
    """Whether a file's first row holds data, which must not be repeated."""
    return any(re.match(r"\W*\d|(true|false|yes|no|nan)$", name, re.I) for name in names)


def _as_text(where: str, column: Any) -> Any:
    import pyarrow as pa

    if column.null_count:
        raise ParameterError(f"{where} is empty in {_row(column.is_null())}; give every row an arm")
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise ParameterError(f"{where} holds {column.type}; give whole numbers or text") from None


def _as_numbers(where: str, column: Any) -> np.ndarray:
    import pyarrow as pa

    if column.null_count:
        raise ParameterError(
            f"{where} is empty in {_row(column.is_null())}; remove or fill what is missing"
        )
    try:
        rewards: np.ndarray = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        items = column.to_pylist()
        wrong = [not _is_number(item) for item in items]
        if any(wrong):
            raise ParameterError(
                f"{where} is not a number in {_row(wrong)}; write numbers, such as 1 for yes and 0 "
                "for no, with a point and without spaces or units"
            ) from None
        rewards = np.array([float(item) for item in items])  # blanks around it, very long integers
    if not np.isfinite(rewards).all():
        raise ParameterError(
            f"{where} is not finite in {_row(~np.isfinite(rewards))}; remove or fill what is "
            "missing"
        )
    return rewards


def _is_number(item: Any) -> bool:
    try:
        float(item)
    except (TypeError, ValueError):
        return False
    return True


def _row(wrong: Any) -> str:
    return f"row {int(np.argmax(np.asarray(wrong))) + 1} (the first row after the header is 1)"

"""Rewards resampled from a log."""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment, average_moment, checked_order, register
from balaclava.environments.table import checked_rewards
from balaclava.errors import ParameterError
from balaclava.logs.cells import ReadOptions
from balaclava.logs.reader import Label, LoggedRewards, read_log, sorted_labels


class World(NamedTuple):
    """Constants of the kernel: the rewards of arm a are rewards[starts[a]:starts[a + 1]]."""

    rewards: np.ndarray
    starts: np.ndarray


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    start = world.starts[arm]
    size = world.starts[arm + 1] - start
    return float(world.rewards[start + int(rng.random() * size)])


@register
class Empirical(Environment):
    """Each arm resampled, with replacement, from a log: try a policy on your own data.

    The rewards of an arm count as independent draws of one law. If the logging policy used rewards
    or features of people, the averages may be biased, and so is the simulation.

    Arms are sorted by label: as numbers if all labels are whole numbers, else as text. Rewards are
    confidential: neither `repr` nor an error repeats one.

    Parameters:
        samples: the rewards: one list per arm, or a mapping from label to list.
        path: instead of samples, a CSV or Parquet file with one row per decision. Its format is
            detected; `detected` lists what is unusual.
        arm: name of the column of labels.
        reward: name of the column of rewards.
        sep: separator of cells, such as ";" or "tab"; by default detected.
        encoding: encoding of the text, such as "latin-1"; by default detected.
        decimal: decimal mark, "." or ","; by default detected.
        drop_missing: leave out rows that lack a value; by default they are an error.
        missing: the reward of rows whose reward is empty, such as 0 for no purchase.

    Example:
        >>> world = bl.environment("empirical", samples={"old": [0, 1, 0, 1], "new": [1, 1, 0, 1]})
        >>> world.arm_labels, world.means.tolist()
        (('new', 'old'), [0.75, 0.5])
    """

    name = "empirical"
    see_also = "table"
    draw = staticmethod(draw)
    holds_data = True
    examples = (
        {"samples": [[0.0, 1.0], [2.0], [0.5, -3.0, 4.0]]},
        {"samples": {"b": [1.0, 2.0], "a": [0.0]}},
    )
    detected: ClassVar[tuple[str, ...]]  # what is unusual about the format of the file
    samples: object = None
    path: str | None = None
    arm: str = "arm"
    reward: str = "reward"
    sep: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    drop_missing: bool = False
    missing: float | None = None

    def __post_init__(self) -> None:
        if (self.samples is None) == (self.path is None):
            raise ParameterError(f"{self.name}: give either `samples` or `path`")
        if isinstance(self.path, os.PathLike):
            object.__setattr__(self, "path", os.fspath(self.path))
        super().__post_init__()
        # Copied, so that later changes of the list or the file have no effect.
        if self.path is not None:
            options = ReadOptions(
                self.sep, self.encoding, self.decimal, self.drop_missing, self.missing
            )
            log = read_log(self.path, arm=self.arm, reward=self.reward, read_options=options)
        else:
            log = LoggedRewards(self._by_arm(self.samples), ())
        object.__setattr__(self, "samples", log.by_arm)
        object.__setattr__(self, "detected", log.detected)

    def _by_arm(self, samples: Any) -> dict[Label, np.ndarray]:
        if not isinstance(samples, Mapping):
            if isinstance(samples, str | bytes) or not hasattr(samples, "__len__"):
                raise ParameterError(
                    f"{self._label('samples')} is of type {type(samples).__name__}; give one list "
                    "of rewards per arm, or a mapping from label to list"
                )
            samples = dict(enumerate(samples))
        if not samples:
            raise ParameterError(f"{self._label('samples')} is empty; give at least one arm")
        by_label = {str(label): rewards for label, rewards in samples.items()}
        if len(by_label) < len(samples):
            raise self.refuse_data("samples", "has two labels that are equal as text; rename one")
        return {
            label: checked_rewards(self._label(f"samples[{label!r}]"), by_label[str(label)], 1)
            for label in sorted_labels(list(by_label))
        }

    def __repr__(self) -> str:
        source = f"path={self.path!r}" if self.path is not None else "samples=..."
        return f"Empirical({source}, arm_labels={self.arm_labels})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The path if there is one; otherwise the rewards, as plain lists."""
        samples: Any = None
        if self.path is None:
            samples = {str(label): rewards.tolist() for label, rewards in self._samples.items()}
            if self.arm_labels == tuple(range(self.arms)):
                samples = list(samples.values())
        others = {name: getattr(self, name) for name in self.annotations if name != "samples"}
        return {"samples": samples, **others}

    @property
    def _samples(self) -> dict[Label, np.ndarray]:
        samples: Any = self.samples
        return samples

    @property
    def arm_labels(self) -> tuple[Label, ...]:
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
    def public_parameters(self) -> dict[str, Any]:
        count = sum(rewards.size for rewards in self._samples.values())
        samples = None if self.path else f"withheld: {count} rewards"
        return {**self.parameters, "samples": samples}

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        return (float(self._world.rewards.min()), float(self._world.rewards.max()))

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        order = checked_order(order)
        if (order, central) not in self._moments:  # many policies need the same moment
            self._moments[order, central] = np.array(
                [average_moment(each, order, central=central) for each in self._samples.values()]
            )
        return self._moments[order, central]

    @cached_property
    def _moments(self) -> dict[tuple[float, bool], np.ndarray]:
        return {}

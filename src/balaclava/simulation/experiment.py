"""An experiment in a file: which policies, on what, for how long.

::

    horizon = 100000
    repetitions = 50
    seed = 1

    [environment]
    name = "bernoulli"
    means = [0.3, 0.5, 0.7]

    [policies.ucb1]

    [policies.careful]        # any label; `name` says which policy it is
    name = "ucb1"
    radius_scale = 0.5

`arms` comes from the environment and `horizon` from the file where a policy wants them.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from balaclava._declared import Range, brief, check
from balaclava.environments.base import REGISTRY as ENVIRONMENTS
from balaclava.environments.base import Environment
from balaclava.errors import BalaclavaError, ExperimentFileError, nearest
from balaclava.policies.base import REGISTRY as POLICIES
from balaclava.policies.base import Policy
from balaclava.simulation.engine import (
    Progress,
    checkpoint_rounds,
    require_compatible,
    simulate,
)
from balaclava.simulation.results import Results

_NUMBERS = {"horizon": 1, "repetitions": 1, "seed": 0}  # each with the smallest allowed
_KEYS = (*_NUMBERS, "checkpoints", "workers", "environment", "policies")


@dataclass(frozen=True)
class Experiment:
    """What an experiment file says."""

    policies: dict[str, Policy]
    environment: Environment
    horizon: int
    repetitions: int
    seed: int
    checkpoints: int | list[int] = 200
    workers: int | None = None

    def run(self, *, workers: int | None = None, progress: Progress | None = None) -> Results:
        """Simulate it; `workers` overrides the file's."""
        return simulate(
            self.policies,
            self.environment,
            horizon=self.horizon,
            repetitions=self.repetitions,
            seed=self.seed,
            checkpoints=self.checkpoints,
            workers=workers or self.workers,
            progress=progress,
        )


def read_experiment(path: str | os.PathLike[str]) -> Experiment:
    """The experiment in a TOML file."""
    path = Path(path)
    content = _parse(path)
    with _blame(f"{path}"):
        for key in content:
            if key not in _KEYS:
                raise ExperimentFileError(f"unknown key {key!r}; {nearest(key, _KEYS)}")
        numbers = {key: _whole(key, _needed(content, key), low) for key, low in _NUMBERS.items()}
        checkpoints = content.get("checkpoints", 200)
        checkpoint_rounds(checkpoints, numbers["horizon"])
        workers = content.get("workers")
        if workers is not None:
            workers = _whole("workers", workers, 1)
        tables = _table("policies", _needed(content, "policies"))
        if not tables:
            raise ExperimentFileError("no policy is given; add a section such as [policies.ucb1]")
    with _blame(f"{path}: [environment]"):
        environment = _environment(_table("environment", _needed(content, "environment")), path)
    policies = {}
    for label, table in tables.items():
        with _blame(f"{path}: [policies.{label}]"):
            policies[label] = _policy(label, _table(label, table), environment, numbers["horizon"])
            require_compatible(label, policies[label], environment, numbers["horizon"])
    return Experiment(policies, environment, **numbers, checkpoints=checkpoints, workers=workers)


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ExperimentFileError(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise ExperimentFileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ExperimentFileError(f"{path} is not text; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ExperimentFileError(f"{path} is not TOML: {error}") from None


@contextmanager
def _blame(place: str) -> Iterator[None]:
    """Errors inside say where in the file they come from."""
    try:
        yield
    except BalaclavaError as error:
        raise ExperimentFileError(f"{place}: {error}") from error


def _whole(key: str, value: Any, low: int) -> int:
    number: int = check(key, value, Annotated[int, Range(low)])
    return number


def _needed(content: dict[str, Any], key: str) -> Any:
    if key not in content:
        example = {"environment": "[environment]", "policies": "[policies.ucb1]"}.get(key)
        what = f"the section {example}" if example else f"a line such as {key} = 1000"
        raise ExperimentFileError(f"{key!r} is missing; add {what}")
    return content[key]


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ExperimentFileError(f"{name} = {brief(value)} is not a section; write [{name}]")
    return value


def _environment(table: dict[str, Any], path: Path) -> Environment:
    if not isinstance(table.get("name"), str):
        raise ExperimentFileError(
            f"the name is missing; write name = ... with one of {', '.join(ENVIRONMENTS.classes())}"
        )
    parameters = _beside(table, path.parent)
    return ENVIRONMENTS.create(parameters.pop("name"), parameters)


def _beside(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Paths in a file are relative to the file, also in an environment inside another."""
    found: dict[str, Any] = {
        key: _beside(value, folder) if isinstance(value, dict) else value
        for key, value in table.items()
    }
    if isinstance(found.get("path"), str):
        found["path"] = str(folder / found["path"])
    return found


def _policy(label: str, table: dict[str, Any], environment: Environment, horizon: int) -> Policy:
    parameters = dict(table)
    name = parameters.pop("name", label)
    if not isinstance(name, str):
        raise ExperimentFileError(f"name = {brief(name)} is not a policy's name; give it in quotes")
    wanted = POLICIES.get(name).annotations
    for key, value in {"arms": environment.arms, "horizon": horizon}.items():
        if key in wanted:
            parameters.setdefault(key, value)
    return POLICIES.create(name, parameters)

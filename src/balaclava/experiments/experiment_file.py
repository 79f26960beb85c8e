"""Experiment files: policies, environments and horizons in TOML.

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

A policy takes `arms` from the environment and `horizon` from the file. docs/scaling.md has the
other keys: several environments, horizons and seeds, ranges of parameters, delays, devices.
"""

import itertools
import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from balaclava._core.declared import Range, brief, check
from balaclava.environments.base import ENVIRONMENTS, Environment
from balaclava.errors import BalaclavaError, ExperimentFileError, ParameterError, nearest
from balaclava.experiments.grids import expand, range_values
from balaclava.policies.base import POLICIES, Policy
from balaclava.simulation import engine
from balaclava.simulation.feedback import PROMPT, Feedback
from balaclava.simulation.gpu.device import device_error, gpu_refusal

_LEAST_VALUES = {"horizon": 1, "repetitions": 1, "seed": 0}  # keys with whole numbers
_SETTLING = ("patience", "settle", "missing")
_SECTIONS = ("delay", "environment", "environments", "policies")
_FILE_KEYS = (*_LEAST_VALUES, "checkpoints", "workers", "winners", "device", *_SETTLING, *_SECTIONS)


@dataclass(frozen=True)
class SimulationSetting:
    """Policies in one environment, with one horizon and one seed: arguments of `bl.simulate`."""

    policies: dict[str, Policy]
    environment: Environment
    horizon: int
    repetitions: int
    seed: int
    checkpoints: int | list[int] = 200
    workers: int | None = None
    environment_label: str = ""
    feedback: Feedback = PROMPT
    winners: bool = False
    device: engine.Device = "cpu"

    @cached_property
    def rounds(self) -> np.ndarray:
        """The rounds of the checkpoints."""
        return engine.checkpoint_rounds(self.checkpoints, self.horizon)


@dataclass(frozen=True)
class ExperimentPlan:
    """The content of an experiment file: a setting per environment, horizon and seed."""

    name: str
    settings: tuple[SimulationSetting, ...]
    workers: int | None = None

    def with_feedback(self, **changes: Any) -> Self:
        """A copy with other delays or patience; `changes` are those of `Feedback.create`."""
        if len({each.feedback for each in self.settings}) > 1:
            raise ExperimentFileError(
                f"{self.name} has several delays; leave out --delay, --law, --lost and --patience, "
                "or the grid in [delay]"
            )
        changed = (
            replace(each, feedback=Feedback.create(**{**each.feedback.description, **changes}))
            for each in self.settings
        )
        return replace(self, settings=tuple(changed))

    def with_winners(self) -> Self:
        """A copy that records releases at the checkpoints."""
        policies = [policy for each in self.settings for policy in each.policies.values()]
        if not any(policy.estimation for policy in policies):
            raise ExperimentFileError(
                "winners = true, but no policy offers estimates; add one that does, such as "
                "dp-imed or imed, or leave winners out"
            )
        return replace(self, settings=tuple(replace(each, winners=True) for each in self.settings))

    def with_device(self, device: engine.Device) -> Self:
        """A copy for another device."""
        check("device", device, engine.Device)
        changed = tuple(replace(each, device=device) for each in self.settings)
        for each in changed:
            require_playable(each)
        return replace(self, settings=changed)


def require_playable(setting: SimulationSetting) -> None:
    """Refuse a setting that no GPU can play; the check needs no GPU."""
    if setting.device == "cuda":
        fault = gpu_refusal(setting.environment, setting.feedback, setting.winners)
        if fault:
            raise device_error(f"{fault} ({setting.environment_label})")


class _Section(NamedTuple):
    """A policy or an environment of the file, with its grids expanded."""

    place: str  # its heading in the file
    label: str
    name: Any
    parameters: dict[str, Any]


class _Problem(NamedTuple):
    place: str
    error: BalaclavaError
    cell: tuple[str, str, int] | None  # policy, environment, horizon


def read_plan(path: str | os.PathLike[str]) -> ExperimentPlan:
    """Read an experiment file.

    Args:
        path: a TOML file.

    Returns:
        The plan, with every policy and environment built and checked.

    Raises:
        ExperimentFileError: if the file is malformed. All combinations that cannot be played are
            listed in one error.
    """
    path = Path(path)
    content = _parse(path)
    with _blame(f"{path}"):
        for key in content:
            if key not in _FILE_KEYS:
                raise ExperimentFileError(f"unknown key {key!r}; {nearest(key, _FILE_KEYS)}")
        numbers = {
            key: _numbers(key, _needed(content, key), low) for key, low in _LEAST_VALUES.items()
        }
        horizons, seeds = numbers["horizon"], numbers["seed"]
        if len(numbers["repetitions"]) > 1:
            raise ExperimentFileError("repetitions has several values; give one number")
        rounds = {t: _checkpoints(content.get("checkpoints", 200), t, horizons) for t in horizons}
        workers = content.get("workers")
        if workers is not None:
            workers = check("workers", workers, Annotated[int, Range(1)])
        feedbacks = _feedbacks(content)
        winners = check("winners", content.get("winners", False), bool)
        policies = _table("policies", _needed(content, "policies"))
        if not policies:
            raise ExperimentFileError("no policy is given; add a section such as [policies.ucb1]")
    players = _sections(path, "policies", policies)
    environments, policies_at = _build(path, players, _worlds(path, content), horizons, feedbacks)
    (repetitions,) = numbers["repetitions"]
    settings = tuple(
        SimulationSetting(
            policies_at[where, t],
            world,
            t,
            repetitions,
            seed,
            rounds[t],
            workers,
            where if len(feedbacks) == 1 else f"{where}, {late}",
            feedback,
        )
        for (where, world), (late, feedback), t, seed in itertools.product(
            environments.items(), feedbacks.items(), horizons, seeds
        )
    )
    plan = ExperimentPlan(path.stem, settings, workers)
    with _blame(f"{path}"):
        plan = plan.with_winners() if winners else plan
        return plan.with_device(content.get("device", "cpu"))


def _build(
    path: Path,
    players: list[_Section],
    worlds: list[_Section],
    horizons: list[int],
    feedbacks: dict[str, Feedback],
) -> tuple[dict[str, Environment], dict[tuple[str, int], dict[str, Policy]]]:
    """Build the environments by label, and the policies for each environment and horizon."""
    problems: list[_Problem] = []
    environments: dict[str, Environment] = {}
    for world in worlds:
        with _noted(problems, world.place, None):
            environments[world.label] = _environment(world, path)
    policies_at: dict[tuple[str, int], dict[str, Policy]] = {}
    for (where, environment), t in itertools.product(environments.items(), horizons):
        fitting = policies_at[where, t] = {}
        for player in players:
            with _noted(problems, player.place, (player.label, where, t)):
                policy = _policy(player, environment, t)
                for feedback in feedbacks.values():
                    engine.require_compatible(player.label, policy, environment, t, feedback)
                fitting[player.label] = policy
    if problems:
        raise _refusal(path, problems, alone=len(worlds) * len(horizons) == 1)
    return environments, policies_at


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
    """Add the place in the file to errors inside."""
    try:
        yield
    except BalaclavaError as error:
        raise ExperimentFileError(f"{place}: {error}") from error


@contextmanager
def _noted(
    problems: list[_Problem], place: str, cell: tuple[str, str, int] | None
) -> Iterator[None]:
    """Collect errors inside, so that all can be reported."""
    try:
        yield
    except BalaclavaError as error:
        problems.append(_Problem(place, error, cell))


def _refusal(path: Path, problems: list[_Problem], *, alone: bool) -> ExperimentFileError:
    """One error for all problems; a problem that several cells share is listed once."""
    cells_by_text: dict[str, list[tuple[str, str, int]]] = {}
    for problem in problems:
        cells = cells_by_text.setdefault(f"{problem.place}: {problem.error}", [])
        if problem.cell is not None:
            cells.append(problem.cell)
    lines = [
        text + ("" if alone or not cells else _named(cells))
        for text, cells in cells_by_text.items()
    ]
    count = sum(problem.cell is not None for problem in problems)
    if len(lines) == 1:
        message = lines[0]
    else:
        what = f"{count} cells cannot be played" if count else "environments cannot be built"
        message = "\n  ".join([f"{what}:", *(f"- {line}" for line in lines)])
    return ExperimentFileError(f"{path}: {message}")


def _named(cells: list[tuple[str, str, int]]) -> str:
    """Name cells briefly if they are all combinations of their parts."""
    parts = [[str(word) for word in dict.fromkeys(part)] for part in zip(*cells, strict=True)]
    spelt = [tuple(map(str, cell)) for cell in cells]
    groups = [parts]
    if set(itertools.product(*parts)) != set(spelt):
        groups = [[[word] for word in cell] for cell in spelt]
    places = (
        f"{', '.join(labels)} on {', '.join(worlds)} at horizon {', '.join(horizons)}"
        for labels, worlds, horizons in groups
    )
    return f" ({'; '.join(places)})"


def _numbers(key: str, value: Any, low: int) -> list[int]:
    """The values of a number, a list or a range."""
    values = range_values(key, value) or (value if isinstance(value, list) else [value])
    numbers = [check(key, item, Annotated[int, Range(low)]) for item in values]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ExperimentFileError(f"{key} = {brief(value)} is not allowed; give each number once")
    return numbers


def _checkpoints(checkpoints: Any, horizon: int, horizons: Sequence[int]) -> int | list[int]:
    """The checkpoints of one horizon; with several horizons a list is cut at each of them."""
    if isinstance(checkpoints, list) and len(horizons) > 1:
        checkpoints = [t for t in checkpoints if not isinstance(t, int) or t <= horizon]
    engine.checkpoint_rounds(checkpoints, horizon)
    return checkpoints


def _feedbacks(content: dict[str, Any]) -> dict[str, Feedback]:
    """The feedback of every combination in [delay], by label."""
    settling = {key: content[key] for key in _SETTLING if key in content}
    if "delay" not in content:
        return {"": Feedback.create(**settling)}
    sections = expand("delay", _table("delay", content["delay"]))
    return {label: Feedback.create(table, **settling) for label, table in sections.items()}


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


def _sections(path: Path, kind: str, tables: dict[str, Any]) -> list[_Section]:
    """The sections [kind.label], with grids expanded."""
    sections: dict[str, _Section] = {}
    for label, table in tables.items():
        place = f"[{kind}.{label}]"
        with _blame(f"{path}: {place}"):
            for full, parameters in expand(label, _table(label, table)).items():
                if full in sections:
                    raise ExperimentFileError(f"{full!r} appears twice; choose another label")
                sections[full] = _section(place, full, parameters, label)
    return list(sections.values())


def _section(place: str, label: str, table: dict[str, Any], name: str | None) -> _Section:
    parameters = dict(table)
    return _Section(place, label, parameters.pop("name", name), parameters)


def _worlds(path: Path, content: dict[str, Any]) -> list[_Section]:
    if "environments" in content:
        with _blame(f"{path}"):
            if "environment" in content:
                raise ExperimentFileError(
                    "the file has both [environment] and [environments]; keep one of them"
                )
            tables = _table("environments", content["environments"])
            if not tables:
                raise ExperimentFileError(
                    "no environment is given; add a section such as [environments.bernoulli]"
                )
        return _sections(path, "environments", tables)
    with _blame(f"{path}: [environment]"):
        table = _table("environment", _needed(content, "environment"))
        label = str(table.get("name", "environment"))
        return [
            _section("[environment]", full, filled, None)
            for full, filled in expand(label, table).items()
        ]


def _environment(section: _Section, path: Path) -> Environment:
    if not isinstance(section.name, str):
        raise ExperimentFileError(
            f"name is missing; write name = ... with one of {', '.join(ENVIRONMENTS.classes())}"
        )
    return ENVIRONMENTS.create(section.name, _beside(section.parameters, path.parent))


def _beside(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve paths relative to the file, also in nested environments."""
    absolute: dict[str, Any] = {
        key: _beside(value, folder) if isinstance(value, dict) else value
        for key, value in table.items()
    }
    if isinstance(absolute.get("path"), str):
        absolute["path"] = str(folder / absolute["path"])
    return absolute


def _policy(section: _Section, environment: Environment, horizon: int) -> Policy:
    if not isinstance(section.name, str):
        raise ExperimentFileError(
            f"name = {brief(section.name)} is not a policy's name; give it in quotes"
        )
    parameters = dict(section.parameters)
    fields = POLICIES.get(section.name).annotations
    for key, value in {"arms": environment.arms, "horizon": horizon}.items():
        if key in fields:
            parameters.setdefault(key, value)
    try:
        return POLICIES.create(section.name, parameters)
    except ParameterError as error:
        for key, value in section.parameters.items():
            if isinstance(value, list) and f" {key} = [" in str(error):  # in place of one number
                hint = f"for several values write {key} = {{ grid = {value} }}"
                raise ParameterError(f"{error}; {hint}") from None
        raise

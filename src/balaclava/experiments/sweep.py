"""Sweeps: the settings of an experiment file in a folder, with one Parquet file per cell.

A cell is one policy in one environment, with one horizon and one seed. The name of its file is a
digest of everything its numbers depend on: parameters, versions and sources. So a finished cell is
recognised without opening it, and numbers of different code never mix. The folder::

    manifest.json            all cells, versions, and the machines that took part
    cells/<key>.parquet      finished cells: results files with one policy, under its own name
    parts/<key>-<n>.parquet  some repetitions of an unfinished cell
    summary.txt              tables of the results, when all cells are finished

A cell's file does not depend on when, where or in how many runs it was computed.
"""

import functools
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from balaclava import errors
from balaclava._core.atomic_files import atomically
from balaclava._core.cache import PACKAGE_FOLDER, fingerprint, value_bytes
from balaclava.environments.base import Environment
from balaclava.experiments.experiment_file import (
    ExperimentPlan,
    SimulationSetting,
    require_playable,
)
from balaclava.policies.base import Policy
from balaclava.simulation import results_file
from balaclava.simulation.engine import available_cores, chosen_device, require_compatible
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.gpu.device import numba_cuda_version
from balaclava.simulation.results import Results, Run

MANIFEST_SCHEMA = 1  # version of the format; raise it when a reader must change
SUMMARY_FILE = "summary.txt"
_MANIFEST_KEYS = ("schema", "name", "versions", "sources", "machines", "settings")
# Sources that numbers depend on: their digest is part of every key.
_DECISIVE_SOURCES = (
    "_core",
    "environments",
    "estimators",
    "frames",
    "policies",
    "privacy",
    "simulation/reward_delays.py",
    "simulation/engine.py",
    "simulation/feedback.py",
    "simulation/loops.py",
    "simulation/open_decisions.py",
    "theory",
)
_RECOMPUTE = "run the same command again to recompute it"


@dataclass(frozen=True)
class Cell:
    """One policy in one environment, with one horizon and one seed."""

    setting: SimulationSetting
    policy_label: str
    key: str
    path: Path
    done: bool

    @property
    def policy(self) -> Policy:
        return self.setting.policies[self.policy_label]

    def __str__(self) -> str:
        where, horizon = self.setting.environment_label, self.setting.horizon
        return f"{self.policy_label} on {where} at horizon {horizon}"


CellRepetitions = tuple[Cell, list[int]]  # a cell with some of its repetitions


class Sweep:
    """The cells of a folder and their results.

    Example:
        >>> import balaclava as bl, tempfile
        >>> from balaclava.experiments.experiment_file import ExperimentPlan, SimulationSetting
        >>> from balaclava.experiments.sweep_runner import run_sweep
        >>> world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
        >>> policies = {"a": bl.policy("ucb1", arms=3)}
        >>> setting = SimulationSetting(policies, world, 1000, 10, seed=1)
        >>> plan = ExperimentPlan("small", (setting,))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_sweep(plan, folder)
        ...     sweep = open_sweep(folder)
        ...     [(str(cell), cell.done) for cell in sweep.cells]
        ...     sweep.results("bernoulli", 1000).regret("a").shape
        [('a on bernoulli at horizon 1000', True)]
        (10, 200)
    """

    def __init__(
        self, folder: Path, manifest: dict[str, Any], settings: Iterable[SimulationSetting]
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self._plan_settings = tuple(settings)

    @property
    def name(self) -> str:
        """The name of the experiment file, without its extension."""
        return str(self.manifest["name"])

    @property
    def cells(self) -> list[Cell]:
        """All cells; `cell.done` says whether one is finished now."""
        finished = {path.name for path in _parquet_files(self.folder / "cells")}
        return [
            cell
            for setting, entry in self._paired()
            for cell in self._cells(setting, entry, finished)
        ]

    def settings(self) -> list[tuple[str, int, int]]:
        """The environment, horizon and seed of every setting: arguments of `results`."""
        return [(e.environment_label, e.horizon, e.seed) for e in self._plan_settings]

    def results(self, environment_label: str, horizon: int, seed: int | None = None) -> Results:
        """The results of all policies in one setting.

        Args:
            environment_label: the environment's label in the experiment file.
            horizon: one of the file's horizons.
            seed: one of the file's seeds; needed if there are several.

        Returns:
            The results; unfinished cells have fewer repetitions, or none.

        Raises:
            UnknownNameError: if the sweep does not have this setting.
            ResultsFileError: if a cell's file is damaged.
        """
        arguments = {"environment_label": environment_label, "horizon": horizon, "seed": seed}
        entries = list(self._paired())
        for name, value in arguments.items():
            choices = {getattr(setting, name): None for setting, _ in entries}
            if value is None and len(choices) == 1:
                continue
            if value not in choices:
                hint = f"there are {', '.join(map(str, choices))}"
                if isinstance(value, str):
                    hint = errors.nearest(value, map(str, choices))
                what = name.removesuffix("_label")
                raise errors.UnknownNameError(f"{self.folder} has no {what} {value!r}; {hint}")
            entries = [pair for pair in entries if getattr(pair[0], name) == value]
        ((setting, entry),) = entries
        results = _empty_results(setting, setting.policies, setting.environment)
        results.versions = self.manifest["versions"]
        finished = {path.name for path in _parquet_files(self.folder / "cells")}
        parts = self.parts()
        for cell in self._cells(setting, entry, finished):
            runs = read_cell(cell) if cell.done else self.kept(cell, parts)
            for run in runs:
                results.add(run._replace(label=cell.policy_label))
        return results

    def parts(self) -> dict[str, list[Path]]:
        """Files with repetitions of unfinished cells, by key."""
        files: dict[str, list[Path]] = {}
        for path in sorted(_parquet_files(self.folder / "parts")):
            files.setdefault(path.name.partition("-")[0], []).append(path)
        return files

    def kept(self, cell: Cell, parts: dict[str, list[Path]]) -> list[Run]:
        """The repetitions of an unfinished cell in these files."""
        runs = {}
        for path in parts.get(cell.key, []):
            for run in _checked(cell, path):
                runs[run.repetition] = run
        return [runs[repetition] for repetition in sorted(runs)]

    def _paired(self) -> Iterator[tuple[SimulationSetting, dict[str, Any]]]:
        return zip(self._plan_settings, self.manifest["settings"], strict=True)

    def _cells(
        self, setting: SimulationSetting, entry: dict[str, Any], finished: set[str]
    ) -> Iterator[Cell]:
        for label in setting.policies:
            key = entry["policies"][label]["key"]
            path = self.folder / "cells" / f"{key}.parquet"
            yield Cell(setting, label, key, path, path.name in finished)

    def __repr__(self) -> str:
        cells = self.cells
        return f"<Sweep {self.name}: {sum(c.done for c in cells)} of {len(cells)} cells finished>"


def open_sweep(folder: str | os.PathLike[str]) -> Sweep:
    """Open the folder of a sweep that `balaclava simulate` wrote, finished or not.

    Args:
        folder: the folder.

    Returns:
        The sweep; its `cells`, `settings` and `results` read the folder.

    Raises:
        ResultsFileError: if the folder does not contain a sweep, or one in a newer format.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        raise errors.ResultsFileError(
            f"{folder} does not contain a sweep; give a folder that `balaclava simulate` wrote"
        )
    try:
        return Sweep(folder, manifest, [_rebuilt(entry) for entry in manifest["settings"]])
    except errors.UnknownNameError as error:
        raise errors.ResultsFileError(f"{folder}: {error}") from error
    except (errors.BalaclavaError, KeyError, TypeError, AttributeError) as error:
        raise _odd_manifest(folder, error) from error


def plan_sweep(plan: ExperimentPlan, folder: str | os.PathLike[str]) -> Sweep:
    """The sweep of a plan in a folder. Writes nothing."""
    if not plan.settings:
        raise errors.ParameterError("the plan has no setting; give at least one")
    for setting in plan.settings:
        for label, policy in setting.policies.items():
            require_compatible(
                label, policy, setting.environment, setting.horizon, setting.feedback
            )
    settings = [_resolved(setting) for setting in plan.settings]
    packages = results_file.versions()
    entries = [_described(setting, packages) for setting in settings]
    if any(setting.device == "cuda" for setting in settings):
        packages = results_file.versions("cuda")
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "name": plan.name,
        "versions": packages,
        "sources": sources(),
        "machines": [machine()],
        "settings": entries,
    }
    return Sweep(Path(folder), manifest, settings)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder; None if there is none."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        schema = manifest["schema"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise errors.ResultsFileError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise _odd_manifest(folder, error) from error
    if schema != MANIFEST_SCHEMA:
        raise results_file.unknown_schema(path, schema, MANIFEST_SCHEMA)
    missing = [key for key in _MANIFEST_KEYS if key not in manifest]
    if missing:
        raise _odd_manifest(folder, KeyError(*missing))
    return dict(manifest)


def write_manifest(sweep: Sweep) -> None:
    text = json.dumps(sweep.manifest, ensure_ascii=False, indent=1) + "\n"
    with atomically(sweep.folder / "manifest.json") as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_runs(cell: Cell, runs: Iterable[Run], path: Path) -> None:
    policy, world = cell.policy, _public(cell.setting.environment)
    results = _empty_results(cell.setting, {policy.name: policy}, world)
    for run in runs:
        results.add(run)
    results_file.save(results, path)


def _empty_results(
    setting: SimulationSetting, policies: dict[str, Policy], environment: Environment
) -> Results:
    results = Results.empty(
        policies,
        environment,
        horizon=setting.horizon,
        seed=setting.seed,
        checkpoints=setting.rounds,
        feedback=setting.feedback,
    )
    results.device = "cuda" if setting.device == "cuda" else "cpu"
    return results


def read_cell(cell: Cell) -> list[Run]:
    """Read all repetitions of a finished cell."""
    runs = _checked(cell, cell.path)
    if [run.repetition for run in runs] != list(range(cell.setting.repetitions)):
        raise errors.ResultsFileError(f"{cell.path} has too few repetitions; {_RECOMPUTE}")
    return runs


def _checked(cell: Cell, path: Path) -> list[Run]:
    """Read the repetitions in a file, and check that they belong to this cell."""
    try:
        header, runs = results_file.read(path)
    except errors.ResultsFileError as error:
        raise errors.ResultsFileError(f"{error} ({_RECOMPUTE})") from error
    sizes = {(run.label, run.regret.size, run.pulls.size) for run in runs}
    setting = cell.setting
    fits = sizes <= {(cell.policy.name, setting.rounds.size, setting.environment.arms)}
    cell_header = {
        "horizon": setting.horizon,
        "seed": setting.seed,
        "checkpoints": setting.rounds.tolist(),
        "feedback": setting.feedback.description or None,
        "device": "cuda" if setting.device == "cuda" else None,
    }
    parameters = [
        _current_parameters(cell, each.get("parameters")) for each in header["policies"].values()
    ]
    fits = fits and parameters == [json.loads(json.dumps(cell.policy.parameters))]
    if not fits or any(header.get(what) != value for what, value in cell_header.items()):
        raise errors.ResultsFileError(f"{path} does not belong to {cell}; {_RECOMPUTE}")
    return runs


def _current_parameters(cell: Cell, parameters: Any) -> Any:
    """Parameters from a file, with renamed values under their current names."""
    try:
        renamed = type(cell.policy).create(parameters).parameters
    except (errors.BalaclavaError, AttributeError, TypeError):
        return parameters  # the caller refuses them
    return json.loads(json.dumps({name: renamed[name] for name in parameters}))


def differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Why the cells of two manifests cannot share a folder; "" if they can."""
    before, now = old["versions"], new["versions"]
    names = [name for name in now if before.get(name) != now[name]]
    if names:
        before, now = (
            ", ".join(f"{name} {each.get(name)}" for name in names) for each in (before, now)
        )
        return f"its numbers were computed with {before}, and this is {now}"
    if old["sources"] != new["sources"]:
        return "its numbers were computed with another state of balaclava's sources"
    before, now = (_keys(manifest) for manifest in (old, new))
    if before == now:
        return ""
    gone = [name for key, name in before.items() if key not in now]
    added = [name for key, name in now.items() if key not in before]
    changed = [name for name in gone if name in added]
    sentences = []
    for cells, verb in (
        (changed, "has other parameters, another seed, another device or edited code for"),
        ([name for name in gone if name not in changed], "lacks"),
        ([name for name in added if name not in changed], "adds"),
    ):
        if cells:
            more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
            sentences.append(f"the file {verb} {cells[0]}{more}")
    return ", ".join(sentences) or "the labels differ"


def _keys(manifest: dict[str, Any]) -> dict[str, str]:
    return {
        policy["key"]: f"{label} on {entry['environment_label']} at horizon {entry['horizon']}"
        for entry in manifest["settings"]
        for label, policy in entry["policies"].items()
    }


def _odd_manifest(folder: Path, error: Exception) -> errors.ResultsFileError:
    return errors.ResultsFileError(
        f"{folder / 'manifest.json'} is not a sweep's manifest ({error}); use another folder"
    )


def _resolved(setting: SimulationSetting) -> SimulationSetting:
    """Fill in the label, and resolve "auto", since numbers depend on the device."""
    world, device = setting.environment, setting.device
    setting = replace(setting, environment_label=setting.environment_label or world.name)
    require_playable(setting)
    if device == "auto":
        device = chosen_device("auto", setting.feedback, setting.winners, world)
    return replace(setting, device=device)


def _described(setting: SimulationSetting, packages: dict[str, str]) -> dict[str, Any]:
    """A setting as the manifest describes it, with the key of each cell."""
    shared: dict[str, Any] = {
        "environment": results_file.describe_environment(_public(setting.environment)),
        "horizon": setting.horizon,
        "repetitions": setting.repetitions,
        "seed": setting.seed,
        "checkpoints": setting.rounds.tolist(),
        **results_file.described_feedback(setting.feedback),
        **({"winners": True} if setting.winners else {}),
        **({"device": "cuda"} if setting.device == "cuda" else {}),
    }
    software: list[Any] = [shared, packages, sources()]
    if setting.device == "cuda":
        software.append(gpu_software())
    digest = hashlib.sha256(_canonical(software))
    for part in (_values(setting.environment), *_code(setting.environment)):
        digest.update(part)
    policies = {
        label: {
            "name": policy.name,
            "parameters": policy.parameters,
            "key": _key(digest.copy(), policy),
        }
        for label, policy in setting.policies.items()
    }
    return {"environment_label": setting.environment_label, **shared, "policies": policies}


def _key(digest: Any, policy: Policy) -> str:
    digest.update(_canonical([policy.name, policy.parameters]))
    for part in _code(policy):
        digest.update(part)
    return str(digest.hexdigest()[:40])


def _code(thing: Policy | Environment) -> Iterator[bytes]:
    """Fingerprints of the kernels: the name in this package, the code elsewhere."""
    functions = (
        (*thing.kernels, thing.prepare())
        if isinstance(thing, Policy)
        else (thing.draw, thing.advise, *thing.scene)
    )
    for function in functions:
        yield from fingerprint(function)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _values(world: Environment) -> bytes:
    """A digest of the numbers that an environment draws from.

    Keys are in files that users share. A few rewards, or clicks, could be recovered from a fast
    digest by trying all combinations, so the digest of data is slow.
    """
    digest = hashlib.sha256()
    for part in value_bytes(world.constants()):
        digest.update(part)
    return _slowly(digest.digest()) if world.holds_data else digest.digest()


@functools.lru_cache(maxsize=64)
def _slowly(digest: bytes) -> bytes:
    """A digest that takes 32 MB of memory and a tenth of a second (scrypt)."""
    return hashlib.scrypt(digest, salt=b"balaclava", n=2**15, r=8, p=1, maxmem=2**26)


def _public(world: Environment) -> Environment:
    """The environment as files describe it: without data, and without the folder of a log."""
    if not world.holds_data:
        return world
    known = _without_folders(results_file.describe_environment(world))
    return results_file.RecordedEnvironment(
        family=known["name"], known=known["parameters"], regrets=world.gaps
    )


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: os.path.basename(item)
            if key == "path" and isinstance(item, str)
            else _without_folders(item)
            for key, item in value.items()
        }
    return value


def _rebuilt(entry: dict[str, Any]) -> SimulationSetting:
    return SimulationSetting(
        results_file.described_policies(entry["policies"]),
        results_file.described_environment(entry["environment"]),
        entry["horizon"],
        entry["repetitions"],
        entry["seed"],
        entry["checkpoints"],
        None,
        entry["environment_label"],
        Feedback.create(**entry.get("feedback", {})),
        entry.get("winners", False),
        entry.get("device", "cpu"),
    )


def _parquet_files(folder: Path) -> Iterator[Path]:
    """The Parquet files of a folder, if it exists; files still being written are hidden."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if name.endswith(".parquet") and not name.startswith("."):
            yield folder / name


def gpu_software() -> dict[str, str]:
    """Versions and sources that numbers from a GPU depend on."""
    return {"numba-cuda": numba_cuda_version(), "sources for a GPU": sources(("simulation/gpu",))}


@functools.cache
def sources(patterns: tuple[str, ...] = _DECISIVE_SOURCES) -> str:
    """A digest of the sources that numbers depend on."""
    digest = hashlib.sha256()
    for pattern in patterns:
        paths = PACKAGE_FOLDER.glob(pattern if pattern.endswith(".py") else f"{pattern}/**/*.py")
        for path in sorted(paths):
            digest.update(path.relative_to(PACKAGE_FOLDER).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


@functools.cache
def machine() -> dict[str, Any]:
    """The machine, as far as it may affect numbers and speed."""
    processor = platform.processor()
    try:
        match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        processor = match[1] if match else processor
    except OSError:
        pass
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": processor,
        "cores": available_cores(),
        "libc": " ".join(platform.libc_ver()),
    }

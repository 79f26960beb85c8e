"""A sweep: the experiments of a file in a folder, one Parquet file a cell.

A cell is one policy in one environment, with one horizon and one seed. Its file is named by a
digest of everything that its numbers depend on, so that what is there need not be computed again,
and need not be opened to know that. The folder::

    manifest.json            every cell, the versions, and the machines that took part
    cells/<key>.parquet      finished cells: results files with one policy, under its own name
    parts/<key>-<n>.parquet  some repetitions of a cell that is not finished yet
    summary.txt              tables of the results, once every cell is there

Nothing in a cell's file depends on when, where or in how many attempts it was computed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from balaclava._core.atomic_files import atomically
from balaclava._core.cache import fingerprint, value_bytes
from balaclava.environments.base import Environment
from balaclava.errors import (
    BalaclavaError,
    ParameterError,
    ResultsFileError,
    UnknownNameError,
    nearest,
)
from balaclava.experiments.experiment_file import ExperimentPlan, SimulationSetting, require_played
from balaclava.policies.base import POLICIES, Policy
from balaclava.simulation.engine import (
    Device,
    available_cores,
    checkpoint_rounds,
    chosen_device,
    require_compatible,
)
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.gpu.device import numba_cuda_version
from balaclava.simulation.results import Results, Run
from balaclava.simulation.results_file import (
    RecordedEnvironment,
    describe_environment,
    described_environment,
    described_feedback,
    encode,
    read,
    unknown_schema,
    versions,
)

MANIFEST_SCHEMA = 1
SUMMARY = "summary.txt"
_MANIFEST = ("schema", "name", "versions", "sources", "machines", "settings")
_PACKAGE = Path(__file__).parents[1]
_DECISIVE = (
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
_RECOMPUTE = "run the same command again, which computes it anew"


@dataclass(frozen=True)
class Cell:
    """One policy in one environment, with one horizon and one seed."""

    environment_label: str
    policy_label: str
    policy: Policy
    environment: Environment
    horizon: int
    seed: int
    repetitions: int
    checkpoints: np.ndarray
    feedback: Feedback
    winners: bool
    device: Device
    key: str
    path: Path
    done: bool

    def empty(self) -> Results:
        """Results of nothing yet, with the policy under its own name."""
        results = Results.empty(
            {self.policy.name: self.policy},
            _public(self.environment),
            horizon=self.horizon,
            seed=self.seed,
            checkpoints=self.checkpoints,
            feedback=self.feedback,
        )
        results.device = _decided(self.device)
        return results

    def __str__(self) -> str:
        return f"{self.policy_label} on {self.environment_label} at horizon {self.horizon}"


class Sweep:
    """The cells of a folder, and the results of those that are finished.

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
        self, folder: Path, manifest: dict[str, Any], experiments: Iterable[SimulationSetting]
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self._experiments = tuple(experiments)

    @property
    def name(self) -> str:
        """The name of the experiment file, without its ending."""
        return str(self.manifest["name"])

    @property
    def cells(self) -> list[Cell]:
        """Every cell, with whether it is finished by now."""
        finished = {path.name for path in _entries(self.folder / "cells")}
        return [
            cell
            for experiment, setting in self._settings()
            for cell in self._cells(experiment, setting, finished)
        ]

    def settings(self) -> list[tuple[str, int, int]]:
        """Every environment, horizon and seed: what `results` can be asked for."""
        return [(e.environment_label, e.horizon, e.seed) for e in self._experiments]

    def results(self, environment_label: str, horizon: int, seed: int | None = None) -> Results:
        """The results of all policies in one environment with one horizon.

        What is not finished has fewer repetitions, or none. `seed` may be left out where there is
        one.
        """
        wishes = {"environment": environment_label, "horizon": horizon, "seed": seed}
        settings = list(self._settings())
        for what, value in wishes.items():
            choices = {_facet(experiment, what): None for experiment, _ in settings}
            if value is None and len(choices) == 1:
                continue
            if value not in choices:
                hint = f"there are {', '.join(map(str, choices))}"
                if isinstance(value, str):
                    hint = nearest(value, map(str, choices))
                raise UnknownNameError(f"{self.folder} has no {what} {value!r}; {hint}")
            settings = [pair for pair in settings if _facet(pair[0], what) == value]
        ((experiment, setting),) = settings
        results = Results.empty(
            experiment.policies,
            experiment.environment,
            horizon=horizon,
            seed=experiment.seed,
            checkpoints=_rounds(experiment),
            feedback=experiment.feedback,
        )
        results.versions = self.manifest["versions"]
        results.device = _decided(experiment.device)
        finished = {path.name for path in _entries(self.folder / "cells")}
        parts = self.parts()
        for cell in self._cells(experiment, setting, finished):
            runs = read_cell(cell) if cell.done else self.kept(cell, parts)
            for run in runs:
                results.add(run._replace(label=cell.policy_label))
        return results

    def parts(self) -> dict[str, list[Path]]:
        """The files with some repetitions of unfinished cells, by key."""
        files: dict[str, list[Path]] = {}
        for path in sorted(_entries(self.folder / "parts")):
            files.setdefault(path.name.partition("-")[0], []).append(path)
        return files

    def kept(self, cell: Cell, parts: dict[str, list[Path]]) -> list[Run]:
        """The repetitions of an unfinished cell that are there."""
        runs = {}
        for path in parts.get(cell.key, []):
            for run in _checked(cell, path):
                runs[run.repetition] = run
        return [runs[repetition] for repetition in sorted(runs)]

    def _settings(self) -> Iterator[tuple[SimulationSetting, dict[str, Any]]]:
        return zip(self._experiments, self.manifest["settings"], strict=True)

    def _cells(
        self, experiment: SimulationSetting, setting: dict[str, Any], finished: set[str]
    ) -> Iterator[Cell]:
        rounds, folder = _rounds(experiment), self.folder / "cells"
        for label, policy in experiment.policies.items():
            key = setting["policies"][label]["key"]
            yield Cell(
                experiment.environment_label,
                label,
                policy,
                experiment.environment,
                experiment.horizon,
                experiment.seed,
                experiment.repetitions,
                rounds,
                experiment.feedback,
                experiment.winners,
                experiment.device,
                key,
                folder / f"{key}.parquet",
                f"{key}.parquet" in finished,
            )

    def __repr__(self) -> str:
        cells = self.cells
        return f"<Sweep {self.name}: {sum(c.done for c in cells)} of {len(cells)} cells finished>"


def open_sweep(folder: str | os.PathLike[str]) -> Sweep:
    """The sweep in a folder that `balaclava simulate` wrote, finished or not."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        raise ResultsFileError(
            f"{folder} holds no sweep; give the folder that `balaclava simulate` wrote"
        )
    try:
        return Sweep(folder, manifest, [_rebuilt(setting) for setting in manifest["settings"]])
    except UnknownNameError as error:
        raise ResultsFileError(
            f"{folder}: {error} (if it is your own, import the module that registers it first)"
        ) from error
    except (BalaclavaError, KeyError, TypeError, AttributeError) as error:
        raise _odd_manifest(folder, error) from error


def plan_sweep(plan: ExperimentPlan, folder: str | os.PathLike[str]) -> Sweep:
    """The sweep that a plan asks for, in a folder. Nothing is written."""
    if not plan.experiments:
        raise ParameterError("the plan holds no experiment; give at least one")
    for experiment in plan.experiments:
        for label, policy in experiment.policies.items():
            require_compatible(
                label, policy, experiment.environment, experiment.horizon, experiment.feedback
            )
    experiments = [_on_device(_labelled(experiment)) for experiment in plan.experiments]
    packages = versions()
    settings = [_described(experiment, packages) for experiment in experiments]
    if any(experiment.device == "cuda" for experiment in experiments):
        packages = versions("cuda")
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "name": plan.name,
        "versions": packages,
        "sources": sources(),
        "machines": [machine()],
        "settings": settings,
    }
    return Sweep(Path(folder), manifest, experiments)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder; None where there is none."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        schema = manifest["schema"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ResultsFileError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise _odd_manifest(folder, error) from error
    if schema != MANIFEST_SCHEMA:
        raise unknown_schema(path, schema, MANIFEST_SCHEMA)
    missing = [key for key in _MANIFEST if key not in manifest]
    if missing:
        raise _odd_manifest(folder, KeyError(*missing))
    return dict(manifest)


def write_manifest(sweep: Sweep) -> None:
    """Put the manifest into the folder."""
    text = json.dumps(sweep.manifest, ensure_ascii=False, indent=1) + "\n"
    with atomically(sweep.folder / "manifest.json") as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_runs(cell: Cell, runs: Iterable[Run], path: Path) -> None:
    """A file with these repetitions of a cell."""
    results = cell.empty()
    for run in runs:
        results.add(run)
    content = encode(results)
    with atomically(path) as temporary:
        temporary.write_bytes(content)


def read_cell(cell: Cell) -> list[Run]:
    """All repetitions of a finished cell."""
    runs = _checked(cell, cell.path)
    if [run.repetition for run in runs] != list(range(cell.repetitions)):
        raise ResultsFileError(f"{cell.path} lacks repetitions; {_RECOMPUTE}")
    return runs


def _checked(cell: Cell, path: Path) -> list[Run]:
    """The repetitions in a file, which must be those of this very cell."""
    try:
        header, runs = read(path)
    except ResultsFileError as error:
        raise ResultsFileError(f"{error} ({_RECOMPUTE})") from error
    sizes = {(run.label, run.regret.size, run.pulls.size) for run in runs}
    fits = sizes <= {(cell.policy.name, cell.checkpoints.size, cell.environment.arms)}
    cell_header = {
        "horizon": cell.horizon,
        "seed": cell.seed,
        "checkpoints": cell.checkpoints.tolist(),
        "feedback": cell.feedback.description or None,
        "device": "cuda" if cell.device == "cuda" else None,
    }
    parameters = [each.get("parameters") for each in header["policies"].values()]
    fits = fits and parameters == [json.loads(json.dumps(cell.policy.parameters))]
    if not fits or any(header.get(what) != value for what, value in cell_header.items()):
        raise ResultsFileError(f"{path} holds something else than {cell}; {_RECOMPUTE}")
    return runs


def differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Why the cells of two manifests do not belong together; "" if they do."""
    before, now = old["versions"], new["versions"]
    names = [name for name in now if before.get(name) != now[name]]
    if names:
        before, now = (_listed({name: each.get(name) for name in names}) for each in (before, now))
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
        (changed, "has other parameters, another seed or another device for"),
        ([name for name in gone if name not in changed], "lacks"),
        ([name for name in added if name not in changed], "adds"),
    ):
        if cells:
            more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
            sentences.append(f"the file {verb} {cells[0]}{more}")
    return ", ".join(sentences) or "the labels differ"


def _listed(versions: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _keys(manifest: dict[str, Any]) -> dict[str, str]:
    return {
        policy["key"]: f"{label} on {setting['environment_label']} at horizon {setting['horizon']}"
        for setting in manifest["settings"]
        for label, policy in setting["policies"].items()
    }


def _odd_manifest(folder: Path, error: Exception) -> ResultsFileError:
    return ResultsFileError(
        f"{folder / 'manifest.json'} is not a manifest of balaclava ({error}); use another folder"
    )


def _facet(experiment: SimulationSetting, what: str) -> Any:
    return experiment.environment_label if what == "environment" else getattr(experiment, what)


def _rounds(experiment: SimulationSetting) -> np.ndarray:
    return checkpoint_rounds(experiment.checkpoints, experiment.horizon)


def _labelled(experiment: SimulationSetting) -> SimulationSetting:
    label = experiment.environment_label or experiment.environment.name
    return replace(experiment, environment_label=label)


def _on_device(experiment: SimulationSetting) -> SimulationSetting:
    """With "auto" decided, as the numbers depend on it. Whether there is a GPU is asked later."""
    require_played(experiment)
    if experiment.device != "auto":
        return experiment
    device = chosen_device("auto", experiment.feedback, experiment.winners, experiment.environment)
    return replace(experiment, device=device)


def _decided(device: Device) -> Literal["cpu", "cuda"]:
    return "cuda" if device == "cuda" else "cpu"


def _described(experiment: SimulationSetting, packages: dict[str, str]) -> dict[str, Any]:
    """An experiment as the manifest has it, with the key of each cell."""
    world = _public(experiment.environment)
    rounds = _rounds(experiment).tolist()
    shared: dict[str, Any] = {
        "environment": describe_environment(world),
        "horizon": experiment.horizon,
        "repetitions": experiment.repetitions,
        "seed": experiment.seed,
        "checkpoints": rounds,
        **described_feedback(experiment.feedback),
        **({"winners": True} if experiment.winners else {}),
        **({"device": "cuda"} if experiment.device == "cuda" else {}),
    }
    software: list[Any] = [shared, packages, sources()]
    if experiment.device == "cuda":
        software.append(gpu_software())
    digest = hashlib.sha256(_canonical(software))
    for part in (_values(experiment.environment), *_code(experiment.environment)):
        digest.update(part)
    policies = {
        label: {
            "name": policy.name,
            "parameters": policy.parameters,
            "key": _key(digest.copy(), policy),
        }
        for label, policy in experiment.policies.items()
    }
    label = experiment.environment_label or experiment.environment.name
    return {"environment_label": label, **shared, "policies": policies}


def _key(digest: Any, policy: Policy) -> str:
    digest.update(_canonical([policy.name, policy.parameters]))
    for part in _code(policy):
        digest.update(part)
    return str(digest.hexdigest()[:40])


def _code(thing: Policy | Environment) -> Iterator[bytes]:
    """What a policy or an environment runs: by name if it is ours, else the code itself."""
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
    """A digest of what an environment draws from.

    Keys stand in files that are passed on. Somebody's rewards, if they are few or clicks, could be
    found from a digest by trying them all (14 clicks took a second): this one is slow.
    """
    digest = hashlib.sha256()
    for part in value_bytes(world.constants()):
        digest.update(part)
    return _slowly(digest.digest()) if world.holds_data else digest.digest()


@functools.lru_cache(maxsize=64)
def _slowly(digest: bytes) -> bytes:
    """A digest that takes 32 MB of memory and a fraction of a second."""
    return hashlib.scrypt(digest, salt=b"balaclava", n=2**15, r=8, p=1, maxmem=2**26)


def _public(world: Environment) -> Environment:
    """The environment as files know it: without rewards, and without the folder of a log."""
    if not world.holds_data:
        return world
    known = _without_folders(describe_environment(world))
    return RecordedEnvironment(family=known["name"], known=known["parameters"], regrets=world.gaps)


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: os.path.basename(item)
            if key == "path" and isinstance(item, str)
            else _without_folders(item)
            for key, item in value.items()
        }
    return value


def _rebuilt(setting: dict[str, Any]) -> SimulationSetting:
    return SimulationSetting(
        {
            label: POLICIES.create(saved["name"], saved["parameters"])
            for label, saved in setting["policies"].items()
        },
        described_environment(setting["environment"]),
        setting["horizon"],
        setting["repetitions"],
        setting["seed"],
        setting["checkpoints"],
        None,
        setting["environment_label"],
        Feedback.create(**setting.get("feedback", {})),
        setting.get("winners", False),
        setting.get("device", "cpu"),
    )


def _entries(folder: Path) -> Iterator[Path]:
    """The Parquet files of a folder that may not be there; what is being written is hidden."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if name.endswith(".parquet") and not name.startswith("."):
            yield folder / name


def gpu_software() -> dict[str, str]:
    """What numbers from a GPU depend on besides."""
    return {"numba-cuda": numba_cuda_version(), "sources for a GPU": sources(("simulation/gpu",))}


@functools.cache
def sources(patterns: tuple[str, ...] = _DECISIVE) -> str:
    """A digest of the sources that decide about numbers."""
    digest = hashlib.sha256()
    for pattern in patterns:
        paths = _PACKAGE.glob(pattern if pattern.endswith(".py") else f"{pattern}/**/*.py")
        for path in sorted(paths):
            digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


@functools.cache
def machine() -> dict[str, Any]:
    """The machine, as far as it may matter for numbers and speed."""
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

"""A sweep's folder of an earlier version: read, but never continued with other code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import balaclava as bl
from balaclava.errors import ResultsFileError
from balaclava.experiments import sweep
from balaclava.experiments.experiment_file import read_plan
from balaclava.experiments.sweep_runner import run_sweep

HERE = Path(__file__).parent
NUMBERS = json.loads((HERE / "older_sweep.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE / "older_sweep", tmp_path / "older"))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_finished_cells_and_parts_are_read_with_their_numbers() -> None:
    sweep = bl.open_sweep(HERE / "older_sweep")
    assert {str(cell): cell.done for cell in sweep.cells} == NUMBERS["cells"]
    for horizon, policies in NUMBERS["results"].items():
        results = sweep.results("bernoulli", int(horizon))
        for label, numbers in policies.items():
            assert results.regret(label).tolist() == numbers["regret"]
            assert results.pulls(label).tolist() == numbers["pulls"]
    assert 0 < len(results.regret("private")) < 4  # a part: not all of its repetitions


def test_other_code_does_not_continue_it(folder: Path) -> None:
    """The key of a cell stands for the code: numbers of two versions never mix."""
    before = contents(folder)
    with pytest.raises(ResultsFileError, match=r"computed with .*; choose another folder, or add"):
        run_sweep(read_plan(HERE / "older_sweep.toml"), folder)
    assert contents(folder) == before


def test_extending_it_keeps_its_cells_and_plays_all_anew(folder: Path) -> None:
    before = contents(folder)
    played = run_sweep(read_plan(HERE / "older_sweep.toml"), folder, extend=True)
    assert all(cell.done for cell in played.cells)
    after = contents(folder)
    kept = {path: content for path, content in before.items() if path.startswith("cells/")}
    assert kept.items() <= after.items()
    for horizon, policies in NUMBERS["results"].items():
        results = played.results("bernoulli", int(horizon))
        for label, numbers in policies.items():  # the same code for these policies: the same bits
            assert results.regret(label)[: len(numbers["regret"])].tolist() == numbers["regret"]


def test_a_newer_format_is_refused_in_a_sentence(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "schema": 2}))
    with pytest.raises(
        ResultsFileError, match="has format 2, but this version reads 1; upgrade balaclava"
    ):
        bl.open_sweep(folder)


def test_a_cell_with_values_that_were_renamed_is_read() -> None:
    """dp-imed's index and batches had other names in sweeps of version 0.1.0."""
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0, index="rechecking")
    cell: Any = SimpleNamespace(policy=policy)
    parameters = json.loads(json.dumps(policy.parameters))
    older = {**parameters, "index": "careful", "batches": "need"}
    assert older != parameters
    assert sweep._current_parameters(cell, older) == parameters
    assert sweep._current_parameters(cell, None) is None
    fewer = {name: value for name, value in older.items() if name != "epsilon"}
    assert sweep._current_parameters(cell, fewer) != parameters

"""The notebooks run, and print what is kept in them.

After a change that they show: `jupyter execute --inplace docs/notebooks/*.ipynb`, in a folder of
its own, and look at them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
QUICK = "ab_test"  # the others take a minute or more: `make test-all` runs them
LONG = "bl.audit("  # cells with it take most of the time: `make test-all` runs them


def texts(notebook: Any) -> list[str]:
    """What each cell of code printed or showed, without pictures."""
    return [
        "".join(
            output.get("text") or output["data"]["text/plain"]
            for output in cell.outputs
            if output.output_type != "display_data"
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        pytest.param(
            path,
            whole,
            id=f"{path.stem}-{'whole' if whole else 'short'}",
            marks=[pytest.mark.xdist_group(path.stem), *[pytest.mark.slow] * whole],
        )
        for path in NOTEBOOKS
        for whole in ([False, True] if path.stem == QUICK else [True])
    ],
)
def test_a_notebook_prints_what_is_kept_in_it(
    path: Path, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([tools, os.environ.get("PATH", "")]))
    monkeypatch.setenv("COLUMNS", "96")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if whole or LONG not in cell.source]
    kept = texts(notebook)
    assert any(kept)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert texts(notebook) == kept


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_no_machine_in_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 80_000
    for trace in ("/tmp/", "/home/", "/root/", '"execution"'):
        assert trace not in text

"""Node.js for tests: packages from npm in the versions of a lock file, where both can be had."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[1] / "clients" / "typescript"
# The versions of the lock file are fetched: without a network the tests are skipped.
needs_node = pytest.mark.skipif(
    not shutil.which("node") or not shutil.which("npm"), reason="needs Node.js and npm"
)


def install(folder: Path) -> Path:
    """The TypeScript client in this folder, built, with what its tests need."""
    shutil.copytree(
        CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist"), dirs_exist_ok=True
    )
    cache = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if cache.returncode:
        pytest.skip("npm cannot install packages: no network?")
    built = subprocess.run(["npx", "tsc"], cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout
    return folder


def run(folder: Path, script: str, *arguments: str) -> str:
    """What a module prints that runs in this folder."""
    (folder / "script.mjs").write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["node", "script.mjs", *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

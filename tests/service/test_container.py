"""The container image, built without root and started, where a builder is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILDER = os.environ.get("BALACLAVA_IMAGE_USER", "")  # who builds, if the tests run as root
# A root file system with Python, where the base image cannot be pulled.
BASE = os.environ.get("BALACLAVA_IMAGE_BASE", "")


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("buildah") is None, reason="no buildah: install it to build images"
)
@pytest.mark.skipif(
    os.getuid() == 0 and not BUILDER,
    reason="runs as root: name another user in BALACLAVA_IMAGE_USER",
)
def test_the_image_is_built_without_root_and_gets_ready() -> None:
    """About ten minutes; pulls the base image, or takes that of BALACLAVA_IMAGE_BASE."""
    # Another user builds: each new session of pytest closes pytest's own folders to others.
    with tempfile.TemporaryDirectory(prefix="balaclava-") as folder:
        done = _build(Path(folder) / "sources")
    if "pull" in done.stderr and "unable to" in done.stderr:
        pytest.skip("the base image cannot be pulled: give BALACLAVA_IMAGE_BASE")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "balaclava\n" in done.stdout
    assert "the container is ready" in done.stdout


def _build(sources: Path) -> subprocess.CompletedProcess[str]:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(sources)], check=True)
    command = [str(sources / ".ci" / "container"), *([BASE] if BASE else [])]
    if os.getuid() == 0:
        sources.parent.chmod(0o755)
        subprocess.run(["chown", "-R", BUILDER, str(sources)], check=True)
        options = os.environ.get("BUILD_OPTIONS", "")
        words = f"cd && BUILD_OPTIONS={options!r} " + " ".join(command)
        command = ["su", BUILDER, "-c", words]
    return subprocess.run(command, capture_output=True, text=True)

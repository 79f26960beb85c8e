"""Compiled code on disk: found again, and never stale."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import balaclava
from balaclava._core.cache import cache_directory, fingerprint
from balaclava._core.kernels import compiled

POLICY = """
    import balaclava as bl
    import helper
    from balaclava.frames.tally import begin_tally, learn_tally

    STEP = 1

    @bl.kernel
    def choose(params, state, t, context, rng):
        return (helper.shift(t) * STEP) % params.arms, 0

    @bl.register
    class Walk(bl.Policy):
        "Walk through the arms."
        name = "walk"
        kernels = bl.Kernels(begin_tally, choose, learn_tally)
"""
HELPER = """
    import balaclava as bl

    OFFSET = 0

    @bl.kernel
    def shift(t):
        return t + OFFSET
"""
RUN = """
    import json, sys, walk
    import balaclava as bl
    from balaclava._core.cache import cache_directory
    from balaclava._core.kernels import compiled
    from balaclava.simulation.engine import make_play
    policy = bl.policy("walk", arms=3)
    world = bl.environment("bernoulli", means=[0.1, 0.5, 0.9])
    kernels = *policy.kernels[:3], policy.prepare(), world.draw, world.advise, *world.scene
    if sys.argv[1:] == ["place"]:
        sys.exit(print(json.dumps(cache_directory(make_play, *kernels).name)))
    pulls = bl.simulate(policy, world, horizon=7, repetitions=1, seed=1).pulls("walk")
    play = compiled(make_play, *kernels)
    hits = sum(play.stats.cache_hits.values())
    print(json.dumps({"pulls": pulls[0].tolist(), "hits": hits}))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "walk.py").write_text(textwrap.dedent(POLICY))
    (tmp_path / "helper.py").write_text(textwrap.dedent(HELPER))
    (tmp_path / "run.py").write_text(textwrap.dedent(RUN))
    return tmp_path


def run(project: Path, *arguments: str) -> Any:
    # Python's own cache goes by size and time, which `edit` keeps.
    environment = {
        **os.environ,
        "BALACLAVA_CACHE_DIR": str(project / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "run.py", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def edit(path: Path, old: str, new: str) -> None:
    """Change a file without changing its size or its time of change."""
    times = (path.stat().st_atime, path.stat().st_mtime)
    text = path.read_text()
    assert old in text
    assert len(old) == len(new)
    path.write_text(text.replace(old, new))
    os.utime(path, times)


def test_cache_is_used_and_never_stale(project):
    assert run(project) == {"pulls": [2, 3, 2], "hits": 0}
    assert run(project) == {"pulls": [2, 3, 2], "hits": 1}
    edit(project / "helper.py", "OFFSET = 0", "OFFSET = 1")
    assert run(project) == {"pulls": [2, 2, 3], "hits": 0}


def test_every_edit_has_its_own_place(project):
    """A constant of the policy's file, a constant of a file that it uses, the code of that file."""
    places = [run(project, "place"), run(project, "place")]
    for file, old, new in (
        ("walk.py", "STEP = 1", "STEP = 3"),
        ("helper.py", "OFFSET = 0", "OFFSET = 1"),
        ("helper.py", "t + OFFSET", "t - OFFSET"),
    ):
        edit(project / file, old, new)
        places.append(run(project, "place"))
    assert places[0] == places[1]
    assert len(set(places)) == 4


def test_editing_the_package_makes_a_new_generation(tmp_path, monkeypatch):
    from balaclava._core import cache as _kernel

    source = tmp_path / "package"
    source.mkdir()
    (source / "ucb.py").write_text("BONUS = 2.0")
    monkeypatch.setattr(_kernel, "PACKAGE_FOLDER", source)
    before = _kernel.package_digest.__wrapped__()
    (source / "ucb.py").write_text("BONUS = 3.0")
    assert _kernel.package_digest.__wrapped__() != before


def test_unwritable_cache_is_no_obstacle(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    monkeypatch.setenv("BALACLAVA_CACHE_DIR", str(blocked))
    assert cache_directory(make_twice) is None
    assert compiled(make_twice)(3) == 6


def make_twice():
    def twice(number):
        return 2 * number

    return twice


def test_fingerprint_follows_closures():
    def make(factor):
        def inner(x):
            return factor * x

        return inner

    def parts(function):
        return b"".join(fingerprint(function))

    assert parts(make(2)) == parts(make(2))
    assert parts(make(2)) != parts(make(3))


def test_importing_the_package_is_light():
    heavy = "{'numba', 'scipy', 'pyarrow', 'matplotlib', 'opendp', 'dp_accounting', 'numpy'}"
    done = subprocess.run(
        [sys.executable, "-c", f"import balaclava, sys; print({heavy} & set(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"


def test_every_public_name_exists():
    for name in balaclava.__all__:
        assert getattr(balaclava, name) is not None


def test_loops_of_different_kernels_have_different_names():
    """Two processes number their machine code alike; loaded together it must not share symbols."""
    from balaclava.simulation.engine import make_play

    world = balaclava.environment("bernoulli", means=[0.1, 0.5])
    names = set()
    for name in ("imed", "thompson-beta"):
        policy = balaclava.policy(name, arms=2)
        play = compiled(make_play, *policy.kernels[:3], policy.prepare(), world.draw, world.advise)
        names.add(play.py_func.__qualname__)
    assert len(names) == 2


MINE = """
    import balaclava as bl
    from balaclava.policies.classic.ucb1 import UCB1

    @bl.register
    class Mine(UCB1):
        "UCB1 under another name."
        name = "mine"
"""
PLAY = """
    import sys
    import balaclava as bl
    if sys.argv[1] == "mine":
        import mine
    world = bl.environment("bernoulli", means=[0.1, 0.9])
    policy = bl.policy(sys.argv[1], arms=2)
    print(bl.simulate(policy, world, horizon=9, repetitions=1, seed=1).pulls(sys.argv[1]).sum())
"""


@pytest.mark.slow
def test_a_subclass_with_the_same_kernels_spoils_nothing(project: Path) -> None:
    """Its types lie in the same index, which must be read where its module is unknown."""
    (project / "mine.py").write_text(textwrap.dedent(MINE))
    (project / "run.py").write_text(textwrap.dedent(PLAY))
    assert run(project, "mine") == 9
    (project / "mine.py").unlink()
    assert run(project, "ucb1") == 9

"""`balaclava example`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.running import invoke

QUICKSTART = Path(__file__).parents[3] / "examples" / "quickstart.toml"


def test_quickstart_is_readable() -> None:
    from balaclava.experiments.experiment_file import read_plan

    assert "ucb1" in read_plan(QUICKSTART).settings[0].policies


def test_an_example_to_begin_with(experiment: Path) -> None:
    text = invoke("example").output
    assert text == QUICKSTART.read_text(encoding="utf-8").replace("quickstart", "experiment")

"""The instances and the list of figures."""

from __future__ import annotations

from click.testing import CliRunner, Result

from balaclava.cli import main
from balaclava.papers.harness.figure_registry import figures
from balaclava.papers.wang2024 import bernoulli_instances

NAMES = [f"wang2024-fig{i}" for i in range(1, 8)]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_every_figure_is_listed() -> None:
    assert set(NAMES) <= {entry.name for entry in figures()}
    for arguments in (["--list"], []):
        answer = invoke("reproduce", *arguments)
        assert answer.exit_code == 0
        assert all(name in answer.output for name in NAMES)


def test_the_instances() -> None:
    one, two = (
        bernoulli_instances.WangSetting(1, 1.0).world,
        bernoulli_instances.WangSetting(2, 1.0).world,
    )
    assert one.means.tolist() == [0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7]
    assert (two.arms, two.means[0], two.means[1], two.means[-1]) == (101, 0.3, 0.304, 0.7)
    assert bernoulli_instances.WANG_2024.sizes["regret"]["paper"] == (1_000_000, 100)

"""Running the command line inside a test."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from balaclava.cli import main

EXPERIMENT = """
horizon = 500
repetitions = 3
seed = 1

[environment]
name = "bernoulli"
means = [0.4, 0.6]

[policies.ucb1]

[policies.bolder]
name = "ucb1"
radius_scale = 0.5
"""


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])

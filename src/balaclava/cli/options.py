"""Options that several commands share: arms, delays, device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from balaclava.errors import ParameterError


class ArmsOption(click.ParamType):  # type: ignore[type-arg]
    """The number of arms, or their names separated by commas."""

    name = "NUMBER|NAMES"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | list[str]:
        if isinstance(value, int | list):
            return value
        if "," in value:
            return [name.strip() for name in value.split(",")]
        try:
            return int(value)
        except ValueError:
            self.fail(
                f"{value!r} is neither a number nor a list of names such as plain,friendly,map"
            )


ARMS_TYPE = ArmsOption()

device_option = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda", "auto"]),
    help="Where to simulate: cuda is a GPU. By default as in the file, else the CPU.",
)
workers_option = click.option(
    "--workers", type=click.IntRange(min=1), help="Threads; by default one per core."
)


def delay_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --delay, --law, --lost and --patience to a command."""
    for option in (
        click.option(
            "--patience",
            type=int,
            help="Rounds after which a decision is given up; by default estimated from the delays.",
        ),
        click.option("--lost", type=float, help="Share of rewards that never arrive."),
        click.option(
            "--law",
            type=click.Choice(["geometric", "fixed", "uniform"]),
            help="Distribution of the delay; by default geometric.",
        ),
        click.option("--delay", type=float, help="Mean delay of a reward, in rounds."),
    ):
        command = option(command)
    return command


def pop_delay(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the delay options, and return them as arguments of `bl.simulate`."""
    from balaclava.simulation.reward_delays import Delay

    mean, patience = options.pop("delay"), options.pop("patience")
    settings = {name: options.pop(name) for name in ("law", "lost")}
    settings = {name: value for name, value in settings.items() if value is not None}
    if "law" in settings and mean is None:
        raise ParameterError(f"--law {settings['law']} needs a mean delay; give --delay as well")
    arguments: dict[str, Any] = {}
    if mean is not None or settings:
        arguments["delay"] = Delay.create({"mean": mean or 0, **settings})
    if patience is not None:
        arguments["patience"] = patience
    return arguments

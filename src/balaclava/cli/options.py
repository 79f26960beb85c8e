"""How commands declare options, and those that several share: arms, delays, device."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

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


class EpsilonsOption(click.ParamType):  # type: ignore[type-arg]
    """A number, or several separated by commas."""

    name = "E|E,E,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> float | list[float]:
        if isinstance(value, float | list):
            return value
        try:
            numbers = [float(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a number, nor several with commas, such as 0.1,1")
        return numbers[0] if len(numbers) == 1 else numbers


ARMS_TYPE, EPSILONS_TYPE = ArmsOption(), EpsilonsOption()
Command = TypeVar("Command", bound=Callable[..., Any])


def option(names: str, kind: Any, help: str, **others: Any) -> Callable[[Command], Command]:
    """Declare an option of a command.

    Args:
        names: The option and, after a space, the parameter if its name differs.
        kind: A type; bool for a flag; a list of choices; or the metavar of a string.
        help: The help text.
        others: Arguments of `click.option`.
    """
    if isinstance(kind, str):
        others["metavar"] = kind
    elif kind is bool:
        others["is_flag"] = True
    elif isinstance(kind, list):
        others["type"] = click.Choice(kind)
    else:
        others["type"] = click.Path(path_type=Path) if kind is Path else kind
    return click.option(*names.split(), help=help, **others)


def combined(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order of the help."""

    def decorate(command: Any) -> Any:
        for each in reversed(options):
            command = each(command)
        return command

    return decorate


device_option = option(
    "--device",
    ["cpu", "cuda", "auto"],
    "Where to simulate: cuda is a GPU. By default as in the file, else the CPU.",
)
workers_option = option("--workers", click.IntRange(1), "Threads; by default one per core.")
wide_option = option("--wide", bool, "Print all columns, also on a narrow terminal.")
late_options = combined(
    option(
        "--law",
        ["geometric", "fixed", "uniform"],
        "Distribution of the delay; by default geometric.",
    ),
    option("--lost", float, "Share of rewards that never arrive."),
    option(
        "--patience",
        int,
        "Rounds after which a decision is given up, or its window ends; by default estimated from "
        "the delays.",
    ),
    option(
        "--settle",
        ["arrival", "window"],
        "Whether a reward counts when it arrives, the default, or at the end of its window; window "
        "needs --patience and --missing.",
    ),
)
missing_option = option(
    "--missing", float, "Value that counts for a reward that did not arrive in its window."
)
feedback_options = combined(
    option("--delay", float, "Mean delay of a reward, in rounds."), late_options
)
delay_options = combined(feedback_options, missing_option)


def pop_delay(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options on delays and settling; return them as arguments of `bl.simulate`."""
    from balaclava.simulation.reward_delays import Delay

    mean = options.pop("delay", None)
    settling = {name: options.pop(name) for name in ("patience", "settle", "missing")}
    settings = {name: options.pop(name, None) for name in ("law", "lost")}
    settings = {name: value for name, value in settings.items() if value is not None}
    if "law" in settings and mean is None:
        raise ParameterError(f"--law {settings['law']} needs a mean delay; give --delay as well")
    arguments = {name: value for name, value in settling.items() if value is not None}
    if mean is not None or settings:
        arguments["delay"] = Delay.create({"mean": mean or 0, **settings})
    return arguments

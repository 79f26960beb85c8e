"""The option that says how many arms there are, or how they are called."""

from __future__ import annotations

from typing import Any

import click


class ArmsOption(click.ParamType):  # type: ignore[type-arg]
    """How many arms there are, or their names, with commas between."""

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


ARMS = ArmsOption()

"""balaclava: differentially private multi-armed bandits.

>>> import balaclava as bl
>>> policy = bl.policy("ucb1", arms=3)
>>> world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
>>> results = bl.simulate(policy, world, horizon=1_000, repetitions=10, seed=1)
"""

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _homes() -> dict[str, tuple[str, str]]:
    """Public names, and the module and the name there: what `__init__.pyi` imports."""
    statements = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    return {
        (name.asname or name.name): (line.module or __name__, name.name)
        for line in statements
        if isinstance(line, ast.ImportFrom)
        for name in line.names
    }


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'balaclava' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    if module == __name__:
        value = importlib.import_module(f"{module}.{attribute}")
    else:
        home = importlib.import_module(module)
        value = getattr(home, attribute, None) or importlib.import_module(f"{module}.{attribute}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

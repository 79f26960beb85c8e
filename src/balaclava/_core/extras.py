"""Parts that are not installed with the base: named with the extra that brings them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator

from balaclava.errors import MissingPartError

# What the base goes without, and the extra that has it (see pyproject.toml).
EXTRAS = {
    "numba": "lab",
    "scipy": "lab",
    "dp_accounting": "lab",
    "pyarrow": "lab",
    "matplotlib": "lab",
    "jinja2": "lab",
    "tomlkit": "lab",
    "distributed": "sweep",
    "numba_cuda": "gpu",
    "httpx": "client",
    "fastapi": "serve",
    "uvicorn": "serve",
    "psycopg": "postgres",
}


def require_extra(module: str, purpose: str) -> None:
    """Refuse to go on without `module`, which `purpose` needs; called before it is imported."""
    if sys.modules.get(module) is not None or importlib.util.find_spec(module) is not None:
        return
    package = module.replace("_", "-")
    what = f"'balaclava[{EXTRAS[module]}]'" if module in EXTRAS else package
    raise MissingPartError(
        f"{purpose} needs {package}, which is not installed; install it with pip install {what}"
    )


@contextlib.contextmanager
def loading(*modules: str) -> Iterator[None]:
    """Load modules on another thread while something else is done, such as reading a file.

    One that is not installed is left to those who need it.
    """

    def load() -> None:
        for module in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        thread.join()

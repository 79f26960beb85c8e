"""Optional dependencies, and the extra that installs each."""

import contextlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from typing import Any

from balaclava.errors import MissingPartError

# Modules that the base install lacks, with their extra in pyproject.toml.
EXTRAS = {
    "numba": "lab",
    "scipy": "lab",
    "dp_accounting": "lab",
    "pyarrow": "files",
    "matplotlib": "lab",
    "jinja2": "lab",
    "tomlkit": "lab",
    "distributed": "sweep",
    "numba_cuda": "gpu",
    "httpx": "client",
    "fastapi": "serve",
    "uvicorn": "serve",
    "psycopg": "postgres",
    "cryptography": "edge",
}


def require_extra(module: str, purpose: str) -> None:
    """Require an optional module before importing it, or say how to install it."""
    if sys.modules.get(module) is not None or importlib.util.find_spec(module) is not None:
        return
    package = module.replace("_", "-")
    what = f"'balaclava[{EXTRAS[module]}]'" if module in EXTRAS else package
    raise MissingPartError(
        f"{purpose} needs {package}, which is not installed; install it with pip install {what}"
    )


def import_extra(module: str, purpose: str) -> Any:
    """Import an optional module, such as "scipy.special", or say how to install it."""
    require_extra(module.partition(".")[0], purpose)
    return importlib.import_module(module)


@contextlib.contextmanager
def loading(*modules: str) -> Iterator[None]:
    """Import modules on another thread while the body runs; missing ones are skipped."""

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

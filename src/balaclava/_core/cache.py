"""Keys and folders for machine code on disk.

A key contains a digest of the package's sources, of the compilers' versions and of every foreign
function involved: an edited policy never runs stale code.
"""

import functools
import hashlib
import marshal
import os
import shutil
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE_FOLDER = Path(__file__).parents[1]
_STALE_SECONDS = 30 * 24 * 3600  # unused code of other versions is deleted after 30 days
# Packages whose functions are identified by name: their versions are in the key.
_KNOWN_BY_NAME = {"balaclava", "numpy", "numba", "scipy", *sys.stdlib_module_names} - {"__main__"}


def cache_directory(*functions: Callable[..., Any]) -> Path | None:
    """The folder for the machine code of these functions; None if it cannot be kept."""
    if any(function.__module__ in ("__main__", None) for function in functions):
        return None
    root = _cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        generation = root / package_digest()
        if not generation.exists():
            _remove_stale(root)
            generation.mkdir(exist_ok=True)
    except OSError:
        return None
    digest = hashlib.sha256()
    for function in functions:
        for part in fingerprint(function):
            digest.update(part)
    return generation / digest.hexdigest()[:20]


def _cache_root() -> Path:
    folder = os.environ.get("BALACLAVA_CACHE_DIR")
    if folder:
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "balaclava"


def _remove_stale(root: Path) -> None:
    for old in root.iterdir():
        if old.is_dir() and time.time() - old.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(old, ignore_errors=True)


@functools.cache
def package_digest() -> str:
    """A digest of the package's sources and of the compilers' versions."""
    import llvmlite
    import numba

    digest = hashlib.sha256()
    for version in (sys.version, np.__version__, numba.__version__, llvmlite.__version__):
        digest.update(version.encode())
    for path in sorted(PACKAGE_FOLDER.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE_FOLDER)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


def fingerprint(function: Callable[..., Any], seen: set[int] | None = None) -> Iterator[bytes]:
    """Yield bytes that identify what a function's behaviour depends on.

    The name identifies functions of the package and of libraries whose versions are in the key. A
    foreign function adds its code, its defaults, and the functions and constants that it uses.
    """
    seen = set() if seen is None else seen
    function = getattr(function, "__wrapped__", function)
    if id(function) in seen or not isinstance(function, types.FunctionType):
        return
    seen.add(id(function))
    yield f"{function.__module__}.{function.__qualname__}".encode()
    for cell in function.__closure__ or ():
        yield from _referenced_bytes(cell.cell_contents, (), seen)
    if function.__module__.split(".")[0] in _KNOWN_BY_NAME:
        return
    code = function.__code__
    yield marshal.dumps(code.replace(co_filename="", co_firstlineno=0, co_linetable=b""))
    yield repr((function.__defaults__, function.__kwdefaults__)).encode()
    for name in code.co_names:
        if name in function.__globals__:
            yield name.encode()
            yield from _referenced_bytes(function.__globals__[name], code.co_names, seen)


def _referenced_bytes(value: Any, names: tuple[str, ...], seen: set[int]) -> Iterator[bytes]:
    if isinstance(value, types.FunctionType):
        yield from fingerprint(value, seen)
    elif isinstance(value, types.ModuleType):
        yield value.__name__.encode()
        for name in names:  # module.constant and module.function
            attribute = getattr(value, name, None)
            if isinstance(attribute, types.FunctionType | int | float | str | tuple | np.ndarray):
                yield from _referenced_bytes(attribute, names, seen)
    elif isinstance(value, type):
        fields = getattr(value, "_fields", ())
        yield f"{value.__module__}.{value.__qualname__}{fields}".encode()
    else:
        yield from value_bytes(value)


def value_bytes(value: Any) -> Iterator[bytes]:
    """Encode numbers and arrays, also inside tuples, so that different values differ in bytes."""
    if isinstance(value, tuple):
        yield f"({len(value)}".encode()
        for item in value:
            yield from value_bytes(item)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield value.tobytes()
    else:
        yield repr(value).encode() + b"\0"

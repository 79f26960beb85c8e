"""Kernels: functions written once, interpreted by an agent and compiled by the simulator.

`@kernel` only records a function. numba is imported when something is first compiled, so that
importing the package stays cheap. Compiled code is kept on disk under a key that holds the digest
of the package's sources and of every foreign function that takes part: an edited policy never
meets its old machine code.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import marshal
import os
import re
import shutil
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from balaclava.errors import PolicyError

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parent
_STALE_SECONDS = 30 * 24 * 3600
_KNOWN_BY_NAME = {__name__.split(".")[0], "numpy", "numba", "scipy", *sys.stdlib_module_names}
_KNOWN_BY_NAME -= {"__main__"}
_marked: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
_compiled: dict[tuple[Any, ...], Any] = {}
_lock = threading.RLock()


def kernel(function: Function) -> Function:
    """Mark a function as one that both Python and the compiler run."""
    _marked.append((function, function))
    return function


def mechanism(function: Function) -> Function:
    """Mark a kernel that releases something private.

    Compiled, and with a plain numpy generator, the body runs as it stands. Interpreted with a
    randomness object that has a `release` method, that method decides: the secure randomness
    answers with exact noise, the auditor's recorder writes down what was given and answered.
    """

    @functools.wraps(function)
    def interpreted(rng: Any, *arguments: Any) -> Any:
        release = getattr(rng, "release", None)
        if release is None:
            return function(rng, *arguments)
        return release(function, *arguments)

    _marked.append((interpreted, function))
    return interpreted  # type: ignore[return-value]


def compiled(factory: Callable[..., Callable[..., Any]], *kernels: Callable[..., Any]) -> Any:
    """The machine code of `factory(*kernels)`, kept in memory and on disk.

    `factory` closes a loop over the kernels; the result is a numba dispatcher that releases the
    interpreter's lock while it runs.
    """
    key = (factory, *kernels)
    with _lock:
        if key not in _compiled:
            _compiled[key] = _compile(factory, kernels)
        return _compiled[key]


def _compile(factory: Callable[..., Any], kernels: tuple[Callable[..., Any], ...]) -> Any:
    import numba
    from numba.extending import overload

    while _marked:
        called, body = _marked.pop()

        def implementation(*_: Any, body: Callable[..., Any] = body, **__: Any) -> Any:
            return body

        # Inlined always: a call that hands over a state of several arrays costs up to 30 ns.
        options: Any = {"error_model": "numpy", "forceinline": True}
        if _only_borrows(body):
            options["_nrt"] = False
        overload(called, strict=False, jit_options=options)(implementation)
    function = factory(*kernels)
    directory = cache_directory(factory, *kernels)
    if directory is not None:
        # Loops of one factory have one name, and numba tells their machine code apart by numbers
        # that begin anew in every process: two that two processes wrote would share symbols.
        function.__qualname__ += f"_{directory.name}"
    dispatcher = numba.njit(nogil=True, error_model="numpy")(function)
    if directory is not None:
        _keep_on_disk(dispatcher, directory)
    return dispatcher


def _only_borrows(body: Callable[..., Any]) -> bool:
    """Whether a kernel may do without reference counts, which cost up to 60 ns a step.

    So it is for the package's own kernels that return numbers alone: they allocate nothing, and
    their caller holds the arrays they are given.
    """
    words = set(re.findall(r"\w+", str(body.__annotations__.get("return", "unknown"))))
    return not is_foreign(body) and words <= {"tuple", "int", "float", "bool", "None"}


def is_foreign(function: Callable[..., Any]) -> bool:
    """Whether a function is not one of the package's own, or is closed over one that is not."""
    if (function.__module__ or "").split(".")[0] != __name__.split(".")[0]:
        return True
    within = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    return any(is_foreign(inner) for inner in within if isinstance(inner, types.FunctionType))


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Say in a few lines what the compiler says in a hundred; the whole is in `__cause__`."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.split(".")[0] != "numba":
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        starts = [i for i, line in enumerate(lines[:-1]) if "Failed in nopython mode" in line]
        told = lines[starts[-1] + 1] if starts else lines[0]
        places = [line for line in lines if line.startswith("File ") and "engine.py" not in line]
        raise PolicyError(
            f"{what} cannot be compiled: {told} {(places or [''])[0]} "
            "Kernels may use numbers, arrays, named tuples, math, numpy and other functions "
            "marked @bl.kernel"
        ) from error


def _keep_on_disk(dispatcher: Any, directory: Path) -> None:
    from numba.core import caching

    config: Any = importlib.import_module("numba.core.config")

    class Cache(caching.FunctionCache):
        def _index_key(self, sig: Any, codegen: Any) -> Any:
            return sig, codegen.magic_tuple()  # the directory's name stands for the code

    before = config.CACHE_DIR
    config.CACHE_DIR = str(directory)
    try:
        dispatcher._cache = Cache(dispatcher.py_func)  # type: ignore[no-untyped-call]
    except (RuntimeError, OSError):
        pass  # nowhere to write: compile in every process
    finally:
        config.CACHE_DIR = before


def cache_directory(*functions: Callable[..., Any]) -> Path | None:
    """Where the machine code of these functions is kept; None when it cannot be kept."""
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
    chosen = os.environ.get("BALACLAVA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "balaclava"


def _remove_stale(root: Path) -> None:
    for old in root.iterdir():
        if old.is_dir() and time.time() - old.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(old, ignore_errors=True)


@functools.cache
def package_digest() -> str:
    """A digest of the package's sources and of what compiles them."""
    import llvmlite
    import numba

    digest = hashlib.sha256()
    for version in (sys.version, np.__version__, numba.__version__, llvmlite.__version__):
        digest.update(version.encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


def fingerprint(function: Callable[..., Any], seen: set[int] | None = None) -> Iterator[bytes]:
    """What a function's behaviour depends on, as bytes.

    For a function of the package, and of the libraries whose versions are part of the key, its
    name is enough. A foreign function contributes its code, its defaults, and, through the names
    it uses, the functions and constants behind them.
    """
    seen = set() if seen is None else seen
    function = getattr(function, "__wrapped__", function)
    if id(function) in seen or not isinstance(function, types.FunctionType):
        return
    seen.add(id(function))
    yield f"{function.__module__}.{function.__qualname__}".encode()
    for cell in function.__closure__ or ():
        yield from _value_bytes(cell.cell_contents, (), seen)
    if function.__module__.split(".")[0] in _KNOWN_BY_NAME:
        return
    code = function.__code__
    yield marshal.dumps(code.replace(co_filename="", co_firstlineno=0, co_linetable=b""))
    yield repr((function.__defaults__, function.__kwdefaults__)).encode()
    for name in code.co_names:
        if name in function.__globals__:
            yield name.encode()
            yield from _value_bytes(function.__globals__[name], code.co_names, seen)


def _value_bytes(value: Any, names: tuple[str, ...], seen: set[int]) -> Iterator[bytes]:
    if isinstance(value, types.FunctionType):
        yield from fingerprint(value, seen)
    elif isinstance(value, types.ModuleType):
        yield value.__name__.encode()
        for name in names:  # module.constant and module.function
            attribute = getattr(value, name, None)
            if isinstance(attribute, types.FunctionType | int | float | str | tuple | np.ndarray):
                yield from _value_bytes(attribute, names, seen)
    elif isinstance(value, np.ndarray):
        yield str((value.dtype, value.shape)).encode() + value.tobytes()
    elif isinstance(value, type):
        fields = getattr(value, "_fields", ())
        yield f"{value.__module__}.{value.__qualname__}{fields}".encode()
    else:
        yield repr(value).encode()

"""Kernels: functions that agents interpret and the simulator compiles.

`@kernel` only records a function. numba is imported at the first compilation, so that importing the
package stays fast.
"""

import functools
import importlib
import os
import re
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from balaclava._core.cache import cache_directory
from balaclava._core.extras import require_extra
from balaclava.errors import ParameterError, PolicyError

Function = TypeVar("Function", bound=Callable[..., Any])

# Methods of `rng` that a policy's kernels may call; other laws are built from these.
KERNEL_DRAWS = (
    "random",
    "integers",
    "standard_normal",
    "standard_exponential",
    "standard_gamma",
    "beta",
)

COMPILER_VARIABLE = "BALACLAVA_COMPILER"  # environment variable: auto, fast or plain
# Releases of numba that the suite has passed with. Later ones compile plainly, until
# `BALACLAVA_COMPILER=fast make test` passes.
FIRST_FAST, LAST_FAST = (0, 61), (0, 68)

_REMEMBERED = 1_024  # results of a kernel; an audit of dp-top-two asks for half as many
_marked: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
_registered: dict[str, int] = {}  # by target: number of registered functions
_compiled: dict[tuple[Any, ...], Any] = {}
_lock = threading.RLock()
_FAILED = re.compile("Failed in (nopython|cuda) mode")
_REJECTED = re.compile("raised a specific error:$")
_MAKES_AN_ARRAY = (
    "a kernel creates an array, as `sums / pulls` does; a GPU cannot allocate memory in a round."
)
_PLAINLY = {
    "NRT required but not enabled": _MAKES_AN_ARRAY,
    "Only accept returning of array passed into the function as argument": _MAKES_AN_ARRAY,
}


@overload
def kernel(function: Function) -> Function: ...


@overload
def kernel(*, borrows: bool) -> Callable[[Function], Function]: ...


def kernel(function: Any = None, *, borrows: bool = False) -> Any:
    """Mark a function that both Python and the compiler run.

    Plain `@kernel` works for every kernel. `@kernel(borrows=True)` promises that the kernel returns
    only numbers and neither creates nor keeps arrays. The compiler then omits reference counts,
    which is faster. All kernels of a policy but `begin` qualify.

    Args:
        function: the function to mark.
        borrows: whether it returns only numbers and creates no arrays. The compiler refuses a
            marked kernel that creates one.

    Returns:
        The function itself, or a decorator if only `borrows` is given.
    """
    if function is None:
        return functools.partial(kernel, borrows=borrows)
    function.borrows = borrows
    _marked.append((function, function))
    return function


def kernel_by_columns(
    by_columns: Callable[..., Any], fits: Callable[..., bool]
) -> Callable[[Function], Function]:
    """Mark a kernel for which Python runs `by_columns`: the same operations on whole arrays.

    Interpreted loops over many arms are slow. Both must round alike, to the last bit: elementwise
    operations of numpy in the order of the kernel's, never a sum or product of matrices. Compiled
    code runs the kernel, and Python too unless the arguments are such that `by_columns` fits.
    """

    def mark(function: Function) -> Function:
        function.borrows = True  # type: ignore[attr-defined]

        @functools.wraps(function)
        def interpreted(*arguments: Any) -> Any:
            return (by_columns if fits(*arguments) else function)(*arguments)

        _marked.append((interpreted, function))
        return interpreted  # type: ignore[return-value]

    return mark


def remembering_kernel(function: Function) -> Function:
    """Mark a kernel of numbers alone whose latest results Python keeps; audits ask often."""
    remembered = functools.lru_cache(_REMEMBERED)(function)
    return kernel_by_columns(remembered, lambda *_: True)(function)


def mechanism(function: Function, *, borrows: bool = False) -> Function:
    """Mark a kernel that adds noise for privacy; `borrows` as in `kernel`.

    Compiled code, and Python with a numpy generator, run its body. In Python, the `release` method
    of an `rng` that has one is called instead. Secure randomness releases with exact noise; the
    auditor's recorder records inputs and outputs.
    """
    function.borrows = borrows  # type: ignore[attr-defined]

    @functools.wraps(function)
    def interpreted(rng: Any, *arguments: Any) -> Any:
        release = getattr(rng, "release", None)
        return function(rng, *arguments) if release is None else release(function, *arguments)

    _marked.append((interpreted, function))
    return interpreted  # type: ignore[return-value]


def compiled(factory: Callable[..., Callable[..., Any]], *kernels: Callable[..., Any]) -> Any:
    """Compile `factory(*kernels)`, or take it from memory or disk.

    `factory` closes a loop over the kernels. The result is a numba dispatcher that releases the
    global interpreter lock.
    """
    key = (factory, *kernels)
    with _lock:
        if key not in _compiled:
            _compiled[key] = _compile(factory, kernels)
        return _compiled[key]


def _compile(factory: Callable[..., Any], kernels: tuple[Callable[..., Any], ...]) -> Any:
    require_extra("numba", "simulation")
    import numba
    from numba import extending

    fast = uses_fast_compiler()
    for called, body in newly_marked("cpu"):
        options: Any = {"error_model": "numpy", **(_fast_options(body) if fast else {})}
        implementation = always(body) if called is body else answering(body)
        extending.overload(called, strict=False, jit_options=options)(implementation)
    function = factory(*kernels)
    if not fast:
        return numba.njit(nogil=True, error_model="numpy")(function)
    from balaclava._core.fast_compiler import LoopCompiler, keep_on_disk

    directory = cache_directory(factory, *kernels)
    if directory is not None:
        # Loops of one factory have one name, and numba numbers their symbols from 1 in every
        # process: code from two processes would share symbols.
        function.__qualname__ += f"_{directory.name}"
    options = {"no_cfunc_wrapper": True, "pipeline_class": LoopCompiler}
    dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
    if directory is not None:
        keep_on_disk(dispatcher, directory)
    return dispatcher


def _fast_options(body: Callable[..., Any]) -> dict[str, Any]:
    from balaclava._core.fast_compiler import InnerCompiler

    # Inlined always: a call that passes a state of several arrays costs up to 30 ns.
    options = {"forceinline": True, "no_cfunc_wrapper": True, "pipeline_class": InnerCompiler}
    return options | ({"_nrt": False} if borrows(body) else {})


@functools.cache
def uses_fast_compiler() -> bool:
    """Whether kernels are compiled by `fast_compiler`, or by numba's public interface alone.

    `BALACLAVA_COMPILER` decides: "fast", "plain" or "auto", the default. "auto" is fast with the
    releases of numba that the suite has passed with. Plain gives the same numbers, compiles more
    slowly and keeps nothing on disk.
    """
    import numba

    choice = os.environ.get(COMPILER_VARIABLE, "auto")
    if choice not in ("auto", "fast", "plain"):
        raise ParameterError(
            f"{COMPILER_VARIABLE} = {choice!r} is not allowed; set it to auto, fast or plain"
        )
    release = tuple(int(part) for part in re.findall(r"\d+", numba.__version__)[:2])
    if choice == "plain" or (choice == "auto" and not FIRST_FAST <= release <= LAST_FAST):
        return False
    try:
        importlib.import_module("balaclava._core.fast_compiler")
    except (ImportError, AttributeError, TypeError):
        if choice == "fast":
            raise
        return False
    return True


def newly_marked(target: str) -> Iterator[tuple[Callable[..., Any], Callable[..., Any]]]:
    """Yield each marked function and its body, once per target."""
    first = _registered.get(target, 0)
    _registered[target] = len(_marked)
    return iter(_marked[first:])


def answering(body: Callable[..., Any]) -> Callable[..., Any]:
    """An overload that gives the body, or what an `rng` with `compiled_release` runs instead."""

    def implementation(*types: Any, **_: Any) -> Any:
        replaced = getattr(getattr(types[0], "instance_class", None), "compiled_release", None)
        return body if replaced is None else replaced(body)

    return implementation


def always(body: Callable[..., Any]) -> Callable[..., Any]:
    """An overload that gives the same implementation for all types."""

    def implementation(*_: Any, **__: Any) -> Any:
        return body

    return implementation


def borrows(function: Callable[..., Any]) -> bool:
    """Whether a kernel, and every kernel that it closes over, is marked `borrows`."""
    return getattr(function, "borrows", False) and all(map(borrows, _closed_over(function)))


def is_foreign(function: Callable[..., Any]) -> bool:
    """Whether a function, or one that it closes over, is not from this package."""
    if (function.__module__ or "").split(".")[0] != __name__.split(".")[0]:
        return True
    return any(map(is_foreign, _closed_over(function)))


def _closed_over(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    body = getattr(function, "__wrapped__", function)
    cells = [cell.cell_contents for cell in getattr(body, "__closure__", None) or ()]
    return [inner for inner in cells if isinstance(inner, types.FunctionType)]


def _reason(lines: list[str]) -> str:
    """The innermost reason in a compiler's error message."""
    for mark in (_FAILED, _REJECTED):
        starts = [i + 1 for i, line in enumerate(lines[:-1]) if mark.search(line)]
        if starts:
            break
    start = starts[-1] if starts else 0
    reason = lines[start]
    if reason.endswith("signature:"):
        reason = " ".join(lines[start : start + 2])
    return _PLAINLY.get(reason, reason)


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Turn the compiler's errors into a short `PolicyError`; `__cause__` has the original."""
    try:
        yield
    except Exception as error:
        module = type(error).__module__
        if module.split(".")[0] != "numba" or module.startswith("numba.cuda.cudadrv"):
            raise  # not about a kernel: the GPU's driver failed
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = _reason(lines)
        places = [line for line in lines if line.startswith("File ") and "loops.py" not in line]
        raise PolicyError(
            f"{what} cannot be compiled: {reason} {(places or [''])[0]} "
            "Kernels may use numbers, arrays, named tuples, math, numpy and other functions "
            "marked @bl.kernel"
        ) from error

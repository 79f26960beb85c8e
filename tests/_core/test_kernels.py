"""Kernels say where they are written whether they may be compiled without reference counts."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from numba.core.errors import TypingError

import balaclava as bl
from balaclava._core.kernels import (
    KERNEL_DRAWS,
    borrows,
    compiled,
    compiling,
    kernel,
    remembering_kernel,
)
from balaclava.theory.confidence_sequences import pair_evidence


def is_number(kind: Any) -> bool:
    """Whether a kind of value is a number, or a tuple of such."""
    if hasattr(kind, "_fields"):
        return all(map(is_number, get_type_hints(kind).values()))
    if get_origin(kind) is tuple:
        return all(map(is_number, get_args(kind)))
    return kind in (int, float, bool, type(None))


def returned_by(function: Callable[..., Any]) -> Any:
    return get_type_hints(function)["return"]


def kernels_of_the_package() -> dict[str, Callable[..., Any]]:
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(bl.__path__, "balaclava.")
        if not module.name.endswith(
            ("__main__", "gpu.random_streams")
        )  # the latter needs numba-cuda
    ]
    return {
        f"{function.__module__}.{function.__qualname__}": function
        for module in modules
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if hasattr(function, "borrows")
    }


def test_a_kernel_that_borrows_returns_numbers_alone():
    kernels = kernels_of_the_package()
    marked = {name: returned_by(f) for name, f in kernels.items() if borrows(f)}
    assert len(marked) > 200
    assert {name: kind for name, kind in marked.items() if not is_number(kind)} == {}


def test_a_kernel_without_a_mark_is_one_that_makes_or_hands_on_arrays():
    kernels = kernels_of_the_package()
    bare = {name: returned_by(f) for name, f in kernels.items() if not borrows(f)}
    assert {name: kind for name, kind in bare.items() if is_number(kind)} == {}


@kernel
def limited(value: float, most: float) -> float:
    print("value", value)
    if value > most:
        raise ValueError("too large", value)
    if value < 0.0:
        raise ValueError("negative")
    return value


def make_sum(call: Callable[..., Any]) -> Callable[..., Any]:
    def total(values: np.ndarray, most: float) -> float:
        result = 0.0
        for value in values:
            result += call(value, most)
        return result

    return total


def test_a_kernel_may_print_and_raise(capfd):
    """It is not run by itself, so that the constants it needs as Python objects must be found."""
    total = compiled(make_sum, limited)
    assert total(np.array([1.0, 2.5]), 3.0) == 3.5
    assert capfd.readouterr().out.split() == ["value", "1.0", "value", "2.5"]
    with pytest.raises(ValueError, match=r"'too large', 4.0"):
        total(np.array([4.0]), 3.0)
    with pytest.raises(ValueError, match="negative"):
        total(np.array([-4.0]), 3.0)


@kernel(borrows=True)
def halve(value: float) -> float:
    return value / 2


@kernel
def total_of_copies(value: float) -> float:
    return float(np.full(3, value).sum())


@kernel(borrows=True)
def wrongly_marked(value: float) -> float:
    return float(np.full(3, value).sum())


def closed_over(inner: Callable[[float], float]) -> Callable[[float], float]:
    @kernel(borrows=True)
    def twice(value: float) -> float:
        return inner(value) + inner(value)

    return twice


def loop(function: Callable[[float], float]) -> Callable[[float], float]:
    def call(value: float) -> float:
        return function(value)

    return call


def test_python_keeps_the_results_of_a_kernel_of_numbers():
    calls = []

    @remembering_kernel
    def square(pair):
        calls.append(pair)
        return pair[0] * pair[0]

    assert [square((number, 1)) for number in (3.0, 3.0, 2.0, 3.0)] == [9.0, 9.0, 4.0, 9.0]
    assert calls == [(3.0, 1), (2.0, 1)]


def test_compiled_code_runs_the_body_of_a_kernel_whose_results_python_keeps():
    def make(evidence):
        def loop(worse, better):
            return evidence(worse, better, 1.0, 1.0)

        return loop

    arms = (0.5, 400, 3), (0.7, 500, 3)
    assert compiled(make, pair_evidence)(*arms) == pytest.approx(make(pair_evidence)(*arms))


def test_a_kernel_borrows_only_where_what_it_closes_over_does():
    assert borrows(closed_over(halve))
    assert not borrows(closed_over(total_of_copies))
    assert compiled(loop, closed_over(halve))(3.0) == 3.0
    assert compiled(loop, closed_over(total_of_copies))(3.0) == 18.0


def test_the_compiler_refuses_a_marked_kernel_that_makes_an_array():
    with pytest.raises(Exception, match="Only accept returning of array passed"):
        compiled(loop, wrongly_marked)(3.0)


def test_the_kernels_of_policies_draw_only_what_an_agent_offers():
    root = Path(bl.__file__).parent
    rooms = ("policies", "frames", "estimators", "privacy")
    files = [file for room in rooms for file in (root / room).rglob("*.py")]
    calls = {call for file in files for call in re.findall(r"\brng\.(\w+)\(", file.read_text())}
    assert calls - {"release"} <= {
        *KERNEL_DRAWS,
        "laplace",
    }  # laplace: the body of an exact mechanism
    assert {"random", "integers", "standard_normal", "standard_exponential", "beta"} <= calls


CODE = "TypingError: Failed in {} mode pipeline (step: nopython frontend)\n{}\n"


@pytest.mark.parametrize("target", ["nopython", "cuda"])
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("Untyped global name 'f'", "Untyped global name 'f'"),
        ("NRT required but not enabled", "a kernel creates an array"),
    ],
)
def test_what_a_compiler_says_is_told_in_a_line(target, words, reason):
    """Of both compilers, as they say it: first what was called, and somewhere below what failed."""
    with (
        pytest.raises(bl.errors.PolicyError, match=f"it cannot be compiled: {reason}"),
        compiling("it"),
    ):
        raise TypingError(f"No implementation of function choose\n{CODE.format(target, words)}")


def test_what_a_compiler_does_not_know_is_told_with_its_types():
    words = "No implementation of function Function({}) found for signature:"
    text = (
        f"{words.format('choose')}\n>>> choose(int64)\nRejected as the implementation raised a "
        f"specific error:\n{words.format('getitem')}\n>>> getitem(DictType)\n"
    )
    with (
        pytest.raises(bl.errors.PolicyError, match=r"getitem\) .*: >>> getitem\(DictType"),
        compiling("it"),
    ):
        raise TypingError(text)

"""The compiler built on numba's internals, and the plain one that stands in for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numba
import numpy as np
import pytest
from llvmlite import ir

from balaclava._core.fast_compiler import address_of
from balaclava._core.kernels import COMPILER_VARIABLE, compiled, kernel, uses_fast_compiler
from balaclava.errors import ParameterError

GAMES = """
    import json, sys
    import balaclava as bl
    from balaclava._core.kernels import uses_fast_compiler

    name = sys.argv[1]
    world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
    policy = bl.policy(name, arms=3, **({} if name == "ucb1" else {"epsilon": 1.0}))
    delay = bl.Delay(mean=20, lost=0.1) if name == "ucb1" else None
    play = bl.simulate(policy, world, horizon=5_000, repetitions=2, seed=1, delay=delay)
    seen = [play.regret(name).tobytes().hex(), play.pulls(name).tolist()]
    print(json.dumps([uses_fast_compiler(), *seen]))
"""


@pytest.fixture
def choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment variable unset, and the choice made anew."""
    monkeypatch.delenv(COMPILER_VARIABLE, raising=False)
    uses_fast_compiler.cache_clear()
    yield monkeypatch
    uses_fast_compiler.cache_clear()


@pytest.mark.parametrize(
    "name",
    [
        "ucb1",  # with delays
        pytest.param("lazy-dp-ucb", marks=pytest.mark.slow),  # its state has parts
    ],
)
def test_both_compilers_give_the_same_bits(name: str) -> None:
    def played(compiler: str) -> list[object]:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(GAMES), name],
            env={**os.environ, COMPILER_VARIABLE: compiler},
            capture_output=True,
            text=True,
            check=True,
        )
        seen: list[object] = json.loads(done.stdout)
        return seen

    fast, plain = played("fast"), played("plain")
    assert (fast[0], plain[0]) == (True, False)
    assert fast[1:] == plain[1:]


@pytest.mark.parametrize(
    ("version", "fast"),
    [("0.61.2", True), ("0.68.0rc1", True), ("0.69.0", False), ("1.0.0", False), ("0.60.1", False)],
)
def test_an_unknown_release_of_numba_is_used_plainly(
    choice: pytest.MonkeyPatch, version: str, fast: bool
) -> None:
    choice.setattr(numba, "__version__", version)
    assert uses_fast_compiler() is fast


def test_missing_internals_are_done_without(choice: pytest.MonkeyPatch) -> None:
    choice.setitem(sys.modules, "balaclava._core.fast_compiler", None)
    assert not uses_fast_compiler()
    uses_fast_compiler.cache_clear()
    choice.setenv(COMPILER_VARIABLE, "fast")
    with pytest.raises(ImportError):
        uses_fast_compiler()


def test_the_compiler_can_be_forced(choice: pytest.MonkeyPatch) -> None:
    choice.setattr(numba, "__version__", "9.9")
    choice.setenv(COMPILER_VARIABLE, "fast")
    assert uses_fast_compiler()
    uses_fast_compiler.cache_clear()
    choice.setenv(COMPILER_VARIABLE, "quick")
    with pytest.raises(ParameterError, match="'quick' is not allowed; set it to auto, fast or"):
        uses_fast_compiler()


class Part(NamedTuple):
    values: np.ndarray
    weight: float


class Whole(NamedTuple):
    first: Part
    second: Part
    base: float


@kernel(borrows=True)
def value_of(part: Part) -> float:
    return float(part.values[0] * part.weight)


@kernel(borrows=True)
def value_of_both(whole: Whole, swapped: bool) -> float:
    one, other, held = whole.first, whole.second, whole.first
    if swapped:
        one, other = other, held
        only = whole.second
    total = value_of(one) + 10.0 * value_of(other) + 100.0 * held.weight
    return total + (only.weight if swapped else whole.base)


def make_exchange(value: Callable[..., float], both: Callable[..., float]) -> Callable[..., float]:
    def exchange(whole: Whole, turns: int) -> float:
        total, one, other = 0.0, whole.first, whole.second
        for turn in range(turns):
            before = one
            one, other = other, before
            one.values[0] += 1.0
            both_now = Whole(one, before, 7.0)
            total = total / 2 + value(before) + 10.0 * value(one) + both(both_now, turn % 2 == 1)
        return total

    return exchange


def test_parts_passed_by_address_are_the_named_ones():
    """Copied, swapped and overwritten before the call, and changed by it."""

    def result(exchange: Callable[..., float]) -> float:
        whole = Whole(Part(np.array([2.0]), 3.0), Part(np.array([5.0]), 11.0), 13.0)
        return exchange(whole, 5)

    kernels = (value_of, value_of_both)
    assert result(compiled(make_exchange, *kernels)) == result(make_exchange(*kernels))


def test_a_value_is_passed_by_address_only_until_it_is_overwritten():
    double = ir.DoubleType()
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), []), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    place, elsewhere = builder.alloca(double), builder.alloca(double)
    value = builder.load(place)
    assert address_of(builder, value) is place
    builder.store(value, elsewhere)
    assert address_of(builder, value) is place
    assert address_of(builder, ir.Constant(double, 1.0)) is None
    builder.store(value, builder.gep(place, [ir.Constant(ir.IntType(32), 0)]))
    assert address_of(builder, value) is None
    again = builder.load(place)
    builder.store(value, place)
    assert address_of(builder, again) is None
    before = builder.load(place)
    builder.call(function, [])
    assert address_of(builder, before) is None
    last = builder.load(place)
    builder.position_at_end(function.append_basic_block())
    assert address_of(builder, last) is None

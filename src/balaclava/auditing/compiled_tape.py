"""A tape for compiled runs: records and replays as `tape` does, a hundred times as fast.

Kernels that are compiled for a `CompiledTape` as their `rng` record every query on it. On a second
run with other rewards they get the recorded answers, and the inputs that moved are noted.
"""

import functools
import math
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.extras import require_extra
from balaclava._core.kernels import kernel
from balaclava.privacy.mechanisms.base import (
    Mechanism,
    Terms,
    declared_mechanism,
    declared_mechanisms,
)

CODE, VALUE, SENSITIVITY, EPSILON, DELTA, ANSWER = range(6)  # columns of the tape
PLACE, REPLAYING, FAULT, MOVES, ROUND = range(5)  # of the cursor
FURTHER_PART = 0.5  # is added to the code of the second and later parts of an array
# Scripted answers, by cumulative probability: the last one, 0, near the last one, near 0, a number
# in the policy's code; else as drawn. So ties and answers near 0 are frequent.
_SCRIPT = (0.25, 0.4, 0.5, 0.6, 0.7)
_SMALLEST_SHIFT = 9.0  # decimal places of the smallest difference between two answers
_RARE_DRAWS = 0.02  # of plain uniform draws, times the share of scripted answers


class CompiledTape(NamedTuple):
    """An `rng` for compiled kernels that records what it answers, or replays it."""

    generator: Any
    entries: np.ndarray  # [queries, 6]
    cursor: np.ndarray  # [5]
    moves: np.ndarray  # [moves, 2]: place, and the value on the other stream
    script: np.ndarray  # numbers in the policy's code
    scripted: np.ndarray  # [1]: the share of answers that a script replaces
    last: np.ndarray  # [1]: the last answer

    @staticmethod
    def compiled_release(body: Callable[..., Any]) -> Callable[..., Any]:
        """What compiled code runs in place of a mechanism's body."""
        declared = declared_mechanism(body)
        make = taped_array if "out" in declared.arguments else taped_number
        code = float(mechanism_code(body))
        return make(declared.kernel, declared.arguments, code, has_unbounded_law(declared))


def new_tape(
    generator: Any, queries: int, moves: int, script: tuple[float, ...], share: float
) -> CompiledTape:
    return CompiledTape(
        generator, np.zeros((queries, 6)), np.zeros(5, np.int64), np.zeros((moves, 2)),
        np.array(script), np.array([share]), np.zeros(1),
    )  # fmt: skip


def mechanism_code(body: Callable[..., Any]) -> int:
    """A number for a mechanism, the same in every process."""
    name = declared_mechanism(body).name
    return zlib.crc32(f"{body.__module__}.{body.__qualname__} {name}".encode()) + 1


def mechanisms_by_code() -> dict[int, Mechanism]:
    return {mechanism_code(body): declared for body, declared in declared_mechanisms()}


def has_unbounded_law(mechanism: Mechanism) -> bool:
    """Whether every number is a possible answer."""
    try:
        law = None if mechanism.law is None else mechanism.law(Terms(0.5, 1.0, 1.0, 0.01))
    except (ArithmeticError, ValueError):
        return False
    return law is not None and not hasattr(law, "pmf") and all(map(math.isinf, law.support()))


@kernel(borrows=True)
def take_places(tape: Any, count: int) -> int:
    """The first of `count` places for queries; the last ones again once the tape is full."""
    place = max(min(tape.cursor[PLACE], tape.entries.shape[0] - count), 0)
    tape.cursor[PLACE] += count
    return place


@kernel(borrows=True)
def note_query(
    tape: Any, place: int, code: float, value: float, b: float, c: float, d: float
) -> None:
    """Record a query, or compare it with the recorded one."""
    entries, cursor = tape.entries, tape.cursor
    if cursor[REPLAYING] == 0:
        entries[place, CODE], entries[place, VALUE] = code, value
        entries[place, SENSITIVITY], entries[place, EPSILON] = b, c
        entries[place, DELTA] = d
        return
    same = entries[place, CODE] == code and entries[place, SENSITIVITY] == b
    same = same and entries[place, EPSILON] == c and entries[place, DELTA] == d
    moved = value != entries[place, VALUE]
    if not same or (moved and code < 0.0):
        if cursor[FAULT] == 0:
            cursor[FAULT] = place + 1
    elif moved and cursor[MOVES] < tape.moves.shape[0]:
        tape.moves[cursor[MOVES], 0] = place
        tape.moves[cursor[MOVES], 1] = value
        cursor[MOVES] += 1


@kernel(borrows=True)
def settle_answer(tape: Any, place: int, answer: float, scriptable: bool) -> float:
    """The recorded answer, or record this one or another by the script."""
    if tape.cursor[REPLAYING] == 0:
        result = answer
        if scriptable and tape.scripted[0] > 0.0:
            result = scripted_answer(tape, answer)
        tape.entries[place, ANSWER] = result
    return float(tape.entries[place, ANSWER])


@kernel(borrows=True)
def scripted_answer(tape: Any, answer: float) -> float:
    """Often the last answer, 0, a number of the code, or a value close to one of these."""
    result, draw = answer, tape.generator
    if draw.random() < tape.scripted[0]:
        luck = draw.random()
        sign = 1.0 if draw.random() < 0.5 else -1.0
        shift = sign * 10.0 ** (-_SMALLEST_SHIFT * draw.random())
        number = tape.script[int(draw.random() * tape.script.size)]
        if luck < _SCRIPT[0]:
            result = tape.last[0]
        elif luck < _SCRIPT[1]:
            result = 0.0
        elif luck < _SCRIPT[2]:
            result = tape.last[0] + shift
        elif luck < _SCRIPT[3]:
            result = shift
        elif luck < _SCRIPT[4]:
            result = number if sign > 0.0 else number + shift
    tape.last[0] = result
    return result


@kernel(borrows=True)
def note_number(
    tape: Any, code: float, value: float, b: float, c: float, d: float, answer: float, free: bool
) -> float:
    place = take_places(tape, 1)
    note_query(tape, place, code, value, b, c, d)
    return settle_answer(tape, place, answer, free)


@kernel(borrows=True)
def note_parts(tape: Any, code: float, value: Any, b: float, c: float, d: float) -> int:
    """Note a query about an array; the place of its first part."""
    place = take_places(tape, value.size)
    for i in range(value.size):
        note_query(tape, place + i, code if i == 0 else code + FURTHER_PART, value[i], b, c, d)
    return place


@kernel(borrows=True)
def settle_parts(tape: Any, place: int, out: Any, free: bool) -> None:
    for i in range(out.size):
        out[i] = settle_answer(tape, place + i, out[i], free)


@kernel(borrows=True)
def note_draw(tape: Any, code: float, first: float, second: float, answer: float) -> float:
    """Note a plain draw; some uniform ones are replaced by ones far in a tail."""
    place, result = take_places(tape, 1), answer
    note_query(tape, place, -code, first, second, 0.0, 0.0)
    rare = _RARE_DRAWS * tape.scripted[0] if code == 1.0 and tape.cursor[REPLAYING] == 0 else 0.0
    if rare > 0.0 and tape.generator.random() < rare:
        tail = 10.0 ** (-2.0 - 10.0 * tape.generator.random())
        result = tail if tape.generator.random() < 0.5 else 1.0 - tail
    return settle_answer(tape, place, result, False)


def taped_number(body: Any, names: tuple[str, ...], code: float, free: bool) -> Callable[..., Any]:
    """A number's release on a tape, for a mechanism with these arguments."""
    s, d = "sensitivity" in names, "delta" in names
    if s and d:
        return lambda rng, value, sensitivity, epsilon, delta: note_number(
            rng, code, value, sensitivity, epsilon, delta,
            body(rng.generator, value, sensitivity, epsilon, delta), free,
        )  # fmt: skip
    if s:
        return lambda rng, value, sensitivity, epsilon: note_number(
            rng, code, value, sensitivity, epsilon, 0.0,
            body(rng.generator, value, sensitivity, epsilon), free,
        )  # fmt: skip
    if d:
        return lambda rng, value, epsilon, delta: note_number(
            rng, code, value, 1.0, epsilon, delta, body(rng.generator, value, epsilon, delta), free
        )
    return lambda rng, value, epsilon: note_number(
        rng, code, value, 1.0, epsilon, 0.0, body(rng.generator, value, epsilon), free
    )


def taped_array(body: Any, names: tuple[str, ...], code: float, free: bool) -> Callable[..., Any]:
    """An array's release on a tape; its sensitivity is always an argument."""

    def without_delta(rng: Any, value: Any, sensitivity: Any, epsilon: Any, out: Any) -> None:
        place = note_parts(rng, code, value, sensitivity, epsilon, 0.0)
        body(rng.generator, value, sensitivity, epsilon, out)
        settle_parts(rng, place, out, free)

    def with_delta(
        rng: Any, value: Any, sensitivity: Any, epsilon: Any, delta: Any, out: Any
    ) -> None:
        place = note_parts(rng, code, value, sensitivity, epsilon, delta)
        body(rng.generator, value, sensitivity, epsilon, delta, out)
        settle_parts(rng, place, out, free)

    return with_delta if "delta" in names else without_delta


_DRAWS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("random", lambda rng: note_draw(rng, 1.0, 0.0, 0.0, rng.generator.random())),
    ("standard_normal", lambda rng: note_draw(rng, 2.0, 0.0, 0.0, rng.generator.standard_normal())),
    (
        "standard_exponential",
        lambda rng: note_draw(rng, 3.0, 0.0, 0.0, rng.generator.standard_exponential()),
    ),
    ("standard_gamma", lambda rng, a: note_draw(rng, 4.0, a, 0.0, rng.generator.standard_gamma(a))),
    ("exponential", lambda rng, a: note_draw(rng, 5.0, a, 0.0, rng.generator.exponential(a))),
    ("geometric", lambda rng, a: int(note_draw(rng, 6.0, a, 0.0, rng.generator.geometric(a)))),
    ("poisson", lambda rng, a: int(note_draw(rng, 7.0, a, 0.0, rng.generator.poisson(a)))),
    ("beta", lambda rng, a, b: note_draw(rng, 8.0, a, b, rng.generator.beta(a, b))),
    ("gamma", lambda rng, a, b: note_draw(rng, 9.0, a, b, rng.generator.gamma(a, b))),
    ("laplace", lambda rng, a, b: note_draw(rng, 10.0, a, b, rng.generator.laplace(a, b))),
    ("normal", lambda rng, a, b: note_draw(rng, 11.0, a, b, rng.generator.normal(a, b))),
    ("uniform", lambda rng, a, b: note_draw(rng, 12.0, a, b, rng.generator.uniform(a, b))),
    ("integers", lambda rng, a, b: int(note_draw(rng, 13.0, a, b, rng.generator.integers(a, b)))),
    ("binomial", lambda rng, a, b: int(note_draw(rng, 14.0, a, b, rng.generator.binomial(a, b)))),
)


@functools.cache
def register_draws() -> None:
    """Tell the compiler of the tape's type and methods, once."""
    require_extra("numba", "an audit")
    from numba import types
    from numba.core.datamodel.models import TupleModel
    from numba.extending import overload_method, register_model, typeof_impl

    class TapeType(types.NamedTuple):
        """A type of its own: methods of every named tuple would hide fields of the same name."""

    register_model(TapeType)(TupleModel)

    @typeof_impl.register(CompiledTape)
    def type_of_tape(tape: CompiledTape, context: Any) -> Any:
        make: Any = TapeType
        return make([typeof_impl(part, context) for part in tape], CompiledTape)

    options: Any = {"strict": False}
    for name, draw in _DRAWS:
        overload_method(TapeType, name, **options)(_typed_draw(draw))


def _typed_draw(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A function with as many parameters that returns the draw."""
    return (
        lambda rng: draw,
        lambda rng, a: draw,
        lambda rng, a, b: draw,
    )[draw.__code__.co_argcount - 1]

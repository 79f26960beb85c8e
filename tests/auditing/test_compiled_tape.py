"""The tape of compiled runs, interpreted: what is recorded, replayed and noted."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.auditing import compiled_tape as ct
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_release
from balaclava.privacy.mechanisms.base import declared_mechanism
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from balaclava.privacy.mechanisms.truncated_laplace import truncated_laplace_release


class Script:
    """Uniform draws as given."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def random(self):
        return self.draws.pop(0)


def tape(*draws, queries=4, moves=2, share=0.0):
    return ct.new_tape(Script(*draws), queries, moves, (7.0, 9.0), share)


def test_a_query_is_recorded_and_its_answer_replayed():
    recorded = tape()
    assert ct.note_number(recorded, 5.0, 3.0, 1.0, 0.5, 0.01, 3.25, True) == 3.25
    assert ct.note_number(recorded, 6.0, 4.0, 2.0, 0.7, 0.0, 4.5, True) == 4.5
    assert recorded.entries[:2].tolist() == [
        [5.0, 3.0, 1.0, 0.5, 0.01, 3.25],
        [6.0, 4.0, 2.0, 0.7, 0.0, 4.5],
    ]
    assert recorded.cursor[:4].tolist() == [2, 0, 0, 0]
    recorded.cursor[:4] = (0, 1, 0, 0)
    assert ct.note_number(recorded, 5.0, 3.5, 1.0, 0.5, 0.01, 99.0, True) == 3.25
    assert ct.note_number(recorded, 6.0, 4.0, 2.0, 0.7, 0.0, 99.0, True) == 4.5
    assert recorded.moves.tolist() == [[0.0, 3.5], [0.0, 0.0]]
    assert recorded.cursor[:4].tolist() == [2, 1, 0, 1]


@pytest.mark.parametrize("column", range(4))
def test_another_query_is_a_fault_and_the_first_one_is_kept(column):
    recorded = tape()
    for _ in range(2):
        ct.note_number(recorded, 5.0, 3.0, 1.0, 0.5, 0.01, 3.25, True)
    recorded.cursor[:4] = (1, 1, 0, 0)
    terms = [5.0, 1.0, 0.5, 0.01]
    terms[column] += 1.0
    code, *rest = terms
    ct.note_number(recorded, code, 3.0, *rest, 3.25, True)
    assert recorded.cursor[:4].tolist() == [2, 1, 2, 0]
    ct.note_query(recorded, 0, 99.0, 3.0, 1.0, 0.5, 0.01)
    assert recorded.cursor[ct.FAULT] == 2


def test_an_argument_of_a_plain_draw_must_not_move():
    recorded = tape()
    assert ct.note_draw(recorded, 8.0, 2.0, 3.0, 0.25) == 0.25
    assert recorded.entries[0].tolist() == [-8.0, 2.0, 3.0, 0.0, 0.0, 0.25]
    recorded.cursor[:4] = (0, 1, 0, 0)
    assert ct.note_draw(recorded, 8.0, 2.0, 3.0, 0.75) == 0.25
    assert recorded.cursor[ct.FAULT] == 0
    recorded.cursor[:4] = (0, 1, 0, 0)
    ct.note_draw(recorded, 8.0, 2.5, 3.0, 0.75)
    assert (recorded.cursor[ct.FAULT], recorded.cursor[ct.MOVES]) == (1, 0)


def test_moves_beyond_the_room_are_not_kept():
    recorded = tape(queries=8, moves=2)
    for _ in range(3):
        ct.note_number(recorded, 5.0, 3.0, 1.0, 0.5, 0.0, 3.0, True)
    recorded.cursor[:4] = (0, 1, 0, 0)
    for value in (4.0, 5.0, 6.0):
        ct.note_number(recorded, 5.0, value, 1.0, 0.5, 0.0, 3.0, True)
    assert recorded.moves.tolist() == [[0.0, 4.0], [1.0, 5.0]]
    assert recorded.cursor[ct.MOVES] == 2


def test_a_full_tape_uses_its_last_places_again():
    full = tape(queries=4)
    assert [ct.take_places(full, count) for count in (1, 2, 1, 1, 3, 9)] == [0, 1, 3, 3, 1, 0]
    assert full.cursor[ct.PLACE] == 17


def test_the_parts_of_an_array():
    recorded = tape()
    value, out = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.5, 3.5])
    place = ct.note_parts(recorded, 5.0, value, 1.0, 0.5, 0.01)
    ct.settle_parts(recorded, place, out, False)
    assert place == 0
    assert recorded.entries[:3, ct.CODE].tolist() == [5.0, 5.5, 5.5]
    assert recorded.entries[:3, ct.VALUE].tolist() == value.tolist()
    assert recorded.entries[:3, ct.ANSWER].tolist() == [1.5, 2.5, 3.5]
    recorded.cursor[:4] = (0, 1, 0, 0)
    place = ct.note_parts(recorded, 5.0, value + np.array([0.0, 0.0, 1.0]), 1.0, 0.5, 0.01)
    other = np.zeros(3)
    ct.settle_parts(recorded, place, other, False)
    assert other.tolist() == [1.5, 2.5, 3.5]
    assert recorded.moves[0].tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("luck", "expected"),
    [
        (0.0, 2.0), (0.2499, 2.0), (0.2501, 0.0), (0.3999, 0.0), (0.4001, 2.0 + 1e-9),
        (0.4999, 2.0 + 1e-9), (0.5001, 1e-9), (0.5999, 1e-9), (0.6001, 9.0), (0.6999, 9.0),
        (0.7001, 5.0), (0.9999, 5.0),
    ],
)  # fmt: skip
def test_scripted_answers(luck, expected):
    """Often the last answer, 0, near the last, near 0, a number of the code; else as drawn."""
    scripted = tape(0.1, luck, 0.2, 1.0, 0.6, share=0.3)
    scripted.last[0] = 2.0
    assert ct.scripted_answer(scripted, 5.0) == pytest.approx(expected, abs=1e-15)
    assert scripted.last[0] == pytest.approx(expected, abs=1e-15)


def test_scripted_answers_lie_on_both_sides_of_a_number():
    below = tape(0.1, 0.65, 0.7, 0.5, 0.1, share=0.3)
    assert ct.scripted_answer(below, 5.0) == pytest.approx(7.0 - 10.0**-4.5, abs=1e-12)
    beside = tape(0.1, 0.45, 0.7, 0.5, 0.1, share=0.3)
    assert ct.scripted_answer(beside, 5.0) == pytest.approx(-(10.0**-4.5), abs=1e-12)
    as_drawn = tape(0.31, share=0.3)
    assert ct.scripted_answer(as_drawn, 5.0) == as_drawn.last[0] == 5.0


def test_only_answers_without_a_bound_are_scripted():
    for scriptable, share, found in ((True, 1.0, 0.0), (False, 1.0, 5.0), (True, 0.0, 5.0)):
        recorded = tape(0.1, 0.3, 0.2, 1.0, 0.6, share=share)
        assert ct.settle_answer(recorded, 1, 5.0, scriptable) == found
        assert recorded.entries[1, ct.ANSWER] == found


def test_some_uniform_draws_are_far_in_a_tail():
    low = tape(0.0099, 0.5, 0.4, share=0.5)
    assert ct.note_draw(low, 1.0, 0.0, 0.0, 0.3) == pytest.approx(1e-7)
    high = tape(0.0099, 0.5, 0.6, share=0.5)
    assert ct.note_draw(high, 1.0, 0.0, 0.0, 0.3) == pytest.approx(1.0 - 1e-7)
    for draws, code in (((0.0101,), 1.0), ((), 2.0)):
        assert ct.note_draw(tape(*draws, share=0.5), code, 0.0, 0.0, 0.3) == 0.3
    assert ct.note_draw(tape(), 1.0, 0.0, 0.0, 0.3) == 0.3


@pytest.mark.parametrize(
    ("names", "terms"),
    [
        (("value", "sensitivity", "epsilon", "delta"), [2.0, 0.5, 0.01]),
        (("value", "sensitivity", "epsilon"), [2.0, 0.5, 0.0]),
        (("value", "epsilon", "delta"), [1.0, 0.5, 0.01]),
        (("value", "epsilon"), [1.0, 0.5, 0.0]),
    ],
)
def test_a_release_on_a_tape_has_its_terms(names, terms):
    given = {"value": 3.0, "sensitivity": 2.0, "epsilon": 0.5, "delta": 0.01}
    arguments = [given[name] for name in names]
    recorded = tape()

    def body(rng, *arguments):
        assert rng is recorded.generator
        return 10.0 + sum(arguments)

    release = ct.taped_number(body, names, 5.0, False)
    assert release(recorded, *arguments) == 10.0 + sum(arguments)
    assert recorded.entries[0].tolist() == [5.0, 3.0, *terms, 10.0 + sum(arguments)]


@pytest.mark.parametrize("delta", [(), (0.01,)])
def test_a_release_of_an_array_on_a_tape(delta):
    recorded, out = tape(), np.zeros(2)

    def body(rng, value, *rest):
        rest[-1][:] = value + 1.0

    names = ("value", "sensitivity", "epsilon", *(["delta"] if delta else []), "out")
    ct.taped_array(body, names, 5.0, False)(recorded, np.array([1.0, 2.0]), 3.0, 0.5, *delta, out)
    assert out.tolist() == [2.0, 3.0]
    assert recorded.entries[1].tolist() == [5.5, 2.0, 3.0, 0.5, *(delta or (0.0,)), 3.0]


def test_which_laws_are_unbounded_and_codes_that_identify_them():
    bodies = (laplace_release, gaussian_release, truncated_laplace_release, bernoulli_report)
    found = [ct.has_unbounded_law(declared_mechanism(body)) for body in bodies]
    assert found == [True, True, False, False]
    codes = [ct.mechanism_code(body.__wrapped__) for body in bodies]
    assert len(set(codes)) == 4
    assert min(codes) > 0
    table = ct.mechanisms_by_code()
    assert [table[code].name for code in codes] == [declared_mechanism(b).name for b in bodies]

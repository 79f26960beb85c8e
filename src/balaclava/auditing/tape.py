"""Randomness that records every answer on a tape, and randomness that replays such a tape."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from balaclava.auditing.rare_answers import RareAnswers
from balaclava.errors import PrivacyError
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.base import (
    Loss,
    Terms,
    check_budget,
    declared_mechanism,
    distance,
)
from balaclava.privacy.randomness import seeded


class TapeEntry(NamedTuple):
    """One query to the randomness, and its answer."""

    name: str
    terms: Terms | None  # None for a plain draw, on which no claim of privacy rests
    answer: Any
    arguments: tuple[Any, ...] = ()  # of a plain draw
    body: Callable[..., Any] | None = None  # of a mechanism


class Divergence(Exception):  # noqa: N818 (a finding, not an error)
    """The policy's queries differ from those on the neighbouring stream."""


def require_numbers(terms: Terms) -> None:
    """Raise for NaN as exact noise does, which an observer sees."""
    if np.isnan(terms.value).any():
        raise PrivacyError("the value to release is NaN: the policy computed it wrongly")


class Recorder:
    """Answers as a seeded generator does, or with rare answers, and records every answer."""

    def __init__(self, seed: int, *path: int, rare: RareAnswers | None = None) -> None:
        self._generator, self._rare = seeded(seed, *path), rare
        self._checked: set[tuple[float, ...]] = set()  # valid budgets
        self.tape: list[TapeEntry] = []

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """Let the mechanism answer, and record its input."""
        mechanism = declared_mechanism(body)
        terms = mechanism.terms(*arguments)
        budget = (terms.epsilon, terms.delta, terms.sensitivity)
        if budget not in self._checked:
            check_budget(*budget)
            self._checked.add(budget)
        mechanism.require(terms)
        require_numbers(terms)

        def ask() -> Any:
            return mechanism.answer(body, self._generator, arguments)

        answer = ask()
        if self._rare is not None:
            answer = self._rare.answer(mechanism, terms, answer, ask)
        self.tape.append(TapeEntry(mechanism.name, terms, answer, (), body))
        return mechanism.deliver(arguments, answer)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def draw(*arguments: Any, **named: Any) -> Any:
            before = _comparable(arguments, named)
            answer = getattr(self._generator, method)(*arguments, **named)
            if self._rare is not None:
                answer = self._rare.draw(method, answer)
            value = arguments[0].copy() if method == "shuffle" else answer
            self.tape.append(TapeEntry(method, None, value, before))
            return answer

        return draw


def _comparable(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments as values that compare by `==`: arrays as lists."""
    values = [*arguments, *named.items()]
    return tuple(value.tolist() if isinstance(value, np.ndarray) else value for value in values)


class MovedInput(NamedTuple):
    """A mechanism whose input differs on the neighbouring stream, and its privacy loss."""

    name: str
    terms: Terms
    loss: Loss
    local: bool = False
    position: int = 0  # on the tape
    distance: float = 0.0  # in sensitivities
    views: bool = False  # whether two servers release it, neither of them trusted


def untrusted_fault(claim: Guarantee, moves: Sequence[MovedInput]) -> str:
    """How a moved mechanism contradicts a claim that does not trust an operator, or ""."""
    central = [move.name for move in moves if not move.local]
    if claim.scope == "report" and central:
        return f"a reward moved {central[0]}, which is not the device's report"
    single = [move.name for move in moves if not move.views]
    if claim.scope == "view" and single:
        return f"a reward moved {single[0]}, whose server sees what it adds noise to"
    return ""


@dataclass
class Replayer:
    """Answers every query from a tape, and notes which mechanisms' inputs moved.

    With `any_terms`, terms and arguments may differ from the recorded ones. With
    `note_moves=False`, moved inputs are not noted.
    """

    tape: list[TapeEntry]
    position: int
    moves: list[MovedInput] = field(default_factory=list)
    any_terms: bool = False
    note_moves: bool = True

    def _next(self, name: str) -> TapeEntry:
        if self.position >= len(self.tape) or self.tape[self.position].name != name:
            raise Divergence(f"it queried {name}, which it did not query on the other stream")
        self.position += 1
        return self.tape[self.position - 1]

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """The recorded answer; a moved input is noted."""
        mechanism = declared_mechanism(body)
        now = mechanism.terms(*arguments)
        require_numbers(now)
        entry = self._next(mechanism.name)
        then = entry.terms
        assert then is not None  # a mechanism's entry always has terms
        if not self.any_terms:
            if now[1:] != then[1:]:
                raise Divergence(f"the sensitivity, epsilon or delta of {mechanism.name} changed")
            if self.note_moves and now.value != then.value:
                apart = distance(then.value, now.value, mechanism.norm) / now.sensitivity
                loss, place = mechanism.loss(then, now), self.position - 1
                views = mechanism.views is not None
                self.moves.append(
                    MovedInput(mechanism.name, now, loss, mechanism.local, place, apart, views)
                )
        return mechanism.deliver(arguments, entry.answer)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def draw(*arguments: Any, **named: Any) -> Any:
            entry = self._next(method)
            if not self.any_terms and _comparable(arguments, named) != entry.arguments:
                raise Divergence(f"the arguments of its draw from {method} depend on a reward")
            if method == "shuffle":
                arguments[0][:] = entry.answer
                return None
            return entry.answer

        return draw

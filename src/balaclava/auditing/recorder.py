"""Randomness that writes down every answer, and gives the same answers again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from balaclava.privacy.budget import check_budget
from balaclava.privacy.mechanism import Terms, mechanism_of
from balaclava.privacy.randomness import seeded


class Entry(NamedTuple):
    """One question to the randomness, and its answer."""

    name: str
    terms: Terms | None  # None for a plain draw, which no claim of privacy rests on
    answer: Any
    arguments: tuple[Any, ...] = ()  # of a plain draw


class Divergence(Exception):  # noqa: N818 (it is a finding, not an error)
    """The policy asked other questions than on the neighbouring stream."""


class Recorder:
    """Answers like a seeded generator and keeps a tape of all answers."""

    def __init__(self, seed: int) -> None:
        self._generator = seeded(seed)
        self.tape: list[Entry] = []

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """Let the mechanism answer, and write down what it was given."""
        mechanism = mechanism_of(body)
        terms = mechanism.terms(*arguments)
        check_budget(terms.epsilon, terms.delta, terms.sensitivity)
        mechanism.require(terms)
        answer = body(self._generator, *arguments)
        self.tape.append(Entry(mechanism.name, terms, answer))
        return answer

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def draw(*arguments: Any) -> Any:
            answer = getattr(self._generator, method)(*arguments)
            self.tape.append(Entry(method, None, answer, arguments))
            return answer

        return draw


class Move(NamedTuple):
    """A mechanism whose input the neighbouring stream moved."""

    name: str
    distance: float
    terms: Terms
    local: bool = False


@dataclass
class Player:
    """Answers from a tape, whatever the input; notes which mechanisms' inputs have moved."""

    tape: list[Entry]
    position: int
    moves: list[Move] = field(default_factory=list)

    def _next(self, name: str) -> Entry:
        if self.position >= len(self.tape) or self.tape[self.position].name != name:
            raise Divergence(f"it asked for {name}, which it did not ask on the other stream")
        self.position += 1
        return self.tape[self.position - 1]

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """The recorded answer; a moved input is noted."""
        mechanism = mechanism_of(body)
        entry = self._next(mechanism.name)
        now, then = mechanism.terms(*arguments), entry.terms
        assert then is not None  # a mechanism's entry always has terms
        if now[1:] != then[1:]:
            raise Divergence(f"the sensitivity, epsilon or delta of {mechanism.name} changed")
        if now.value != then.value:
            self.moves.append(
                Move(mechanism.name, abs(now.value - then.value), now, mechanism.local)
            )
        return entry.answer

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def draw(*arguments: Any) -> Any:
            entry = self._next(method)
            if arguments != entry.arguments:
                raise Divergence(
                    f"what it asked of {method} depends on a reward, past every mechanism"
                )
            return entry.answer

        return draw

"""Randomness that writes down every answer, and gives the same answers again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from balaclava.auditing.rare_answers import RareAnswers
from balaclava.privacy.mechanisms.base import Loss, Terms, check_budget, distance, mechanism_of
from balaclava.privacy.randomness import seeded


class Entry(NamedTuple):
    """One question to the randomness, and its answer."""

    name: str
    terms: Terms | None  # None for a plain draw, which no claim of privacy rests on
    answer: Any
    arguments: tuple[Any, ...] = ()  # of a plain draw
    body: Callable[..., Any] | None = None  # of a mechanism


class Divergence(Exception):  # noqa: N818 (it is a finding, not an error)
    """The policy asked other questions than on the neighbouring stream."""


class Recorder:
    """Answers like a seeded generator, or with rare answers, and keeps a tape of all answers."""

    def __init__(self, seed: int, *path: int, rare: RareAnswers | None = None) -> None:
        self._generator, self._rare = seeded(seed, *path), rare
        self._checked: set[tuple[float, ...]] = set()  # budgets that can be kept
        self.tape: list[Entry] = []

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """Let the mechanism answer, and write down what it was given."""
        mechanism = mechanism_of(body)
        terms = mechanism.terms(*arguments)
        budget = (terms.epsilon, terms.delta, terms.sensitivity)
        if budget not in self._checked:
            check_budget(*budget)
            self._checked.add(budget)
        mechanism.require(terms)

        def ask() -> Any:
            return mechanism.answer(body, self._generator, arguments)

        answer = ask()
        if self._rare is not None:
            answer = self._rare.answer(mechanism, terms, answer, ask)
        self.tape.append(Entry(mechanism.name, terms, answer, (), body))
        return mechanism.deliver(arguments, answer)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def draw(*arguments: Any, **named: Any) -> Any:
            before = _plain(arguments, named)
            answer = getattr(self._generator, method)(*arguments, **named)
            if self._rare is not None:
                answer = self._rare.draw(method, answer)
            value = arguments[0].copy() if method == "shuffle" else answer
            self.tape.append(Entry(method, None, value, before))
            return answer

        return draw


def _plain(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments as values that compare: arrays as lists."""
    values = [*arguments, *named.items()]
    return tuple(value.tolist() if isinstance(value, np.ndarray) else value for value in values)


class MovedInput(NamedTuple):
    """A mechanism whose input the neighbouring stream moved, and what that costs."""

    name: str
    terms: Terms
    loss: Loss
    local: bool = False
    place: int = 0  # on the tape
    share: float = 0.0  # how far it moved, in sensitivities


@dataclass
class Replayer:
    """Answers from a tape, whatever the input; notes which mechanisms' inputs have moved.

    A `lenient` one does not mind that a question has other terms or arguments than before. One
    that is not `charging` notes no moves.
    """

    tape: list[Entry]
    position: int
    moves: list[MovedInput] = field(default_factory=list)
    lenient: bool = False
    charging: bool = True

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
        if not self.lenient:
            if now[1:] != then[1:]:
                raise Divergence(f"the sensitivity, epsilon or delta of {mechanism.name} changed")
            if self.charging and now.value != then.value:
                apart = distance(then.value, now.value, mechanism.norm) / now.sensitivity
                loss, place = mechanism.loss(then, now), self.position - 1
                self.moves.append(
                    MovedInput(mechanism.name, now, loss, mechanism.local, place, apart)
                )
        return mechanism.deliver(arguments, entry.answer)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def draw(*arguments: Any, **named: Any) -> Any:
            entry = self._next(method)
            if not self.lenient and _plain(arguments, named) != entry.arguments:
                raise Divergence(f"what it asked of {method} depends on a reward")
            if method == "shuffle":
                arguments[0][:] = entry.answer
                return None
            return entry.answer

        return draw

"""An attack on agents: neighbouring runs differ in one reward, its arrival time, or its arrival.

Both runs get the same answers from all mechanisms. The test records and compares all that an
agent displays: decisions, propensities, status, estimates, winners, forecasts, strings, warnings,
and its errors for an observer who probes decisions whose windows have ended. Agents are saved and
restored in between. The attack must detect agents that leak by an easy mistake.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import balaclava as bl
from balaclava.agents.decisions import HAS_REWARD, WAS_GIVEN_UP
from balaclava.agents.delivery import WindowDelivery
from balaclava.auditing.tape import Recorder, Replayer
from balaclava.errors import BalaclavaError, DecisionError
from balaclava.policies.base import POLICIES
from balaclava.testing.examples import completed

ROUNDS, WINDOW = 130, 12
RESTORED = (35, 36, 80)  # rounds after which the agent is saved and restored
# Much is released, and soon: there is much to see.
LOUD = {
    "epsilon": 20.0,
    "horizon": ROUNDS,
    "radius_scale": 0.1,
    "threshold": 0.0,
    "first_batch": 6,
    "looks": 3,
}


class Event(NamedTuple):
    """An event `delay` decisions after a decision: its reward comes; None: it is cancelled."""

    delay: int
    reward: float | None
    again: bool = False  # the reward is told once more, in vain


def private_names() -> list[str]:
    """The policies whose guarantee covers all that a run displays."""
    return [
        entry.name
        for entry in bl.list_policies()
        if example(entry.name).guarantee.scope in ("trajectory", "report")
    ]


@functools.cache
def example(name: str) -> bl.Policy:
    cls = POLICIES.classes()[name]
    changes = {
        key: value
        for key, value in LOUD.items()
        if key in cls.annotations and not (key == "threshold" and "goal" in cls.annotations)
    }
    return cls.create(completed(cls, {**cls.examples[0], **changes}))


def story(policy: bl.Policy, seed: int) -> list[Event]:
    """High rewards come at once, low ones late, some never: arrival reveals the value."""
    low, high = bounds(policy)
    rng = np.random.default_rng(seed)
    events = []
    for _ in range(ROUNDS):
        good = bool(rng.random() < 0.5)
        delay = 0 if good else int(rng.integers(0, 2 * WINDOW))
        reward = None if rng.random() < 0.1 else (high if good else low)
        events.append(Event(delay, reward, again=bool(rng.random() < 0.1)))
    return events


def bounds(policy: bl.Policy) -> tuple[float, float]:
    """A low and a high reward that the policy accepts and distinguishes."""
    low, high = policy.accepts
    return (low, high) if math.isfinite(low) else (-0.1, 2.0)


def happen(agent: bl.Agent, decision: bl.Decision, event: Event) -> None:
    """Tell or cancel; errors that only the caller sees are not compared."""
    for _ in range(1 + event.again):
        try:
            if event.reward is None:
                agent.cancel(decision)
            else:
                agent.tell(decision, event.reward)
        except DecisionError:
            pass


def answer(action: Callable[[], Any]) -> str:
    """The returned value, or the text of the error."""
    try:
        return str(action())
    except BalaclavaError as error:
        return f"{type(error).__name__}: {error}"


def seen(agent: bl.Agent, decision: bl.Decision) -> list[Any]:
    """All that an agent displays after a decision; estimates follow from releases."""
    status = agent.status()
    return [decision, status, str(status), repr(agent), agent.policy.released(agent._runner.state)]


def judged(agent: bl.Agent) -> list[str]:
    """Estimates, winner and forecast, which take long to compute."""
    return [
        str(agent.guarantee),
        answer(lambda: agent.estimates(0.9)),
        answer(lambda: agent.winner(0.9)),
        answer(lambda: agent.difference(0, 1, 0.9)),
        answer(lambda: agent.remaining(0.9)),
    ]


def probed(agent: bl.Agent, old: bl.Decision) -> list[str]:
    """The error for an observer who knows an id and tries it after the window."""
    return [
        answer(lambda: agent.tell(old, bounds(agent.policy)[1])),
        answer(lambda: agent.cancel(old.id)),
        answer(lambda: agent.report_level(old)),
    ]


def view(
    policy: bl.Policy,
    events: list[Event],
    rng: Any,
    mutate: Callable[[bl.Agent], None] | None = None,
    judge: tuple[int, ...] = (),
    **settling: Any,
) -> list[Any]:
    """Everything that a run with these events displays."""

    def prepared(agent: bl.Agent) -> bl.Agent:
        agent._book.name = f"{len(lines):032x}"  # ids are random; here they must be comparable
        agent._runner.rng = rng
        if mutate is not None:
            mutate(agent)
        return agent

    lines: list[Any] = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        agent = prepared(policy.agent(**settling))
        decisions: list[bl.Decision] = []
        for t in range(ROUNDS):
            decisions.append(agent.ask(policy.practice_context))
            lines += seen(agent, decisions[-1])
            lines += judged(agent) if t in judge else []
            for s in range(max(0, t - 2 * WINDOW), t + 1):
                if s + events[s].delay == t:
                    happen(agent, decisions[s], events[s])
            if t > WINDOW and settling.get("settle") == "window":
                lines += probed(agent, decisions[t - WINDOW - 1])
            if t in RESTORED and mutate is None:  # a save of what cannot be is refused
                agent = prepared(bl.restore(agent.save()))
        lines += [str(warning.message) for warning in heard]
    return lines


def windowed(policy: bl.Policy) -> dict[str, Any]:
    missing = bounds(policy)[0]
    return {"patience": WINDOW, "settle": "window", "missing": missing}


CHANGES: dict[str, Callable[[Event, float, float], Event]] = {
    "another reward, later": lambda old, low, high: Event(5, low + high - (old.reward or low)),
    "it never came": lambda old, low, high: Event(10**6, low),
    "it was cancelled": lambda old, low, high: Event(3, None),
    "it came at once": lambda old, low, high: Event(0, high),
    "it came too late": lambda old, low, high: Event(WINDOW + 2, high),
    "it came in the last moment": lambda old, low, high: Event(WINDOW, high),
    "it came a moment too late": lambda old, low, high: Event(WINDOW + 1, high),
    "it was told twice": lambda old, low, high: Event(1, high, again=True),
    "it was cancelled twice": lambda old, low, high: Event(1, None, again=True),
}
# One looks at no reward; the first releases of the others come after these runs, or see no change.
UNMOVED = ("random", "gdp-elim-new", "dp-exp4", "dpr-se", "prae-central")
LEAN = ("another reward, later", "it never came", "it was cancelled")


@functools.cache
def first_run(name: str, place: int, judge: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """The answers of all mechanisms and the view, for comparison with neighbours."""
    policy, recorder = example(name), Recorder(seed=1)
    events = story(policy, place)
    return recorder.tape, view(policy, events, recorder, judge=judge, **windowed(policy))


def check_neighbours(name: str, place: int, change: str, judge: tuple[int, ...] = ()) -> int:
    """Require that the change moves only inputs of mechanisms, within the budget.

    Returns the number of moved mechanisms.
    """
    policy = example(name)
    tape, lines = first_run(name, place, judge)
    events = story(policy, place)
    events[place] = CHANGES[change](events[place], *bounds(policy))
    player = Replayer(tape, 0)
    assert view(policy, events, player, judge=judge, **windowed(policy)) == lines
    cost = sum(move.distance * move.terms.epsilon for move in player.moves)
    assert cost <= policy.guarantee.epsilon * (1 + 1e-9)
    return len(player.moves)


@pytest.mark.parametrize("name", private_names())
def test_neighbours_look_alike(name):
    moved = sum(check_neighbours(name, 7, change) for change in LEAN)
    assert moved or name in UNMOVED


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", private_names())
def test_neighbours_look_alike_at_every_place(name, change):
    """The first decision, one within the first windows, one at a restore, one well after."""
    for place in (0, 30, 35, 60):
        check_neighbours(name, place, change, judge=(40, ROUNDS - 1))


@pytest.mark.parametrize("name", ["dp-imed", "dp-se", "dpr-batch-ucb"])
def test_by_arrival_neighbours_of_the_same_arrival_look_alike(name):
    """With settle="arrival" the guarantee covers the rewards, not their arrival."""
    policy, recorder = example(name), Recorder(seed=1)
    low, high = bounds(policy)
    events = story(policy, 7)
    lines = view(policy, events, recorder, patience=WINDOW)
    place = next(i for i in range(20, ROUNDS) if events[i].reward == high)
    events[place] = events[place]._replace(reward=low)
    assert view(policy, events, Replayer(recorder.tape, 0), patience=WINDOW) == lines
    events[place] = Event(10**6, low)
    assert not looks_alike(policy, events, recorder.tape, lines, patience=WINDOW)


def looks_alike(
    policy: bl.Policy, events: list[Event], tape: list[Any], lines: list[Any], **settings: Any
) -> bool:
    """Whether two runs display the same; a call of another mechanism counts as a difference."""
    try:
        return view(policy, events, Replayer(tape, 0), **settings) == lines
    except Exception:
        return False


class CountsRewards(WindowDelivery):
    @property
    def rewards(self):
        return len(self._held)


class SettlesAtOnce(WindowDelivery):
    def take(self, decision, observation):
        super().take(decision, observation)
        entry = self._book.find(decision, window=True)
        self._learn(entry, observation or self._missing)
        del self._held[entry.id]
        self._book.close(entry, None)


class RemembersEndings(WindowDelivery):
    def before_decision(self):
        book = self._book
        while (oldest := book.oldest) and book.clock - oldest.round >= self._length:
            book.close(oldest, HAS_REWARD if oldest.id in self._held else WAS_GIVEN_UP)
            self._learn(oldest, self._held.pop(oldest.id, None) or self._missing)

    def find(self, decision):
        return self._book.find(decision)


class SkipsMissing(WindowDelivery):
    def before_decision(self):
        book = self._book
        while (oldest := book.oldest) and book.clock - oldest.round >= self._length:
            book.close(oldest, None)
            if observation := self._held.pop(oldest.id, None):
                self._learn(oldest, observation)
            else:
                self._learn.__self__._forget(oldest)


class SaysWhatIsHeld(WindowDelivery):
    def awaited(self):
        return f"{super().awaited()}; {len(self._held)} came"


class WarnsOfSilence(WindowDelivery):
    def before_decision(self):
        if self._book.clock > WINDOW and self._book.oldest.id not in self._held:
            warnings.warn("a window ends, and nothing came", stacklevel=2)
        super().before_decision()


class EndsWindowsEarly(WindowDelivery):
    def before_decision(self):
        super().before_decision()
        oldest = self._book.oldest
        if oldest and oldest.id in self._held:
            self._book.close(oldest, None)
            self._learn(oldest, self._held.pop(oldest.id) or self._missing)


class ReprOfHeld(bl.Agent):
    def __repr__(self):
        return f"{super().__repr__()} {len(self._delivery._held)}"


class OpenWithoutReward(bl.Agent):
    def status(self):
        status = super().status()
        return dataclasses.replace(status, open=status.open - len(self._delivery._held))


class PropensityOfHeld(bl.Agent):
    def ask(self, context=None):
        return super().ask(context)._replace(propensity=1.0 / (1 + len(self._delivery._held)))


LEAKS = (
    CountsRewards,
    SettlesAtOnce,
    RemembersEndings,
    SkipsMissing,
    SaysWhatIsHeld,
    WarnsOfSilence,
    EndsWindowsEarly,
    ReprOfHeld,
    OpenWithoutReward,
    PropensityOfHeld,
)


@pytest.mark.parametrize("leak", LEAKS)
def test_an_agent_that_leaks_is_detected(leak):
    """Some change reveals each leak, at the place where the correct agents are attacked."""
    policy = example("dp-imed")

    def mutate(agent: bl.Agent) -> None:
        (agent if issubclass(leak, bl.Agent) else agent._delivery).__class__ = leak

    settling: dict[str, Any] = {**windowed(policy), "mutate": mutate}
    recorder = Recorder(seed=1)
    lines = view(policy, story(policy, 7), recorder, **settling)
    caught = []
    for change in LEAN:
        events = story(policy, 7)
        events[7] = CHANGES[change](events[7], *bounds(policy))
        caught.append(not looks_alike(policy, events, recorder.tape, lines, **settling))
    assert any(caught)

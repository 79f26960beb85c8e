"""`bl.restore`: an agent from its save, with checks of every value."""

import json
import os
from typing import Any, NamedTuple

from balaclava._core.declared import MOST_ROUNDS
from balaclava.agents import decisions, saving
from balaclava.agents.agent import Agent
from balaclava.agents.policy_runner import PolicyRunner
from balaclava.agents.save_files import FOR_A_RESTORED_AGENT, SaveFile
from balaclava.agents.settling import Settling
from balaclava.errors import BalaclavaError, SavedStateError, UnknownNameError
from balaclava.policies.base import POLICIES, Policy

SAVED_PARTS = (
    *("policy", "settling", "agent", "origins", "clock", "decisions", "unlearned", "open"),
    *("closed", "reception", "state", "generator", "order"),
)
# If a save has more arms it must hold as many numbers: a forged one cannot exhaust memory.
UNCHECKED_ARMS = 10**6
MOST_RESTORES = 10**6  # of saves that another agent had continued; a guess
MOST_PHASE = 2**62  # 64-bit integers hold twice that


def restore(saved: dict[str, Any] | str | os.PathLike[str], *, again: bool = False) -> Agent:
    """Restore an agent from a save.

    The digest and the range of every value are checked. Open decisions keep their ids; new ones
    start with another prefix.

    Args:
        saved: The path of a save, or what `agent.save()` returned, also after a round trip through
            JSON. A file is restored once: the agent is recorded beside it as its successor. A
            dict is not tracked.
        again: Restore a save that another agent continued, after a crash. Unfinished batches may
            be released a second time: `agent.guarantee` then counts epsilon and delta once more.
            Never do it while the other agent runs.

    Returns:
        The agent, ready to continue. Only one agent may continue from a save.

    Raises:
        SavedStateError: If the save is damaged, was made by an incompatible version, or was
            continued by another agent.
        UnknownNameError: If its policy is not registered.
    """
    if not isinstance(saved, str | os.PathLike):
        agent = _from_dict(saved)
        agent._restores += bool(again)
        return agent
    file, content = SaveFile.read(saved)
    agent = _from_dict(content)
    successors = file.claim(agent._book.name, again=again, otherwise=FOR_A_RESTORED_AGENT)
    agent._restores += successors - 1
    agent._save_file = file
    return agent


class ReadSave(NamedTuple):
    """What a save holds, to read released values from; its agent must not decide."""

    agent: Agent
    settling: Settling
    finished: bool


def read_save(path: str | os.PathLike[str]) -> ReadSave:
    """Read a save without a successor: another agent may still continue from it.

    Raises:
        SavedStateError: If the save is damaged, or was made by an incompatible version.
    """
    agent = _from_dict(SaveFile.read(path)[1])
    finished, agent._book.finished = agent._book.finished, True  # so that it never releases
    return ReadSave(agent, agent._settling, finished)


def _from_dict(saved: Any) -> Agent:
    try:
        return _restored(saving.unseal(saved))
    except (SavedStateError, UnknownNameError):
        raise
    except BalaclavaError as error:
        raise SavedStateError(f"the saved agent is not valid: {error}") from None
    except (
        *(KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError),
        *(RecursionError, MemoryError),
    ) as error:
        why = str(error) if isinstance(error, saving.DamageError) else type(error).__name__
        raise SavedStateError(
            f"the saved agent is incomplete or damaged ({why}); use an intact copy"
        ) from None


def through_a_save(policy: Policy, state: Any, clock: int) -> PolicyRunner:
    """Save and restore a policy's state after `clock` decisions, all of them open."""
    agent = Agent(policy, seed=0)
    agent._runner.state, agent._decisions[0] = state, clock
    for _ in range(clock):
        agent._book.enter(0, 0)
    return restore(json.loads(json.dumps(agent.save())))._runner


def _restored(content: dict[str, Any]) -> Agent:
    restores = content.pop("restores", 0)  # only in saves of agents that were restored again
    finished = content.pop("finished", False)  # only in saves of finished agents
    roster = content.pop("roster", None)  # only in saves of agents whose arms changed
    content = {"order": {"kept": False, "tally": None}} | content  # saves of before
    saving.exact_keys(content, *SAVED_PARTS)
    description = saving.exact_keys(content["policy"], "name", "parameters")
    policy = POLICIES.create(description["name"], description["parameters"])
    if policy.arms > max(UNCHECKED_ARMS, saving.packed_numbers(content["state"])):
        raise saving.DamageError("the state has fewer arms")
    settling = saving.exact_keys(content["settling"], *Settling._fields)
    seed = None if content["generator"] is None else 0
    agent = Agent(policy, seed=seed, **settling)
    if seed is not None:
        saving.set_generator(agent._runner.rng, content["generator"])
    agent._copied = True
    agent._restores = saving.whole_number(restores, 0, MOST_RESTORES)
    clock = saving.whole_number(content["clock"], 0, MOST_ROUNDS)
    agent._unlearned = saving.whole_number(content["unlearned"], 0, clock)
    agent._decisions = [
        saving.whole_number(count, 0, clock) for count in saving.checked_list(content["decisions"])
    ]
    if len(agent._decisions) != policy.arms or sum(agent._decisions) != clock:
        raise saving.DamageError("the decisions of the arms do not add up")
    if roster is not None:
        agent._runner.load_roster(roster, clock)
    _fill_book(agent._book, content, clock, policy.arms)
    if not isinstance(finished, bool) or (finished and agent._book.open):
        raise saving.DamageError("a finished agent has open decisions")
    agent._book.finished = finished
    agent._delivery.load(content["reception"])
    saving.fill_state(policy, agent._runner.state, content["state"], clock)
    _load_order(agent, content, clock)
    return agent


def _load_order(agent: Agent, content: dict[str, Any], clock: int) -> None:
    order = saving.exact_keys(content["order"], "kept", "tally")
    if type(order["kept"]) is not bool or (agent._order is None and order["tally"] is not None):
        raise saving.DamageError("the order of decisions is not valid")
    agent._in_order = order["kept"] or clock == 0
    if order["tally"] is None:
        agent._order = agent._order if clock == 0 else None
    elif agent._order is not None:
        agent._order.load(order["tally"], clock, list(agent._book.open.values()))


def _fill_book(
    book: decisions.DecisionBook, content: dict[str, Any], clock: int, arms: int
) -> None:
    names = {content["agent"]: clock}
    for name, last in saving.checked_list(content["origins"]):
        names.setdefault(name, saving.whole_number(last, 0, clock))
    book.origins = {name: last for name, last in names.items() if decisions.id_parts(f"{name}-1")}
    if len(book.origins) != 1 + len(content["origins"]):
        raise saving.DamageError("the name of an agent is not valid")
    book.origins[content["agent"]] = book.origins.pop(content["agent"])
    book.clock = clock
    last = 0
    for key, number, arm, phase in saving.checked_list(content["open"]):
        entry = decisions.OpenDecision(
            key,
            saving.whole_number(number, last + 1, clock),
            saving.whole_number(arm, 0, arms - 1),
            saving.whole_number(phase, -1, MOST_PHASE),
        )
        name, serial = decisions.id_parts(key) or ("", 0)
        if serial != entry.round or book.origins.get(name, 0) < serial:
            raise saving.DamageError("a decision was never made")
        book.open[key] = entry
        last = entry.round
    for key, how in saving.checked_list(content["closed"]):
        name, serial = decisions.id_parts(key) or ("", 0)
        if not 0 < serial <= book.origins.get(name, 0) or key in book.open:
            raise saving.DamageError("a decision was never made")
        if how not in (decisions.HAS_REWARD, decisions.WAS_CANCELLED, decisions.WAS_GIVEN_UP):
            raise saving.DamageError("the ending of a decision is not valid")
        book.closed[key] = how
    if len(book.closed) != len(content["closed"]):
        raise saving.DamageError("a decision has two endings")

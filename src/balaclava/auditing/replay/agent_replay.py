"""Replay whole agents whose arms come, rest and leave, with one reward changed.

`recorded_run` replays a policy's kernels on fixed arms. Here an agent plays, as its user sees it:
arms are added and retired, decisions offer some arms only, arms have shares, a prior lets arms
rest, rewards are late or cancelled, means change, and the agent is saved and restored. All of that
follows from a public plan or, in some scenarios, from what the agent displays, as the guarantee
allows. With the recorded answer to every query, the replay must display the same.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from balaclava.agents.agent import Agent
from balaclava.agents.decisions import Decision
from balaclava.agents.restoring import restore
from balaclava.auditing.replay.amplified_states import AMPLIFIED_DECISION, amplified
from balaclava.auditing.replay.recorded_run import displayed_answers
from balaclava.auditing.replay.reward_choices import reward_limits
from balaclava.auditing.scenario import Neighbour
from balaclava.auditing.state_copies import arrays_of
from balaclava.auditing.tape import Divergence, MovedInput, Recorder, Replayer, TapeEntry
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded

# Guesses: in a hundred rounds several arms come and leave.
_CHANGE_CHANCE = 1 / 14  # of a round, that an arm comes or leaves
_MORE_ARMS = 2  # live arms at most, beyond those at the start
_MASKED_CHANCE = 0.6  # of a decision that may offer some arms only
_ROUNDS_PER_DISPLAY = 32  # rounds; what is displayed is also compared after each release
_SHARES_INTERVAL = 50
_ENLARGED_AT = (0.25, 0.5, 0.75)  # shares of a run; the state is enlarged at the next change
_AGENT_ROUNDS_AHEAD = 160  # in which decisions are then compared: first batches end meanwhile


class AgentScenario(NamedTuple):
    """What happens to an agent beside its decisions."""

    conditions: tuple[str, ...]
    changes: bool = False  # arms come and leave
    masks: bool = False
    shares: bool = False
    prior: bool = False
    delay: int = 0  # rounds by which rewards are late, at most
    cancelled: float = 0.0  # share of decisions
    restored: int = 0  # times that it is saved and restored
    follows: bool = False  # whether changes depend on what the agent displays
    window: int = 0  # decisions after which a reward, or the lowest, counts; 0: at its arrival


AGENT_SCENARIOS = (
    AgentScenario(("arms that come and leave",), changes=True),
    AgentScenario(
        ("arms that come and leave", "late rewards", "cancelled decisions"),
        changes=True,
        delay=12,
        cancelled=0.15,
    ),
    AgentScenario(("some arms available",), masks=True, delay=3),
    AgentScenario(
        ("changes that follow what is displayed", "some arms available", "shares of arms"),
        changes=True,
        masks=True,
        shares=True,
        follows=True,
    ),
    AgentScenario(
        ("rewards that count after a window", "rewards that never come", "shares of arms"),
        changes=True,
        masks=True,
        shares=True,
        delay=14,
        cancelled=0.1,
        window=9,
    ),
    AgentScenario(("a prior", "arms that come and leave"), prior=True, changes=True, delay=4),
    AgentScenario(
        ("a restored agent whose arms changed", "shares of arms", "late rewards"),
        changes=True,
        masks=True,
        shares=True,
        delay=8,
        restored=3,
    ),
)


class SeenRound(NamedTuple):
    """What an observer sees of a round."""

    decision: tuple[int, int, float | None]  # arm, phase, propensity
    display: bytes  # of releases, estimates and changes; empty if it was not looked at
    chosen: int  # queries to the randomness so far, after the decision
    queries: int  # and at the end of the round


@dataclass
class AgentRun:
    """A recorded run of an agent."""

    scenario: AgentScenario
    rewards: np.ndarray  # [rounds, arms at the start]
    seed: int
    tape: list[TapeEntry]
    seen: list[SeenRound] = field(default_factory=list)
    columns_told: dict[int, int] = field(
        default_factory=dict
    )  # round of a told reward: its arm's column
    failure: str = ""  # with which it failed, after the rounds seen


class AgentOutcome(NamedTuple):
    """The result of a replay; without a fault it displayed the same."""

    moves: list[MovedInput]
    fault: str = ""
    round: int | None = None  # from 0, whose decision differs


class AgentPlayer:
    """Plays an agent through a scenario, with a recorder or a replayer as its randomness."""

    def __init__(
        self, policy: Policy, run: AgentRun, rng: Any, neighbour: Neighbour | None = None
    ) -> None:
        self.policy, self.run, self.rng, self.neighbour = policy, run, rng, neighbour
        self.scenario = run.scenario
        self.missing, window = reward_limits(policy)[0], self.scenario.window
        how: Any = {"settle": "window", "patience": window, "missing": self.missing}
        self.agent = Agent(policy, seed=0, prior=self._prior(), **(how if window else {}))
        self.agent._runner.rng = rng
        self.open: list[tuple[int, Decision]] = []  # with the round in which each is closed
        self.view = b""  # the last display
        self.changes = 0  # times that arms came or left
        plan, rounds = np.random.default_rng([run.seed, 1]), len(run.rewards)
        self.restored = set(plan.integers(1, rounds, self.scenario.restored).tolist())

    @property
    def queries(self) -> int:
        """Queries to the randomness so far."""
        if isinstance(self.rng, Replayer):
            return self.rng.position
        return len(self.run.tape)

    def _prior(self) -> dict[str, tuple[float, int]] | None:
        if not self.scenario.prior:
            return None
        low, high = self.policy.accepts
        means = np.linspace(0.3, 0.7, self.policy.arms).tolist()
        return {
            self.policy.arm_label(arm): (low + (high - low) * mean, 40 + 30 * arm)
            for arm, mean in enumerate(means)
        }

    def rounds(self) -> Iterator[SeenRound]:
        """Play, and yield what an observer sees of each round."""
        for i in range(len(self.run.rewards)):
            before = self.queries
            decision = self._decide(i)
            chosen = self.queries
            self._close_due(i)
            due = i % _ROUNDS_PER_DISPLAY == 0 or i + 1 == len(self.run.rewards)
            display = b""
            if due or self.queries > before:
                display = self.view = self._display()
            yield SeenRound(decision, display, chosen, self.queries)

    def _decide(self, i: int) -> tuple[int, int, float | None]:
        """Change arms and shares, and make a decision."""
        known = [zlib.crc32(self.view)] if self.scenario.follows else []
        plan = np.random.default_rng([self.run.seed, 2, i, *known])
        if self.scenario.changes and plan.random() < _CHANGE_CHANCE:
            self._change_arms(plan, i)
        arms = self._live_arms()
        if self.scenario.shares and i % _SHARES_INTERVAL == 10:
            self.agent.set_shares({arms[0]: 0.1, arms[-1]: 0.2} if len(arms) > 1 else {})
        available = None
        if self.scenario.masks and plan.random() < _MASKED_CHANCE:
            wanted = plan.integers(1, len(arms) + 1)
            available = plan.choice(arms, wanted, replace=False).tolist()
        decision = self.agent.ask(available=available)
        self.open.append((i + int(plan.integers(0, self.scenario.delay + 1)), decision))
        return decision.arm, decision.phase, decision.propensity

    def _live_arms(self) -> list[int]:
        roster = self.agent._runner.roster
        return list(range(self.policy.arms)) if roster is None else roster.live

    def _change_arms(self, plan: np.random.Generator, i: int) -> None:
        arms = self._live_arms()
        self.changes += 1
        comes = len(arms) < self.policy.arms + _MORE_ARMS and plan.random() < 0.55
        if comes or len(arms) == 1:
            self.agent.add_arm(f"arm of round {i}")
        else:
            self.agent.retire_arm(int(plan.choice(arms)))

    def _close_due(self, i: int) -> None:
        """Tell and cancel what is due; then save and restore the agent, if it is time."""
        due = [decision for when, decision in self.open if when <= i]
        self.open = [each for each in self.open if each[0] > i]
        plan = np.random.default_rng([self.run.seed, 3, i])
        for number in plan.permutation(len(due)).tolist():
            decision = due[number]
            made = int(decision.id.rpartition("-")[2]) - 1
            if 0 < self.scenario.window < i - made:
                continue  # its window has ended
            if plan.random() < self.scenario.cancelled:
                self.agent.cancel(decision)
                continue
            column = decision.arm % self.policy.arms
            self.run.columns_told[made] = column
            changed = self.neighbour is not None and self.neighbour.slot == made
            reward = float(self.run.rewards[made, column])
            if changed:
                reward = self.neighbour.reward  # type: ignore[union-attr]
                if self.scenario.window and reward == self.missing:
                    continue  # it never comes
            self.agent.tell(decision, reward)
        if i in self.restored:
            self.agent._runner.rng = seeded(0)  # a save holds the generator of a seeded agent
            self.agent = restore(json.loads(json.dumps(self.agent.save())))
            self.agent._runner.rng = self.rng

    def _display(self) -> bytes:
        """What it displays beside decisions: releases, estimates, answers, changes, restarts."""
        runner, policy = self.agent._runner, self.agent.policy
        if policy.scope == "decision":
            return b""
        numbers: list[Any] = [
            *(runner.batches(), runner.changed_arms(), policy.restarts(runner.state)),
            *(runner.released_of(range(policy.arms)) or {}).items(),
            replace(self.agent.status(), oldest_open=None),  # an id is random
        ]
        if policy.estimation is not None:
            read = policy.estimation.read
            numbers += runner.open_roster().released(
                lambda slot: read(runner.params, runner.state, slot)
            )
        numbers += displayed_answers(policy, runner.state)
        return repr(numbers).encode()


def record_agent(
    policy: Policy,
    scenario: AgentScenario,
    rewards: np.ndarray,
    seed: int,
    tape_seed: int,
    neighbour: Neighbour | None = None,
) -> AgentRun:
    """Play a scenario, whose plan depends on `seed` alone, and record it."""
    recorder = Recorder(tape_seed, 7)
    run = AgentRun(scenario, rewards, seed, recorder.tape)
    player = AgentPlayer(policy, run, recorder, neighbour)
    try:
        run.seen.extend(player.rounds())
    except Exception as error:
        run.failure = type(error).__name__
    return run


def replay_agent(
    policy: Policy, run: AgentRun, neighbour: Neighbour | None, rewards: np.ndarray | None = None
) -> AgentOutcome:
    """Replay a run with one reward changed, or with other rewards in every round."""
    replayer = Replayer(run.tape, 0, note_moves=rewards is None)
    again = AgentRun(run.scenario, run.rewards if rewards is None else rewards, run.seed, run.tape)
    i, moves = -1, replayer.moves
    try:
        rounds = AgentPlayer(policy, again, replayer, neighbour).rounds()
        for i, (then, now) in enumerate(zip(run.seen, rounds, strict=False)):
            if now.decision != then.decision:
                return AgentOutcome(moves, f"the decision of round {i + 1} differs", i)
            if now.queries != then.queries:
                return AgentOutcome(moves, f"in round {i + 1} it made fewer queries")
            if now.display != then.display:
                return AgentOutcome(moves, f"after round {i + 1} an agent displays other values")
        if run.failure:
            next(rounds)
            return AgentOutcome(moves, f"it does not fail, as on the other stream: {run.failure}")
    except Divergence as divergence:
        return AgentOutcome(moves, f"in round {i + 2} {divergence}")
    except Exception as error:
        if type(error).__name__ != run.failure:
            return AgentOutcome(moves, f"in round {i + 2} it fails with {type(error).__name__}")
    return AgentOutcome(moves)


def amplified_agent_fault(policy: Policy, run: AgentRun, rewards: np.ndarray) -> str:
    """The decision that changes if what other rewards left in the state is enlarged, or "".

    The state is enlarged right after arms came or left (`amplified_states`).
    """
    for number, share in enumerate(_ENLARGED_AT):
        one, other = (
            AgentPlayer(
                policy,
                AgentRun(run.scenario, stream, run.seed, run.tape),
                Replayer(run.tape, 0, any_terms=True, note_moves=False),
            )
            for stream in (run.rewards, rewards)
        )
        begin, end, changes = share * len(rewards), len(rewards), 0
        try:
            for i, (_, now) in enumerate(zip(one.rounds(), other.rounds(), strict=True)):
                if end < len(rewards) and now.decision[:2] != run.seen[i].decision[:2]:
                    return AMPLIFIED_DECISION.format(i + 1)
                if end == len(rewards) and i >= begin and other.changes > changes:
                    _enlarge(one.agent, other.agent, -1.0 if number % 2 else 1.0)
                    end = min(i + _AGENT_ROUNDS_AHEAD, end - 1)
                if i >= end:
                    break
                changes = other.changes
        except Exception:
            continue  # the enlarged state is not one that a run could have
    return ""


def _enlarge(one: Agent, other: Agent, sign: float) -> None:
    """Enlarge the differences of the second agent's state from the first one's."""
    states = one._runner.state, other._runner.state
    for array, larger in zip(
        arrays_of(states[1]), arrays_of(amplified(*states, sign)), strict=True
    ):
        array[...] = larger

"""Audit by replay of agents whose arms come, rest and leave: scenarios, neighbours, verdict."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from balaclava.auditing.replay.agent_replay import (
    AGENT_SCENARIOS,
    AgentOutcome,
    AgentRun,
    AgentScenario,
    amplified_agent_fault,
    record_agent,
    replay_agent,
)
from balaclava.auditing.replay.composed_loss import ComposedLoss, compose
from balaclava.auditing.replay.long_replay import terms_of
from balaclava.auditing.replay.replay_audit import ReplayAudit
from balaclava.auditing.replay.reward_choices import reward_limits, reward_stream, special_values
from balaclava.auditing.scenario import Neighbour, agent_accepts
from balaclava.auditing.tape import untrusted_fault
from balaclava.auditing.two_sample_bounds import VIOLATION_ERROR, epsilon_lower
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy, unregistered_part
from balaclava.privacy.guarantee import Guarantee

# Guesses that keep this part of an audit within about a second.
_ROUNDS_PER_GAME = 2  # rounds of a scenario, in those of a planned game
_FEWEST_AGENT_ROUNDS, _MOST_AGENT_ROUNDS = 128, 480
_PAIRS_PER_NEIGHBOUR = 60  # of the audit's pairs: one neighbour a scenario
_FEWEST_NEIGHBOURS = 3
_GAMES = 80  # on each of two streams, to test a fault
# Kinds of rewards in the first and the second half of a scenario (`reward_stream`): ones and zeros
# are a change that a memory must notice.
_REWARD_KINDS = ((3, 2), (0, 0), (4, 6), (1, 4), (5, 0), (2, 3))


class AgentAuditor:
    """Replays neighbouring pairs of agents' runs, and collects evidence against the claim."""

    def __init__(self, policy: Policy, claim: Guarantee, seed: int) -> None:
        self.policy, self.claim, self.seed = policy, claim, seed
        self.rng = np.random.default_rng([seed, 5])
        self.tried = self.moved = 0
        self.worst = ComposedLoss()
        self.delta = self.declared = 0.0
        self.verdict, self.fault = "consistent", ""
        self.reached: set[str] = set()
        self.conditions: set[str] = set()

    def examine(self, number: int, scenario: AgentScenario, rounds: int, wanted: int) -> None:
        """Record a scenario, and replay it with other rewards and with neighbours."""
        rewards = self._rewards(number, rounds)
        try:
            run = record_agent(self.policy, scenario, rewards, self.seed + number, self.seed)
        except ParameterError:
            return  # a prior that the policy cannot have
        self.conditions |= set(scenario.conditions)
        low, high = reward_limits(self.policy)
        coins = np.where(self.rng.random(rewards.shape) < 0.5, low, high)
        mirrored = np.clip(low + high - rewards, low, high)
        for other in (mirrored, coins):
            if replay_agent(self.policy, run, None, other).fault:
                self._find_pair(run, other)
                return
        planned = scenario.changes and not scenario.follows and not run.failure
        if planned and (fault := amplified_agent_fault(self.policy, run, mirrored)):
            self._conclude(run, "unproved", fault)
            return
        for slot in self._slots(run, wanted):
            pair = Neighbour(slot, self._reward(rewards[slot, run.columns_told[slot]]))
            self._judge(run, pair, replay_agent(self.policy, run, pair))
            if self.fault:
                return
        if run.failure:
            self._conclude(run, "unproved", f"it fails with {run.failure}")

    def _rewards(self, number: int, rounds: int) -> np.ndarray:
        kinds, limits = _REWARD_KINDS[number % len(_REWARD_KINDS)], reward_limits(self.policy)
        halves = (rounds // 2, rounds - rounds // 2)
        return np.concatenate(
            [
                reward_stream(self.policy, half, kind, limits, self.rng, False)
                for half, kind in zip(halves, kinds, strict=True)
            ]
        )

    def _slots(self, run: AgentRun, wanted: int) -> list[int]:
        """Rounds whose reward was told: some before a change of the phase, others at random."""
        rounds_told = sorted(run.columns_told)
        if not rounds_told:
            return []
        phases = [seen.decision[:2] for seen in run.seen]
        edges = [i for i in rounds_told if i + 1 < len(phases) and phases[i] != phases[i + 1]]
        some = self.rng.permutation(edges)[: wanted // 2].tolist()
        return sorted(some + self.rng.choice(rounds_told, wanted - len(some)).tolist())

    def _reward(self, now: float) -> float:
        """Mostly the far end; else a special value that an agent accepts."""
        low, high = reward_limits(self.policy)
        if self.rng.random() < 0.25:
            value = float(self.rng.choice(special_values(self.policy)))
            if agent_accepts(self.policy, value):
                return value
        return high if now < (low + high) / 2 else low

    def _judge(self, run: AgentRun, pair: Neighbour, outcome: AgentOutcome) -> None:
        """Find a pair within the claim, unproved or violated."""
        self.tried += 1
        if outcome.moves or outcome.fault:
            self.moved += 1
            self.reached |= set(run.scenario.conditions)
        if outcome.fault:
            self._conclude(run, self._play_games(run, pair, outcome), outcome.fault, pair.slot)
            return
        if fault := untrusted_fault(self.claim, outcome.moves):
            self._conclude(run, "violated", fault, pair.slot)
            return
        for loss in self._losses(run, outcome):
            self.declared, self.delta = (
                max(self.declared, loss.declared),
                max(self.delta, loss.delta),
            )
            self.worst = max(self.worst, loss)
            if not loss.within(self.claim) or not loss.declared_within(self.claim):
                fault = f"{loss}; claimed are {terms_of(self.claim)}"
                self._conclude(run, "unproved", fault, pair.slot)
                return

    def _losses(self, run: AgentRun, outcome: AgentOutcome) -> list[ComposedLoss]:
        """The loss of a run or, for scope "decision", of the draws of each decision."""
        if self.claim.scope != "decision":
            return [compose(outcome.moves, self.claim)]
        ends = [seen.queries for seen in run.seen]
        by_round: dict[int, list[int]] = {}
        for number, move in enumerate(outcome.moves):
            by_round.setdefault(int(np.searchsorted(ends, move.position, "right")), []).append(
                number
            )
        return [
            compose([outcome.moves[number] for number in numbers], self.claim)
            for numbers in by_round.values()
        ]

    def _find_pair(self, run: AgentRun, rewards: np.ndarray) -> None:
        """Bisect for one reward with which the fault begins, and judge that pair."""

        def hybrid(changed: int) -> np.ndarray:
            return np.concatenate([rewards[:changed], run.rewards[changed:]])

        low, high = 0, len(rewards)
        while high - low > 1:
            middle = (low + high) // 2
            if replay_agent(self.policy, run, None, hybrid(middle)).fault:
                high = middle
            else:
                low = middle
        run.rewards = hybrid(low)
        slot = high - 1
        pair = Neighbour(slot, float(rewards[slot, run.columns_told.get(slot, 0)]))
        self._judge(run, pair, replay_agent(self.policy, run, pair))
        if not self.fault:
            self._conclude(run, "unproved", "with many rewards changed, what it displays differs")

    def _play_games(self, run: AgentRun, pair: Neighbour, outcome: AgentOutcome) -> str:
        """ "violated" if games refute the claim by the decision that differs; else "unproved"."""
        i = outcome.round
        if i is None:
            return "unproved"
        counts = []
        for neighbour in (None, pair):
            same = 0
            for game in range(_GAMES):
                seed = self.seed + 1 + game
                rewards = run.rewards[: i + 1]
                played = record_agent(self.policy, run.scenario, rewards, run.seed, seed, neighbour)
                same += len(played.seen) > i and (
                    played.seen[i].decision[:2] == run.seen[i].decision[:2]
                )
            counts.append(same)
        events = (counts, [_GAMES - count for count in reversed(counts)])
        bounds = [
            float(epsilon_lower(left, right, _GAMES, self.claim.delta, VIOLATION_ERROR / 2))
            for left, right in events
        ]
        return "violated" if max(bounds) > self.claim.epsilon else "unproved"

    def _conclude(self, run: AgentRun, verdict: str, fault: str, slot: int | None = None) -> None:
        where = "" if slot is None else f"round {slot + 1}: "
        self.verdict = verdict
        self.fault = f"with {', '.join(run.scenario.conditions)}, {where}{fault}"

    @property
    def result(self) -> ReplayAudit:
        verdict = self.verdict
        if not self.fault and not self.moved:
            verdict = "not examined"
        return ReplayAudit(
            verdict, self.tried, self.moved, self.worst.epsilon, self.delta, self.fault,
            self.declared, tuple(sorted(self.reached)),
            tuple(sorted(self.conditions - self.reached)),
        )  # fmt: skip


def audit_agents(
    policy: Policy,
    claim: Guarantee,
    *,
    rounds: int,
    pairs: int,
    seed: int,
    seconds: float,
    scenarios: Sequence[AgentScenario] = AGENT_SCENARIOS,
    ended: Callable[[], bool] = lambda: False,
) -> ReplayAudit:
    """Replay agents of a policy whose arms may change.

    Args:
        policy: The policy to audit.
        claim: The guarantee to check.
        rounds: Rounds of a game with a few releases.
        pairs: Neighbours of the whole audit; this part tries a fraction of them.
        seed: Seed of all draws.
        seconds: Processor time, after which no further scenario begins.
        scenarios: What happens to the agents.
        ended: Called often; once it returns true, the audit ends with the evidence so far.
    """
    auditor, end = AgentAuditor(policy, claim, seed), time.thread_time() + seconds
    length = min(max(_ROUNDS_PER_GAME * rounds, _FEWEST_AGENT_ROUNDS), _MOST_AGENT_ROUNDS)
    length = min(length, policy.horizon or length)
    wanted = max(pairs // _PAIRS_PER_NEIGHBOUR, _FEWEST_NEIGHBOURS)
    for number, scenario in enumerate(scenarios):
        if auditor.fault or ended() or time.thread_time() > end:
            break
        if not (scenario.restored and unregistered_part(policy)):
            auditor.examine(number, scenario, length, wanted)
    return auditor.result

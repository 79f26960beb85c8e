"""`bl.audit`: put a policy's claim of privacy to the test, four ways."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np

from balaclava._core.declared import Range, brief, check
from balaclava.auditing.audit_report import AuditReport
from balaclava.auditing.games.compiled_games import warm_up
from balaclava.auditing.games.statistical_audit import (
    BettingAudit,
    StatisticalAudit,
    audit_by_betting,
    audit_statistically,
)
from balaclava.auditing.laws.exact_audit import ExactAudit, audit_exactly
from balaclava.auditing.laws.local_reports import audit_reports
from balaclava.auditing.laws.mechanism_laws import LawAudit, audit_laws
from balaclava.auditing.replay.replay_audit import ReplayAudit, audit_by_replay
from balaclava.auditing.replay.scenario_kinds import SCENARIO_KINDS, UNSCALED_KINDS
from balaclava.auditing.tape import Recorder
from balaclava.errors import ParameterError, PrivacyError, require_arm
from balaclava.policies.base import Policy
from balaclava.policies.contextual.linear_context import ContextualPolicy
from balaclava.simulation.engine import Device, chosen_device
from balaclava.simulation.feedback import PROMPT
from balaclava.simulation.gpu.device import unusable

_SCALES = (0.3, 0.1, 0.03, 0.01)
_SHORT = 100  # rounds within which something should be released
_THOROUGH = 256  # rounds of a game that looks for late batches
_AS_IT_IS = 48  # pairs on the policy itself, where games are played on a shorter variant
_LONG = 20_000  # rounds beyond which no game is played
_REMEMBERED = 48  # rounds of a life of a policy that protects single decisions
_STEPS = 16_000_000  # rounds of all games together, by default
_FIRST_STEPS = 4_000_000  # on losses and rewards of any size at first: steps are dear, show little
_MORE = 3  # times as many games where something shows
_FEWEST, _MOST = 10_000, 400_000  # games, by default
_PAIRS, _SECONDS = 600, 3.0  # replayed by default: whichever ends first

Ended = Callable[[], bool]
Proof = TypeVar("Proof")
Games = TypeVar("Games")


def audit(
    policy: Policy,
    *,
    trials: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    pairs: int | None = None,
    quick: bool = False,
    device: Device = "cpu",
) -> AuditReport:
    """Try to refute what the policy claims about privacy.

    Replay checks the proof on `pairs` neighbouring reward streams; mechanisms are drawn and
    compared with their laws; the exact audit (for policies that protect single decisions)
    computes the true delta; the statistical one plays `trials` games and bounds epsilon from
    below. A policy that claims nothing is shown to leak.

    Args:
        policy: what to audit.
        trials: games of the statistical part; by default as many as take a few seconds.
        seed: a whole number; with `pairs` given, the same seed gives the same report.
        confidence: of the statistical lower bound.
        pairs: neighbouring streams of the replay; by default 600, or what three seconds of a
            processor allow.
        quick: bet against the claim instead of measuring epsilon, and stop as soon as it falls.
        device: "cuda" plays the games on a GPU, thousands of times as many in the same time;
            "auto" does so if there is one. Bets and local reports stay on the CPU.

    Example:
        >>> import balaclava as bl
        >>> report = bl.audit(bl.policy("dp-se", arms=2, epsilon=1.0, horizon=1000),
        ...                   trials=40_000, pairs=200, seed=1)
        >>> report.verdict
        'consistent'
    """
    if not isinstance(policy, Policy):
        raise ParameterError(f"{brief(policy)} is not a policy; make one with bl.policy(name, ...)")
    seed = check("seed", seed, Annotated[int, Range(0)])
    inside = Range(0, 1, open_low=True, open_high=True)
    confidence = check("confidence", confidence, Annotated[float, inside])
    claim, plan = policy.guarantee, plan_games(policy)
    more = trials is None and policy.rewards != "bounded" and policy.report_kernel is None
    if trials is None:
        steps = _FIRST_STEPS if more else _STEPS
        trials = min(max(steps // plan.long_rounds, _FEWEST), _MOST)
    trials = check("trials", trials, Annotated[int, Range(100)])
    on_gpu = _plays_on_gpu(policy, device, quick)
    seconds = _SECONDS if pairs is None else math.inf
    pairs = check("pairs", _PAIRS if pairs is None else pairs, Annotated[int, Range(1)])
    times_more = _MORE if more else 1
    warm_up(plan.policy)
    (replay, laws, exact), statistical = run_concurrently(
        lambda ended: check_proof(plan, policy, pairs, seed, seconds, ended),
        lambda: play_games(plan, policy, trials, seed, confidence, quick, on_gpu, times_more),
    )
    notes = [plan.note] if plan.note else []
    if on_gpu:
        notes.append("games were played on a GPU")
    if not claim.private:
        notes.append(f"claims nothing: {'; '.join(claim.assumptions)}")
    if claim.private and replay.verdict == "not examined":
        notes.append(
            "no game got as far as a release that depends on rewards, so that replay and games "
            "could find nothing; audit with a longer horizon or a larger epsilon"
        )
    return AuditReport(
        policy=policy.name,
        parameters=policy.parameters,
        claimed=claim,
        confidence=confidence,
        replay=replay,
        exact=exact,
        statistical=statistical,
        laws=laws,
        notes=tuple(notes),
    )


def run_concurrently(
    proof: Callable[[Ended], Proof], games: Callable[[], Games]
) -> tuple[Proof, Games]:
    """Both at once: compiled games leave the interpreter to the proof. Ctrl-C ends both."""
    end = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        checked = pool.submit(proof, end.is_set)
        try:
            try:
                played = games()
            except Exception:
                checked.result()  # what goes wrong there is said first
                raise
            return checked.result(), played
        except KeyboardInterrupt:
            end.set()
            raise


def check_proof(
    plan: GamePlan, policy: Policy, pairs: int, seed: int, seconds: float, ended: Ended
) -> tuple[ReplayAudit, LawAudit | None, ExactAudit | None]:
    """Every part of an audit but the games."""
    claim, entries = policy.guarantee, dict[Any, Any]()
    replay = replay_plan(plan, policy, pairs, seed, seconds, entries, ended)
    laws = audit_laws(entries.values(), seed) if claim.private and entries else None
    return replay, laws, audit_exactly(policy) if claim.scope == "decision" else None


def replay_plan(
    plan: GamePlan,
    policy: Policy,
    pairs: int,
    seed: int,
    seconds: float,
    entries: dict[Any, Any],
    ended: Ended,
) -> ReplayAudit:
    """Replay the planned variant, and the policy itself: it must ask for the same noise."""
    claim = policy.guarantee
    replay = audit_by_replay(
        plan.policy, claim, rounds=plan.replay_rounds, pairs=pairs, seed=seed, seconds=seconds,
        kinds=SCENARIO_KINDS, games=True, entries=entries, ended=ended,
    )  # fmt: skip
    if plan.policy is policy or replay.verdict in ("violated", "unproved"):
        return replay
    itself = audit_by_replay(
        policy, claim, rounds=_SHORT, pairs=min(pairs, _AS_IT_IS), seed=seed,
        seconds=seconds / 3, kinds=UNSCALED_KINDS, games=True, entries=entries, ended=ended,
    )  # fmt: skip
    if itself.verdict in ("violated", "unproved"):
        return itself
    reached = {*replay.reached, *itself.reached}
    return dataclasses.replace(
        replay,
        pairs=replay.pairs + itself.pairs,
        moved=replay.moved + itself.moved,
        verdict="not examined" if not replay.moved + itself.moved else "consistent",
        reached=tuple(sorted(reached)),
        missed=tuple(sorted({*replay.missed, *itself.missed} - reached)),
    )


def _plays_on_gpu(policy: Policy, device: Device, quick: bool) -> bool:
    """Whether the games of this audit are played on a GPU, or an error that says why not there."""
    if quick or policy.report_kernel is not None:
        check("device", device, Device)
        return False
    if isinstance(policy, ContextualPolicy):
        if device == "cuda":
            raise unusable("contexts are drawn on the CPU alone")
        return False
    return chosen_device(device, PROMPT) == "cuda"


def play_games(
    plan: GamePlan,
    policy: Policy,
    trials: int,
    seed: int,
    confidence: float,
    quick: bool,
    on_gpu: bool = False,
    times_more: int = 1,
) -> StatisticalAudit | BettingAudit | None:
    """The statistical part: games, bets, or reports; None where a game would have many decisions.

    A claim on single decisions says nothing of several.
    """
    claim = policy.guarantee
    if not plan.single:
        return None
    epsilon, delta = (claim.epsilon, claim.delta) if claim.private else (0.0, 0.0)
    if policy.report_kernel is not None:
        return audit_reports(
            policy, epsilon, delta, trials=trials, seed=seed, confidence=confidence
        )
    if quick:
        return audit_by_betting(
            plan.policy, epsilon, delta, rounds=plan.rounds, pairs=trials // 2, seed=seed
        )
    games: dict[str, Any] = {}
    if on_gpu:
        from balaclava.auditing.games.device_games import count_on_device, heat_of

        games = {"count": count_on_device, "heat": heat_of(policy)}
    return audit_statistically(
        plan.policy, epsilon, delta, rounds=plan.long_rounds, trials=trials, seed=seed,
        confidence=confidence, times_more=times_more, **games,
    )  # fmt: skip


@dataclass(frozen=True)
class GamePlan:
    """Which games show most: long enough that something is released, no longer."""

    policy: Policy
    rounds: int
    note: str
    single: bool = True  # whether games keep to one decision that depends on data, if they must

    @property
    def replay_rounds(self) -> int:
        """For replay: the memory of single decisions takes some of them to show."""
        return max(self.rounds, _REMEMBERED) if self.policy.scope == "decision" else self.rounds

    @property
    def long_rounds(self) -> int:
        """For a thorough search: long enough that batches of some size are released too."""
        if self.policy.scope == "decision":
            return self.rounds
        return _within_horizon(self.policy, max(self.rounds, _THOROUGH))


def plan_games(policy: Policy) -> GamePlan:
    """Games of a few releases. Phases of thousands of rounds are shortened by `radius_scale`.

    Privacy does not depend on `radius_scale` (it multiplies confidence radii only), so a policy
    with short phases stands for the same code with long ones.
    """
    first = first_release(policy, _SHORT)
    if first is None and "radius_scale" in policy.annotations:
        for scale in _SCALES:
            variant = type(policy).create({**policy.parameters, "radius_scale": scale})
            first = first_release(variant, _SHORT)
            if first is not None:
                note = f"games were played at radius_scale = {scale:g}, which shortens the phases"
                return GamePlan(variant, _rounds(variant, first), note)
    if first is None:
        first = first_release(policy, _LONG)
    if first is None and policy.scope == "decision":
        note = "no mechanism was used, so that no game of one decision could be planned"
        return GamePlan(policy, _rounds(policy, first), note, single=False)
    return GamePlan(policy, _rounds(policy, first), "")


def _rounds(policy: Policy, first: int | None) -> int:
    if first is None:
        rounds = max(64, 8 * policy.arms)
    elif policy.scope == "decision":
        rounds = first  # the first decision that depends on data, and no other
    else:
        rounds = first + max(32, first // 4)
    return _within_horizon(policy, rounds)


def _within_horizon(policy: Policy, rounds: int) -> int:
    horizon = policy.horizon
    return rounds if horizon is None else min(rounds, horizon)


def first_release(policy: Policy, limit: int) -> int | None:
    """The round in which a mechanism was first used for every arm, if within `limit` rounds.

    Or for every set of coefficients, where arms share them.

    For scope "decision": the first decision that may depend on a release of any arm.
    """
    params, recorder = policy.constants(), Recorder(0)
    begin, choose, learn, _ = policy.kernels
    prepare = policy.prepare()
    state = begin(params)
    low, high = policy.accepts
    middle = (low + high) / 2 if np.isfinite(low + high) else 0.0
    single, released = policy.scope == "decision", 0
    for t in range(1, _within_horizon(policy, limit) + 1):
        recorder.tape.clear()
        try:
            arm, phase = choose(params, state, t, policy.practice_context, recorder)
            if single and any(entry.terms for entry in recorder.tape):
                return t
            require_arm(policy.name, t, arm, policy.arms)
            learn(params, state, t, arm, prepare(params, middle), phase, recorder)
        except PrivacyError:
            return t  # a mechanism was asked for what it cannot keep; the replay says so
        released += sum(entry.terms is not None for entry in recorder.tape)
        if single and released:
            return t + 1
        if released >= policy.blocks:
            return t
    return None

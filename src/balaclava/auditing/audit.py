"""`bl.audit`: try to refute a policy's claim of privacy, in five ways."""

import dataclasses
import functools
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from balaclava._core.declared import Range, brief, check
from balaclava.auditing.audit_plan import SHORT_ROUNDS, GamePlan, plan_games
from balaclava.auditing.audit_report import AuditReport
from balaclava.auditing.enumeration.exhaustive_audit import ExhaustiveAudit, audit_exhaustively
from balaclava.auditing.games.attacks import SCREENING_GAMES, GameSetting
from balaclava.auditing.games.compiled_games import warm_up
from balaclava.auditing.games.statistical_audit import (
    BettingAudit,
    StatisticalAudit,
    audit_by_betting,
    audit_statistically,
)
from balaclava.auditing.joint.joint_games import audit_joint_games
from balaclava.auditing.joint.joint_replay import replay_all_neighbours
from balaclava.auditing.laws.exact_audit import ExactAudit, audit_exactly
from balaclava.auditing.laws.local_reports import audit_reports
from balaclava.auditing.laws.mechanism_laws import LawAudit, audit_laws
from balaclava.auditing.replay.agent_audit import audit_agents
from balaclava.auditing.replay.replay_audit import ReplayAudit
from balaclava.auditing.replay.scenario_kinds import SCENARIO_KINDS, UNSCALED_KINDS
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy
from balaclava.simulation.engine import Device, chosen_device
from balaclava.simulation.feedback import PROMPT
from balaclava.simulation.gpu.device import device_error

# Defaults that keep an audit within seconds.
_AUDIT_ROUNDS = 16_000_000  # of all games together
_FIRST_AUDIT_ROUNDS = 4_000_000  # of the first games with unbounded rewards, which are slower
_TIMES_MORE = 3  # times as many games follow these if the first bound is positive
_FEWEST_TRIALS, _MOST_TRIALS = 10_000, 400_000  # games
_DEFAULT_PAIRS, _REPLAY_SECONDS = 600, 3.0  # limits of the replay: the first one reached ends it
_UNSCALED_PAIRS = 48  # on the policy itself, if a variant with shorter phases has the others

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
    """Try to refute the privacy that a policy claims.

    Replay checks the proof on `pairs` neighbouring reward streams, also with arms that come, rest
    and leave if the policy lets them. Draws of the mechanisms are
    compared with their laws. The exact audit (for policies that protect single decisions) computes
    the true delta. The exhaustive audit computes the law of all decisions in small worlds, and
    compares every neighbouring pair there. The statistical audit plays `trials` games and bounds
    epsilon from below, also for a policy without a claim.

    Args:
        policy: The policy to audit.
        trials: Games of the statistical audit; by default as many as a few seconds allow.
        seed: A whole number; with `pairs` given, the same seed gives the same report.
        confidence: Confidence of the statistical lower bound.
        pairs: Neighbouring streams of the replay; by default 600, or as many as three seconds of
            processor time allow.
        quick: Bet against the claim instead of measuring epsilon, and stop once it is refuted.
        device: "cuda" plays the games on a GPU, thousands of times as many in the same time;
            "auto" does so if there is one. Bets and local reports stay on the CPU.

    Returns:
        The report; its `verdict` is "consistent", "violated", "unproved", "not examined" or
        "not private".

    Raises:
        ParameterError: If `policy` is not a policy, or a number is out of range.
        DeviceError: If `device` is "cuda" and the games cannot be played on a GPU.

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
    in_steps = trials is None and policy.rewards != "bounded" and policy.report_kernel is None
    if trials is None:
        rounds = _FIRST_AUDIT_ROUNDS if in_steps else _AUDIT_ROUNDS
        trials = min(max(rounds // plan.long_rounds, _FEWEST_TRIALS), _MOST_TRIALS)
    trials = check("trials", trials, Annotated[int, Range(100)])
    on_gpu = _plays_on_gpu(policy, device, quick)
    seconds = _REPLAY_SECONDS if pairs is None else math.inf
    pairs = check("pairs", _DEFAULT_PAIRS if pairs is None else pairs, Annotated[int, Range(1)])
    times_more = _TIMES_MORE if in_steps else 1
    warm_up(plan.policy)
    (replay, laws, exact, exhaustive), statistical = run_concurrently(
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
            "no run reached a release that depends on rewards, so replay and games could not find "
            "anything; audit with a longer horizon or a larger epsilon"
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
        exhaustive=exhaustive,
        notes=tuple(notes),
    )


def run_concurrently(
    proof: Callable[[Ended], Proof], games: Callable[[], Games]
) -> tuple[Proof, Games]:
    """Run both at once: compiled games release the interpreter's lock. Ctrl-C ends both."""
    end = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        checked = pool.submit(proof, end.is_set)
        try:
            try:
                played = games()
            except Exception:
                checked.result()  # its error comes first
                raise
            return checked.result(), played
        except KeyboardInterrupt:
            end.set()
            raise


def check_proof(
    plan: GamePlan, policy: Policy, pairs: int, seed: int, seconds: float, ended: Ended
) -> tuple[ReplayAudit, LawAudit | None, ExactAudit | None, ExhaustiveAudit | None]:
    """All parts of an audit but the games.

    Replay examines the planned variant, the policy itself, and agents whose arms change.
    """
    claim, entries = policy.guarantee, dict[Any, Any]()
    replay = functools.partial(
        replay_all_neighbours, claim=claim, seed=seed, games=True, entries=entries, ended=ended
    )
    result = replay(
        plan.policy, rounds=plan.replay_rounds, pairs=pairs, seconds=seconds, kinds=SCENARIO_KINDS
    )
    if math.isfinite(seconds) and not result.fault:
        result = dataclasses.replace(result, untried=max(pairs - result.pairs, 0))
    if plan.policy is not policy and not result.fault:
        few = min(pairs, _UNSCALED_PAIRS)
        result = result.joined(
            replay(
                policy, rounds=SHORT_ROUNDS, pairs=few, seconds=seconds / 3, kinds=UNSCALED_KINDS
            )
        )
    if claim.private and not policy.fixed_arms and not result.fault:
        changed = audit_agents(
            plan.policy, claim, rounds=plan.replay_rounds, pairs=pairs, seed=seed,
            seconds=seconds / 2, ended=ended,
        )  # fmt: skip
        result = result.joined(changed)
    laws = audit_laws(entries.values(), seed) if claim.private and entries else None
    exact = audit_exactly(policy) if claim.scope == "decision" else None
    exhaustive = audit_exhaustively(policy, seed) if claim.private and not ended() else None
    return result, laws, exact, exhaustive


def _plays_on_gpu(policy: Policy, device: Device, quick: bool) -> bool:
    """Whether games are played on a GPU; raises if that is demanded and impossible."""
    if quick or policy.report_kernel is not None:
        check("device", device, Device)
        return False
    if policy.features is not None:
        if device == "cuda":
            raise device_error("environments with contexts are for the CPU only")
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
    """The statistical part: games, bets, or reports.

    It is None if the claim is on single decisions and games of one decision could not be planned.
    """
    claim = policy.guarantee
    if not plan.one_decision:
        return None
    epsilon, delta = (claim.epsilon, claim.delta) if claim.private else (0.0, 0.0)
    if policy.report_kernel is not None:
        return audit_reports(
            policy, epsilon, delta, trials=trials, seed=seed, confidence=confidence
        )
    if claim.scope == "joint":
        return audit_joint_games(plan.policy, claim, plan.long_rounds, seed, confidence)
    setting = GameSetting(plan.policy, delta, plan.rounds, seed)
    if quick:
        return audit_by_betting(setting, epsilon, pairs=trials // 2)
    setting, screening = setting._replace(rounds=plan.long_rounds), SCREENING_GAMES
    if on_gpu:
        from balaclava.auditing.games.device_games import count_on_device, screening_games

        setting, screening = setting._replace(play=count_on_device), screening_games(policy)
    return audit_statistically(
        setting, epsilon, trials=trials, confidence=confidence, screening_games=screening,
        times_more=times_more,
    )  # fmt: skip

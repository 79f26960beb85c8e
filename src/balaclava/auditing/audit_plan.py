"""The plan of an audit: which variant of a policy to play, and for how many rounds."""

from dataclasses import dataclass

import numpy as np

from balaclava.auditing.tape import Recorder
from balaclava.errors import require_arm
from balaclava.policies.base import Policy

# Values of `radius_scale` that shorten phases, tried in this order.
_SHORTENING_SCALES = (0.3, 0.1, 0.03, 0.01)
SHORT_ROUNDS = 100  # within which each arm should have a release, or phases are shortened
_THOROUGH_ROUNDS = 256  # of a game that looks for late batches; a guess
_LONGEST_GAME = 20_000  # rounds in which the first release is searched for
_DECISION_SCOPE_ROUNDS = 48  # of a replay for scope "decision": late decisions may read releases


@dataclass(frozen=True)
class GamePlan:
    """Games that are just long enough for some releases."""

    policy: Policy
    rounds: int
    note: str
    one_decision: bool = True  # whether scope "decision" has games of one decision on data

    @property
    def replay_rounds(self) -> int:
        """Rounds of a replayed scenario."""
        if self.policy.scope == "decision":
            return max(self.rounds, _DECISION_SCOPE_ROUNDS)
        return self.rounds

    @property
    def long_rounds(self) -> int:
        """Rounds of a thorough game: large batches are released too."""
        if self.policy.scope == "decision":
            return self.rounds
        return _within_horizon(self.policy, max(self.rounds, _THOROUGH_ROUNDS))


def plan_games(policy: Policy) -> GamePlan:
    """Plan games with a few releases; a smaller `radius_scale` shortens long phases.

    Privacy does not depend on `radius_scale`, which only multiplies confidence radii. So a policy
    with short phases tests the same code as one with long phases.
    """
    first = first_release(policy, SHORT_ROUNDS)
    if first is None and "radius_scale" in policy.annotations:
        for scale in _SHORTENING_SCALES:
            variant = type(policy).create({**policy.parameters, "radius_scale": scale})
            first = first_release(variant, SHORT_ROUNDS)
            if first is not None:
                note = f"games were played at radius_scale = {scale:g}, which shortens the phases"
                return GamePlan(variant, _game_rounds(variant, first), note)
    if first is None:
        first = first_release(policy, _LONGEST_GAME)
    if first is None and policy.scope == "decision":
        note = "no mechanism was used, so a game of one decision could not be planned"
        return GamePlan(policy, _game_rounds(policy, first), note, one_decision=False)
    return GamePlan(policy, _game_rounds(policy, first), "")


def _game_rounds(policy: Policy, first: int | None) -> int:
    if first is None:
        rounds = max(64, 8 * policy.arms)
    elif policy.scope == "decision":
        rounds = first  # the first decision that depends on data, and no other
    else:
        rounds = first + max(32, first // 4)
    return _within_horizon(policy, rounds)


def _within_horizon(policy: Policy, rounds: int) -> int:
    return rounds if policy.horizon is None else min(rounds, policy.horizon)


def first_release(policy: Policy, limit: int) -> int | None:
    """The first round by which every arm, or set of coefficients, has a release.

    For scope "decision" it is the round of the first decision that may depend on a release. The
    result is None if that does not happen within `limit` rounds.
    """
    params, recorder = policy.constants(), Recorder(0)
    begin, choose, learn, _ = policy.kernels
    prepare = policy.prepare()
    state = begin(params)
    low, high = policy.accepts
    middle = (low + high) / 2 if np.isfinite(low + high) else 0.0
    by_decision, released = policy.scope == "decision", 0
    for t in range(1, _within_horizon(policy, limit) + 1):
        recorder.tape.clear()
        try:
            arm, phase = choose(params, state, t, policy.practice_context, recorder)
            if by_decision and any(entry.terms for entry in recorder.tape):
                return t
            require_arm(policy.name, t, arm, policy.arms)
            learn(params, state, t, arm, prepare(params, middle), phase, recorder)
        except Exception:
            return t  # replay reports it
        released += sum(entry.terms is not None for entry in recorder.tape)
        if by_decision and released:
            return t + 1
        if released >= policy.blocks:
            return t
    return None

"""Simulate one experiment whose decisions several deciders make, by leases (`frames.leases`)."""

from collections.abc import Sequence
from typing import Annotated

from balaclava._core.declared import Horizon, Range, check
from balaclava._core.number_format import counted
from balaclava.agents.settling import Settle
from balaclava.environments.base import Environment
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy
from balaclava.policies.leased_policy import (
    Deciders,
    LeasedPolicy,
    LeaseRounds,
    require_leasable,
)
from balaclava.simulation import engine
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.results import Results
from balaclava.simulation.reward_delays import Delay


def simulate_deciders(
    policy: Policy,
    environment: Environment,
    *,
    deciders: Sequence[int],
    horizon: int,
    repetitions: int,
    seed: int,
    lease_rounds: int | None = None,
    checkpoints: engine.Checkpoints = 200,
    workers: int | None = None,
    delay: Delay | None = None,
    patience: int | None = None,
    settle: Settle = "arrival",
    missing: float | None = None,
) -> Results:
    """Play a policy whose decisions several deciders make, from leased slots of its batches.

    Each round goes to a decider drawn at random. It decides by a slot of its lease, and leases
    further slots from the owner when it has none.

    Args:
        policy: one that keeps batches of each arm, such as dp-imed.
        environment: draws the rewards.
        deciders: numbers of deciders; each is simulated. One plays like the policy itself.
        horizon: rounds in a repetition, of all deciders together.
        repetitions: independent repetitions for each number of deciders.
        seed: a whole number; the same seed gives the same results.
        lease_rounds: rounds after which unused slots expire; by default four times the rounds in
            which a decider is expected to use its lease.
        checkpoints: number of rounds, evenly spaced, at which to record the regret; or the rounds.
        workers: threads; by default one per available core.
        delay: how late rewards arrive, as for `bl.simulate`; by default all arrive at once.
        patience: further decisions after which an open one is given up, as for `bl.simulate`.
        settle: "arrival" or "window", as for `bl.simulate`.
        missing: the value that counts for a lost reward, with `settle="window"`.

    Returns:
        Results with a label for each number of deciders. Their policy is the given one, whose
        bounds on regret are proved for one decider only.

    Raises:
        IncompatibleError: if the policy cannot be leased, or does not fit the environment.
        ParameterError: if an argument is out of its range.

    Example:
        >>> import balaclava as bl
        >>> world = bl.environment("bernoulli", means=[0.3, 0.7])
        >>> results = bl.simulate_deciders(bl.policy("dp-imed", arms=2, epsilon=1.0), world,
        ...                                deciders=[1, 64], horizon=2_000, repetitions=3, seed=1)
        >>> results.labels
        ['dp-imed, 1 decider', 'dp-imed, 64 deciders']
    """
    if not isinstance(policy, Policy):
        raise ParameterError(f"a {type(policy).__name__} is not a policy; make one with bl.policy")
    require_leasable(policy)
    horizon = check("horizon", horizon, Horizon)
    repetitions = check("repetitions", repetitions, Annotated[int, Range(1)])
    counts = [check("deciders", count, Deciders) for count in deciders]
    lease_rounds = check("lease_rounds", lease_rounds, LeaseRounds)
    feedback = Feedback.create(delay, patience, settle, missing)
    engine.require_compatible(policy.name, policy, environment, horizon, feedback)
    rounds = engine.checkpoint_rounds(checkpoints, horizon)
    labels = {f"{policy.name}, {counted(n, 'decider')}": n for n in counts}
    results = Results.empty(
        dict.fromkeys(labels, policy),
        environment,
        horizon=horizon,
        seed=seed,
        checkpoints=rounds,
        feedback=feedback,
    )
    plays = []
    for label, count in labels.items():
        leased = LeasedPolicy(
            arms=policy.parameters["arms"], base=policy, deciders=count, lease_rounds=lease_rounds
        )
        plays.append(engine.repetition_player(label, leased, environment, rounds, seed, feedback))
    jobs = [
        engine.RepetitionJob(play, repetition, horizon)
        for repetition in range(repetitions)
        for play in plays
    ]
    with engine.Pool(workers or engine.available_cores()) as pool:
        for _, run in pool.finished(jobs, len(jobs) * horizon, None):
            results.add(run)
    return results

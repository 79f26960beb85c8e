"""Simulate one experiment on several servers (shards) that merge their releases.

Each shard has its own pools and releases its own batches. Every `merge_every` rounds the releases
are merged; nothing else leaves a shard. A shard decides by the merged sums and its own releases
since. Each reward is in one batch of one shard, so epsilon is unchanged.

The cost is regret. Every shard tries all arms before the first merge, and shards repeat each
other's exploration between merges. The sums contain the noise of all shards' batches.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Horizon, Range, check
from balaclava._core.kernels import compiled, compiling
from balaclava._core.number_format import counted
from balaclava.environments.base import Environment
from balaclava.errors import IncompatibleError
from balaclava.frames.pools import Pools, leave_batch
from balaclava.policies.base import Policy
from balaclava.policies.bounded.batched import GrowingBatchPolicy
from balaclava.privacy.randomness import seeded
from balaclava.simulation import engine
from balaclava.simulation.results import Results, Run

ROUTING_STREAM = 3  # number of the random stream that sends rounds to shards
Shards = Annotated[int, Range(1, 4096, "servers of one experiment")]
MergeEvery = Annotated[int, Range(1, meaning="rounds between two merges")]


class Published(NamedTuple):
    """The releases of all shards about each arm."""

    rewards: np.ndarray
    sums: np.ndarray
    draws: np.ndarray


def simulate_shards(
    policy: Policy,
    environment: Environment,
    *,
    shards: Sequence[int],
    merge_every: int,
    horizon: int,
    repetitions: int,
    seed: int,
    checkpoints: int | Sequence[int] | np.ndarray = 200,
    workers: int | None = None,
) -> Results:
    """Play a policy on several servers that merge their releases at intervals.

    Each round goes to a shard drawn at random.

    Args:
        policy: one that sums its releases: dp-imed or dp-klucb.
        environment: draws the rewards.
        shards: numbers of shards; each is simulated.
        merge_every: rounds between two merges.
        horizon: rounds in a repetition, of all shards together.
        repetitions: independent repetitions for each number of shards.
        seed: a whole number; the same seed gives the same results.
        checkpoints: number of rounds, evenly spaced, at which to record the regret; or the rounds.
        workers: threads; by default one per available core.

    Returns:
        Results with a label for each number of shards.

    Raises:
        IncompatibleError: if the policy cannot merge, or does not fit the environment.
        ParameterError: if an argument is out of its range.

    Example:
        >>> import balaclava as bl
        >>> world = bl.environment("bernoulli", means=[0.3, 0.7])
        >>> results = bl.simulate_shards(bl.policy("dp-imed", arms=2, epsilon=1.0), world,
        ...                              shards=[1, 4], merge_every=100,
        ...                              horizon=2_000, repetitions=3, seed=1)
        >>> results.labels
        ['dp-imed, 1 shard', 'dp-imed, 4 shards']
    """
    if not isinstance(policy, GrowingBatchPolicy):
        raise IncompatibleError(
            f"{policy.name} does not sum its releases, so shards cannot merge them; choose dp-imed "
            "or dp-klucb"
        )
    horizon = check("horizon", horizon, Horizon)
    repetitions = check("repetitions", repetitions, Annotated[int, Range(1)])
    merge_every = check("merge_every", merge_every, MergeEvery)
    counts = [check("shards", count, Shards) for count in shards]
    engine.require_compatible(policy.name, policy, environment, horizon)
    rounds = engine.checkpoint_rounds(checkpoints, horizon)
    labels = {f"{policy.name}, {counted(n, 'shard')}": n for n in counts}
    results = Results.empty(
        dict.fromkeys(labels, policy), environment, horizon=horizon, seed=seed, checkpoints=rounds
    )
    stretch = _compiled_stretch(policy, environment)
    jobs = [
        engine.RepetitionJob(
            _player(label, count, policy, environment, results, merge_every, stretch), n, horizon
        )
        for n in range(repetitions)
        for label, count in labels.items()
    ]
    with engine.Pool(workers or engine.available_cores()) as pool:
        for _, run in pool.finished(jobs, len(jobs) * horizon, None):
            results.add(run)
    return results


def make_stretch(
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    prepare: Callable[..., Any],
    draw: Callable[..., Any],
    advise: Callable[..., Any],
) -> Callable[..., float]:
    """Close a loop over some rounds of one shard; it returns the sum of their rewards."""

    def stretch(
        params: Any,
        world: Any,
        state: Any,
        t: int,
        rounds: int,
        pulls: np.ndarray,
        policy_rng: Any,
        environment_rng: Any,
    ) -> float:
        total = 0.0
        for number in range(t + 1, t + rounds + 1):
            arm, phase = choose(params, state, number, advise(world, number), policy_rng)
            drawn = draw(world, number, arm, environment_rng)
            total += drawn
            pulls[arm] += 1
            learn(params, state, number, arm, prepare(params, drawn), phase, policy_rng)
        return total

    return stretch


def _compiled_stretch(policy: Policy, environment: Environment) -> Callable[..., float]:
    kernels = policy.kernels
    stretch = compiled(
        make_stretch,
        kernels.choose,
        kernels.learn,
        policy.prepare(),
        environment.draw,
        environment.advise,
    )
    params = policy.constants()
    with compiling(f"{policy.name} on {environment.name}"):
        state = kernels.begin(params)
        pulls = np.zeros(policy.arms, np.int64)
        stretch(params, environment.constants(), state, 0, 0, pulls, seeded(0), seeded(1))
    return stretch


def _player(
    label: str,
    shards: int,
    policy: Policy,
    environment: Environment,
    results: Results,
    merge_every: int,
    stretch: Callable[..., float],
) -> Callable[[int, np.ndarray], Run]:
    """A function that plays one repetition on this number of shards."""
    rounds, arms = results.checkpoints, policy.arms
    params, world = policy.constants(), environment.constants()

    def play(repetition: int, signals: np.ndarray) -> Run:
        policy_rng, environment_rng, routing = (
            seeded(results.seed, repetition, stream)
            for stream in (engine.POLICY_STREAM, engine.ENVIRONMENT_STREAM, ROUTING_STREAM)
        )
        states = [policy.kernels.begin(params) for _ in range(shards)]
        published = Published(np.zeros(arms, np.int64), np.zeros(arms), np.zeros(arms, np.int64))
        pulls, total, t = np.zeros(arms, np.int64), 0.0, 0
        history, totals = np.zeros((rounds.size, arms), np.int64), np.zeros(rounds.size)
        for until, place in _stops(rounds, merge_every):
            shares = routing.multinomial(until - t, np.full(shards, 1.0 / shards))
            for state, share in zip(states, shares, strict=True):
                if share:
                    total += stretch(
                        params, world, state, t, share, pulls, policy_rng, environment_rng
                    )
            t = until
            signals[0] = t
            if t % merge_every == 0 and shards > 1:
                published = merge(states, published)
            if place is not None:
                history[place], totals[place] = pulls, total
            if signals[1]:
                break
        return Run(label, repetition, environment.regret(rounds, history, totals), history[-1])

    return play


def _stops(rounds: np.ndarray, merge_every: int) -> Iterator[tuple[int, int | None]]:
    """The rounds at which shards merge or results are recorded, with the checkpoint's index."""
    places = {int(number): place for place, number in enumerate(rounds)}
    merges = range(merge_every, int(rounds[-1]) + 1, merge_every)
    for number in sorted({*places, *merges}):
        yield number, places.get(number)


def merge(states: Sequence[Pools], published: Published) -> Published:
    """Add each shard's releases since the last merge, and let all decide by the sums."""
    rewards, sums, draws = (np.copy(part) for part in published)
    for state in states:
        rewards += state.rewards - published.rewards
        sums += state.pooled * state.rewards - published.sums
        draws += state.draws - published.draws
    together = Published(rewards, sums, draws)
    for state in states:
        _use_merged(state, together)
    return together


def _use_merged(state: Pools, together: Published) -> None:
    """Let a shard decide by the merged releases."""
    known = together.rewards > 0
    state.rewards[:], state.draws[:] = together.rewards, together.draws
    state.pooled[known] = together.sums[known] / together.rewards[known]
    state.means[:], state.weights[:] = state.pooled, state.rewards
    state.spreads[known] = 1.0 / np.sqrt(together.rewards[known])
    state.ready[:] = known & (state.waiting == 0)
    state.arms_with_release[0] = known.sum()
    if known.all():  # no arm needs first pulls
        state.first_pulls[0], state.arms_untried[0] = False, 0
    state.lead[0] = np.argmax(np.where(known, state.means, -np.inf))
    leave_batch(state)

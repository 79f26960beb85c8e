"""Simulate policies: check the arguments, compile the loop, run it on threads."""

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np

from balaclava._core.declared import Horizon, Range, brief, check
from balaclava._core.kernels import compiled, compiling
from balaclava.agents.settling import Settle, require_missing
from balaclava.environments.base import Environment
from balaclava.errors import IncompatibleError, ParameterError, failed_choice, no_such_arm
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.changing_arms.arm_segments import segment_player
from balaclava.simulation.changing_arms.participant_masks import masked_player
from balaclava.simulation.feedback import PROMPT, Feedback
from balaclava.simulation.loops import NO_SUCH_ARM, STOP, make_late_play, make_play, rehearse
from balaclava.simulation.moment_warnings import warn_of_moments
from balaclava.simulation.results import Results, Run
from balaclava.simulation.reward_delays import Delay

# Numbers of the random streams of a repetition. Any other numbers would change every result.
POLICY_STREAM, ENVIRONMENT_STREAM, DELAY_STREAM, CONTEXT_STREAM = 0, 1, 2, 3

Device = Literal["cpu", "cuda", "auto"]
Progress = Callable[[int, int], None]  # rounds played, total rounds
Play = Callable[[int, np.ndarray], Run]  # plays one repetition, given its signals
AnyJob = TypeVar("AnyJob", bound="RepetitionJob")
Policies = Policy | Sequence[Policy] | Mapping[str, Policy]
Checkpoints = int | Sequence[int] | np.ndarray


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a simulation.

    Attributes:
        results: the finished repetitions, as `bl.Results`.
    """

    def __init__(self, results: Results) -> None:
        super().__init__("interrupted; the finished repetitions are in .results")
        self.results = results


@dataclass(eq=False)
class RepetitionJob:
    """One repetition to play."""

    play: Play
    repetition: int
    horizon: int
    signals: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64))


def simulate(
    policies: Policies,
    environment: Environment,
    *,
    horizon: int,
    repetitions: int,
    seed: int,
    checkpoints: Checkpoints = 200,
    workers: int | None = None,
    delay: Delay | None = None,
    patience: int | None = None,
    settle: Settle = "arrival",
    missing: float | None = None,
    device: Device = "cpu",
    winners: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Play each policy `repetitions` times for `horizon` rounds.

    The results depend on the seed alone: neither on `workers` nor on the other policies. In one
    repetition, all policies get the same reward for the same pull, and the same delays.

    Args:
        policies: one policy, a list, or a mapping from label to policy.
        environment: draws the rewards.
        horizon: rounds in a repetition.
        repetitions: independent repetitions of each policy.
        seed: a whole number; the same seed gives the same results.
        checkpoints: number of rounds, evenly spaced, at which to record the regret; or the rounds.
        workers: threads on the CPU; by default one per available core.
        delay: how late rewards arrive, and how many are lost; by default all arrive at once.
        patience: further decisions after which an open one is given up. By default it is
            estimated: 1.25 times the wait that 3 % of the rewards exceed, at least 256, after 30
            rewards have arrived.
        settle: "arrival": a reward counts when it arrives. "window": each reward, or `missing`,
            counts after `patience` further decisions.
        missing: the value that counts for a lost reward, with `settle="window"`.
        device: "cpu", "cuda", or "auto" for a GPU if there is one. A GPU has its own random
            streams: its results follow the same law, but differ number by number.
        winners: record the released estimates at the checkpoints, for `results.winners()`.
        progress: a callable that gets the rounds played and the total, several times a second.

    Returns:
        The regret at the checkpoints and the pulls of every repetition.

    Raises:
        ParameterError: if an argument is out of its range.
        IncompatibleError: if a policy cannot be played in this environment or to this horizon.
        DeviceError: if device="cuda" and no GPU can be used.
        Interrupted: on Ctrl-C; its `results` hold the finished repetitions.

    Example:
        >>> import balaclava as bl
        >>> world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
        >>> results = bl.simulate(bl.policy("ucb1", arms=3), world,
        ...                       horizon=10_000, repetitions=20, seed=1)
        >>> results.summary()[0].label
        'ucb1'
    """
    horizon = check("horizon", horizon, Horizon)
    repetitions = check("repetitions", repetitions, _whole(1))
    seed = check("seed", seed, _whole(0))
    cores = available_cores() if workers is None else check("workers", workers, _whole(1, 1024))
    winners = check("winners", winners, bool)
    if progress is not None and not callable(progress):
        raise ParameterError(
            f"progress = {brief(progress)} must be a callable of the rounds played and the total"
        )
    feedback = Feedback.create(delay, patience, settle, missing)
    results = empty_results(policies, environment, horizon, seed, checkpoints, feedback)
    play(results, repetitions, cores, winners, device, progress)
    return results


def empty_results(
    policies: Policies,
    environment: Environment,
    horizon: int,
    seed: int,
    checkpoints: Checkpoints,
    feedback: Feedback = PROMPT,
    *,
    warn: bool = True,
) -> Results:
    """Check the arguments of a simulation, and return results without repetitions."""
    rounds = checkpoint_rounds(checkpoints, horizon)
    labelled = label_policies(policies)
    for label, policy in labelled.items():
        require_compatible(label, policy, environment, horizon, feedback)
        if warn:
            warn_of_moments(label, policy, environment)
    return Results.empty(
        labelled, environment, horizon=horizon, seed=seed, checkpoints=rounds, feedback=feedback
    )


def play(
    results: Results,
    repetitions: int,
    workers: int,
    winners: bool,
    device: Device,
    progress: Progress | None,
) -> None:
    """Play the simulation that `results` describes, and add the repetitions to it."""
    try:
        place = chosen_device(device, results.feedback, winners, results.environment)
        results.device = place
        if place == "cuda":
            from balaclava.simulation.gpu.launches import play_results

            play_results([(results, repetitions)], progress)
        else:
            for run in _runs_on_threads(results, repetitions, workers, winners, progress):
                results.add(run)
    except KeyboardInterrupt:
        raise Interrupted(results) from None


def _runs_on_threads(
    results: Results, repetitions: int, workers: int, winners: bool, progress: Progress | None
) -> Iterator[Run]:
    """Yield each repetition as it finishes."""
    rounds, seed, feedback = results.checkpoints, results.seed, results.feedback
    plays = [
        repetition_player(
            label, policy, results.environment, rounds, seed, feedback, winners=winners
        )
        for label, policy in results.policies.items()
    ]
    jobs = [
        RepetitionJob(play, repetition, results.horizon)
        for repetition in range(repetitions)
        for play in plays
    ]
    with Pool(workers) as pool:
        for _, run in pool.finished(jobs, len(jobs) * results.horizon, progress):
            yield run


def chosen_device(
    device: Device,
    feedback: Feedback,
    winners: bool = False,
    environment: Environment | None = None,
) -> Literal["cpu", "cuda"]:
    """Choose the device; raise `DeviceError` for "cuda" if no GPU can play this."""
    check("device", device, Device)
    if device == "cpu":
        return "cpu"
    from balaclava.simulation.gpu.device import device_error, gpu_fault, gpu_refusal

    fault = gpu_refusal(environment, feedback, winners) or gpu_fault()
    if device == "cuda" and fault:
        raise device_error(fault)
    return "cpu" if fault else "cuda"


class Pool:
    """Runs jobs on threads, reports progress, and stops all of them on Ctrl-C."""

    def __init__(self, workers: int) -> None:
        self._most_queued = 2 * workers  # no thread waits for its next job
        self._executor = ThreadPoolExecutor(max_workers=workers)
        self._started: list[RepetitionJob] = []

    def finished(
        self, jobs: Iterable[AnyJob], rounds: int, progress: Progress | None
    ) -> Iterator[tuple[AnyJob, Run]]:
        """Yield each job with its result as it finishes; `rounds` is the total of all jobs."""
        running: dict[Future[Run], AnyJob] = {}
        waiting, played = iter(jobs), 0
        while True:
            for job in itertools.islice(waiting, self._most_queued - len(running)):
                self._started.append(job)  # before it runs: it can always be stopped
                running[self._executor.submit(job.play, job.repetition, job.signals)] = job
            if not running:
                return
            ready, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            for future in ready:
                job = running.pop(future)
                self._started.remove(job)
                played += job.horizon
                yield job, future.result()
            if progress is not None:
                under_way = sum(int(job.signals[0]) for job in running.values())
                progress(played + under_way, rounds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._started:
            job.signals[1] = STOP
        self._executor.shutdown(wait=True, cancel_futures=True)


def repetition_player(
    label: str,
    policy: Policy,
    environment: Environment,
    rounds: np.ndarray,
    seed: int,
    feedback: Feedback = PROMPT,
    *,
    winners: bool = False,
    interpreted: bool = False,
) -> Play:
    """A function that plays one repetition of a policy in an environment.

    It is compiled here, unless `interpreted`: a thousand times slower, but ready at once.
    """
    recorded = winners and policy.estimation is not None
    prepared = _prepared(policy, environment, rounds, feedback, recorded, interpreted)
    streams = _streams(feedback)

    def play(repetition: int, signals: np.ndarray) -> Run:
        generators = [seeded(seed, repetition, stream) for stream in streams]
        history, totals, released = prepared(*generators, signals)
        if signals[1] == NO_SUCH_ARM:
            raise no_such_arm(label, int(signals[0]), environment.arms)
        regret = environment.regret(rounds, history, totals)
        return Run(label, repetition, regret, history[-1], released if recorded else None)

    return play


def _prepared(
    policy: Policy,
    environment: Environment,
    rounds: np.ndarray,
    feedback: Feedback,
    recorded: bool,
    interpreted: bool,
) -> Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The loop with all arguments bound but its random streams."""
    if environment.arms_on_offer is not None:
        if recorded:
            raise IncompatibleError(f"winners are not recorded on {environment.name}; leave it out")
        if environment.groups is not None:
            return masked_player(policy, environment, rounds, feedback)
        return segment_player(policy, environment, rounds, feedback, interpreted=interpreted)
    fixed: tuple[Any, ...] = (policy.constants(), environment.constants(), environment.arms)
    kernels: tuple[Callable[..., Any], ...] = (
        *policy.kernels,
        policy.prepare(),
        environment.draw,
        environment.advise,
        *environment.scene,
    )
    make: Callable[..., Callable[..., Any]] = make_late_play
    if feedback.prompt:
        make, kernels = make_play, (*kernels[:3], *kernels[4:])
    else:
        fixed += (feedback.constants(int(rounds[-1])),)
    if recorded and policy.estimation is not None:
        kernels += (policy.estimation.read,)
    if interpreted:
        return functools.partial(make(*kernels), *fixed, rounds)
    streams = len(_streams(feedback))
    try:
        rehearse(make, kernels, fixed, rounds, streams)
    except TypeError as error:
        raise failed_choice(policy.name, error) from None
    play = compiled(make, *kernels)
    with compiling(f"{policy.name} on {environment.name}"):
        # A repetition of no rounds compiles the loop, or loads it, before any thread needs it.
        play(*fixed, rounds[:0], *map(seeded, range(streams)), np.zeros(2, np.int64))
    return functools.partial(play, *fixed, rounds)


def _streams(feedback: Feedback) -> tuple[int, ...]:
    """The random streams of a repetition, in the order of the loop's arguments."""
    streams = (POLICY_STREAM, ENVIRONMENT_STREAM, CONTEXT_STREAM)
    return streams if feedback.prompt else (*streams, DELAY_STREAM)


def label_policies(policies: Policies) -> dict[str, Policy]:
    """Label policies by name, and by the parameters that differ if names repeat."""
    if isinstance(policies, Policy | str | type) or not isinstance(policies, Iterable):
        policies = [policies]
    if isinstance(policies, Mapping):
        labelled = dict(policies)
    else:
        policies = list(policies)
        names = [each.name if isinstance(each, Policy) else None for each in policies]
        labelled = {}
        for policy, name in zip(policies, names, strict=True):
            label = str(name)
            if name is not None and names.count(name) > 1:
                label = _distinguished(policy, policies)
            if label in labelled:
                raise ParameterError(
                    f"policies: {label!r} is given twice; pass a mapping from label to policy"
                )
            labelled[label] = policy
    if not labelled:
        raise ParameterError("policies is empty; pass one policy, a list or a mapping")
    for label, policy in labelled.items():
        if not isinstance(policy, Policy) or not isinstance(label, str):
            raise ParameterError(
                f"policies: {brief(policy)} is not a policy; make one with bl.policy(name, ...)"
            )
    return labelled


def _distinguished(policy: Policy, others: list[Policy]) -> str:
    """The policy's name with the parameters that differ between policies of this name."""
    namesakes = [other.parameters for other in others if other.name == policy.name]
    own = policy.parameters.items()
    differing = [f"{k}={v}" for k, v in own if any(each.get(k) != v for each in namesakes)]
    return f"{policy.name}({', '.join(differing)})"


def require_compatible(
    label: str,
    policy: Policy,
    environment: Environment,
    horizon: int,
    feedback: Feedback = PROMPT,
) -> None:
    """Refuse a policy that cannot be played in an environment, and say what to change."""
    if not isinstance(environment, Environment):
        raise ParameterError(
            f"environment = {brief(environment)} is not an environment; make one with "
            "bl.environment(name, ...)"
        )
    if policy.arms != environment.arms:
        raise IncompatibleError(
            f"{label}: arms = {policy.arms}, but {environment.name} has {environment.arms} arms; "
            "give both the same number"
        )
    mismatch = (policy.rewards == "loss") != (environment.feedback == "loss")
    if mismatch and policy.rewards != "any":
        wants = "losses" if policy.rewards == "loss" else "rewards"
        gives = "losses" if environment.feedback == "loss" else "rewards"
        raise IncompatibleError(
            f"{label} learns from {wants}, but {environment.name} gives {gives}; choose another "
            "policy or environment"
        )
    experts = policy.experts
    if experts is not None and experts != environment.experts:
        raise IncompatibleError(
            f"{label}: experts = {experts}, but {environment.name} has {environment.experts or 0} "
            "experts; give both the same number"
        )
    _require_features(label, policy, environment)
    low, high = policy.accepts
    least, most = environment.reward_range
    if not policy.clips and (least < low or most > high):
        where = "outside it" if environment.holds_data else f"from [{least:g}, {most:g}]"
        raise IncompatibleError(
            f"{label} takes rewards in [{low:g}, {high:g}], but {environment.name} draws {where}; "
            'set reward_range or outside="clip", or choose a policy for unbounded rewards'
        )
    if environment.rounds is not None and horizon > environment.rounds:
        raise IncompatibleError(
            f"horizon = {horizon}, but {environment.name} has only {environment.rounds} rounds; "
            "shorten the horizon"
        )
    longest = None if policy.plays_beyond_horizon else policy.horizon
    if longest is not None and horizon > longest:
        raise IncompatibleError(
            f"{label}: its horizon = {longest} is shorter than horizon = {horizon}; make "
            "the policy with the longer one"
        )
    if environment.arms_on_offer is not None:
        _require_changing_arms(label, policy, environment)
    require_missing(policy, feedback.settling)


def _require_changing_arms(label: str, policy: Policy, environment: Environment) -> None:
    """Refuse what arms that come and leave do not allow."""
    if policy.fixed_arms:
        raise IncompatibleError(
            f"{label} cannot change its arms, as {environment.name} does: {policy.fixed_arms}; use "
            "dp-imed"
        )
    offers = environment.arms_on_offer or ()
    try:
        dataclasses.replace(policy, arms=len(offers[0][1]))
    except ParameterError as error:
        raise IncompatibleError(
            f"{label} cannot begin with the first arms of {environment.name}: {error}"
        ) from None


def _require_features(label: str, policy: Policy, environment: Environment) -> None:
    """Refuse an environment whose features do not fit the policy."""
    features = policy.features
    if features is None:
        return
    if environment.dimension is None:
        raise IncompatibleError(
            f"{label} needs contexts of {features} features, but {environment.name} has none; "
            "choose a linear environment"
        )
    disjoint, dimension = environment.disjoint, environment.dimension
    if disjoint != policy.disjoint:
        raise IncompatibleError(
            f"{label}: disjoint = {policy.disjoint}, but {environment.name} has features per "
            f"{'person' if disjoint else 'arm'}; set disjoint={disjoint}"
        )
    if dimension != features:
        raise IncompatibleError(
            f"{label}: features = {features}, but {environment.name} has {dimension} per "
            f"{'person' if disjoint else 'arm'}; set features={dimension}"
        )
    if environment.feature_bound > policy.feature_bound:
        raise IncompatibleError(
            f"{label}: feature_bound = {policy.feature_bound:g}, but features of "
            f"{environment.name} are up to {environment.feature_bound:g} long; raise feature_bound"
        )


def checkpoint_rounds(checkpoints: Checkpoints, horizon: int) -> np.ndarray:
    """The rounds at which the regret is recorded, in ascending order; the last is the horizon."""
    if isinstance(checkpoints, int | np.integer) and not isinstance(checkpoints, bool):
        count = check("checkpoints", checkpoints, _whole(1))
        steps = np.linspace(0, horizon, min(count, horizon) + 1)[1:]
        return np.unique(np.ceil(steps - 1e-9).astype(np.int64))
    rounds = np.asarray(checkpoints)
    if rounds.ndim != 1 or rounds.size == 0 or not np.issubdtype(rounds.dtype, np.integer):
        raise ParameterError(
            f"checkpoints = {brief(checkpoints)} is not allowed; give how many, or a list of rounds"
        )
    if (np.diff(rounds) <= 0).any() or rounds[0] < 1 or rounds[-1] != horizon:
        raise ParameterError(
            f"checkpoints = {brief(checkpoints)} must ascend from at least 1 to horizon = {horizon}"
        )
    return rounds.astype(np.int64)


def available_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _whole(low: int, high: float = math.inf) -> Any:
    return Annotated[int, Range(low, high)]

"""Wang and Zhu 2024, Figures 4 and 5: regret over the rounds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.papers.harness.claims import (
    claim_lowest,
    misled_runs,
    ranking,
    subset,
    trajectory_costs,
)
from balaclava.papers.harness.figure_plots import regret_panels
from balaclava.papers.harness.figure_policies import (
    decision_budget,
    make_policy,
    trajectory_policies,
)
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import FigurePanel, FigureRun, FigureText
from balaclava.papers.wang2024.bernoulli_instances import (
    WANG_2024,
    WangSetting,
    figure_title,
    regret_size,
    scale_note,
)
from balaclava.policies.bounded import dp_ucb
from balaclava.policies.classic import ucb1
from balaclava.privacy.accounting import interval_epsilon
from balaclava.privacy.mechanisms import counters
from balaclava.simulation.results import Results

SPLIT_LABEL = "dp-ftpl-new, split"
INTERVAL_1 = "dp-ucb-int, interval 1"
ALL_COUNTERS = "dp-ucb, all counters"


@kernel(borrows=True)
def learn_everywhere(
    params: Any, state: dp_ucb.State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    tally = state.indices.tally
    for other in range(params.arms):
        if other == arm:
            dp_ucb.learn(params, state, t, arm, reward, phase, rng)
            continue
        counters.hybrid_insert(rng, state.counters, other, 0.0, 1.0, params.epsilon)
        tally.sums[other] = counters.hybrid_sum(state.counters, other)
        if tally.pulls[other] > 0:
            ucb1.renew(state.indices, other)


class AllCounters(dp_ucb.DPUCB):
    """DP-UCB with an item for every counter in every round, 0 for the arms that were not pulled.

    As private: the zeros do not depend on rewards. Its noise grows with the rounds, but is new in
    each of them, so that an arm with unlucky noise gets another chance.
    """

    kernels = dp_ucb.DPUCB.kernels._replace(learn=learn_everywhere)


def original_interval(arms: int, delta: float) -> Any:
    """DP-UCB-INT with a refresh after every pull, at the epsilon that it then keeps."""
    one: Any = make_policy("dp-ucb-int", arms=arms, epsilon=1.0, delta=delta)
    spent = math.nextafter(interval_epsilon(1, delta, one.v), math.inf)
    return make_policy("dp-ucb-int", arms=arms, epsilon=spent, delta=delta)


def _policy(label: str, arms: int, epsilon: float, delta: float, **parameters: Any) -> Any:
    if label == INTERVAL_1:
        return original_interval(arms, delta)
    if label == ALL_COUNTERS:
        return AllCounters(arms=arms, epsilon=epsilon)
    return make_policy(label, arms=arms, epsilon=epsilon, delta=delta, **parameters)


def play_settings(
    run: FigureRun, settings: dict[str, WangSetting], names: tuple[str, ...]
) -> dict[str, list[str]]:
    """Simulate the paper's policies and those of equal scope; return the latter's labels."""
    size = regret_size(run)
    panels, equal_scope = {}, {}
    for letter, setting in settings.items():
        world = setting.world
        common: dict[str, Any] = {"arms": world.arms, "epsilon": setting.epsilon}
        common["horizon"] = size.horizon
        policies = {name: _policy(name, **common, delta=setting.delta) for name in names}
        equal = trajectory_policies(**common, delta=setting.delta)
        epsilon, delta = decision_budget(setting.epsilon, setting.delta, size.horizon)
        equal[SPLIT_LABEL] = make_policy(
            "dp-ftpl-new", **common | {"epsilon": epsilon, "delta": delta}
        )
        panels[letter] = FigurePanel(policies | equal, world)
        equal_scope[letter] = list(equal)
    results = run.play(panels, size, seed=WANG_2024.seed)
    headings = {letter: str(setting) for letter, setting in settings.items()}
    scale = f"{size}; mean and 10 % to 90 % quantiles"
    pictures = {
        "": ({letter: list(names) for letter in settings}, ": scopes differ, see the legends"),
        "-equal-scope": (equal_scope, " at equal scope: ε and δ hold for the whole trajectory"),
    }
    for ending, (labels, remark) in pictures.items():
        parts = {letter: subset(results[letter], labels[letter]) for letter in settings}
        title = f"{figure_title(run)}{remark}\n{run.scale_words}: {scale}"
        run.save_picture(regret_panels(parts, headings, title), ending)
    return equal_scope


def _rankings(
    results: dict[str, Results],
    settings: dict[str, WangSetting],
    labels: Mapping[str, Iterable[str]],
) -> list[str]:
    return [
        f"({letter}) {setting}: {ranking(subset(results[letter], labels[letter]))}"
        for letter, setting in settings.items()
    ]


def _text(
    run: FigureRun,
    settings: dict[str, WangSetting],
    names: Sequence[str],
    equal_scope: Mapping[str, Iterable[str]],
    claims: Sequence[str],
    **values: Any,
) -> FigureText:
    results = run.results
    return run.text(
        claims=[*_rankings(results, settings, dict.fromkeys(settings, names)), *claims],
        split_label=SPLIT_LABEL,
        equal_scope=_rankings(results, settings, equal_scope),
        scale=scale_note(run),
        costs=[f"({letter}) {trajectory_costs(results[letter], names)}" for letter in "ab"],
        **values,
    )


@figure("wang2024-fig4", "Regret under (ε, δ): DP-FTPL against DP-UCB-INT", WANG_2024)
def figure_4(run: FigureRun) -> FigureText:
    names = ("dp-ftpl-gauss", "dp-ftpl-beta", "dp-ftpl-new", "dp-ucb-int", INTERVAL_1)
    *ours, baseline, _ = names
    others = [name for name in names if name != "dp-ftpl-new"]
    pairs = ((1, 0.01), (1, math.exp(-10)), (2, 0.01), (2, math.exp(-10)))
    settings = {
        letter: WangSetting(instance, 1.0, delta)
        for letter, (instance, delta) in zip("abcd", pairs, strict=True)
    }
    equal_scope = play_settings(run, settings, names)
    results = run.results
    loose: Any = results["a"].policies[baseline]
    strict: Any = results["b"].policies[baseline]
    claims = [
        claim_lowest(results, f"{name} below {label}", name, [label])
        for label in (baseline, INTERVAL_1)
        for name in ours
    ]
    claims.append(claim_lowest(results, "dp-ftpl-new lowest of all", "dp-ftpl-new", others))
    claims += [f"({letter}) {_after_start(results[letter])}" for letter in settings]
    claims += [f"({letter}) {misled_runs(results[letter], names)}" for letter in "ab"]

    def original_epsilon(policy: Any) -> float:
        return interval_epsilon(1, policy.delta, policy.v)

    values = {"loose": loose, "strict": strict, "original_epsilon": original_epsilon}
    return _text(run, settings, names, equal_scope, claims, interval_1=INTERVAL_1, **values)


def _after_start(results: Results) -> str:
    """How much of DP-FTPL-Beta's regret comes after its start phase."""
    policy: Any = results.policies["dp-ftpl-beta"]
    rounds = policy.arms * policy.start_phase
    if rounds >= results.horizon:
        return f"the start phase of dp-ftpl-beta, {rounds:,} rounds, does not end."
    mean = results.regret("dp-ftpl-beta").mean(axis=0)
    at = int(np.searchsorted(results.checkpoints, rounds))
    later = (mean[-1] - mean[at]) / mean[-1]
    return (
        f"dp-ftpl-beta after its start phase of {rounds:,} rounds: "
        f"{100 * later:.1f} % of its regret."
    )


@figure("wang2024-fig5", "Regret under pure ε: DP-FTPL-New against DP-UCB and DP-SE", WANG_2024)
def figure_5(run: FigureRun) -> FigureText:
    names = ("dp-ftpl-new", "dp-ucb", ALL_COUNTERS, "dp-ucb-bound", "dp-se")
    _, *others = names
    pairs = ((1, 1.0), (1, 0.1), (2, 1.0), (2, 0.1))
    settings = {
        letter: WangSetting(instance, epsilon)
        for letter, (instance, epsilon) in zip("abcd", pairs, strict=True)
    }
    equal_scope = play_settings(run, settings, names)
    results = run.results
    claims = [claim_lowest(results, "dp-ftpl-new lowest of all", "dp-ftpl-new", others)]
    claims += [
        claim_lowest(results, f"dp-se above {name}", name, ["dp-se"])
        for name in ("dp-ucb", ALL_COUNTERS, "dp-ucb-bound")
    ]
    claims += [f"({letter}) {misled_runs(results[letter], names)}" for letter in "ab"]
    return _text(run, settings, names, equal_scope, claims, all_counters=ALL_COUNTERS)

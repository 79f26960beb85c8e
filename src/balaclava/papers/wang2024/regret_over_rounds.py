"""Wang and Zhu 2024, Figures 4 and 5: regret over the rounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from balaclava.papers.harness.claims import (
    claim_line,
    compare_regret,
    misled_runs,
    ranking,
    subset,
    trajectory_costs,
)
from balaclava.papers.harness.figure_policies import (
    decision_budget,
    make_policy,
    trajectory_policies,
)
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import FigurePanel, FigureRun
from balaclava.papers.harness.figure_text import SEES, SHOWS, WHY, FigureText
from balaclava.papers.harness.regret_panels import regret_panels
from balaclava.papers.wang2024.bernoulli_instances import figure_title
from balaclava.privacy.accounting import interval_epsilon

if TYPE_CHECKING:
    from balaclava.simulation.results import Results

from balaclava.papers.wang2024.bernoulli_instances import (
    REFERENCE,
    SEED,
    SIZES,
    WangSetting,
    scale_note,
)

SPLIT = "dp-ftpl-new, split"


def play_settings(
    run: FigureRun, settings: dict[str, WangSetting], names: tuple[str, ...]
) -> dict[str, list[str]]:
    """Play the paper's policies and those of the companion; the companion's labels by panel."""
    size = SIZES[run.scale]
    panels, companions = {}, {}
    for letter, setting in settings.items():
        world = setting.world
        common = {"arms": world.arms, "horizon": size.horizon, "epsilon": setting.epsilon}
        policies = {name: make_policy(name, **common, delta=setting.delta) for name in names}
        equal = trajectory_policies(**common, delta=setting.delta)
        epsilon, delta = decision_budget(setting.epsilon, setting.delta, size.horizon)
        equal[SPLIT] = make_policy("dp-ftpl-new", **common | {"epsilon": epsilon, "delta": delta})
        panels[letter] = FigurePanel(policies | equal, world)
        companions[letter] = list(equal)
    results = run.play(panels, size, seed=SEED)
    headings = {letter: str(setting) for letter, setting in settings.items()}
    scale = f"{size}; mean and 10 % to 90 % quantiles"
    pictures = {
        "": ({letter: list(names) for letter in settings}, ": scopes differ, see the legends"),
        "-equal-scope": (companions, " at equal scope: ε and δ hold for the whole trajectory"),
    }
    for ending, (labels, remark) in pictures.items():
        parts = {letter: subset(results[letter], labels[letter]) for letter in settings}
        title = f"{figure_title(run)}{remark}\n{run.scale} scale: {scale}"
        run.save_picture(regret_panels(parts, headings, title), ending)
    return companions


def _sees(
    results: dict[str, Results], settings: dict[str, WangSetting], names: tuple[str, ...]
) -> list[str]:
    """The ranking in each panel."""
    return [
        f"({letter}) {setting}: {ranking(subset(results[letter], names))}"
        for letter, setting in settings.items()
    ]


def _equal_scope(
    results: dict[str, Results], settings: dict[str, WangSetting], companions: dict[str, list[str]]
) -> list[str]:
    lines = [
        "The picture that ends in -equal-scope shows the policies that protect all decisions of a "
        f"run together, at the same epsilon and delta. '{SPLIT}' is DP-FTPL-New with the epsilon "
        "and delta of one decision made so small that all of them together keep the panel's."
    ]
    return lines + [
        f"({letter}) {setting}: {ranking(subset(results[letter], companions[letter]))}"
        for letter, setting in settings.items()
    ]


BANDS = (
    "Bands are the 10 % and 90 % quantiles of the runs. The paper reports standard deviations of "
    "100 runs, which say little of regrets as skewed as these."
)
_SCOPES = (
    "Scope: the DP-FTPL policies protect one decision at a time; the others protect all decisions "
    "of a run together, which is far more. Lower regret at a weaker promise is no surprise."
)


@figure("wang2024-fig4", "Regret under (ε, δ): DP-FTPL against DP-UCB-INT", REFERENCE)
def figure_4(run: FigureRun) -> FigureText:
    names = ("dp-ftpl-gauss", "dp-ftpl-beta", "dp-ftpl-new", "dp-ucb-int")
    *ours, baseline = names
    others = [name for name in names if name != "dp-ftpl-new"]
    pairs = ((1, 0.01), (1, math.exp(-10)), (2, 0.01), (2, math.exp(-10)))
    settings = {
        letter: WangSetting(instance, 1.0, delta)
        for letter, (instance, delta) in zip("abcd", pairs, strict=True)
    }
    companions = play_settings(run, settings, names)
    results = run.results
    loose: Any = results["a"].policies[baseline]
    strict: Any = results["b"].policies[baseline]
    claims = [
        claim_line(
            f"{name} below {baseline}",
            {letter: compare_regret(results[letter], name, [baseline]) for letter in settings},
        )
        for name in ours
    ]
    claims.append(
        claim_line(
            "dp-ftpl-new lowest of the four",
            {letter: compare_regret(results[letter], "dp-ftpl-new", others) for letter in settings},
        )
    )
    claims += [f"({letter}) {_after_start(results[letter])}" for letter in settings]
    claims += [f"({letter}) {misled_runs(results[letter], names)}" for letter in "ab"]
    return FigureText(
        "wang2024-fig4: regret under (ε, δ), DP-FTPL against DP-UCB-INT",
        {
            SHOWS: [
                "All three DP-FTPL policies are far below DP-UCB-INT, and DP-FTPL-New is the "
                "lowest. DP-FTPL-Beta pays for a long start phase, more so at the small delta, "
                "and nothing after it. DP-FTPL-Gauss grows steadily."
            ],
            SEES: [*_sees(results, settings, names), *claims],
            "At equal scope": _equal_scope(results, settings, companions),
            WHY: [
                BANDS,
                scale_note(run),
                _SCOPES,
                *(f"({letter}) {trajectory_costs(results[letter], names)}" for letter in "ab"),
                "How the paper chose the parameters of DP-UCB-INT for a given epsilon and delta is "
                "not stated. Here an accountant picks the shortest interval between refreshes "
                f"that keeps them: {loose.interval} pulls in (a) and (c), {strict.interval} in "
                "(b) and (d). The original's interval, ceil(1/ε) = 1, would come to "
                f"ε={interval_epsilon(1, loose.delta, loose.v):.3g} and "
                f"{interval_epsilon(1, strict.delta, strict.v):.3g} instead of 1.",
                "A run of DP-UCB-INT may settle on a wrong arm after unlucky noise. On Instance 1 "
                "such runs weigh heavily in its mean, and make it uncertain.",
            ],
        },
    )


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


@figure("wang2024-fig5", "Regret under pure ε: DP-FTPL-New against DP-UCB and DP-SE", REFERENCE)
def figure_5(run: FigureRun) -> FigureText:
    names = ("dp-ftpl-new", "dp-ucb", "dp-ucb-bound", "dp-se")
    _, *others = names
    pairs = ((1, 1.0), (1, 0.1), (2, 1.0), (2, 0.1))
    settings = {
        letter: WangSetting(instance, epsilon)
        for letter, (instance, epsilon) in zip("abcd", pairs, strict=True)
    }
    companions = play_settings(run, settings, names)
    results = run.results
    claims = [
        claim_line(
            "dp-ftpl-new lowest of the four",
            {letter: compare_regret(results[letter], "dp-ftpl-new", others) for letter in settings},
        )
    ]
    claims += [
        claim_line(
            f"dp-se above {name}",
            {letter: compare_regret(results[letter], name, ["dp-se"]) for letter in settings},
        )
        for name in ("dp-ucb", "dp-ucb-bound")
    ]
    claims += [f"({letter}) {misled_runs(results[letter], names)}" for letter in "ab"]
    return FigureText(
        "wang2024-fig5: regret under pure ε, DP-FTPL-New against DP-UCB and DP-SE",
        {
            SHOWS: [
                "DP-FTPL-New is far below DP-UCB, DP-UCB-BOUND and DP-SE. DP-SE, optimal in order, "
                "is worse than both UCB policies because of its constants."
            ],
            SEES: [*_sees(results, settings, names), *claims],
            "At equal scope": _equal_scope(results, settings, companions),
            WHY: [
                BANDS,
                scale_note(run),
                _SCOPES,
                *(f"({letter}) {trajectory_costs(results[letter], names)}" for letter in "ab"),
                "DP-UCB trusts its noisy sums without allowing for the noise: an unlucky first "
                "draw makes a run leave the best arm for good, and the regret of such runs is "
                "linear. Means of few repetitions say little about it. The paper does not mention "
                "this; its DP-UCB may differ in how it draws or starts.",
                "DP-SE drops nothing before its first epoch ends; where the horizon ends earlier "
                "its regret is that of playing all arms in turn.",
                "The paper gives no constants for the baselines. Here they are those of the "
                "papers they come from, DP-SE's failure probability 1/T among them.",
            ],
        },
    )

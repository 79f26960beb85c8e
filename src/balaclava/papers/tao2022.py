"""Tao, Wu, Zhao, Wang, (Locally) differentially private heavy-tailed multi-armed bandits, 2022.

Figures 1, 3 and 4 compare DPR-UCB with DPR-SE on the instances S1, S2 and S3 of Pareto arms, under
central privacy. Figure 2 is LDPR-SE on S3, under local privacy. A figure of ours puts the rate of
the local bound to the test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balaclava.environments.base import Environment, environment
from balaclava.environments.hard_instances import hard_pair
from balaclava.papers.harness.claims import claim_line, compare_means, misled_runs, ranking
from balaclava.papers.harness.figure_calibration import (
    ScaleQuestion,
    describe_calibration,
    find_scales,
    list_scales,
    scaled_label,
    scaled_policy,
    unscaled_label,
)
from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import FigurePanel, FigureRun, RunSize
from balaclava.papers.harness.figure_text import SEES, SHOWS, WHY, FigureText
from balaclava.papers.harness.final_regret_curves import (
    FinalRegretCurve,
    RegretStudy,
    draw_studies,
    play_studies,
)
from balaclava.papers.harness.regret_panels import regret_panels
from balaclava.simulation.analysis.statistics import mean_of_regret
from balaclava.theory.bounds import local_pair

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from balaclava.simulation.results import Results

REFERENCE = (
    "Tao, Wu, Zhao, Wang. Optimal rates of (locally) differentially private heavy-tailed "
    "multi-armed bandits. AISTATS 2022"
)
INSTANCES = {
    1: (0.9, 0.7, 0.5, 0.3, 0.1),
    2: (0.9, 0.55, 0.3, 0.15, 0.1),
    3: (0.9, 0.85, 0.7, 0.45, 0.1),
}
LEARNED = ((0.9, 0.5, 0.5, 0.5, 0.5), (0.9, 0.8, 0.8, 0.8, 0.8))  # for calibration
WHERE = "two instances of Pareto arms, one arm 0.4 and one 0.1 above all others"

PROVED = {
    "quick": RunSize(10_000_000, 2),
    "paper": RunSize(10_000_000, 90),
    "tiny": RunSize(600, 2),
}
CALIBRATED = {
    "quick": RunSize(200_000, 10),
    "paper": RunSize(10_000_000, 90),
    "tiny": RunSize(600, 2),
}
LOCAL = {"quick": RunSize(500_000, 8), "paper": RunSize(10_000_000, 90), "tiny": RunSize(600, 2)}
SEARCH = {"quick": 20, "paper": 40, "tiny": 2}  # runs of each finalist of a calibration
SLOW = {"dpr-ucb": 8}  # at most, of what takes ten times as long
SEED = 2022

REMARKS = {"": "with the constants of the proofs", "-calibrated": "with calibrated radii"}
_PAPERS = ("dpr-ucb", "dpr-se")
_OURS = ("dpr-batch-ucb", "robust-ucb")


def instance(number: int, v: float) -> Environment:
    """S1, S2 or S3 with tails for which a moment of order 1 + v exists, and hardly more."""
    return pareto(INSTANCES[number], v)


def pareto(means: Sequence[float], v: float) -> Environment:
    """Pareto arms with the paper's shape 1.05 + v."""
    return environment("pareto", means=means, shape=1.05 + v)


class TaoSetting(NamedTuple):
    """One panel: where it is played, and what is promised."""

    instance: int
    epsilon: float
    v: float

    @property
    def world(self) -> Environment:
        return instance(self.instance, self.v)

    def offered(self, horizon: int, epsilon: float | None = None) -> dict[str, Any]:
        """All that a policy may be told; u is that of the best arm, the largest."""
        world = self.world
        return {
            "arms": world.arms,
            "horizon": horizon,
            "epsilon": self.epsilon if epsilon is None else epsilon,
            "moment_order": 1.0 + self.v,
            "moment_bound": world.moment(1.0 + self.v),
        }

    def __str__(self) -> str:
        return f"S{self.instance}, ε={self.epsilon:g}, v={self.v:g}"


def question(run: FigureRun, name: str, v: float, parameters: dict[str, Any]) -> ScaleQuestion:
    """After the calibrated radius_scale, from instances that no figure shows."""
    runs = SEARCH[run.scale]
    size = RunSize(parameters["horizon"], min(runs, SLOW.get(name, runs)))
    worlds = tuple(pareto(means, v) for means in LEARNED)
    return ScaleQuestion(make_policy(name, **parameters), worlds, size)


BANDS = (
    "Bands are 95 % intervals for the mean. The paper's are a quarter of a standard deviation of "
    "its 90 runs, 1.2 times as wide at as many runs; they say how far runs differ, not how sure a "
    "mean is."
)


# Figures 1, 3 and 4: central privacy.


def play_central(run: FigureRun, number: int) -> dict[str, TaoSetting]:
    """Play both settings of the constants, and draw them."""
    pairs = [(0.5, 0.5), (0.5, 0.9), (1.0, 0.5), (1.0, 0.9)]
    settings = {
        letter: TaoSetting(number, epsilon, v)
        for letter, (epsilon, v) in zip("abcd", pairs, strict=True)
    }
    shorter = {each: one.offered(CALIBRATED[run.scale].horizon) for each, one in settings.items()}
    questions = {
        (letter, name): question(run, name, setting.v, shorter[letter])
        for letter, setting in settings.items()
        for name in (*_PAPERS, *_OURS)
    }
    scales = find_scales(questions, run.workers, run.device)
    panels, sizes = {}, {}
    for letter, setting in settings.items():
        parameters = setting.offered(PROVED[run.scale].horizon)
        names = (*_PAPERS, *_OURS, "dpr-adaptive-ucb")
        panels[letter] = FigurePanel(
            {name: make_policy(name, **parameters) for name in names}, setting.world
        )
        sizes[letter] = PROVED[run.scale]
    for letter, setting in settings.items():
        parameters = shorter[letter]
        policies: dict[str, Any] = {}
        for name in (*_PAPERS, *_OURS):
            policies |= scaled_policy(name, scales[letter, name], **parameters)
        policies["dpr-adaptive-ucb"] = make_policy("dpr-adaptive-ucb", **parameters)
        panels[f"{letter}-calibrated"] = FigurePanel(policies, setting.world)
        sizes[f"{letter}-calibrated"] = CALIBRATED[run.scale]
    run.play(panels, sizes, seed=SEED)
    for (ending, remark), sizes in zip(REMARKS.items(), (PROVED, CALIBRATED), strict=True):
        size = sizes[run.scale]
        parts = {letter: run.results[letter + ending] for letter in settings}
        headings = {letter: str(setting) for letter, setting in settings.items()}
        title = f"{_title(run)}, S{number}, {remark}\n{_played(run, size)}"
        run.save_picture(regret_panels(parts, headings, title, "interval"), ending)
    return settings


def _title(run: FigureRun) -> str:
    return f"Tao, Wu, Zhao, Wang 2022, Figure {run.name.removeprefix('tao2022-fig')}"


def _played(run: FigureRun, size: RunSize) -> str:
    return f"{run.scale} scale: {size}; mean ± 95 % interval"


def policy_label(results: Results, name: str) -> str:
    """The label of a policy, whatever its scale."""
    return next(label for label in results.labels if unscaled_label(label) == name)


def policy_regret(results: Results, name: str) -> tuple[float, float]:
    """Mean final regret and plus-minus of a policy, whatever its scale."""
    return mean_of_regret(results, policy_label(results, name))


def _claims(results: Mapping[str, Results], ending: str) -> list[str]:
    """The paper's three claims; panels (a), (b) have epsilon 0.5, panels (a), (c) v = 0.5."""

    def regret(letter: str, name: str) -> tuple[float, float]:
        return policy_regret(results[letter + ending], name)

    def compared(name: str, *pairs: str) -> dict[str, str]:
        return {
            pair[0]: compare_means(regret(pair[0], name), regret(pair[1], name)) for pair in pairs
        }

    better = {
        letter: compare_means(regret(letter, "dpr-se"), regret(letter, "dpr-ucb"))
        for letter in "abcd"
    }
    lines = [claim_line("dpr-se below dpr-ucb", better)]
    for name in _PAPERS:
        lines += [
            claim_line(f"{name}: less regret at ε=1 than at ε=0.5", compared(name, "ca", "db")),
            claim_line(f"{name}: less regret at v=0.9 than at v=0.5", compared(name, "ba", "dc")),
        ]
    return lines


def _central(run: FigureRun, number: int) -> FigureText:
    settings = play_central(run, number)
    results, horizon = run.results, PROVED[run.scale].horizon
    firsts, scales = [], []
    for letter, setting in settings.items():
        ucb: Any = results[letter].policies["dpr-ucb"]
        se: Any = results[letter].policies["dpr-se"]
        firsts.append(
            f"({letter}) {setting}: dpr-se can drop no arm before round "
            f"{se.arms * se.first_epoch:,}; dpr-ucb's bonus is still "
            f"{_bonus(ucb, horizon):.3g} when all arms share {horizon:,} pulls, and the largest "
            f"gap is {setting.world.gaps.max():.3g}."
        )
        policies = results[f"{letter}-calibrated"].policies
        named: dict[str, Any] = {
            unscaled_label(label): policy for label, policy in policies.items()
        }
        by_name = {name: named[name].radius_scale for name in (*_PAPERS, *_OURS)}
        scales.append(f"({letter}) {list_scales(by_name)}.")
    size = CALIBRATED[run.scale]
    return FigureText(
        f"{run.name}: regret on S{number}, DPR-UCB against DPR-SE, central privacy",
        {
            SHOWS: [
                "DPR-SE is always below DPR-UCB. Regret grows as ε falls from 1 to 0.5, and falls "
                "as v grows from 0.5 to 0.9."
            ],
            f"{SEES}, with the constants of the proofs": [
                *_rankings(results, settings, ""),
                *_claims(results, ""),
                *firsts,
            ],
            f"{SEES}, with calibrated radii": [
                *_rankings(results, settings, "-calibrated"),
                *_claims(results, "-calibrated"),
                *_strays(results, settings),
            ],
            WHY: [
                BANDS,
                "The paper does not state its horizon. With its constants we take "
                f"{PROVED['paper'].horizon:,} rounds: the shortest power of ten at which DPR-SE "
                "drops an arm for v=0.9. For v=0.5 it would take hundreds of millions; until then "
                "DPR-SE plays all arms in turn, and DPR-UCB nearly so. A figure in which DPR-SE is "
                "well below DPR-UCB for v=0.5 at an ordinary horizon cannot come from the "
                "constants that the paper prints.",
                f"{_repetitions(run, PROVED)} With calibrated radii: {size}.",
                describe_calibration(WHERE, RunSize(size.horizon, SEARCH[run.scale]), SLOW),
                *scales,
                "dpr-adaptive-ucb is told neither u nor v and has no scale to find. robust-ucb is "
                "not private: the baseline.",
                "All private policies here protect the whole trajectory; ε is beside each curve. "
                "DPR-UCB's tree shares ε among floor(log2 T) + 1 levels; the paper's log T of "
                "them would not keep ε.",
            ],
        },
    )


def _strays(results: Mapping[str, Results], settings: Iterable[str]) -> list[str]:
    calibrated_results = {letter: results[f"{letter}-calibrated"] for letter in settings}
    return [
        f"({letter}) {misled_runs(part, part.labels)}"
        for letter, part in calibrated_results.items()
    ]


def _repetitions(run: FigureRun, sizes: Mapping[str, RunSize]) -> str:
    size, paper = sizes[run.scale], sizes["paper"]
    if size == paper:
        return f"Repetitions are the paper's: {paper}."
    return f"Fewer than the paper's {paper.repetitions} repetitions: {size}."


def _bonus(policy: Any, horizon: int) -> float:
    """DPR-UCB's bonus at the end, if all arms are played alike."""
    params, pulls = policy.constants(), horizon / policy.arms
    return float(params.bonus * (math.log(2.0 * horizon**4) / pulls) ** (1.0 - params.root))


def _rankings(
    results: Mapping[str, Results], settings: Mapping[str, TaoSetting], ending: str
) -> list[str]:
    return [
        f"({letter}) {setting}: {ranking(results[letter + ending])}"
        for letter, setting in settings.items()
    ]


@figure("tao2022-fig1", "DPR-UCB against DPR-SE on S1, central privacy", REFERENCE)
def figure_1(run: FigureRun) -> FigureText:
    return _central(run, 1)


@figure("tao2022-fig3", "DPR-UCB against DPR-SE on S2, central privacy", REFERENCE)
def figure_3(run: FigureRun) -> FigureText:
    return _central(run, 2)


@figure("tao2022-fig4", "DPR-UCB against DPR-SE on S3, central privacy", REFERENCE)
def figure_4(run: FigureRun) -> FigureText:
    return _central(run, 3)


# Figure 2: local privacy.

LOCAL_EPSILONS = (5.0, 10.0, 20.0)
_LOCAL = ("ldpr-se", "ldpr-batch-ucb")


def _named(name: str, epsilon: float) -> str:
    return f"{name} ε={epsilon:g}"


def play_local(run: FigureRun) -> dict[str, TaoSetting]:
    """Play LDPR-SE and its companions on S3, with both kinds of constants, and draw them."""
    size = LOCAL[run.scale]
    settings = {"a": TaoSetting(3, 1.0, 0.5), "b": TaoSetting(3, 1.0, 0.9)}  # ε=1: that of dpr-se
    questions = {}
    for letter, setting in settings.items():
        for name in _LOCAL:
            for epsilon in LOCAL_EPSILONS:
                parameters = setting.offered(size.horizon, epsilon)
                label = _named(name, epsilon)
                questions[letter, label] = question(run, name, setting.v, parameters)
        parameters = setting.offered(size.horizon)
        for name in ("dpr-se", "robust-ucb"):
            questions[letter, name] = question(run, name, setting.v, parameters)
    policies: dict[str, dict[str, Any]] = {}
    for (letter, label), scale in find_scales(questions, run.workers, run.device).items():
        policy = questions[letter, label].policy
        policies.setdefault(letter, {})[label] = policy
        tuned = type(policy).create({**policy.parameters, "radius_scale": scale})
        policies.setdefault(f"{letter}-calibrated", {})[scaled_label(label, scale)] = tuned
    panels = {each: FigurePanel(policies[each], settings[each[0]].world) for each in policies}
    run.play(panels, size, seed=SEED)
    headings = {letter: f"S3, v={setting.v:g}" for letter, setting in settings.items()}
    for ending, remark in REMARKS.items():
        parts = {letter: run.results[letter + ending] for letter in settings}
        title = f"{_title(run)}, S3, local privacy, {remark}\n{_played(run, size)}"
        run.save_picture(regret_panels(parts, headings, title, "interval"), ending)
    return settings


@figure("tao2022-fig2", "LDPR-SE on S3, local privacy", REFERENCE)
def figure_2(run: FigureRun) -> FigureText:
    settings = play_local(run)
    results, size = run.results, LOCAL[run.scale]
    firsts, scales = [], []
    for letter, setting in settings.items():
        policies: dict[str, Any] = results[letter].policies
        rounds = [
            f"{policies[label].arms * policies[label].first_epoch:.2g} at ε={epsilon:g}"
            for epsilon in LOCAL_EPSILONS
            for label in [_named("ldpr-se", epsilon)]
        ]
        firsts.append(
            f"({letter}) v={setting.v:g}: with the constants of the proof the first epoch of "
            f"ldpr-se ends after {', '.join(rounds)} rounds; until then all arms are played in "
            f"turn, and so they are in all {size.horizon:,} rounds here."
        )
        scaled_policies: dict[str, Any] = results[f"{letter}-calibrated"].policies
        by_name = {
            unscaled_label(label): policy.radius_scale for label, policy in scaled_policies.items()
        }
        scales.append(f"({letter}) {list_scales(by_name)}.")
    return FigureText(
        "tao2022-fig2: regret of LDPR-SE on S3, local privacy",
        {
            SHOWS: [
                "The larger ε (5, 10, 20) or v (0.5, 0.9), the smaller the regret. It is larger "
                "than under central privacy."
            ],
            f"{SEES}, with the constants of the proofs": [
                *(f"({letter}) {ranking(results[letter])}" for letter in settings),
                *firsts,
            ],
            f"{SEES}, with calibrated radii": [
                *(f"({letter}) {ranking(results[f'{letter}-calibrated'])}" for letter in settings),
                *_local_claims(results),
                *_strays(results, settings),
            ],
            WHY: [
                BANDS,
                "The paper does not state its horizon, and no practical one will do: see the "
                f"epochs above. Ours is {size.horizon:,}. Where the calibrated scale of ldpr-se is "
                "the largest that was tried, its first epoch does not end and nothing is learned: "
                "every smaller scale dropped the best arm too often to be worth it.",
                _repetitions(run, LOCAL),
                describe_calibration(WHERE, RunSize(size.horizon, SEARCH[run.scale])),
                *scales,
                "The theory is for ε up to 1; for these ε an epoch has at least ε^2 log(...) pulls "
                "of an arm, not log(...) as printed.",
                "ldpr-se and ldpr-batch-ucb protect each report before it leaves its owner; dpr-se "
                "protects the trajectory, from everyone but the party that holds the rewards.",
            ],
        },
    )


def _local_claims(results: Mapping[str, Results]) -> list[str]:
    """The paper's claims, on the calibrated runs."""
    loose, tight = results["a-calibrated"], results["b-calibrated"]
    lines = []
    for name in _LOCAL:
        for less, more in ((10.0, 5.0), (20.0, 10.0)):
            agreement = {
                letter: compare_means(*(policy_regret(of, _named(name, e)) for e in (less, more)))
                for letter, of in (("a", loose), ("b", tight))
            }
            lines.append(
                claim_line(f"{name}: less regret at ε={less:g} than at ε={more:g}", agreement)
            )
    for epsilon in LOCAL_EPSILONS:
        label = _named("ldpr-se", epsilon)
        agreement = {"b": compare_means(policy_regret(tight, label), policy_regret(loose, label))}
        lines.append(claim_line(f"{label}: less regret at v=0.9 than at v=0.5", agreement))
        agreement = {
            letter: compare_means(policy_regret(of, "dpr-se"), policy_regret(of, label))
            for letter, of in (("a", loose), ("b", tight))
        }
        lines.append(claim_line(f"{label} above dpr-se at ε=1, central", agreement))
    return lines


# Ours: the rate of the local bound.

RATE_SIZES = {
    "quick": RunSize(15_000_000, 8),
    "paper": RunSize(15_000_000, 90),
    "tiny": RunSize(600, 2),
}
RATE_EPSILON, RATE_SCALE = 10.0, 0.2
RATE_V = 1.0
RATE_MOMENT = 0.7  # bounds that of the pair and of its alternative, for every v
RATE_GAPS = [0.2 * 2.0 ** (-i / 3) for i in range(6, -1, -1)]  # two periods of ldpr-se's stairs
BOUND_GAPS = [0.2 * 2.0 ** (-i / 3) for i in range(9, -1, -1)]
LONG = 10**18  # rounds: for the lower bound to say something at small gaps


def printed_exponent(v: float) -> float:
    """Of 1/gap in the regret, by Theorem 7 as printed."""
    return 1.0 / v


def corrected_exponent(v: float) -> float:
    """Of 1/gap in the regret, by the proof of Theorem 7 as it is, and by every local channel."""
    return (2.0 + v) / v


def needed_constant(gap: float, v: float, horizon: int, epsilon: float = 1.0) -> float:
    """What the O(.) of Theorem 7 would have to hide: no regret is below `local_pair`."""
    least = local_pair(gap, moment_order=1.0 + v, horizon=horizon, epsilon=epsilon)
    return least * epsilon**2 * gap ** printed_exponent(v) / math.log(horizon)


def rate_policy(name: str, horizon: int, epsilon: float, scale: float = 1.0) -> Any:
    """A policy for the hard pair."""
    return make_policy(
        name,
        arms=2,
        horizon=horizon,
        epsilon=epsilon,
        moment_order=1.0 + RATE_V,
        moment_bound=RATE_MOMENT,
        radius_scale=scale,
    )


def pair(gap: float) -> Environment:
    """The hard pair."""
    return hard_pair(gap, 1.0 + RATE_V)[0]


def rate_study(run: FigureRun) -> RegretStudy:
    """Regret of LDPR-SE on the hard pair against its gap."""
    size, label = RATE_SIZES[run.scale], scaled_label("ldpr-se", RATE_SCALE)
    policy = rate_policy("ldpr-se", size.horizon, RATE_EPSILON, RATE_SCALE)
    gaps = [float(f"{gap:.3g}") for gap in RATE_GAPS[:: 3 if run.scale == "tiny" else 1]]
    heading = f"measured on the hard pair, v={RATE_V:g}; {size}"
    return RegretStudy("gap of the hard pair", gaps, pair, lambda _: {label: policy}, heading, size)


def proved_rates() -> dict[str, list[float]]:
    """Bounds at epsilon 1: of two policies from above, of every policy from below."""
    bounds = {
        f"{name}: proved upper bound": [
            rate_policy(name, LONG, 1.0).proved_bound(pair(gap), LONG) for gap in BOUND_GAPS
        ]
        for name in _LOCAL
    }
    bounds["every policy: proved lower bound"] = [
        local_pair(gap, moment_order=1.0 + RATE_V, horizon=LONG, epsilon=1.0) for gap in BOUND_GAPS
    ]
    return bounds


def fitted(gaps: Sequence[float], values: Sequence[float]) -> float:
    """The slope of log value against log gap."""
    return float(np.polyfit(np.log(gaps), np.log(values), 1)[0])


@figure("tao2022-local-rate", "The rate of the local bound, as printed and as it is", REFERENCE)
def local_rate(run: FigureRun) -> FigureText:
    studies = {"a": rate_study(run)}
    curves = play_studies(run, studies, SEED)
    ((label, curve),) = curves["a"].items()
    bounds = proved_rates()
    gaps = np.geomspace(1e-3, 0.2, 60)
    needed = {
        v: np.array([needed_constant(float(gap), v, LONG) for gap in gaps])
        for v in (1.0, 0.75, 0.5)
    }
    _draw_rates(run, studies, curves, bounds, gaps, needed)
    runs = RATE_SIZES[run.scale].repetitions * len(curve.values)
    statements = [
        f"Slope of log regret against log gap at v={RATE_V:g}, printed: "
        f"{-printed_exponent(RATE_V):.2f}; corrected: {-corrected_exponent(RATE_V):.2f}.",
        f"(a) {label}, {curve.promise}: fitted slope {curve.slope():.2f}. Runs that played the "
        f"worse arm more: {curve.strays.sum()} of {runs}.",
        *(
            f"(b) {what}: fitted slope {fitted(BOUND_GAPS, values):.2f}."
            for what, values in bounds.items()
        ),
        *(
            f"(c) v={v:g}: the constant that the printed bound needs grows from "
            f"{constants[-1]:.2g} at gap {gaps[-1]:g} to {constants[0]:.2g} at gap {gaps[0]:g}."
            for v, constants in needed.items()
        ),
    ]
    epoch = rate_policy("ldpr-se", RATE_SIZES[run.scale].horizon, 1.0).first_epoch
    return FigureText(
        "tao2022-local-rate: the rate of the local bound, as printed and as it is",
        {
            SHOWS: [
                "Theorem 7: the regret of LDPR-SE is O(u^(2/v) log T / ε^2 times the sum of "
                "gap^(-1/v)), and Theorem 11 is said to match. This figure is ours: the paper has "
                "none on it.",
            ],
            SEES: statements,
            WHY: [
                "Epoch tau of LDPR-SE has 2^(2 tau (1+v)/v) pulls, up to constants, and drops the "
                "arms whose gap is 2^-tau or more. So an arm costs gap^(-2(1+v)/v) pulls, and "
                "regret gap^(-(2+v)/v). The proof prints gap^(-1/v), as it takes the first epoch "
                "with gap >= 4^-tau.",
                "It is no weakness of the algorithm: (c) divides a lower bound for every locally "
                "private policy by the printed upper bound. As the gap goes to 0 and the horizon "
                "to infinity it grows as gap^(-(1+v)/v): no constant in O(.) is large enough. The "
                "lower bound is for policies with a regret of at most T^(3/4), which any with the "
                "printed bound would have; so none has it.",
                "The curve of ldpr-se is a flight of stairs, since epochs grow by 4^((1+v)/v); the "
                "gaps span two of them. Its radius_scale and ε are chosen so that the smallest "
                f"gap is found in time: with the paper's constants and ε=1 the first epoch alone "
                f"has {epoch:,} pulls of each arm. Neither touches the exponent.",
                f"(b) and (c): ε=1, {LONG:.0e} rounds, so that the lower bound has something to "
                "say at small gaps.",
                "All policies here protect each report.",
            ],
        },
    )


def _draw_rates(
    run: FigureRun,
    studies: Mapping[str, RegretStudy],
    curves: Mapping[str, Mapping[str, FinalRegretCurve]],
    bounds: Mapping[str, list[float]],
    gaps: np.ndarray,
    needed: Mapping[float, np.ndarray],
) -> None:
    title = (
        "The rate of local privacy: Tao, Wu, Zhao, Wang 2022, Theorem 7, as printed and as it is\n"
        f"{run.scale} scale: (a) mean ± 95 % interval; (b), (c) computed"
    )
    picture = draw_studies(studies, curves, title, extra=2)
    measured, proved, theory = picture.axes
    _guides(measured, *curves["a"].values())
    _draw_curves(proved, BOUND_GAPS, bounds, "(b) proved on the same pair", "regret (log scale)")
    _draw_curves(
        theory,
        gaps,
        {f"v={v:g}": constants for v, constants in needed.items()},
        "(c) constant that the printed bound needs",
        "lower bound of every policy / printed upper bound",
    )
    run.save_picture(picture)


def _guides(ax: Axes, curve: FinalRegretCurve) -> None:
    """Straight lines of both exponents, through the regret at the largest gap."""
    for exponent, style, what in (
        (printed_exponent(RATE_V), (0, (1, 2)), "printed"),
        (corrected_exponent(RATE_V), (0, (6, 3)), "corrected"),
    ):
        line = curve.means[-1] * (curve.values / curve.values[-1]) ** -exponent
        look: dict[str, Any] = {"color": "0.35", "lw": 1.2, "ls": style}
        ax.plot(curve.values, line, label=f"slope {what}: {-exponent:.2f}", **look)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.11), frameon=False, fontsize=8)


def _draw_curves(
    ax: Axes,
    gaps: Sequence[float] | np.ndarray,
    curves: Mapping[str, Any],
    heading: str,
    what: str,
) -> None:
    from balaclava.simulation.analysis.regret_plots import COLOURS, LINE_STYLES

    for i, (label, values) in enumerate(curves.items()):
        ax.plot(gaps, values, color=COLOURS[i + 1], ls=LINE_STYLES[i], label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_title(f"{heading}, ε=1 per report, T={LONG:.0e}", fontsize=10, loc="left")
    ax.set_xlabel("gap of the hard pair")
    ax.set_ylabel(what)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.11), frameon=False, fontsize=8)

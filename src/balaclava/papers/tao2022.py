"""Tao, Wu, Zhao, Wang, (Locally) differentially private heavy-tailed multi-armed bandits, 2022.

Figures 1, 3 and 4 compare DPR-UCB with DPR-SE on the instances S1, S2 and S3 of Pareto arms, under
central privacy. Figure 2 shows LDPR-SE on S3, under local privacy. A figure of ours tests the rate
of the local bound.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from balaclava.environments.base import Environment, environment
from balaclava.environments.hard_instances import hard_pair
from balaclava.papers.harness import figure_run
from balaclava.papers.harness.claims import claim_line, compare_means, misled_runs, ranking
from balaclava.papers.harness.figure_calibration import (
    ScaleQuestion,
    describe_calibration,
    find_scales,
    list_scales,
    scaled_label,
    unscaled_label,
)
from balaclava.papers.harness.figure_plots import Axes, frame_axes, legend_below, regret_panels
from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_registry import Paper, by_scale, figure
from balaclava.papers.harness.final_regret_curves import (
    FinalRegretCurve,
    RegretStudy,
    draw_studies,
    play_studies,
)
from balaclava.simulation.analysis.statistics import mean_of_regret
from balaclava.simulation.results import Results
from balaclava.theory.bounds import local_pair

TAO_2022 = Paper(
    reference="Tao, Wu, Zhao, Wang. Optimal rates of (locally) differentially private heavy-tailed "
    "multi-armed bandits. AISTATS 2022",
    seed=2022,
    full_scale="the paper's 90 repetitions, a horizon of our own (the paper states none)",
    sizes={
        "proved": by_scale(figure_run.RunSize(10_000_000, 2), figure_run.RunSize(10_000_000, 90)),
        "calibrated": by_scale(figure_run.RunSize(200_000, 10), figure_run.RunSize(10_000_000, 90)),
        "local": by_scale(figure_run.RunSize(500_000, 8), figure_run.RunSize(10_000_000, 90)),
        "rate": by_scale(figure_run.RunSize(15_000_000, 8), figure_run.RunSize(15_000_000, 90)),
    },
)
PARETO_INSTANCES = {  # means of S1, S2 and S3 as the paper prints them
    1: (0.9, 0.7, 0.5, 0.3, 0.1),
    2: (0.9, 0.55, 0.3, 0.15, 0.1),
    3: (0.9, 0.85, 0.7, 0.45, 0.1),
}
# Means of the instances for calibration: none of them is in a figure.
CALIBRATION_MEANS = ((0.9, 0.5, 0.5, 0.5, 0.5), (0.9, 0.8, 0.8, 0.8, 0.8))
CALIBRATION_WORLDS = "two instances of Pareto arms, one arm 0.4 and one 0.1 above all others"
FINALIST_RUNS = {"quick": 20, "paper": 40, "tiny": 2}  # of each finalist of a calibration
SLOW_POLICY_RUNS = {"dpr-ucb": 8}  # at most: its runs take ten times as long

# Endings of file names, and the remark in the title.
TITLE_REMARKS = {"": "with the constants of the proofs", "-calibrated": "with calibrated radii"}
_TAO_POLICIES = ("dpr-ucb", "dpr-se")
_SCALED_POLICIES = (*_TAO_POLICIES, "dpr-batch-ucb", "robust-ucb")


def run_size(run: figure_run.FigureRun, purpose: str) -> figure_run.RunSize:
    return TAO_2022.sizes[purpose][run.scale]


def instance(number: int, v: float) -> Environment:
    """S1, S2 or S3, with tails that have a moment of order 1 + v and hardly more."""
    return pareto(PARETO_INSTANCES[number], v)


def pareto(means: Sequence[float], v: float) -> Environment:
    """Pareto arms with the paper's shape 1.05 + v."""
    return environment("pareto", means=means, shape=1.05 + v)


class TaoSetting(NamedTuple):
    instance: int
    epsilon: float
    v: float

    @property
    def world(self) -> Environment:
        return instance(self.instance, self.v)

    def parameters(self, horizon: int, epsilon: float | None = None) -> dict[str, Any]:
        """Every parameter that a policy may take; u is the moment of the best arm, the largest."""
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


def scale_question(
    run: figure_run.FigureRun, name: str, v: float, parameters: dict[str, Any]
) -> ScaleQuestion:
    """The search for a radius_scale, on instances that are not in a figure."""
    runs = FINALIST_RUNS[run.scale]
    size = figure_run.RunSize(parameters["horizon"], min(runs, SLOW_POLICY_RUNS.get(name, runs)))
    worlds = tuple(pareto(means, v) for means in CALIBRATION_MEANS)
    return ScaleQuestion(make_policy(name, **parameters), worlds, size)


# Figures 1, 3 and 4: central privacy.


def play_central(run: figure_run.FigureRun, number: int) -> dict[str, TaoSetting]:
    pairs = [(0.5, 0.5), (0.5, 0.9), (1.0, 0.5), (1.0, 0.9)]
    settings = {
        letter: TaoSetting(number, epsilon, v)
        for letter, (epsilon, v) in zip("abcd", pairs, strict=True)
    }
    shorter = {
        each: one.parameters(run_size(run, "calibrated").horizon) for each, one in settings.items()
    }
    questions = {
        (letter, name): scale_question(run, name, setting.v, shorter[letter])
        for letter, setting in settings.items()
        for name in _SCALED_POLICIES
    }
    scales = find_scales(questions, run.workers, run.device)
    panels, sizes = {}, dict.fromkeys(settings, run_size(run, "proved"))
    for letter, setting in settings.items():
        parameters = setting.parameters(sizes[letter].horizon)
        names = (*_SCALED_POLICIES, "dpr-adaptive-ucb")
        policies = {name: make_policy(name, **parameters) for name in names}
        panels[letter] = figure_run.FigurePanel(policies, setting.world)
    for letter, setting in settings.items():
        parameters = shorter[letter]
        policies = {}
        for name in _SCALED_POLICIES:
            scale = scales[letter, name]
            policies[scaled_label(name, scale)] = make_policy(
                name, **parameters, radius_scale=scale
            )
        policies["dpr-adaptive-ucb"] = make_policy("dpr-adaptive-ucb", **parameters)
        panels[f"{letter}-calibrated"] = figure_run.FigurePanel(policies, setting.world)
        sizes[f"{letter}-calibrated"] = run_size(run, "calibrated")
    run.play(panels, sizes, seed=TAO_2022.seed)
    headings = {letter: str(setting) for letter, setting in settings.items()}
    _save_pictures(run, headings, f"S{number}", ("proved", "calibrated"))
    return settings


def _save_pictures(
    run: figure_run.FigureRun, headings: Mapping[str, str], subject: str, purposes: Sequence[str]
) -> None:
    for (ending, remark), purpose in zip(TITLE_REMARKS.items(), purposes, strict=True):
        parts = {letter: run.results[letter + ending] for letter in headings}
        title = (
            f"Tao, Wu, Zhao, Wang 2022, Figure {run.name.removeprefix('tao2022-fig')}, {subject}, "
            f"{remark}\n{run.scale_words}: {run_size(run, purpose)}; median and 10 % to 90 % "
            "quantiles"
        )
        run.save_picture(regret_panels(parts, headings, title, medians=True), ending)


def policy_label(results: Results, name: str) -> str:
    return next(label for label in results.labels if unscaled_label(label) == name)


def policy_regret(results: Results, name: str) -> tuple[float, float]:
    return mean_of_regret(results, policy_label(results, name))


def _claims(results: Mapping[str, Results], ending: str) -> list[str]:
    """The paper's three claims. Panels (a) and (b) have epsilon 0.5; (a) and (c) have v = 0.5."""

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
    for name in _TAO_POLICIES:
        lines += [
            claim_line(f"{name}: less regret at ε=1 than at ε=0.5", compared(name, "ca", "db")),
            claim_line(f"{name}: less regret at v=0.9 than at v=0.5", compared(name, "ba", "dc")),
        ]
    return lines


def _central(run: figure_run.FigureRun, number: int) -> figure_run.FigureText:
    settings = play_central(run, number)
    results, horizon = run.results, run_size(run, "proved").horizon
    size, paper = run_size(run, "calibrated"), TAO_2022.sizes["proved"]["paper"]

    def first_drop(letter: str) -> int:
        policy: Any = results[letter].policies["dpr-se"]
        return policy.arms * policy.first_epoch

    return run.text(
        "tao2022-central",
        number=number,
        settings=settings,
        horizon=horizon,
        proved=[*_rankings(results, settings, ""), *_claims(results, "")],
        first_drop=first_drop,
        bonus=lambda letter: _bonus(results[letter].policies["dpr-ucb"], horizon),
        calibrated=[
            *_rankings(results, settings, "-calibrated"),
            *_claims(results, "-calibrated"),
            *_misled(results, settings),
        ],
        paper_horizon=paper.horizon,
        repetitions=_repetitions(run, "proved"),
        size=size,
        calibration=describe_calibration(
            CALIBRATION_WORLDS,
            figure_run.RunSize(size.horizon, FINALIST_RUNS[run.scale]),
            SLOW_POLICY_RUNS,
        ),
        scales=_scale_lines(results, settings),
    )


def _scale_lines(results: Mapping[str, Results], settings: Iterable[str]) -> list[str]:
    lines = []
    for letter in settings:
        policies: dict[str, Any] = results[f"{letter}-calibrated"].policies
        names = {label: unscaled_label(label) for label in policies}
        scales = {
            name: policies[label].radius_scale for label, name in names.items() if name != label
        }
        lines.append(f"({letter}) {list_scales(scales)}.")
    return lines


def _misled(results: Mapping[str, Results], settings: Iterable[str]) -> list[str]:
    parts = {letter: results[f"{letter}-calibrated"] for letter in settings}
    return [f"({letter}) {misled_runs(part, part.labels)}" for letter, part in parts.items()]


def _repetitions(run: figure_run.FigureRun, purpose: str) -> str:
    size, paper = run_size(run, purpose), TAO_2022.sizes[purpose]["paper"]
    if size == paper:
        return f"Repetitions are the paper's: {paper}."
    return f"Fewer than the paper's {paper.repetitions} repetitions: {size}."


def _bonus(policy: Any, horizon: int) -> float:
    """DPR-UCB's bonus at the end, if all arms are played equally."""
    params, pulls = policy.constants(), horizon / policy.arms
    return float(params.bonus * (math.log(2.0 * horizon**4) / pulls) ** (1.0 - params.root))


def _rankings(
    results: Mapping[str, Results], settings: Mapping[str, TaoSetting], ending: str
) -> list[str]:
    return [
        f"({letter}) {setting}: {ranking(results[letter + ending])}"
        for letter, setting in settings.items()
    ]


for _figure, _instance in ((1, 1), (3, 2), (4, 3)):
    figure(
        f"tao2022-fig{_figure}",
        f"DPR-UCB against DPR-SE on S{_instance}, central privacy",
        TAO_2022,
    )(functools.partial(_central, number=_instance))


# Figure 2: local privacy.

LOCAL_EPSILONS = (5.0, 10.0, 20.0)  # as in the paper
_LOCAL_POLICIES = ("ldpr-se", "ldpr-batch-ucb")


def _epsilon_label(name: str, epsilon: float) -> str:
    return f"{name} ε={epsilon:g}"


def play_local(run: figure_run.FigureRun) -> dict[str, TaoSetting]:
    """Simulate LDPR-SE and its rivals on S3, with both kinds of constants, and draw them."""
    size = run_size(run, "local")
    settings = {"a": TaoSetting(3, 1.0, 0.5), "b": TaoSetting(3, 1.0, 0.9)}  # ε=1: that of dpr-se
    questions = {}
    for letter, setting in settings.items():
        for name in _LOCAL_POLICIES:
            for epsilon in LOCAL_EPSILONS:
                parameters = setting.parameters(size.horizon, epsilon)
                label = _epsilon_label(name, epsilon)
                questions[letter, label] = scale_question(run, name, setting.v, parameters)
        parameters = setting.parameters(size.horizon)
        for name in ("dpr-se", "robust-ucb"):
            questions[letter, name] = scale_question(run, name, setting.v, parameters)
    policies: dict[str, dict[str, Any]] = {}
    for (letter, label), scale in find_scales(questions, run.workers, run.device).items():
        policy = questions[letter, label].policy
        policies.setdefault(letter, {})[label] = policy
        tuned = type(policy).create({**policy.parameters, "radius_scale": scale})
        policies.setdefault(f"{letter}-calibrated", {})[scaled_label(label, scale)] = tuned
    panels = {
        each: figure_run.FigurePanel(policies[each], settings[each[0]].world) for each in policies
    }
    run.play(panels, size, seed=TAO_2022.seed)
    headings = {letter: f"S3, v={setting.v:g}" for letter, setting in settings.items()}
    _save_pictures(run, headings, "S3, local privacy", ("local", "local"))
    return settings


@figure("tao2022-fig2", "LDPR-SE on S3, local privacy", TAO_2022)
def figure_2(run: figure_run.FigureRun) -> figure_run.FigureText:
    settings = play_local(run)
    results, size = run.results, run_size(run, "local")

    def first_epochs(letter: str) -> str:
        policies: dict[str, Any] = results[letter].policies
        first = {e: policies[_epsilon_label("ldpr-se", e)] for e in LOCAL_EPSILONS}
        return ", ".join(f"{p.arms * p.first_epoch:.2g} at ε={e:g}" for e, p in first.items())

    return run.text(
        settings=settings,
        size=size,
        proved=[f"({letter}) {ranking(results[letter])}" for letter in settings],
        first_epochs=first_epochs,
        calibrated=[
            *(f"({letter}) {ranking(results[f'{letter}-calibrated'])}" for letter in settings),
            *_local_claims(results),
            *_misled(results, settings),
        ],
        repetitions=_repetitions(run, "local"),
        calibration=describe_calibration(
            CALIBRATION_WORLDS, figure_run.RunSize(size.horizon, FINALIST_RUNS[run.scale])
        ),
        scales=_scale_lines(results, settings),
    )


def _local_claims(results: Mapping[str, Results]) -> list[str]:
    loose, tight = results["a-calibrated"], results["b-calibrated"]
    lines = []
    for name in _LOCAL_POLICIES:
        for less, more in ((10.0, 5.0), (20.0, 10.0)):
            agreement = {
                letter: compare_means(
                    *(policy_regret(of, _epsilon_label(name, e)) for e in (less, more))
                )
                for letter, of in (("a", loose), ("b", tight))
            }
            lines.append(
                claim_line(f"{name}: less regret at ε={less:g} than at ε={more:g}", agreement)
            )
    for epsilon in LOCAL_EPSILONS:
        label = _epsilon_label("ldpr-se", epsilon)
        agreement = {"b": compare_means(policy_regret(tight, label), policy_regret(loose, label))}
        lines.append(claim_line(f"{label}: less regret at v=0.9 than at v=0.5", agreement))
        agreement = {
            letter: compare_means(policy_regret(of, "dpr-se"), policy_regret(of, label))
            for letter, of in (("a", loose), ("b", tight))
        }
        lines.append(claim_line(f"{label} above dpr-se at ε=1, central", agreement))
    return lines


# Ours: the rate of the local bound.

# Chosen so that LDPR-SE finds the smallest gap in time; neither changes the exponent.
RATE_EPSILON, RATE_SCALE = 10.0, 0.2
RATE_V = 1.0
RATE_MOMENT = 0.7  # bounds the moment of the pair and of its alternative, for every v
RATE_GAPS = [0.2 * 2.0 ** (-i / 3) for i in range(6, -1, -1)]  # two steps of ldpr-se's staircase
BOUND_GAPS = [0.2 * 2.0 ** (-i / 3) for i in range(9, -1, -1)]
RATE_HORIZON = 10**18  # rounds; long enough that the lower bound is not trivial at small gaps


def printed_exponent(v: float) -> float:
    """The exponent of 1/gap in the regret, by Theorem 7 as printed."""
    return 1.0 / v


def corrected_exponent(v: float) -> float:
    """The exponent of 1/gap in the regret, by Theorem 7 corrected; no local policy has less."""
    return (2.0 + v) / v


def needed_constant(gap: float, v: float, horizon: int, epsilon: float = 1.0) -> float:
    """The constant that the O(.) of Theorem 7 must hide: no regret is below `local_pair`."""
    least = local_pair(gap, moment_order=1.0 + v, horizon=horizon, epsilon=epsilon)
    return least * epsilon**2 * gap ** printed_exponent(v) / math.log(horizon)


def rate_policy(name: str, horizon: int, epsilon: float, scale: float = 1.0) -> Any:
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
    return hard_pair(gap, 1.0 + RATE_V)[0]


def rate_study(run: figure_run.FigureRun) -> RegretStudy:
    """Regret of LDPR-SE on the hard pair against its gap."""
    size, label = run_size(run, "rate"), scaled_label("ldpr-se", RATE_SCALE)
    policy = rate_policy("ldpr-se", size.horizon, RATE_EPSILON, RATE_SCALE)
    gaps = [float(f"{gap:.3g}") for gap in RATE_GAPS[:: 3 if run.scale == "tiny" else 1]]
    heading = f"measured on the hard pair, v={RATE_V:g}; {size}"
    return RegretStudy("gap of the hard pair", gaps, pair, lambda _: {label: policy}, heading, size)


def proved_rates() -> dict[str, list[float]]:
    """Bounds at epsilon 1: upper ones of two policies, and a lower one of every policy."""
    bounds = {
        f"{name}: proved upper bound": [
            rate_policy(name, RATE_HORIZON, 1.0).proved_bound(pair(gap), RATE_HORIZON)
            for gap in BOUND_GAPS
        ]
        for name in _LOCAL_POLICIES
    }
    bounds["every policy: proved lower bound"] = [
        local_pair(gap, moment_order=1.0 + RATE_V, horizon=RATE_HORIZON, epsilon=1.0)
        for gap in BOUND_GAPS
    ]
    return bounds


def fit_log_slope(gaps: Sequence[float], values: Sequence[float]) -> float:
    return float(np.polyfit(np.log(gaps), np.log(values), 1)[0])


@figure(
    "tao2022-local-rate",
    "The rate of the local bound, as printed and corrected",
    TAO_2022,
    figure_run.OUR_SCALE,
)
def local_rate(run: figure_run.FigureRun) -> figure_run.FigureText:
    studies = {"a": rate_study(run)}
    curves = play_studies(run, studies, TAO_2022.seed)
    ((label, curve),) = curves["a"].items()
    bounds = proved_rates()
    gaps = np.geomspace(1e-3, 0.2, 60)
    needed = {
        v: np.array([needed_constant(float(gap), v, RATE_HORIZON) for gap in gaps])
        for v in (1.0, 0.75, 0.5)
    }
    _draw_rates(run, studies, curves, bounds, gaps, needed)
    size = run_size(run, "rate")
    return run.text(
        v=RATE_V,
        printed=printed_exponent(RATE_V),
        corrected=corrected_exponent(RATE_V),
        label=label,
        curve=curve,
        runs=size.repetitions * len(curve.values),
        bound_slopes={what: fit_log_slope(BOUND_GAPS, bounds[what]) for what in bounds},
        gaps=gaps,
        needed=needed,
        epoch=rate_policy("ldpr-se", size.horizon, 1.0).first_epoch,
        horizon=RATE_HORIZON,
    )


def _draw_rates(
    run: figure_run.FigureRun,
    studies: Mapping[str, RegretStudy],
    curves: Mapping[str, Mapping[str, FinalRegretCurve]],
    bounds: Mapping[str, list[float]],
    gaps: np.ndarray,
    needed: Mapping[float, np.ndarray],
) -> None:
    title = (
        "The rate of local privacy: Tao, Wu, Zhao, Wang 2022, Theorem 7, as printed and corrected\n"
        f"{run.scale_words}: (a) mean ± 95 % interval; (b), (c) computed"
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
    """Draw straight lines of both exponents through the regret at the largest gap."""
    for exponent, style, what in (
        (printed_exponent(RATE_V), (0, (1, 2)), "printed"),
        (corrected_exponent(RATE_V), (0, (6, 3)), "corrected"),
    ):
        line = curve.means[-1] * (curve.values / curve.values[-1]) ** -exponent
        look: dict[str, Any] = {"color": "0.35", "lw": 1.2, "ls": style}
        ax.plot(curve.values, line, label=f"slope {what}: {-exponent:.2f}", **look)
    legend_below(ax)


def _draw_curves(
    ax: Axes, gaps: Sequence[float] | np.ndarray, curves: Mapping[str, Any], heading: str, what: str
) -> None:
    from balaclava.simulation.analysis.regret_plots import COLOURS, LINE_STYLES

    for i, (label, values) in enumerate(curves.items()):
        ax.plot(gaps, values, color=COLOURS[i + 1], ls=LINE_STYLES[i], label=label)
    frame_axes(ax)
    ax.set_title(f"{heading}, ε=1 per report, T={RATE_HORIZON:.0e}", fontsize=10, loc="left")
    ax.set(xlabel="gap of the hard pair", ylabel=what)
    legend_below(ax)

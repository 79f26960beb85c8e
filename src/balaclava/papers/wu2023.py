"""Wu, Zhou, Tao, Wang, On private and robust bandits, 2023.

The paper's own experiments are in an appendix that we do not have. The figures here are ours. Each
tests a claim of its theorems on Student-t arms: one is the best, and all others are alike.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from balaclava.environments.base import Environment, environment
from balaclava.papers.harness import final_regret_curves
from balaclava.papers.harness.claims import claim_line, compare_means
from balaclava.papers.harness.figure_calibration import (
    ScaleQuestion,
    describe_calibration,
    find_scales,
    list_scales,
    scaled_label,
    unscaled_label,
)
from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_registry import Paper, by_scale, figure
from balaclava.papers.harness.figure_run import FigureRun, FigureText, RunSize

WU_2023 = Paper(
    reference="Wu, Zhou, Tao, Wang. On private and robust bandits. NeurIPS 2023",
    seed=2023,
    full_scale="our own scale (our text of the paper lacks its experiments)",
    sizes={
        "proved": by_scale(RunSize(10_000_000, 2), RunSize(10_000_000, 90)),
        "calibrated": by_scale(RunSize(500_000, 10), RunSize(10_000_000, 90)),
        # The repetitions are of each finalist of a calibration.
        "calibration": by_scale(RunSize(500_000, 20), RunSize(10_000_000, 40)),
    },
)
# The instances are our choice.
STUDENT_ARMS = 5
BEST_MEAN, STUDENT_GAP = 0.6, 0.5
VARIANCE = 0.64  # then E X^2 = 1 for the best arm
CALIBRATION_GAPS = (0.3, 0.6)  # of the instances for calibration, which are not in a figure
CALIBRATION_INSTANCES = "two instances with gaps 0.3 and 0.6"
_NOT_LEARNING = 0.97  # share of the regret of playing all arms in turn; a guess
MEANINGS = {
    "α": "the share of outliers",
    "ε": "the privacy loss of the trajectory",
    "k": "the order of the known moment",
    "D": "the range of means",
}


class StudentArms(NamedTuple):
    """Student-t arms: one best, the others a gap below."""

    degrees: float
    shift: float = 0.0  # added to all means
    contamination: float = 0.0
    order: float = 2.0  # of the moment that the policies know

    def clean(self, gap: float = STUDENT_GAP) -> Environment:
        scale = (VARIANCE * (self.degrees - 2.0) / self.degrees) ** 0.5
        best = self.shift + BEST_MEAN
        means = [best] + [best - gap] * (STUDENT_ARMS - 1)
        return environment("student-t", means=means, degrees=self.degrees, scale=scale)

    def world(self, gap: float = STUDENT_GAP) -> Environment:
        """The arms with hostile outliers, which lower the best arm and raise all others.

        The outliers are just within the truncation level of a policy that knows their share.
        """
        if self.contamination == 0.0:
            return self.clean(gap)
        size = 0.99 * (self.raw / self.contamination) ** (1.0 / self.order)
        values = [-size] + [size] * (STUDENT_ARMS - 1)
        return environment(
            "contaminated",
            inner=self.clean(gap),
            fraction=self.contamination,
            outliers={"kind": "points", "values": values},
        )

    @property
    def raw(self) -> float:
        """E|X|^k of the best arm, the largest."""
        return self.clean().moment(self.order)

    @property
    def central(self) -> float:
        """E|X - mean|^k, the same for all arms."""
        return self.clean().moment(self.order, central=True)


class WuSetting(NamedTuple):
    arms: StudentArms
    epsilon: float = 0.5
    mean_range: float = 10.0


class Contender(NamedTuple):
    """A policy by name, with a raw or a central moment."""

    name: str
    central: bool = False

    @property
    def label(self) -> str:
        return f"{self.name} central" if self.central and self.name != "prae-central" else self.name

    def make(self, setting: WuSetting, horizon: int, scale: float = 1.0) -> Any:
        arms = setting.arms
        parameters = {
            "arms": STUDENT_ARMS,
            "horizon": horizon,
            "epsilon": setting.epsilon,
            "moment_order": arms.order,
            "moment_bound": arms.central if self.central else arms.raw,
            "contamination": arms.contamination,
            "radius_scale": scale,
        }
        if self.central:
            parameters["mean_range"] = setting.mean_range
        return make_policy(self.name, **parameters)


PRAE_RAW, PRAE_CENTRAL = Contender("prae-raw"), Contender("prae-central", central=True)
BATCH_RAW, BATCH_CENTRAL = Contender("dpr-batch-ucb"), Contender("dpr-batch-ucb", central=True)


class FigurePlan(NamedTuple):
    """A figure: the varied quantity, the policies, and the scale of the radii in panel (b).

    Either they are calibrated at one value, `chosen_at`, or all have the same `scale`.
    """

    symbol: str
    values: Sequence[float]
    at: Callable[[float], WuSetting]
    contenders: Sequence[Contender]
    chosen_at: float
    heading: str
    scale: float | None = None


def chosen_scales(run: FigureRun, plan: FigurePlan) -> dict[str, float]:
    """The scale of each contender, the same at all values."""
    if plan.scale is not None:
        return {contender.label: plan.scale for contender in plan.contenders}
    setting, size = plan.at(plan.chosen_at), WU_2023.sizes["calibration"][run.scale]
    worlds = tuple(setting.arms.world(gap) for gap in CALIBRATION_GAPS)
    questions = {
        contender.label: ScaleQuestion(contender.make(setting, size.horizon), worlds, size)
        for contender in plan.contenders
    }
    return find_scales(questions, run.workers, run.device)


def regret_against(
    run: FigureRun, plan: FigurePlan, size: RunSize, scales: Mapping[str, float]
) -> final_regret_curves.RegretStudy:
    """Regret against the varied quantity, with these scales; without any, the proofs' constants."""

    def policies(value: float) -> dict[str, Any]:
        by_label = {}
        for contender in plan.contenders:
            scale = scales.get(contender.label, 1.0)
            label = scaled_label(contender.label, scale) if scales else contender.label
            by_label[label] = contender.make(plan.at(value), size.horizon, scale)
        return by_label

    values = plan.values[::2] if run.scale == "tiny" else plan.values
    remark = "calibrated radii" if plan.scale is None else "smaller radii"
    if not scales:
        remark = "the constants of the proofs"
    heading = f"{plan.heading}; {remark}\n{size}"
    return final_regret_curves.RegretStudy(
        plan.symbol, values, lambda v: plan.at(v).arms.world(), policies, heading, size
    )


class WuCurves(NamedTuple):
    """The curves of a figure: (a) with the proofs' constants, (b) with smaller radii."""

    curves: dict[str, dict[str, final_regret_curves.FinalRegretCurve]]  # by letter, then by label
    studies: dict[str, final_regret_curves.RegretStudy]
    scales: dict[str, float]  # in (b), by label

    def by_letter(self, contender: Contender) -> dict[str, final_regret_curves.FinalRegretCurve]:
        return {
            letter: next(
                c for label, c in curves.items() if unscaled_label(label) == contender.label
            )
            for letter, curves in self.curves.items()
        }


def play_figure(run: FigureRun, plan: FigurePlan) -> WuCurves:
    scales = chosen_scales(run, plan)
    studies = {
        "a": regret_against(run, plan, WU_2023.sizes["proved"][run.scale], {}),
        "b": regret_against(run, plan, WU_2023.sizes["calibrated"][run.scale], scales),
    }
    curves = final_regret_curves.play_studies(run, studies, WU_2023.seed)
    axis = f"{plan.symbol}, {MEANINGS[plan.symbol]}"
    title = (
        f"After Wu, Zhou, Tao, Wang 2023 (a figure of ours): regret against {axis}\n"
        f"{run.scale_words}: mean ± 95 % interval"
    )
    picture = final_regret_curves.draw_studies(studies, curves, title)
    for ax in picture.axes:
        ax.set_xlabel(axis)
    run.save_picture(picture)
    return WuCurves(curves, studies, scales)


def _text(run: FigureRun, plan: FigurePlan, outcome: WuCurves, **values: Any) -> FigureText:
    size = WU_2023.sizes["calibration"][run.scale]
    return run.text(
        plan=plan,
        arms=STUDENT_ARMS,
        gap=STUDENT_GAP,
        variance=VARIANCE,
        calibration=describe_calibration(CALIBRATION_INSTANCES, size),
        scales=list_scales(outcome.scales),
        outcome=outcome,
        describe_ranges=final_regret_curves.describe_ranges,
        unlearned_values=unlearned_values,
        **values,
    )


def unlearned_values(curve: final_regret_curves.FinalRegretCurve) -> list[float]:
    """The values at which regret is that of playing all arms in turn, or more."""
    return [
        float(value)
        for value, mean, uniform in zip(curve.values, curve.means, curve.uniform, strict=True)
        if mean > _NOT_LEARNING * uniform
    ]


@figure("wu2023-alpha", "Regret against the share of outliers", WU_2023)
def alpha(run: FigureRun) -> FigureText:
    plan = FigurePlan(
        "α",
        [1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1],
        lambda value: WuSetting(StudentArms(5.0, contamination=value)),
        (PRAE_RAW, PRAE_CENTRAL, BATCH_RAW),
        0.01,
        "k=2, ε=0.5, hostile outliers",
    )
    outcome = play_figure(run, plan)
    horizon = WU_2023.sizes["proved"][run.scale].horizon
    radii = []
    for value in outcome.studies["a"].values:
        policy = PRAE_RAW.make(plan.at(value), horizon)
        least = min(radius for _, radius in policy.batches(horizon // STUDENT_ARMS))
        radii.append(f"{2 * least:.2f} at α={value:g}")
    most = outcome.studies["a"].values[-1]
    return _text(
        run,
        plan,
        outcome,
        horizon=horizon,
        radii=", ".join(radii),
        most=most,
        levels=BATCH_RAW.make(plan.at(most), horizon).schedule.levels,
    )


@figure("wu2023-epsilon", "Regret against ε", WU_2023)
def epsilon(run: FigureRun) -> FigureText:
    plan = FigurePlan(
        "ε",
        [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0],
        lambda value: WuSetting(StudentArms(5.0), epsilon=value),
        (PRAE_RAW, PRAE_CENTRAL, BATCH_RAW),
        0.5,
        "k=2, no outliers",
        scale=0.25,
    )
    outcome = play_figure(run, plan)
    slopes = [
        f"({letter}) {label}: {curve.slope(0, 3):.2f} at the three smallest ε, "
        f"{curve.slope(-3):.2f} at the three largest."
        for letter, curves in outcome.curves.items()
        for label, curve in curves.items()
    ]
    claims = [
        claim_line(
            f"{contender.label}: less regret at the largest ε than at the smallest",
            {
                letter: compare_means(curve.at(-1), curve.at(0))
                for letter, curve in outcome.by_letter(contender).items()
            },
        )
        for contender in plan.contenders
    ]
    return _text(
        run,
        plan,
        outcome,
        claims=claims,
        slopes=slopes,
        first_batches=[_first_batches(plan, i) for i in (0, -1)],
    )


def _first_batches(plan: FigurePlan, i: int) -> float:
    """The regret of one batch of each arm by dpr-batch-ucb."""
    setting = plan.at(plan.values[i])
    policy = BATCH_RAW.make(setting, WU_2023.sizes["proved"]["quick"].horizon)
    return float(policy.schedule.sizes[0] * setting.arms.clean().gaps.sum())


@figure("wu2023-moment", "Regret against the order of the known moment", WU_2023)
def moment(run: FigureRun) -> FigureText:
    plan = FigurePlan(
        "k",
        [2.0, 2.5, 3.0, 4.0, 6.0, 8.0],
        lambda value: WuSetting(StudentArms(9.0, order=value), epsilon=0.1, mean_range=20.0),
        (PRAE_RAW, PRAE_CENTRAL, BATCH_RAW),
        2.0,
        "Student-t with 9 degrees, ε=0.1",
        scale=0.25,
    )
    outcome = play_figure(run, plan)
    best = []
    for letter, curves in outcome.curves.items():
        least = {label: int(curve.means.argmin()) for label, curve in curves.items()}
        stated = [f"{label} {curves[label].values[at]:g}" for label, at in least.items()]
        best.append(f"({letter}) Least regret at k: {'; '.join(stated)}.")
    claims = [
        claim_line(
            f"{contender.label}: less regret at k=4 than at k=2",
            {
                letter: compare_means(*(curve.at(list(curve.values).index(k)) for k in (4.0, 2.0)))
                for letter, curve in outcome.by_letter(contender).items()
                if 4.0 in curve.values
            },
        )
        for contender in plan.contenders
    ]
    roots = [_root(plan.at(k).arms) for k in (2.0, 8.0)]
    return _text(run, plan, outcome, statements=[*claims, *best], roots=roots)


def _root(arms: StudentArms) -> float:
    return float(arms.raw ** (1.0 / arms.order))


@figure("wu2023-range", "Regret against the range of means: raw and central moments", WU_2023)
def mean_range(run: FigureRun) -> FigureText:
    plan = FigurePlan(
        "D",
        [10.0, 30.0, 100.0, 300.0, 1000.0],
        lambda value: WuSetting(
            StudentArms(5.0, shift=value - 1.0, order=4.0), 1.0, mean_range=value
        ),
        (PRAE_RAW, PRAE_CENTRAL, BATCH_RAW, BATCH_CENTRAL),
        10.0,
        "means near D, k=4, ε=1",
        scale=0.25,
    )
    outcome = play_figure(run, plan)
    claims = [
        claim_line(
            f"{central.label} below {raw.label} at D={outcome.studies['a'].values[-1]:g}",
            {
                letter: compare_means(
                    outcome.by_letter(central)[letter].at(-1), outcome.by_letter(raw)[letter].at(-1)
                )
                for letter in "ab"
            },
        )
        for raw, central in ((PRAE_RAW, PRAE_CENTRAL), (BATCH_RAW, BATCH_CENTRAL))
    ]
    growth = [
        f"({letter}) {label}: regret grows {curve.means[-1] / curve.means[0]:.2g}-fold from D="
        f"{curve.values[0]:g} to {curve.values[-1]:g}."
        for letter, curves in outcome.curves.items()
        for label, curve in curves.items()
    ]
    return _text(run, plan, outcome, statements=[*claims, *growth])

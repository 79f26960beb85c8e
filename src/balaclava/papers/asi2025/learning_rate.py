"""Asi, Raman, Talwar 2025: the effect of the learning rate, and the choice of the base."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from balaclava.advice.choose.calibrate import calibrate
from balaclava.advice.choose.calibration import Calibration
from balaclava.environments.hard_losses import fast_commit, hidden_best
from balaclava.papers.asi2025.loss_families import ASI_2025, LARGEST_GAP, family, gaps, hardest
from balaclava.papers.harness import worst_case_slopes
from balaclava.papers.harness.claims import compare_regret
from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import FigureRun, FigureText
from balaclava.simulation.simulation_batches import tasks_at_once
from balaclava.simulation.task_threads import run_tasks


class RatePlan(NamedTuple):
    arms: int
    horizon: int
    scales: tuple[float, ...]
    repetitions: int
    calibration: int  # repetitions of a finalist


RATE_PLANS = {
    "quick": RatePlan(
        10, 100_000, (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 128.0, 512.0), 8, 20
    ),
    "paper": RatePlan(
        10, 1_000_000, (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 128.0, 512.0), 40, 100
    ),
    "tiny": RatePlan(3, 400, (0.5, 1.0, 2.0), 3, 4),
}
LEARNING_EPSILON = 0.1  # our choice
RATE_LIST = ("dp-htinf", "dp-tsallis-inf", "dp-exp3", "dp-ftpl", "ldp-exp3")
EASY_GAP = 0.3  # our choice: every policy learns it in time
BASES = ("dp-htinf", "dp-tsallis-inf")
_COMPARED = {"agrees": "lower", "differs": "higher", "unclear": "not clearly different"}


def rate_settings(plan: RatePlan) -> list[worst_case_slopes.LossSetting]:
    """Every scale of every policy: on hard gaps, on an easy gap, and on losses that turn."""
    K, T = plan.arms, plan.horizon
    usual = {"arms": K, "horizon": T, "epsilon": LEARNING_EPSILON}
    turn = fast_commit(T, LEARNING_EPSILON)
    late = float(turn.means.mean() - turn.means.min())
    hard, settings = family(K, T, LEARNING_EPSILON), []
    for scale in plan.scales:
        policies = {n: make_policy(n, **usual, learning_rate_scale=scale) for n in RATE_LIST}
        two = {
            n: make_policy(n, **usual | {"arms": 2}, learning_rate_scale=scale) for n in RATE_LIST
        }
        easy = hidden_best(K, T, gap=EASY_GAP)
        even = T * (1.0 - 1.0 / K)
        settings += [
            worst_case_slopes.LossSetting("a", scale, T, policies, hard, LARGEST_GAP * even),
            worst_case_slopes.LossSetting("b", scale, T, policies, (easy,), EASY_GAP * even),
            worst_case_slopes.LossSetting("c", scale, T, two, (turn,), T * late),
        ]
    return settings


def calibrated(run: FigureRun, plan: RatePlan) -> dict[str, Calibration]:
    """The scales that `bl.calibrate` chooses for the two bases, on hard gaps."""
    K, T = plan.arms, plan.horizon
    start = hardest(K, T, LEARNING_EPSILON)
    worlds = {f"gap {gap:.2g}": hidden_best(K, T, gap=gap) for gap in gaps(start)[:-1]}
    held_out = {f"gap {LARGEST_GAP:g}": hidden_best(K, T, gap=LARGEST_GAP)}

    def search_for(name: str) -> Callable[[Callable[[], None]], Calibration]:
        return lambda raise_if_stopped: calibrate(
            make_policy(name, arms=K, horizon=T, epsilon=LEARNING_EPSILON),
            worlds or held_out,
            horizon=T,
            repetitions=plan.calibration,
            seed=ASI_2025.seed,
            held_out=held_out if worlds else None,
            scales=plan.scales,
            parameter="learning_rate_scale",
            workers=run.workers,
            device=run.device,
            progress=lambda *_: raise_if_stopped(),
        )

    tasks = [search_for(name) for name in BASES]
    answers = dict(run_tasks(tasks, tasks_at_once(run.device, len(tasks))))
    return {name: answers[number] for number, name in enumerate(BASES)}


def compare_bases(
    regrets: worst_case_slopes.WorstRegrets, calibrations: Mapping[str, Calibration]
) -> list[str]:
    """Compare dp-tsallis-inf with dp-htinf: means and spread of the runs."""
    plain, other = BASES
    lines, verdicts, spread_ratios, worse = [], [], [], 0
    for one, worlds in zip(regrets.settings, regrets.results, strict=True):
        if one.x != 1.0:
            continue
        for results in worlds:
            place = f"({one.panel}) gap {results.environment.gaps.max():.2g}"
            a, b = results.final_regret(plain), results.final_regret(other)
            verdicts.append(compare_regret(results, other, [plain]))
            spread_ratios.append(float(b.std(ddof=1) / max(a.std(ddof=1), 1e-9)))
            worse += int(b.max() > a.max())
            word = _COMPARED[verdicts[-1]]
            lines.append(f"{place}: {plain} {_spread(a)}; {other} {_spread(b)}, {word}.")
    lower, higher, all_of = verdicts.count("agrees"), verdicts.count("differs"), len(verdicts)
    better = lower > all_of / 2 and higher == 0 and worse <= all_of / 2
    head = (
        f"{'Yes' if better else 'No'}, as far as this shows. At the scale 1 the mean of {other} is "
        f"clearly lower on {lower} of {all_of} losses and clearly higher on {higher}; its worst "
        f"run is worse on {worse}, and its runs differ {np.median(spread_ratios):.1f} times as "
        "much (median of the ratios of standard deviations)."
    )
    best = [
        f"Calibrated, {name} at {calibration.scale:g}: "
        + "; ".join(
            f"{row.environment} {row.mean:,.0f} ± {row.plus_minus:,.0f}, worst "
            f"{row.worst:,.0f} (at 1: {row.before:,.0f}, worst {row.worst_before:,.0f})"
            for row in calibration.rows
        )
        + "."
        for name, calibration in calibrations.items()
    ]
    rows = list(zip(calibrations[plain].rows, calibrations[other].rows, strict=True))
    cheaper = sum(b.mean < a.mean for a, b in rows)
    safer = sum(b.worst < a.worst for a, b in rows)
    last = (
        f"At the scales that bl.calibrate chose, {other} has the lower mean on {cheaper} of "
        f"{len(rows)} gaps and the better worst run on {safer}."
    )
    return [head, *lines, *best, last]


def _spread(final: np.ndarray) -> str:
    spread = final.std(ddof=1)
    return f"{final.mean():,.0f} (deviation {spread:,.0f}, worst {final.max():,.0f})"


def best_scales(regrets: worst_case_slopes.WorstRegrets, panels: Iterable[str]) -> list[str]:
    lines = []
    for panel in panels:
        parts = []
        for label in regrets.labels(panel):
            points = regrets.points(panel, label)
            best = min(points, key=lambda point: point.mean)
            at_one = next(point for point in points if point.x == 1.0)
            parts.append(f"{label} {best.mean:,.0f} at {best.x:g} ({at_one.mean:,.0f} at 1)")
        lines.append(f"({panel}) least regret: {'; '.join(parts)}.")
    return lines


@figure("asi2025-learning-rate", "The effect of the learning rate and of the base", ASI_2025)
def learning_rate(run: FigureRun) -> FigureText:
    plan = RATE_PLANS[run.scale]
    regrets = worst_case_slopes.measure_settings(
        run, rate_settings(plan), repetitions=plan.repetitions, seed=ASI_2025.seed
    )
    calibrations = calibrated(run, plan)
    name = "learning_rate_scale"
    axes = {
        "a": worst_case_slopes.PanelAxis(f"{plan.arms} arms, the worst gap for each", name),
        "b": worst_case_slopes.PanelAxis(f"{plan.arms} arms, gap {EASY_GAP:g}", name),
        "c": worst_case_slopes.PanelAxis("2 arms, losses that turn (Lemma 5.1)", name),
    }
    title = (
        f"The learning rate of private policies for losses: T = {plan.horizon:,}, ε = "
        f"{LEARNING_EPSILON:g}; 1 is the rate of the theory\n{run.scale_words}: mean ± 95 % "
        f"interval of {plan.repetitions} repetitions"
    )
    run.save_picture(worst_case_slopes.draw_slopes(regrets, axes, title))
    scales = "; ".join(
        f"{policy} {calibration.scale:g}" for policy, calibration in calibrations.items()
    )
    return run.text(
        best=best_scales(regrets, axes),
        largest_gap=LARGEST_GAP,
        scales=scales,
        bases=compare_bases(regrets, calibrations),
    )

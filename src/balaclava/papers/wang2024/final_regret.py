"""Wang and Zhu 2024, Figures 6 and 7: regret at the end, against delta and against epsilon."""

from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import SEES, SHOWS, WHY, FigureRun, FigureText
from balaclava.papers.harness.final_regret_curves import CurveFamily, draw_curves, log_grid
from balaclava.papers.wang2024.bernoulli_instances import (
    WANG_2024,
    WangSetting,
    figure_title,
    regret_size,
    scale_note,
)

# Values of delta or epsilon on a curve, by scale; the paper does not state its grid.
GRID_POINTS = {"quick": 11, "paper": 21, "tiny": 3}
CURVE_POLICIES = ("dp-ftpl-gauss", "dp-ftpl-new")


def play_curves(run: FigureRun, families: dict[str, CurveFamily]) -> list[str]:
    """Simulate every curve on Instance 1, draw the final regrets, and describe them."""
    size, world = regret_size(run), WangSetting(1, 0.0).world
    panels = {letter: family.panel(world, size) for letter, family in families.items()}
    results = run.play(panels, size, seed=WANG_2024.seed, checkpoints=20)
    title = (
        f"{figure_title(run)}: Instance 1, regret after {size.horizon:,} rounds\n{run.scale} "
        f"scale: mean ± 95 % interval of {size.repetitions} repetitions"
    )
    run.save_picture(draw_curves(run, families, title))
    return [
        f"({letter}) {family}: {family.describe(results[letter])}"
        for letter, family in families.items()
    ]


def _why(run: FigureRun) -> list[str]:
    return [
        scale_note(run),
        "The paper does not state its grids. Ours are evenly spaced on a logarithmic scale. The "
        "steepest slopes are between adjacent points.",
        "At the dotted line all arms are played equally until the rounds end. There a curve bends "
        "because the horizon is short, not because privacy has become cheaper.",
        "Both policies guarantee epsilon and delta for each decision by itself.",
        "Bars are 95 % intervals for the mean; the paper reports standard deviations of 100 runs.",
    ]


@figure("wang2024-fig6", "Regret against δ, at ε = 0 and ε = 0.1", WANG_2024)
def figure_6(run: FigureRun) -> FigureText:
    points = GRID_POINTS[run.scale]
    families = {
        "a": CurveFamily("delta", log_grid(0.9, 1e-4, points), {"epsilon": 0.0}, CURVE_POLICIES),
        "b": CurveFamily("delta", log_grid(0.9, 1e-6, points), {"epsilon": 0.1}, CURVE_POLICIES),
    }
    statements = play_curves(run, families)
    return FigureText(
        "wang2024-fig6: regret against δ, at ε = 0 and ε = 0.1",
        {
            SHOWS: [
                "(a) ε = 0: both curves are flat down to δ = 0.01. Below, DP-FTPL-Gauss grows as "
                "1/δ^2 and DP-FTPL-New as 1/δ.",
                "(b) ε = 0.1: DP-FTPL-Gauss is flat to 0.02 and grows as 1/δ^2 to 0.01. Beyond, it "
                "grows slowly, as log(1/δ)/ε^2 dominates. DP-FTPL-New is lower and smooth.",
            ],
            SEES: statements,
            WHY: _why(run),
        },
    )


@figure("wang2024-fig7", "Regret against ε, at δ = 1e-10 and δ = 0.001", WANG_2024)
def figure_7(run: FigureRun) -> FigureText:
    points = GRID_POINTS[run.scale]
    families = {
        "a": CurveFamily("epsilon", log_grid(10.0, 1e-5, points), {"delta": 1e-10}, CURVE_POLICIES),
        "b": CurveFamily("epsilon", log_grid(10.0, 1e-5, points), {"delta": 1e-3}, CURVE_POLICIES),
    }
    statements = play_curves(run, families)
    return FigureText(
        "wang2024-fig7: regret against ε, at δ = 1e-10 and δ = 0.001",
        {
            SHOWS: [
                "(a) δ = 1e-10: both curves are flat at first. Then DP-FTPL-Gauss grows as 1/ε^2 "
                "and DP-FTPL-New as 1/ε.",
                "(b) δ = 0.001: DP-FTPL-Gauss grows in the same way until 1/δ^2 is the smaller "
                "start phase, and is flat then. DP-FTPL-New is smooth, and flat below ε = 0.0001.",
            ],
            SEES: statements,
            WHY: _why(run),
        },
    )

"""Wang and Zhu 2024, Figures 6 and 7: regret at the end, against delta and against epsilon."""

from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import FigureRun, FigureText
from balaclava.papers.harness.final_regret_curves import CurveFamily, draw_curves, log_grid
from balaclava.papers.wang2024 import bernoulli_instances as instances

# Values of delta or epsilon on a curve, by scale; the paper does not state its grid.
GRID_POINTS = {"quick": 11, "paper": 21, "tiny": 3}
CURVE_POLICIES = ("dp-ftpl-gauss", "dp-ftpl-new")


def describe_curves(run: FigureRun, families: dict[str, CurveFamily]) -> FigureText:
    """Simulate every curve on Instance 1, draw the final regrets, and describe them."""
    size, world = instances.regret_size(run), instances.WangSetting(1, 0.0).world
    panels = {letter: family.panel(world, size) for letter, family in families.items()}
    results = run.play(panels, size, seed=instances.WANG_2024.seed, checkpoints=20)
    title = (
        f"{instances.figure_title(run)}: Instance 1, regret after {size.horizon:,} rounds\n"
        f"{run.scale_words}: mean ± 95 % interval of {size.repetitions} repetitions"
    )
    run.save_picture(draw_curves(run, families, title))
    statements = [
        f"({letter}) {family}: {family.describe(results[letter])}"
        for letter, family in families.items()
    ]
    return run.text(statements=statements, scale=instances.scale_note(run))


@figure("wang2024-fig6", "Regret against δ, at ε = 0 and ε = 0.1", instances.WANG_2024)
def figure_6(run: FigureRun) -> FigureText:
    points = GRID_POINTS[run.scale]
    families = {
        "a": CurveFamily("delta", log_grid(0.9, 1e-4, points), {"epsilon": 0.0}, CURVE_POLICIES),
        "b": CurveFamily("delta", log_grid(0.9, 1e-6, points), {"epsilon": 0.1}, CURVE_POLICIES),
    }
    return describe_curves(run, families)


@figure("wang2024-fig7", "Regret against ε, at δ = 1e-10 and δ = 0.001", instances.WANG_2024)
def figure_7(run: FigureRun) -> FigureText:
    points = GRID_POINTS[run.scale]
    families = {
        "a": CurveFamily("epsilon", log_grid(10.0, 1e-5, points), {"delta": 1e-10}, CURVE_POLICIES),
        "b": CurveFamily("epsilon", log_grid(10.0, 1e-5, points), {"delta": 1e-3}, CURVE_POLICIES),
    }
    return describe_curves(run, families)

"""Plots of regret. The legend states the guarantee of every curve."""

from __future__ import annotations

import itertools
import os
import re
import textwrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from balaclava._core.atomic_files import atomically
from balaclava._core.declared import brief
from balaclava._core.extras import require_extra
from balaclava.errors import ParameterError
from balaclava.simulation.analysis.statistics import plus_minus, proved_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from balaclava.simulation.results import Results

Band = tuple[float, float] | Literal["interval"] | None

# The palette of Okabe and Ito (2008), for any colour vision; without yellow, too faint for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_COLUMN_SIZE = (3.4, 2.6)  # inches: a column of the usual two-column papers is 3.3 to 3.5 wide
_COLUMN_POINTS = 8  # size of letters there: captions have 8 to 9
_SIZE = (9.0, 4.8)  # inches, of other figures
_BESIDE = 30  # letters of the longest legend entry that leaves room for the axes beside it
_TITLE_LETTERS = 58  # in a line above axes with such a legend beside them
MARKERS = "o^sDvPX*"  # on the curves of a paper, which may be printed in grey
LINE_STYLES = ("-", "--", "-.", (0, (1, 1)))  # seven colours and four styles: 28 different curves


def plot(
    results: Results,
    path: str | os.PathLike[str] | None = None,
    *,
    band: Band = (0.1, 0.9),
    log_rounds: bool = False,
    log_regret: bool = False,
    bound: bool = False,
    theory: bool = False,
    paper: bool = False,
    ax: Axes | None = None,
) -> Figure:
    """Draw the mean regret of each policy: see `Results.plot`."""
    require_extra("matplotlib", "a plot")
    _check_band(band)
    own = ax is None
    if ax is None:
        ax = new_axes(_COLUMN_SIZE) if paper else new_axes()
    looks = zip(itertools.cycle(COLOURS), itertools.cycle(LINE_STYLES), itertools.cycle(MARKERS))
    for place, (label, (colour, style, marker)) in enumerate(
        zip(results.labels, looks, strict=False)
    ):
        look = {"color": colour, "linestyle": style}
        marks = {"marker": marker, "markersize": 3, "markevery": (0.03 * (place % 5), 0.15)}
        _curve(results, label, ax, band, look, marks if paper else {})
        if bound:
            _level(results, label, ax, look)
        if theory:
            _theory(results, label, ax, look)
    _describe(results, ax, band, own, paper)
    if paper:
        _fit_column(ax)
    if log_rounds:
        ax.set_xscale("log")
    elif own:
        ax.set_xlim(0, results.horizon)
    if log_regret:
        ax.set_yscale("log", nonpositive="clip")
    figure = ax.get_figure(root=True)
    if figure is None:
        raise ParameterError("ax has no figure; give axes of a figure, or leave ax out")
    if path is not None:
        save_figure(figure, path)
    return figure


def new_axes(size: tuple[float, float] = _SIZE) -> Axes:
    """Axes of a new figure, in inches."""
    require_extra("matplotlib", "a plot")
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained", dpi=150).add_subplot()


def _fit_column(ax: Axes) -> None:
    """Small letters and no title, for a column whose caption says the rest."""
    ax.set_title("", loc="left")
    ax.tick_params(labelsize=_COLUMN_POINTS)
    for text in (ax.xaxis.label, ax.yaxis.label):
        text.set_fontsize(_COLUMN_POINTS)


def _check_band(band: Any) -> None:
    if band is None or band == "interval":
        return
    try:
        low, high = band
        if 0 <= low < high <= 1:
            return
    except (TypeError, ValueError):
        pass
    raise ParameterError(
        f"band = {brief(band)} is not allowed; give two quantiles such as (0.1, 0.9), "
        "'interval' or None"
    )


def _curve(
    results: Results, label: str, ax: Axes, band: Band, look: dict[str, Any], marks: dict[str, Any]
) -> None:
    regret, rounds = results.regret(label), results.checkpoints
    if not len(regret):
        return
    mean = regret.mean(axis=0)
    ax.plot(rounds, mean, label=_entry(results, label), linewidth=1.8, **look, **marks)
    if band is None or len(regret) == 1:
        return
    if isinstance(band, str):
        reach = plus_minus(regret)
        low, high = mean - reach, mean + reach
    else:
        low, high = np.quantile(regret, band, axis=0)
    ax.fill_between(rounds, low, high, color=look["color"], alpha=0.15, linewidth=0)


def _entry(results: Results, label: str) -> str:
    """The label and its guarantee, with an epsilon that both state once."""
    guarantee = str(results.guarantee(label))
    own = re.search(r"\bepsilon=([^,() ]+)(, )?", label)
    if own and f"ε={own[1]} " in guarantee:
        label = (label[: own.start()] + label[own.end() :]).replace(", )", ")").replace("()", "")
    return f"{label} [{guarantee}]"


def _level(results: Results, label: str, ax: Axes, look: dict[str, Any]) -> None:
    bound = proved_bound(results, label, results.horizon)
    if bound is not None:
        name = f"{label}: proved bound at the horizon"
        ax.axhline(bound, color=look["color"], linewidth=1, linestyle=(0, (1, 3)), label=name)


def _theory(results: Results, label: str, ax: Axes, look: dict[str, Any]) -> None:
    bounds = {t: proved_bound(results, label, t) for t in results.checkpoints.tolist()}
    known = {t: bound for t, bound in bounds.items() if bound is not None}
    if known:
        name, dashes = f"{label}: proved bound", (0, (5, 3))
        line = list(known), list(known.values())
        ax.plot(*line, color=look["color"], linewidth=1, linestyle=dashes, label=name)


def _describe(results: Results, ax: Axes, band: Band, own: bool, paper: bool) -> None:
    world = results.environment
    counts = sorted({len(runs) for runs in results.runs.values()})
    repetitions = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    what = "mean"
    if isinstance(band, str):
        what += " ± 95 % interval"
    elif band is not None:
        what += f" and {100 * band[0]:g} % to {100 * band[1]:g} % quantiles"
    late = f", {results.feedback}" if str(results.feedback) else ""
    lines = f"{world.name}, {world.arms} arms{late}", f"{what} of {repetitions} repetitions"
    parts = [part for line in lines for part in textwrap.wrap(line, _TITLE_LETTERS)]
    ax.set_title("\n".join(parts), fontsize=10, loc="left")
    ax.set(xlabel="round", ylabel="regret")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.margins(x=0)
    ax.ticklabel_format(style="plain")
    handles, labels = ax.get_legend_handles_labels()
    if not handles:
        ax.text(0.5, 0.5, "no finished repetition", ha="center", transform=ax.transAxes)
        return
    # In the order of the curves' ends, highest first.
    ends = [float(line.get_ydata()[-1]) for line in handles]  # type: ignore[attr-defined]
    order = sorted(range(len(handles)), key=lambda i: -ends[i])
    title, names = _shared_guarantee([labels[i] for i in order])
    _legend(ax, [handles[i] for i in order], names, title, own, paper)


def _shared_guarantee(entries: list[str]) -> tuple[str | None, list[str]]:
    """What the guarantees have in common, as the legend's title, and the entries without it."""
    matches = [re.fullmatch(r"(.*) \[(.*)\]", entry) for entry in entries]
    guarantees = [match[2] for match in matches if match]
    if len(guarantees) < 2 or len(set(guarantees)) > 1:
        return None, entries
    names = [match[1] if match else entry for match, entry in zip(matches, entries, strict=True)]
    return f"all: {guarantees[0]}", names


def _legend(
    ax: Axes, handles: list[Any], names: list[str], title: str | None, own: bool, paper: bool
) -> None:
    """Beside the axes where names are short; else below them, and the figure grows."""
    points = _COLUMN_POINTS if paper else 10
    longest = max(map(len, names))
    look: dict[str, Any] = {"frameon": False, "handlelength": 3.2, "fontsize": points}
    look |= {"title": title, "title_fontsize": points, "alignment": "left"}
    figure = ax.get_figure(root=True)
    if not own or figure is None:
        ax.legend(handles, names, **look)
    elif longest <= _BESIDE and not paper:
        figure.legend(handles, names, loc="outside right upper", **look)
    else:
        width, height = _COLUMN_SIZE if paper else _SIZE
        entry = (0.55 * longest + 3.2 + 2.8) * points / 72  # in inches, with the line beside it
        columns = max(1, min(int(width / entry), len(names)))
        rows = -(-len(names) // columns) + (title is not None)
        figure.set_size_inches(width, max(height, 0.7 * height + rows * 1.5 * points / 72))
        figure.legend(handles, names, loc="outside lower center", ncols=columns, **look)


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure; the ending of the path decides the format."""
    ending = os.path.splitext(path)[1].lstrip(".").lower()
    kinds = figure.canvas.get_supported_filetypes()
    if ending not in kinds:
        raise ParameterError(
            f"path = {brief(os.fspath(path))} does not end in a known format; choose one of "
            f"{', '.join('.' + name for name in sorted(kinds))}"
        )
    from matplotlib import rc_context

    # Type 42 embeds the fonts; journals refuse the default, Type 3.
    with rc_context({"pdf.fonttype": 42, "ps.fonttype": 42}), atomically(path) as temporary:
        figure.savefig(temporary, format=ending)

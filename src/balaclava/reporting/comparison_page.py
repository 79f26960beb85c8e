"""The page of `balaclava compare`: what a log says, and how well each policy does on it."""

import os
from pathlib import Path

from balaclava._core.number_format import significant
from balaclava.advice.choose.contest import RELEVANT_SHARE
from balaclava.advice.choose.recommend import policy_code
from balaclava.advice.choose.scale_search import RADIUS_SCALE
from balaclava.advice.log.feature_gain import FeatureGain
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.log.off_policy import OFF_POLICY_METHODS
from balaclava.advice.trial.compare import Comparison
from balaclava.advice.trial.drift_trial import LOSS_POLICIES, DriftTrial
from balaclava.advice.trial.feature_trial import FeatureTrial, feature_advice
from balaclava.advice.trial.standings import AT_RANDOM, Standing
from balaclava.reporting.report_data import PageData, ResultsPanel
from balaclava.reporting.report_page import write_page


def write_comparison(
    comparison: Comparison, out: str | os.PathLike[str], *, command: str = ""
) -> Path:
    """Write the page of a comparison; it shows `command`, which makes it again."""
    title = f"Policies for {Path(comparison.log.path).name}"
    panel = ResultsPanel(title, comparison.results, worlds=True)
    data = PageData(title, [panel], {}, {}, [], command or "balaclava compare")
    log, people = comparison.log, comparison.participants
    gain, trial = comparison.feature_gain, comparison.feature_trial
    fitting = [
        (label, comparison.results.guarantee(label), why)
        for label, why in comparison.fitting.items()
    ]
    return write_page(
        data,
        out,
        template="comparison.html",
        best_arm=log.best_arm_test,
        arms=arm_table(comparison),
        log_findings=log.findings(),
        people_findings=[] if people is None else people.findings(),
        caps=cap_table(comparison),
        feature_findings=[] if gain is None else gain.findings(),
        values=None if gain is None else value_table(gain),
        findings=comparison.findings(),
        fitting=fitting,
        how_played=how_played(comparison),
        standings=standing_table(comparison),
        prices=price_sentences(comparison),
        feature_advice=[] if gain is None else feature_advice(gain, trial),
        with_features=None if trial is None else feature_table(trial),
        drift=None if comparison.drift_trial is None else drift_table(comparison.drift_trial),
        drift_findings=comparison.drift_trial.findings() if comparison.drift_trial else [],
        steps=next_steps(comparison),
    )


def arm_table(comparison: Comparison) -> list[tuple[str, ...]]:
    """Rows, mean and interval of each arm, as strings; the header first."""
    log = comparison.log
    header = ["arm", "rows", "mean", "95 % interval"]
    cells = [
        [row.label, f"{row.rows:,}", f"{row.mean:.4g}", f"{row.low:.4g} to {row.high:.4g}"]
        for row in log.arms
    ]
    if log.weighted_arms:
        header[2:] = ["plain mean", "SNIPS", "95 % interval", "IPS", "95 % interval", "worth rows"]
        for row, weighted, samples in zip(cells, log.weighted_arms, log.samples, strict=True):
            row[2:] = [
                f"{samples.mean():.4g}",
                f"{weighted.snips:.4g}",
                f"{weighted.snips_low:.4g} to {weighted.snips_high:.4g}",
                f"{weighted.ips:.4g}",
                f"{weighted.ips_low:.4g} to {weighted.ips_high:.4g}",
                f"{weighted.effective:,.0f}",
            ]
    return [tuple(header), *map(tuple, cells)]


def standing_table(comparison: Comparison) -> list[tuple[str, ...]]:
    """The policies, best first, as strings; the header first."""
    header = ("policy", "privacy", "regret", "± (95 %)", "5 % to 95 %", "of random (95 %)", "fits")
    rows = []
    for row in comparison.standings:
        fits = "-"
        if row.label in comparison.candidates:
            fits = "yes" if row.beats_random else "no"
        label, guarantee, mean, plus_minus, share = _standing_cells(row)
        reach = f"{significant(row.low)} to {significant(row.high)}"
        rows.append((label, guarantee, mean, plus_minus, reach, share, fits))
    return [header, *rows]


def _standing_cells(row: Standing) -> tuple[str, ...]:
    share = "-"
    if row.share == row.share:
        share = f"{row.share:.0%} ({row.share_low:.0%} to {row.share_high:.0%})"
    return row.label, row.guarantee, significant(row.mean), significant(row.plus_minus), share


def value_table(gain: FeatureGain) -> list[tuple[str, ...]]:
    """Off-policy estimates of each policy's reward, as strings; the header first."""
    header = ["policy"]
    for method in OFF_POLICY_METHODS:
        header += [method, "95 % interval"]
    rows = []
    for value in gain.off_policy.values:
        cells = [value.policy]
        for method in OFF_POLICY_METHODS:
            each = value.estimates[method]
            cells += [f"{each.value:.4g}", f"{each.low:.4g} to {each.high:.4g}"]
        rows.append((*cells, f"{value.effective:,.0f}"))
    return [(*header, "worth rows"), *rows]


def feature_table(trial: FeatureTrial) -> list[tuple[str, ...]]:
    """Policies with features and without, best first, as strings; the header first."""
    header = ("policy", "privacy", "regret", "± (95 %)", "of random (95 %)")
    return [header, *map(_standing_cells, trial.standings)]


def cap_table(comparison: Comparison) -> list[tuple[str, ...]]:
    """Effect of a cap on the rewards of a person, as strings; the header first."""
    caps = () if comparison.participants is None else comparison.participants.caps
    header = ("rewards used", "a person's guarantee", "rows kept", "people cut", "best arm")
    rows = []
    for cap in caps:
        kept, cut = f"{cap.rows_kept:.1%}", f"{cap.people_cut:.1%}"
        rows.append((f"at most {cap.rewards}", cap.guarantee, kept, cut, cap.best))
    return [header, *rows]


def price_sentences(comparison: Comparison) -> list[str]:
    """The price of privacy, one sentence for each private policy."""
    if not comparison.prices:
        return ["The price of privacy is unknown: a private policy or its baseline does not learn."]
    tuned = f"{RADIUS_SCALE}="
    return [
        f"{price.label} has {price.times:.3g} ± {price.plus_minus:.2g} times the regret of "
        f"{price.baseline}, which is not private."
        + (f" Its {RADIUS_SCALE} was chosen the same way." if tuned in price.baseline else "")
        for price in comparison.prices
    ]


def next_steps(comparison: Comparison) -> list[tuple[str, str]]:
    """Next steps, each with its keyword; empty if no policy fits."""
    best, drift = comparison.best, comparison.drift_trial
    if best is None:
        ranged = "give --range or --clip, so that policies that tolerate drift can be tried"
        unknown = f"averages drift in this log, so no policy is recommended; {ranged}"
        return [("warning", unknown)] if comparison.log.drifts and drift is None else []
    rows = {row.label: row for row in (comparison if drift is None else drift).standings}
    row, at_random = rows[best], rows[AT_RANDOM]
    policy = comparison.named(best)
    asked = "who may see rewards, and whether an observer sees one decision or all decisions"
    return [
        ("use", policy_code(policy)),
        *([("tell", _as_loss(comparison.log))] if best in LOSS_POLICIES else []),
        ("privacy", policy.guarantee.explain()),
        (
            "risk",
            f"it loses {significant(row.mean)} on average, and up to {significant(row.high)} in "
            f"95 % of the worlds; playing at random loses {significant(at_random.mean)}",
        ),
        (
            "next",
            f"`balaclava choose` asks for facts that a log lacks: {asked}. `balaclava audit "
            f"{policy.name}` tests the guarantee. This command with --assessment FILE.toml begins "
            "the page for a review board. `balaclava serve` runs the policy",
        ),
    ]


def drift_table(trial: DriftTrial) -> list[tuple[str, ...]]:
    """Policies with drift, best first, as strings; the header first."""
    header = ("policy, with drift", "privacy", "regret", "± (95 %)", "of random (95 %)", "95 %")
    return [header, *((*_standing_cells(row), significant(row.high)) for row in trial.standings)]


def _as_loss(log: LogSummary) -> str:
    low, high = log.reward_range if log.clip is None else log.clip
    above = f"{high:g} - reward"
    loss = above if high - low == 1 else f"({above}) / {high - low:g}"
    return f"it takes losses in [0, 1]: `tell(decision, {loss})`"


def how_played(comparison: Comparison) -> str:
    count = len(next(iter(comparison.results.runs.values())))
    feedback = str(comparison.results.feedback)
    late = f", with delayed rewards ({feedback})," if feedback else ""
    late += ", without drift," if comparison.log.drifts else ""
    return (
        f"Played for {comparison.results.horizon:,} rounds{late} in {count} worlds that agree with "
        f"the log.{_unplayed_wait(comparison)} In {comparison.equal:.0%} of these worlds all arms "
        "are equal, the p-value of that hypothesis. Regret is the loss, in rewards, against always "
        "playing the best arm of the world; 5 % to 95 % is its range over worlds. The share of the "
        "regret of playing at random is an average over worlds, 100 % where all arms are "
        "equal, with a 95 % interval for the "
        f"world behind the log: a policy fits if all of it is below {RELEVANT_SHARE:.0%}. "
        "Epsilon (ε) limits what the decisions reveal about one reward: at 1, odds of any guess "
        "about it change by a factor of at most 2.72; a smaller epsilon is stricter."
    )


def _unplayed_wait(comparison: Comparison) -> str:
    """What was not played of a log that was joined with a window."""
    wait = comparison.log.window_rows
    if not wait or not comparison.results.feedback.prompt:
        return ""
    return (
        f" Rewards came at once here, but the log's window is about {wait:,} rows long: to play "
        f"that wait, too, add --settle window --patience {wait}."
    )

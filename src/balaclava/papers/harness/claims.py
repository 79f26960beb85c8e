"""Sentences about results: rankings, and whether a claim of a paper holds."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from balaclava.simulation.analysis.statistics import mean_of_regret
from balaclava.simulation.results import Results


def subset(results: Results, labels: Iterable[str]) -> Results:
    policies = {label: results.policies[label] for label in labels}
    runs = {label: results.runs[label] for label in policies}
    return dataclasses.replace(results, policies=policies, runs=runs)


def compare_means(first: tuple[float, float], second: tuple[float, float]) -> str:
    """Compare two means with their plus-minus: "agrees" if the first is clearly smaller.

    The other answers are "differs", if it is clearly larger, and "unclear".
    """
    gap = math.hypot(first[1], second[1])
    if second[0] > first[0] + gap:
        return "agrees"
    return "differs" if second[0] < first[0] - gap else "unclear"


def compare_regret(results: Results, label: str, others: Sequence[str]) -> str:
    """Whether a policy's mean regret is below that of every other, as `compare_means` answers."""
    regret = mean_of_regret(results, label)
    answers = {compare_means(regret, mean_of_regret(results, other)) for other in others}
    return next((answer for answer in ("differs", "unclear") if answer in answers), "agrees")


def claim_lowest(
    results: Mapping[str, Results], claim: str, label: str, others: Sequence[str]
) -> str:
    """One line for the claim that a policy has less regret than every other, in each panel."""
    return claim_line(
        claim, {k: compare_regret(each, label, others) for k, each in results.items()}
    )


def ranking(results: Results) -> str:
    """The policies from the lowest mean regret to the highest."""
    means = {label: mean_of_regret(results, label) for label in results.labels}
    ordered = sorted(means, key=lambda label: means[label][0])
    return "; ".join(
        f"{label} {means[label][0]:,.0f} ± {means[label][1]:,.0f}" for label in ordered
    )


def count_misled_runs(results: Results, label: str) -> int:
    """Count the runs that played another arm more often than the best."""
    favourites = results.pulls(label).argmax(axis=1)
    return int((results.environment.gaps[favourites] > 0).sum())


def misled_runs(results: Results, labels: Iterable[str]) -> str:
    counts = "; ".join(
        f"{label} {count_misled_runs(results, label)} of {results.pulls(label).shape[0]}"
        for label in labels
    )
    return f"runs that played another arm more often than the best: {counts}."


def trajectory_costs(results: Results, labels: Iterable[str]) -> str:
    """The guarantee of the whole run, for policies that protect single decisions."""
    alike: dict[str, list[str]] = {}
    for label in labels:
        guarantee = results.policies[label].guarantee
        if guarantee.scope == "decision":
            together = guarantee.over(results.horizon)
            total = str(together) if together.private else "no guarantee at all"
            alike.setdefault(f"{guarantee} is {total}", []).append(label)
    stated = "; ".join(f"for {', '.join(names)} {cost}" for cost, names in alike.items())
    return f"All {results.horizon:,} decisions together: {stated}."


def claim_line(claim: str, by_panel: Mapping[str, str]) -> str:
    """One line for a claim: the panels in which it agrees, is unclear, or differs."""
    parts = []
    for word in ("agrees", "unclear", "differs"):
        letters = [f"({letter})" for letter, verdict in by_panel.items() if verdict == word]
        if letters:
            parts.append(f"{word} in {', '.join(letters)}")
    return f"{claim}: {'; '.join(parts)}."

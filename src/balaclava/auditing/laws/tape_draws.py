"""Tests of the draws that a policy really made in a long run, by mechanism, terms and value."""

import math
from typing import Any

import numpy as np

from balaclava.auditing.compiled_tape import (
    ANSWER,
    CODE,
    SENSITIVITY,
    VALUE,
    has_unbounded_law,
    mechanisms_by_code,
)
from balaclava.auditing.laws.draw_tests import law_test_fault
from balaclava.privacy.mechanisms.base import Mechanism, Terms

_MOST_DRAWS = 40_000  # of the beginning and of the end of a tape
_FEWEST_DRAWS = 100  # in a group that is tested
_MOST_TERMS, _MOST_VALUES = 24, 24  # with the most draws


def tape_fault(entries: np.ndarray) -> str:
    """How the recorded answers of mechanisms differ from their laws, or ""."""
    table = mechanisms_by_code()
    releases = entries[entries[:, CODE] > 0.0]
    if len(releases) > 2 * _MOST_DRAWS:
        releases = np.concatenate([releases[:_MOST_DRAWS], releases[-_MOST_DRAWS:]])
    codes = np.floor(releases[:, CODE]).astype(int)
    for code in np.unique(codes).tolist():
        mechanism, mine = table[code], releases[codes == code]
        for rows in largest_groups(mine[:, SENSITIVITY:ANSWER], _MOST_TERMS):
            if fault := group_fault(mechanism, mine[rows]):
                return f"{mechanism.name}, in a long run: {fault}"
    return ""


def group_fault(mechanism: Mechanism, group: np.ndarray) -> str:
    """The fault of draws at the same terms: all, by value, by time, and of values near 0."""
    if mechanism.law is None:
        return ""
    rest = group[0, SENSITIVITY:ANSWER].tolist()
    values, answers = group[:, VALUE], group[:, ANSWER]
    parts = largest_groups(values[:, None], _MOST_VALUES)
    if not has_unbounded_law(mechanism):
        for rows in parts:
            mine = mechanism.law(Terms(float(values[rows[0]]), *rest))
            if fault := law_test_fault(answers[rows], mine):
                return fault
        return ""
    law: Any = mechanism.law(Terms(0.0, *rest))
    near = np.flatnonzero(np.abs(values) < 0.1 * rest[0])
    thirds = np.array_split(np.arange(len(group)), 3)
    ranked = np.array_split(np.argsort(values, kind="stable"), 4)
    for rows in (np.arange(len(group)), *parts, near, *thirds, *ranked):
        if rows.size >= _FEWEST_DRAWS:
            noise = answers[rows] - values[rows]
            if fault := law_test_fault(noise, law):
                return fault
            if int((noise == 0.0).sum()) > 1:
                return "it answered without noise more than once"
    return ""


def largest_groups(columns: np.ndarray, most: int) -> list[np.ndarray]:
    """The rows of the most frequent values of some columns."""
    mixed = columns @ np.array([1.0, math.pi, math.e])[: columns.shape[1]]  # sorts much faster
    _, labels, counts = np.unique(mixed, return_inverse=True, return_counts=True)
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.cumsum(counts)[:-1])
    frequent = [rows for rows in groups if rows.size >= _FEWEST_DRAWS]
    return sorted(frequent, key=len, reverse=True)[:most]

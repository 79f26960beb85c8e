"""The privacy loss of a tree counter whose noise grows with the widths of its items."""

from __future__ import annotations

import numpy as np

from balaclava.privacy.mechanisms.counters import tree_levels


def worst_node_weight(widths: np.ndarray) -> float:
    """Privacy loss of the most exposed item of a tree, in units of a node's epsilon.

    With scale w_n / e at node n, item s costs e times the sum of w_s / w_n over the nodes that
    hold it; this is the largest such sum.
    """
    items = np.arange(1, widths.size + 1)
    weight = np.zeros(widths.size)
    for level in range(tree_levels(widths.size)):
        block = (items + (1 << level) - 1) >> level
        last = block << level
        whole = (block & 1 == 1) & (last <= widths.size)
        weight[whole] += widths[items[whole] - 1] / widths[last[whole] - 1]
    return float(weight.max())

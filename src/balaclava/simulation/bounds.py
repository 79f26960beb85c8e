"""Which proved bound goes with results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from balaclava.errors import IncompatibleError

if TYPE_CHECKING:
    from balaclava.simulation.results import Results


def proved_bound(results: Results, label: str, rounds: int) -> float | None:
    """The proved bound on a policy's expected regret after so many rounds, where there is one.

    None where rewards came late or were lost, since theorems are for rewards that come at once;
    and for a file that holds no means, since they are somebody's data.
    """
    if not results.feedback.prompt or not hasattr(results.environment, "means"):
        return None
    try:
        bound = results.policies[label].regret_bound(results.environment, rounds)
    except IncompatibleError:
        return None
    return bound if bound is not None and math.isfinite(bound) else None

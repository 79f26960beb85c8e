"""Results in long form: one row per repetition and checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from balaclava._core.extras import require_extra

if TYPE_CHECKING:
    from balaclava.simulation.results import Results


def to_arrow(results: Results) -> Any:
    """A pyarrow table with the columns policy, privacy, repetition, round and regret."""
    require_extra("pyarrow", "a table of results")
    import pyarrow as pa

    rounds = results.checkpoints
    labels, repetitions, regrets = [], [], []
    for label in results.labels:
        for repetition, run in sorted(results.runs[label].items()):
            labels += [label] * rounds.size
            repetitions.append(np.full(rounds.size, repetition, np.int64))
            regrets.append(run.regret)
    guarantees = {label: results.guarantee(label) for label in results.labels}
    privacy = [guarantees[label] for label in labels]
    columns = {
        "policy": pa.array(labels, pa.string()).dictionary_encode(),
        "privacy": pa.array(privacy, pa.string()).dictionary_encode(),
        "repetition": np.concatenate(repetitions) if repetitions else np.empty(0, np.int64),
        "round": np.tile(rounds, len(regrets)).astype(np.int64),
        "regret": np.concatenate(regrets) if regrets else np.empty(0),
    }
    return pa.table(columns)

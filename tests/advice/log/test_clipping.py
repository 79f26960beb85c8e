"""Limits from a public file, and the bias of clipping."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from balaclava.advice.log.log_reading import summarise_log
from balaclava.errors import ParameterError
from tests.advice.logs_on_disk import write_log


def test_limits_from_public_data(tmp_path: Path) -> None:
    """Quantiles of another file, which has no arms; their bias is shown."""
    rng = np.random.default_rng(5)
    path = write_log(tmp_path / "log.csv", {arm: 1 + rng.pareto(1.2, 100) for arm in "ab"})
    public = tmp_path / "public.csv"
    public.write_text("year,paid\n" + "".join(f"1999,{i}\n" for i in range(1001)))
    quantiles = {"clip_from": public, "clip_quantiles": (0.001, 0.005)}
    log = summarise_log(path, arm="page", reward="paid", **quantiles)  # type: ignore[arg-type]
    assert (log.kind, log.clip) == ("heavy-tailed", (1.0, 5.0))
    text = " ".join(log.findings())
    assert "Clipping to [1, 5] touches" in text
    shift = float(np.mean(np.minimum(log.samples[0], 5) - log.samples[0]))
    assert f"'a' by {shift:+.2g} ± " in text
    assert "0.1 % and 0.5 % quantiles of 1,001 rewards in" in text
    assert "They are few for such quantiles." in text  # one reward is below the lower one
    for wrong, message in (
        ({"clip": (0.0, 1.0), "clip_from": public}, "--clip and --clip-from are both given"),
        ({"clip_from": public, "clip_quantiles": (0.9, 0.1)}, "the smaller first"),
        ({"clip_from": "-"}, "clip-from cannot be a pipe"),
        ({"clip_from": path}, "is the log itself"),
    ):
        with pytest.raises(ParameterError, match=message):
            summarise_log(path, arm="page", reward="paid", **wrong)  # type: ignore[arg-type]

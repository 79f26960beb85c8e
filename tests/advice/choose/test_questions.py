"""A moment from answers that users can give."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from balaclava.advice.choose.questions import derive_moment
from balaclava.cli import main
from balaclava.errors import ParameterError


def test_a_moment_from_questions_that_people_can_answer() -> None:
    """The power law with that moment has half of its rewards above m and one in n above L."""
    moments = derive_moment(typical=3.0, largest=60.0, one_in=500.0)
    index = np.log(250) / np.log(20)
    assert moments.order == pytest.approx(0.95 * index, rel=0.01)
    scale = 3.0 / 2 ** (1 / index)
    exact = index * scale**moments.order / (index - moments.order)
    assert exact <= moments.bound <= 1.1 * exact
    assert f"= {index:.3g}" in moments.derivation
    for wrong in ((3.0, 2.0, 500.0), (3.0, 60.0, 2.0), (1.0, 1e9, 3.0), (0.0, 1.0, 9.0)):
        with pytest.raises(ParameterError):
            derive_moment(*wrong)
    answer = CliRunner().invoke(
        main,
        [
            *("choose", "--rewards", "heavy-tailed", "--no-simulate", "--no-ask"),
            *("--typical", "3", "--largest", "60", "--one-in", "500"),
        ],
    )
    assert f"moment_bound={moments.bound!r}" in answer.output
    assert "power law of index" in " ".join(answer.output.split())
    assert "instead:  ldpr-batch-ucb, if the operator is not trusted" in answer.output
    for options, message in (
        (["--typical", "3"], "for heavy-tailed rewards only"),
        (["--rewards", "outliers", "--typical", "3"], "together"),
    ):
        answer = CliRunner().invoke(main, ["choose", "--no-ask", "--no-simulate", *options])
        assert answer.exit_code == 2
        assert message in answer.output

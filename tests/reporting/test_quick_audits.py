"""Verdicts that are kept: an edited policy is audited again, whichever kernel was edited."""

from __future__ import annotations

import balaclava as bl
from balaclava.authoring import begin_tally, kernel, learn_tally, nothing_to_forget
from balaclava.reporting.quick_audits import _cache_path


@kernel(borrows=True)
def choose(params, state, t, context, rng):
    return 0, 0


@kernel(borrows=True)
def forget(params, state, t, arm, phase, rng):
    state.sums[arm] -= 1.0


def place_of(forgetting):
    """Where the verdict on a policy that forgets in this way is kept."""

    class Edited(bl.Policy):
        name = "edited"
        kernels = bl.Kernels(begin_tally, choose, learn_tally, forgetting)

    return _cache_path(Edited(arms=2), 100)


def test_an_edit_of_forget_is_an_edit_of_the_policy(tmp_path, monkeypatch):
    monkeypatch.setenv("BALACLAVA_CACHE_DIR", str(tmp_path))
    assert place_of(forget) == place_of(forget)
    assert place_of(forget) != place_of(nothing_to_forget)

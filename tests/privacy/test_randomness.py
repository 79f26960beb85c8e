"""The secure randomness: no state, no repeated draws, and nothing but what kernels may call."""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from balaclava._core.kernels import KERNEL_DRAWS
from balaclava.errors import PolicyError, PrivacyError
from balaclava.privacy.mechanisms.laplace import (
    laplace_release,
)
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from balaclava.privacy.mechanisms.truncated_laplace import (
    truncated_laplace_release,
)
from balaclava.privacy.randomness import SystemRandomness

RNG = SystemRandomness()


@pytest.mark.parametrize(
    ("epsilon", "sensitivity"),
    [(-1.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (0.0, 1.0), (1.0, 0.0), (1.0, math.inf)],
)
def test_a_bad_budget_never_reaches_the_sampler(epsilon: float, sensitivity: float) -> None:
    with pytest.raises(PrivacyError) as refusal:
        laplace_release(RNG, 0.123456789, sensitivity, epsilon)
    assert "0.1234" not in str(refusal.value)


def test_an_undeclared_mechanism_is_refused() -> None:
    def own(rng: Any, value: float, sensitivity: float, epsilon: float) -> float:
        return value

    with pytest.raises(PrivacyError, match="own is not a declared mechanism"):
        RNG.release(own, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("save", [pickle.dumps, copy.copy, copy.deepcopy])
def test_secure_randomness_is_never_saved(save: Callable[[Any], Any]) -> None:
    with pytest.raises(PrivacyError, match="cannot be pickled"):
        save(SystemRandomness())


def test_secure_randomness_has_no_state_to_seed() -> None:
    for name in ("bit_generator", "spawn", "seed", "normal", "choice", "no_such_method"):
        with pytest.raises(PolicyError, match=rf"rng\.{name}, .* kernels may call random, "):
            getattr(RNG, name)


def test_secure_randomness_offers_exactly_what_kernels_may_call() -> None:
    arguments: dict[str, tuple[float, ...]] = {"integers": (3,), "standard_gamma": (2.0,)}
    arguments["beta"] = (2.0, 3.0)
    for name in KERNEL_DRAWS:
        assert np.isscalar(getattr(RNG, name)(*arguments.get(name, ())))


def test_evenly_drawn_numbers_are_53_bits_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    words = iter([b"\x00" * 8, b"\xff" * 8, b"\x80" + b"\x00" * 7, b"\x00" * 6 + b"\x08\x00"])
    monkeypatch.setattr(os, "urandom", lambda count: next(words))
    assert [RNG.random() for _ in range(4)] == [0.0, 1.0 - 2.0**-53, 0.5, 2.0**-53]


def test_opendp_is_loaded_on_first_use_only() -> None:
    script = (
        "import sys, balaclava.privacy.randomness, balaclava.privacy.mechanisms.laplace as l\n"
        "from balaclava.privacy.mechanisms import counters, truncated_laplace\n"
        "from balaclava.privacy.mechanisms import randomized_response\n"
        "print('opendp' in sys.modules, 'numba' in sys.modules)\n"
        "l.laplace_release(balaclava.privacy.randomness.SystemRandomness(), 1.0, 1.0, 1.0)\n"
        "print('opendp' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", "False", "True"]


def some_draws(count: int) -> list[tuple[str, float]]:
    """Draws of every kind, so wide that two are equal only if randomness repeats."""
    draws: list[tuple[str, float]] = []
    for _ in range(count):
        draws.append(("laplace", laplace_release(RNG, 0.0, 1.0, 1e-9)))
        draws.append(("truncated", truncated_laplace_release(RNG, 0.0, 1.0, 1e-9, 1e-9)))
        draws.append(("random", RNG.random()))
        draws.append(("normal", RNG.standard_normal()))
    return draws


def test_no_draw_repeats_in_eight_forked_processes() -> None:
    before = some_draws(5)  # whatever state there is exists before the fork
    context = multiprocessing.get_context("fork")
    answers: Any = context.SimpleQueue()
    children = [
        context.Process(target=lambda: answers.put(some_draws(50)), daemon=True) for _ in range(8)
    ]
    for child in children:
        child.start()
    drawn = before + some_draws(50) + [draw for _ in children for draw in answers.get()]
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert len(drawn) == len(set(drawn)) == 4 * (5 + 9 * 50)


def test_no_draw_repeats_in_sixteen_threads() -> None:
    with ThreadPoolExecutor(16) as pool:
        drawn = [draw for draws in pool.map(some_draws, [50] * 16) for draw in draws]
        reports = list(pool.map(lambda x: bernoulli_report(RNG, x, 0.5), [0.5] * 320))
    assert len(drawn) == len(set(drawn)) == 4 * 16 * 50
    assert set(reports) == {0.0, 1.0}

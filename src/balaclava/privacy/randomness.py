"""Where an agent's random numbers come from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from balaclava._core.kernels import DRAWS
from balaclava.errors import PolicyError, PrivacyError
from balaclava.privacy.exact_noise import fresh_generator
from balaclava.privacy.mechanisms.base import check_budget, mechanism_of


def seeded(seed: int, *path: int) -> np.random.Generator:
    """The reproducible stream of a seed; `path` names a sub-stream (repetition, role).

    SFC64 is the fastest of numpy's bit generators in the compiled loop.
    """
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=path)))


class SystemRandomness:
    """Randomness that is fit for release.

    Mechanisms are answered with exact noise on an integer grid. The plain draws that kernels may
    call (`DRAWS`: perturbed indices, ties) go to the method of that name of a numpy `Generator`,
    made for the one call from fresh operating-system entropy, or are that entropy itself
    (`random`); anything else is refused. Nothing is kept between calls: there is no state to seed,
    to save, to share between threads or to inherit through a fork.
    """

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """The exact answer of a mechanism."""
        mechanism = mechanism_of(body)
        terms = mechanism.terms(*arguments)
        check_budget(terms.epsilon, terms.delta, terms.sensitivity)
        mechanism.require(terms)
        return mechanism.deliver(arguments, mechanism.exact(terms))

    def random(self) -> float:
        """Evenly from [0, 1), as numpy's: 53 bits. Of the draws the one that is asked for most."""
        return (int.from_bytes(os.urandom(8)) >> 11) * 2.0**-53

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        if method == "laplace":
            raise PrivacyError(
                "Laplace noise in floating point gives its input away; use laplace_release of "
                "balaclava.privacy.mechanisms.laplace, which is exact here"
            )
        if method not in DRAWS:
            raise PolicyError(
                f"a kernel asked for rng.{method}, which an agent's randomness does not offer; "
                f"kernels may call {', '.join(DRAWS)}, and the mechanisms of balaclava.privacy"
            )
        return getattr(fresh_generator(), method)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise PrivacyError(
            "secure randomness is never saved or copied; make a new SystemRandomness where it is "
            "needed, or save an agent with agent.save()"
        )

    def __repr__(self) -> str:
        return "SystemRandomness()"

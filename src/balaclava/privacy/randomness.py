"""Sources of random numbers: seeded streams for simulation, system entropy for releases."""

import os
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from balaclava._core.kernels import KERNEL_DRAWS
from balaclava.errors import PolicyError, PrivacyError
from balaclava.privacy.exact_noise import fresh_generator
from balaclava.privacy.mechanisms.base import check_budget, declared_mechanism


def seeded(seed: int, *path: int) -> np.random.Generator:
    """Return the reproducible stream of a seed.

    SFC64 is the fastest of numpy's bit generators in the compiled loop.

    Args:
        seed: a whole number, 0 or more.
        *path: numbers that name a sub-stream (repetition, role).

    Returns:
        A numpy generator.
    """
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=path)))


class SystemRandomness:
    """Secure randomness, for releases.

    Mechanisms get exact noise on an integer grid. Kernels may also call the draws of `KERNEL_DRAWS`
    (for perturbed indices and ties). Each such call uses a new numpy `Generator` with fresh
    operating-system entropy; `random` uses the entropy directly. Other draws raise an error. The
    object has no state that could be seeded, saved, shared between threads or inherited by a fork.
    """

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """Return the exact answer of a mechanism, or write it to `out`.

        Args:
            body: the mechanism's kernel.
            *arguments: its arguments after `rng`.

        Raises:
            PrivacyError: if the kernel is not a mechanism, or its arguments are out of range.
        """
        mechanism = declared_mechanism(body)
        terms = mechanism.terms(*arguments)
        check_budget(terms.epsilon, terms.delta, terms.sensitivity)
        mechanism.require(terms)
        return mechanism.deliver(arguments, mechanism.exact(terms))

    def random(self) -> float:
        """Draw uniformly from [0, 1), with 53 bits as numpy does."""
        return (int.from_bytes(os.urandom(8)) >> 11) * 2.0**-53

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        if method == "laplace":
            raise PrivacyError(
                "rng.laplace is floating-point noise, which reveals its input; use laplace_release "
                "of balaclava.authoring, which is exact here"
            )
        if method not in KERNEL_DRAWS:
            raise PolicyError(
                f"a kernel called rng.{method}, which an agent's randomness does not have; kernels "
                f"may call {', '.join(KERNEL_DRAWS)}, and the mechanisms of balaclava.authoring"
            )
        return getattr(fresh_generator(), method)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise PrivacyError(
            "SystemRandomness cannot be pickled or copied; make a new one where it is needed, and "
            "save an agent with agent.save()"
        )

    def __repr__(self) -> str:
        return "SystemRandomness()"

"""Policies beside themselves: with the constants of their proofs, and with calibrated ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from balaclava.advice.calibrate import calibrate
from balaclava.papers.harness.desk import Size
from balaclava.papers.harness.scopes import make
from balaclava.simulation.engine import Device

if TYPE_CHECKING:
    from balaclava.environments.base import Environment

SCALES = tuple(2.0**-k for k in range(1, 9))
SEED = 2022


@functools.cache
def scale_of(
    policy: Any,
    worlds: tuple[Environment, ...],
    size: Size,
    workers: int | None,
    device: Device = "cpu",
) -> Any:
    """The calibrated radius_scale of a policy; found once for as long as the process runs."""
    calibration = calibrate(
        policy,
        dict(zip(map(str, range(len(worlds))), worlds, strict=True)),
        horizon=size.horizon,
        repetitions=size.repetitions,
        seed=SEED,
        scales=SCALES,
        workers=workers,
        device=device,
    )
    return calibration.scale


def scaled(name: str, scale: float, **parameters: Any) -> dict[str, Any]:
    """A policy under a label that tells its scale."""
    return {with_scale(name, scale): make(name, **parameters, radius_scale=scale)}


def with_scale(label: str, scale: float) -> str:
    """The label of a policy with its scale."""
    return f"{label} × {scale:.3g}"


def unscaled(label: str) -> str:
    """The label of a policy without its scale."""
    return label.split(" × ")[0]


def listed(scales: Mapping[str, float]) -> str:
    """Scales in words."""
    return ", ".join(f"{name} {scale:.3g}" for name, scale in scales.items())


def how(worlds: str, size: Size, fewer: Mapping[str, int] | None = None) -> str:
    """How the scales were found."""
    scales = f"2^-1, 2^-2, ..., 2^-{len(SCALES)}"
    most = {name: min(runs, size.repetitions) for name, runs in (fewer or {}).items()}
    slow = "".join(f" ({name}: {runs})" for name, runs in most.items())
    return (
        f"Scales: bl.calibrate tried radius_scale {scales} on {worlds}, which are not those of the "
        f"figure, with {size}{slow} for each finalist. Privacy is as proved; regret is no longer."
    )

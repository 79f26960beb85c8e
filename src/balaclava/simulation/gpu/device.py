"""Whether there is a GPU that can be used, and what it plays."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from balaclava.errors import DeviceError

if TYPE_CHECKING:
    from balaclava.environments.base import Environment
    from balaclava.simulation.feedback import Feedback

compiler = threading.RLock()  # for a device: numba's is of one thread at a time


def gpu_fault() -> str:
    """Why no GPU can be used; empty if one can."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed (pip install 'balaclava[gpu]')"
    from numba import config, cuda

    if getattr(config, "ENABLE_CUDASIM", 0):
        return "NUMBA_ENABLE_CUDASIM is set, and numba's simulator has not all that this takes"
    if not cuda.is_available():
        return "no GPU was found, or its driver does not fit"
    return ""


def refusal(environment: Environment | None, feedback: Feedback, winners: bool = False) -> str:
    """Why no GPU plays this, whatever the policy; empty if one does. Asks for no GPU.

    A policy that decides by contexts is refused with the environments that it can be played in.
    """
    if winners:
        return "winners are recorded on the CPU alone"
    if not feedback.prompt:
        return "delays are played on the CPU alone"
    if environment is not None and environment.dimension is not None:
        return "contexts are drawn on the CPU alone"
    return ""


def unusable(fault: str) -> DeviceError:
    """The error where device = 'cuda' cannot be had."""
    return DeviceError(f"device = 'cuda' cannot be used: {fault}; device = 'cpu' plays the same")


@contextmanager
def on_device() -> Iterator[None]:
    """What the driver says while something is played, short memory above all, as our error."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("numba.cuda.cudadrv"):
            raise
        raise unusable(f"the GPU failed: {error}") from error


def compiler_version() -> str:
    """The version of numba-cuda; empty where it is not installed."""
    try:
        return importlib.metadata.version("numba-cuda")
    except importlib.metadata.PackageNotFoundError:
        return ""

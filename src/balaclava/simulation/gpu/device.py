"""Whether a GPU can be used, and what it can play."""

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

device_compiler = threading.RLock()  # hold it to compile: numba-cuda is not thread-safe


def gpu_fault() -> str:
    """Why no GPU can be used; "" if one can."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed (pip install 'balaclava[gpu]')"
    from numba import config, cuda

    if getattr(config, "ENABLE_CUDASIM", 0):
        return "NUMBA_ENABLE_CUDASIM is set, and numba's simulator lacks features that this needs"
    if not cuda.is_available():
        return "no GPU was found, or its driver does not match"
    return ""


def gpu_refusal(environment: Environment | None, feedback: Feedback, winners: bool = False) -> str:
    """Why a GPU cannot play this, for any policy; "" if it can. The check needs no GPU."""
    if winners:
        return "winners=True is for the CPU only"
    if not feedback.prompt:
        return "delays are for the CPU only"
    if environment is not None and environment.dimension is not None:
        return "environments with contexts are for the CPU only"
    if environment is not None and environment.groups is not None:
        return "arms that some participants cannot get are for the CPU only"
    return ""


def device_error(fault: str) -> DeviceError:
    return DeviceError(f"device = 'cuda' cannot be used: {fault}; use device = 'cpu'")


@contextmanager
def device_errors() -> Iterator[None]:
    """Report errors of the driver, such as too little memory, as `DeviceError`."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("numba.cuda.cudadrv"):
            raise
        raise device_error(f"the GPU failed: {error}") from error


def numba_cuda_version() -> str:
    """The version of numba-cuda; "" if it is not installed."""
    try:
        return importlib.metadata.version("numba-cuda")
    except importlib.metadata.PackageNotFoundError:
        return ""

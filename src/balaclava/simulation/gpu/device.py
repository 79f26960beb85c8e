"""Whether there is a GPU that can be used."""

from __future__ import annotations

import importlib.util


def gpu_fault() -> str:
    """Why no GPU can be used; empty if one can."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed (pip install 'balaclava[gpu]')"
    from numba import cuda

    if not cuda.is_available():
        return "no GPU was found, or its driver does not fit"
    return ""

"""The same kernels on a GPU: one thread plays one game."""

import numpy as _numpy

if not hasattr(_numpy, "row_stack"):  # numba-cuda asks for a name that numpy 2.5 dropped
    setattr(_numpy, "row_stack", _numpy.vstack)  # noqa: B010

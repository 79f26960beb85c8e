"""Play the kernels on a GPU: one game per thread."""

import numpy as _numpy

if not hasattr(_numpy, "row_stack"):  # numba-cuda needs a name that numpy 2.5 dropped
    setattr(_numpy, "row_stack", _numpy.vstack)  # noqa: B010

"""Values as bytes, for a digest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def value_bytes(value: Any) -> Iterator[bytes]:
    """Numbers and arrays, also inside tuples, as bytes that tell any two apart."""
    if isinstance(value, tuple):
        yield f"({len(value)}".encode()
        for item in value:
            yield from value_bytes(item)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield value.tobytes()
    else:
        yield repr(value).encode() + b"\0"

"""Where the service is, and with which key it is spoken to."""

from __future__ import annotations

from typing import Any

from balaclava._core.extras import require_extra
from balaclava.errors import ParameterError


def connection(url: str, key: str | None, timeout: float) -> dict[str, Any]:
    """The settings of an httpx client; an error if they cannot work."""
    require_extra("httpx", "the client of the service")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ParameterError(
            f"url = {url!r} is not allowed; give the service's address, such as "
            "http://127.0.0.1:8765"
        )
    headers = {"accept": "application/json"}
    if key is not None:
        if not (isinstance(key, str) and key.isascii() and key.isprintable() and key.strip()):
            raise ParameterError("the key (not repeated here) is no text as the service shows it")
        headers["authorization"] = f"Bearer {key.strip()}"
    return {"base_url": url, "headers": headers, "timeout": timeout}


def checked_patience(patience: float) -> float:
    """Seconds, or an error."""
    if not isinstance(patience, int | float) or not 0.0 <= patience < float("inf"):
        raise ParameterError(f"patience = {patience!r} is not allowed; give seconds, at least 0")
    return float(patience)

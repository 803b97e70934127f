"""What the two clients share below a Flow: the server's URL and the making of an httpx request."""

from __future__ import annotations

import os

import httpx

from relaxd.sending import Request
from relaxd.version import __version__

DEFAULT_URL = "http://127.0.0.1:8000"
CONNECT_S = 5.0


def check_base_url(base_url: str) -> str:
    """`base_url` itself. Raises ValueError without a scheme: httpx would say so only at the first request."""
    if not base_url.startswith(("http://", "https://")):
        raise ValueError(f"base_url must start with http:// or https://, not {base_url!r}")
    return base_url


def key_headers(api_key: str | None) -> dict[str, str]:
    """The header of an API key: the one given, or that of the environment variable ``RELAXD_API_KEY``."""
    key = api_key or os.environ.get("RELAXD_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}


def build_request(http: httpx.Client | httpx.AsyncClient, request: Request, timeout_s: float) -> httpx.Request:
    """The request for this attempt. Built anew each time, because an upload's body can be read only once."""
    return http.build_request(
        request.method,
        request.path,
        params=dict(request.query) or None,
        headers={"User-Agent": f"relaxd-client/{__version__}", **request.headers},
        content=request.body,
        files=request.parts,
        timeout=httpx.Timeout(timeout_s + request.wait_s, connect=min(CONNECT_S, timeout_s)),
    )

"""The explorer page: GET / and the static files under /web, as they lie in the package."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from service.api.problems import check_parameters
from service.errors import NotFound

router = APIRouter(tags=["page"], include_in_schema=False)

WEB = Path(__file__).parent.parent / "web"
# Only what lies there when the server starts is served: a path of a request is a key, never a path of the machine.
FILES = {str(path.relative_to(WEB)): path for path in WEB.rglob("*") if path.is_file()}

_TYPES = {".js": "text/javascript", ".pt2": "application/octet-stream"}
_COMPRESSED = (".html", ".css", ".js", ".json", ".svg")

# Inputs of a page come from strangers: nothing runs, loads or frames but what this server has.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@router.get("/")
async def get_page(request: Request) -> Response:
    """The explorer page. Where it is on the page is in the fragment, which browsers do not send."""
    check_parameters(request)
    return _answer("index.html", request)


@router.get("/web/{path:path}")
async def get_file(path: str, request: Request) -> Response:
    """A script, style, icon or sample model of the page."""
    check_parameters(request)
    return _answer(path, request)


def _answer(name: str, request: Request) -> Response:
    if name not in FILES:
        raise NotFound(f"The page has no file {name[:100]!r}.", path=request.url.path)
    path = FILES[name]
    status = path.stat()
    content, packed, tag = _read(path, status.st_mtime_ns, status.st_size)
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = packed, {**headers, "Content-Encoding": "gzip"}
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    return Response(content, headers=headers, media_type=media_type)


@lru_cache(maxsize=256)
def _read(path: Path, _changed_ns: int, _size: int) -> tuple[bytes, bytes | None, str]:
    """The bytes of a file, compressed where that pays, and its entity tag; anew when the file has changed."""
    content = path.read_bytes()
    packed = gzip.compress(content, mtime=0) if path.suffix in _COMPRESSED else None
    return content, packed, f'"{hashlib.sha256(content).hexdigest()[:16]}"'

"""The page as it is delivered: weight, headers, nothing but what is in the package."""

from __future__ import annotations

import re
import tomllib

import pytest

from service.api.page import FILES, WEB
from tests.conftest import ROOT

FIRST_VIEW_BYTES = 200_000


def first_view(text: str) -> list[str]:
    """What the first view loads: styles, icon, scripts and what they import at once."""
    return sorted(set(re.findall(r'(?:href|src)="(/web/[^"]+)"', text)))


def imports_of(name: str) -> set[str]:
    """The modules that a module imports at once, as names under /web."""
    folder = FILES[name].parent
    found = re.findall(r'^(?:import|export)\b[^;]*?from "(\.[^"]+)";', FILES[name].read_text(), re.MULTILINE)
    return {str((folder / target).resolve().relative_to(WEB)) for target in found}


def test_the_page_is_html_with_a_strict_policy(server):
    answer = server.http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_the_page_has_no_inline_script_or_style_and_loads_nothing_from_elsewhere():
    html = FILES["index.html"].read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", html) == []
    for name, path in FILES.items():
        if path.suffix in (".html", ".css", ".js"):
            addresses = re.findall(r"https?://[^\s\"'`$/]+", path.read_text())
            assert set(addresses) <= {"http://www.w3.org"}, name


def test_the_first_view_is_light(server):
    html = server.http.get("/")
    names = first_view(html.text)
    sizes = {name: len(server.http.get(name, headers={"Accept-Encoding": "identity"}).content) for name in names}
    assert sum(sizes.values()) + len(html.content) < FIRST_VIEW_BYTES, sizes


def test_all_that_the_first_view_imports_is_asked_for_at_once():
    asked = {name.removeprefix("/web/") for name in first_view(FILES["index.html"].read_text())}
    needed, waiting = {"js/main.js"}, ["js/main.js"]
    while waiting:
        for name in imports_of(waiting.pop()) - needed:
            needed.add(name)
            waiting.append(name)
    assert needed <= asked, f"without modulepreload: {sorted(needed - asked)}"


def test_files_come_compressed_and_are_not_sent_twice(server):
    answer = server.http.get("/web/js/main.js")
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"].startswith("text/javascript")
    again = server.http.get("/web/js/main.js", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""


@pytest.mark.parametrize("path", ["nothing.js", "../api/page.py", "..%2fapi%2fpage.py", "%2e%2e/api/page.py", "js"])
def test_only_files_of_the_page_are_served(server, path):
    answer = server.http.get(f"/web/{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_samples_are_small_and_can_be_inspected(server):
    samples = [path for path in FILES.values() if path.suffix == ".pt2"]
    assert len(samples) == 3
    assert sum(path.stat().st_size for path in samples) < 1_000_000
    for path in samples:
        answer = server.http.post("/inspect", files={"model": (path.name, path.read_bytes())})
        assert answer.status_code == 200
        assert answer.json()["unsupported"] == []


def test_the_package_has_all_files_of_the_page():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["service"]
    assert "web/**/*" in data


def test_no_script_or_style_of_the_page_is_too_long():
    for name, path in FILES.items():
        if path.suffix in (".js", ".css"):
            assert len(path.read_text().splitlines()) <= 430, name

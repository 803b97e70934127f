"""A real Chromium for the tests of the page, on a server that has compiled the samples."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.conftest import ROOT, Server

SAMPLES = ROOT / "service/web/samples"
# A server that has just started takes seconds to its first answer.
expect.set_options(timeout=30_000)

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def find_chromium() -> str:
    """The path of the system's Chromium. Skips where there is none and none can be installed, else fails."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        pytest.fail("no Chromium, though it can be installed here: run the tests with ./dev test, which does")
    pytest.skip("no Chromium, and it cannot be installed without root or apt-get")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser a file."""
    path = find_chromium()
    with sync_playwright() as playwright:
        # Chromium's own sandbox needs a user other than root.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=path, args=arguments)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Browser, server: Server) -> Iterator[Callable[..., Page]]:
    """Opens the page in a context of its own; at the end nothing may have gone wrong in its scripts."""
    wrong: list[str] = []
    contexts = []

    def open_(address: str = "", **options: Any) -> Page:
        context = browser.new_context(
            **{"viewport": WIDE, "base_url": server.url, "reduced_motion": "reduce", **options}
        )
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error.stack)))
        page.on("console", lambda said: wrong.append(said.text) if is_wrong(said.type, said.text) else None)
        page.goto(f"/{address}")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not wrong


def is_wrong(kind: str, text: str) -> bool:
    """An error that is not just the browser's note of an answer 4xx, which the page shows as a Problem."""
    return kind == "error" and "the server responded with a status of" not in text


@pytest.fixture(scope="module")
def compiled(server: Server) -> Callable[..., dict[str, Any]]:
    """Compiles a sample, or answers what was compiled before."""

    def compile_(name: str, passes: Any = "generic", **request: Any) -> dict[str, Any]:
        wanted = {"passes": passes, "verify": "every_step", **request}
        answer = server.compile(Path(SAMPLES / f"{name}.pt2"), wanted)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    return compile_

"""A real browser for tests: pages opened without any network, at two widths, light and dark."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

WIDTHS = [1280, 390]
SCHEMES = ["light", "dark"]
SCREENS = [(width, scheme) for width in WIDTHS for scheme in SCHEMES]
_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="a browser is driven by playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium is installed on this machine")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=program, args=_OPTIONS)
        yield opened
        opened.close()


@contextlib.contextmanager
def offline(browser: Any, screen: tuple[int, str], **how: Any) -> Iterator[Any]:
    """A window of a width and a scheme, cut off from any network."""
    width, scheme = screen
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **how)
    context.set_offline(True)
    yield context
    context.close()


@contextlib.contextmanager
def untroubled(context: Any) -> Iterator[Any]:
    """A page on which nothing is complained of, and nothing is asked for that is not there."""
    page, troubles = context.new_page(), []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("requestfailed", lambda request: troubles.append(request.url[:200]))
    yield page
    page.close()
    assert troubles == []

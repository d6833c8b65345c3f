"""A real headless Chromium, the one of the system, and what a page did in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
needed = pytest.mark.skipif(
    CHROMIUM is None, reason="needs chromium on PATH (apt install chromium)"
)


@dataclass
class Seen:
    """A page, the requests it made and what it complained of."""

    page: Any
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


@contextmanager
def opened(
    address: str | Path, scheme: Literal["light", "dark"] = "light", width: int = 1280
) -> Iterator[Seen]:
    """A file or address as a reader sees it."""
    from playwright.sync_api import sync_playwright

    url = address if isinstance(address, str) else address.resolve().as_uri()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        seen = Seen(page)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on(
            "console",
            lambda said: seen.errors.append(said.text) if said.type in ("error", "warning") else 0,
        )

        def dismiss(dialog: Any) -> None:
            seen.dialogs.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", dismiss)
        page.goto(url)
        yield seen
        browser.close()

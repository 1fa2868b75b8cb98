"""One viewer with several recordings for all tests that only look, and one Chromium."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from viewer import FILES, SNAPSHOTS, browsing, chromium, viewing, zipped  # noqa: E402


@pytest.fixture(scope="session")
def browser():
    if chromium() is None:
        pytest.skip("there is no Chromium: install it, or name one in PLIMSOLL_CHROMIUM")
    with browsing() as context:
        yield context


@pytest.fixture(scope="session")
def viewer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    files = [SNAPSHOTS / f"{it}.pickle" for it in FILES] + [zipped(it, folder) for it in ("train", "oom")]
    with viewing(*files) as viewer:
        yield viewer


@pytest.fixture
def page(browser):
    """A tab; what goes wrong in it fails the test."""
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda it: problems.append(str(it)))
    page.on("console", lambda it: problems.append(it.text) if it.type == "error" else None)
    page.problems = problems
    yield page
    page.close()
    assert not problems

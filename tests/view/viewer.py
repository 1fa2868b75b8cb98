"""Starts the real viewer, and the real Chromium that looks at it."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness import ROOT, binary, clean_environment

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium():
    """The browser to test in, or none."""
    named = os.environ.get("PLIMSOLL_CHROMIUM")
    found = [named] if named else ["chromium", "chromium-browser", "google-chrome", "chrome"]
    return next(filter(None, map(shutil.which, found)), None)


class Viewer:
    """`plimsoll view` of some files, for as long as it is wanted."""

    def __init__(self, *files, options=(), opens=False, environment=None):
        words = [binary(), "view", *map(str, files), *([] if opens else ["--no-open"]), *options]
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment or clean_environment()
        )
        self.url = self.process.stdout.readline().strip()

    def end(self):
        self.process.send_signal(2)
        code = self.process.wait(timeout=20)
        self.rest = self.process.stdout.read(), self.process.stderr.read()
        return code


@contextlib.contextmanager
def viewing(*files, options=()):
    viewer = Viewer(*files, options=options)
    try:
        yield viewer
    finally:
        viewer.process.kill()
        viewer.process.wait()


@contextlib.contextmanager
def browsing():
    """A Chromium with a profile of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        context = playwright.chromium.launch_persistent_context(
            folder, executable_path=chromium(), headless=True, args=ARGUMENTS, viewport={"width": 1280, "height": 800}
        )
        try:
            yield context
        finally:
            context.close()


def settled(page):
    """Waits until the page has drawn what it was asked for."""
    page.wait_for_function("() => document.querySelectorAll('.wait').length === 0")
    page.wait_for_function(
        "() => { const v = window.plimsoll && window.plimsoll.page.view; return v && (!v.timings || (v.data && !v.isAsking && !v.isDue)); }"
    )


FIXTURES = ROOT / "fixtures"
SNAPSHOTS = FIXTURES / "snapshots"

# What the viewer of all tests shows, in the order that the page counts them; then two of our own recordings.
FILES = ["seed-mlp-adam-b64", "oom-gpt2-b32-cap12", "lstm-adam-b32-s128", "mempool"]


def zipped(name, folder):
    """One of our own recordings, as `predict --record` writes them."""
    import zipfile

    path = Path(folder) / f"{name}.zip"
    with zipfile.ZipFile(path, "w") as file:
        for member in ("agent.jsonl", "snapshot.pickle"):
            file.write(FIXTURES / "recordings" / name / member, f"process-1/{member}")
    return path

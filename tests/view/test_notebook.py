"""`plimsoll.view` in a notebook: what a cell shows is the page, at work in a frame."""

import re
import subprocess
import sys

import pytest
from harness import ROOT, binary, clean_environment
from viewer import SNAPSHOTS

CELLS = [
    "import pickle, plimsoll",
    f"snapshot = pickle.load(open({str(SNAPSHOTS / 'seed-mlp-adam-b64.pickle')!r}, 'rb'))",
    "plimsoll.view(snapshot)",
]


def shown(page, tmp_path, output):
    """Opens what a cell gave, in a page as a notebook's."""
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><h1>A notebook</h1>{output}")
    page.goto(notebook.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator(".headline h2").wait_for()
    return frame


def looks_right(frame):
    frame.locator("#tab-timeline").click()
    frame.locator(".summary", has_text="drawn alone").wait_for()
    frame.locator("#words").fill(">1KiB")
    frame.locator("#words").press("Enter")
    frame.locator("#found .hits button").first.click()
    frame.locator("#side .stack, #side h2").first.wait_for()


def environment():
    return {**clean_environment(), "PLIMSOLL_BIN": str(binary()), "PYTHONPATH": str(ROOT / "python")}


def test_a_cell_shows_the_page(page, tmp_path):
    code = "\n".join([*CELLS[:-1], f"it = {CELLS[-1]}", "print(repr(it))", "import sys; sys.stdout.write(it._repr_html_())"])
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    said, output = ran.stdout.split("\n", 1)
    assert said == "<plimsoll.View of snapshot.pickle: a notebook shows it, save('page.html') writes it>"
    assert 'sandbox="allow-scripts allow-forms allow-downloads"' in output
    looks_right(shown(page, tmp_path, output))


@pytest.mark.soak
def test_a_notebook_that_is_run_shows_the_page(page, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(it) for it in CELLS])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    output = notebook.cells[-1].outputs[0]["data"]["text/html"]
    looks_right(shown(page, tmp_path, output))


def test_what_cannot_be_viewed_is_said(tmp_path):
    (tmp_path / "x.txt").write_text("nothing")
    code = f"import plimsoll; plimsoll.view({str(tmp_path / 'x.txt')!r})"
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert re.search(r"PlimsollError: .*not a memory snapshot", ran.stderr), ran.stderr

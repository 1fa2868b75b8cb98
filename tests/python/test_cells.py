"""A notebook from top to bottom: cells that are predicted, made to fit and watched; who holds memory after a failed one, and freeing it."""

import subprocess

import pytest
from harness import COLD, PYTHON, ROOT, binary

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

SETUP = """
import torch
from torch import nn
%load_ext plimsoll
width = 256
"""

MODEL = """
def build(width):
    return nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)).cuda()

def train(model, batch, steps=6):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(batch, width, device="cuda")).square().mean().backward()
        optimizer.step()
"""


@pytest.fixture
def notebook(program, monkeypatch):
    """Runs cells in a kernel on a machine with a card of 1 GiB; what each of them printed, and the errors' names."""

    def notebook(*cells):
        environment = program.on_a_device("--gpu", "t4", "--memory", "1GiB") | {"PLIMSOLL_RUNNING": str(program.folder / "running")}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(it.strip("\n")) for it in cells])
        nbclient.NotebookClient(made, timeout=240, allow_errors=True, resources={"metadata": {"path": str(program.folder)}}).execute()
        texts, errors = [], []
        tracebacks.clear()
        for cell in made.cells:
            outputs = cell.outputs
            printed = [it["text"] for it in outputs if it["output_type"] == "stream"]
            shown = [it["data"]["text/plain"] for it in outputs if it["output_type"] == "execute_result"]
            texts.append("".join([*printed, *shown]))
            tracebacks.append("\n".join(next((it["traceback"] for it in outputs if it["output_type"] == "error"), [])))
            errors.append(next((it["ename"] + ": " + it["evalue"] for it in outputs if it["output_type"] == "error"), None))
        return texts, errors

    assert binary()
    tracebacks = notebook.tracebacks = []
    return notebook


def test_a_cell_is_predicted(notebook):
    texts, errors = notebook(SETUP, MODEL, "%%predict --gpu t4 --to answer\nmodel = build(width)\ntrain(model, 4096)", "'model' in dir(), answer.fits, answer.gpu_name")
    assert not any(errors), errors
    said = texts[2].splitlines()
    assert said[0].startswith("fits Tesla T4") and said[-1] == "with what it needs of In[1], In[2]", texts
    assert texts[3] == "(False, True, 'Tesla T4')"


@pytest.mark.soak
def test_a_cell_is_predicted_with_what_it_needs(notebook):
    texts, errors = notebook(
        SETUP,
        MODEL,
        "x = undefined_name",
        "for _ in range(3):\n    pass\nprint('not again')",
        "%%predict --gpu t4 --to answer\nmodel = build(width)\ntrain(model, 4096)",
        "'model' in dir(), answer.fits, answer.gpu_name",
        "%%predict --gpu t4 --memory 600MiB\ntrain(build(width), 400_000)",
        "%%predict --card t4\n1",
        "%%predict --gpu t4\nmodel = build(width)\ntrain(model, 40960)",
    )
    assert errors[2].startswith("NameError") and [it is None for it in errors] == [True] * 2 + [False] + [True] * 4 + [False, True], errors
    # The page shows this cell.
    page = (ROOT / "docs" / "notebooks.md").read_text()
    assert f"```text\n{texts[8].strip()}\n```" in page, texts[8]
    predicted = texts[4].splitlines()
    assert predicted[0].startswith("fits Tesla T4") and predicted[-1] == "with what it needs of In[1], In[2]", texts
    # Lines are those of the cells.
    assert any(" In[2]:" in it for it in predicted[1:-1]), predicted
    # Names of categories are words.
    assert "optimizer state" in texts[4] and "optimizer_state" not in texts[4], texts[4]
    assert texts[5] == "(False, True, 'Tesla T4')"
    # The next step can be copied.
    does_not_fit = texts[6].splitlines()
    assert "does not fit" in does_not_fit[0] and does_not_fit[-2].endswith(":  %%fit --gpu t4 --memory 600MiB"), does_not_fit
    assert "unrecognized arguments: --card" in errors[7], errors


@pytest.mark.soak
def test_a_cell_that_fails_shows_its_own_error(notebook):
    texts, errors = notebook(
        SETUP,
        MODEL,
        "%%predict --gpu t4\nbuild(widht)",
        "%%predict --gpu t4\ntrain(build(width), 8)\nraise ValueError('no data')",
        "%%predict --gpu t4\nx = 1",
        "%%predict --gpu t4\nx = torch.zeros(width)",
        "%%predict --gpu t4\nprint(plimsoll.held())\ntrain(build(width), 8)",
    )
    assert errors[2] == "CellFailed: NameError: name 'widht' is not defined (In[3], line 2)", errors
    # IPython's own text, with the traceback of the cell and no frame of plimsoll's.
    shown = notebook.tracebacks[2]
    assert shown.startswith("Traceback") and 'File "In[3]", line 2' in shown and "plimsoll" not in shown, shown
    assert errors[4] == (
        "MagicFailed: this cell ended without importing torch, so it uses no GPU memory; put the magic on the cell that trains"
    ), errors
    assert errors[5].startswith("MagicFailed: this cell, with what it needs of In[1], ended without using the GPU"), errors
    assert errors[3] == "CellFailed: ValueError: no data (In[4], line 3)", errors
    assert errors[6] is None, errors
    assert notebook.tracebacks[4] == errors[4].replace("MagicFailed", "plimsoll"), notebook.tracebacks[4]


@pytest.mark.soak
def test_a_cell_is_made_to_fit(notebook):
    texts, errors = notebook(
        SETUP,
        MODEL,
        "%%fit --gpu t4 --memory 600MiB --plan plan.toml\ntrain(build(width), 60_000)",
        "%%fit --gpu t4\ntrain(build(width), 8)",
        "%%fit --gpu t4\nbuild(widht)",
    )
    assert [it is None for it in errors] == [True] * 4 + [False], errors
    proposed = texts[2].splitlines()
    assert proposed[0].startswith("does not fit Tesla T4 (600.0 MiB) without changes: ") and proposed[0].endswith(" to be safe"), proposed
    assert proposed[1] == "fits with one of these plans:" and "micro-batches" in proposed[2], proposed
    assert proposed[-2:] == ["to train with the first plan:  plimsoll.fit(plan='plan.toml')(FUNCTION)(ARGUMENTS)", "with what it needs of In[1], In[2]"]
    assert texts[3].startswith("fits Tesla T4 ") and "to be safe" in texts[3], texts[3]
    assert "name 'widht' is not defined" in errors[4], errors


def test_a_cell_is_watched(notebook):
    texts, errors = notebook(
        SETUP,
        MODEL,
        """
%%watch --label night --to watch
kept = []
model = build(width)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(300):
    optimizer.zero_grad()
    model(torch.randn(64, width, device="cuda")).square().mean().backward()
    optimizer.step()
    kept.append(torch.zeros(1 << 18, device="cuda"))
len(kept)
""",
        "[(it.code, int(it.per_step), it.report['label']) for it in watch.alarms]",
    )
    assert errors == [None] * 4, errors
    assert texts[2].startswith("plimsoll: step ") and "memory grows by 1.0 MiB a step at In[3]:9: " in texts[2] and texts[2].endswith("300"), texts
    assert texts[3] == f"[('watch/growth', {1 << 20}, 'night')]"


FAILS = """
def forward(x):
    hidden = x.repeat(64, 1)
    deeper = [hidden + 1, {"more": hidden * 2}]
    return torch.zeros(1 << 40, device="cuda")

mine = torch.zeros(1 << 20, device="cuda")
forward(mine[: 1 << 18].view(1024, 256))
"""


@pytest.mark.soak
def test_what_a_failed_cell_holds_is_named_and_let_go(notebook):
    texts, errors = notebook(
        SETUP,
        "torch.zeros(1 << 22, device='cuda')",
        FAILS,
        "print(torch.cuda.memory_allocated() >> 20)\nfound = plimsoll.held()\nprint(found)\nprint([it.name for it in found.yours])",
        "print(plimsoll.release())",
        "print(torch.cuda.memory_allocated() >> 20, plimsoll.held().errors, plimsoll.held().outputs, float(mine.sum()) == 0)",
        "plimsoll.release()",
    )
    assert errors[2].startswith("OutOfMemoryError") and errors.count(None) == 6, errors
    # Said at once, after the traceback.
    assert "the traceback of the last error (OutOfMemoryError) holds 192.0 MiB" in texts[2], texts[2]
    lines = texts[3].splitlines()
    assert int(lines[0]) >= 4 + 16 + 192
    named = {" ".join(it.split()) for it in lines}
    # The view that was passed in is the user's; the result that the cell showed is not.
    assert {"128.0 MiB deeper in forward, In[3]:4", "64.0 MiB hidden in forward, In[3]:4", "16.0 MiB Out[2]", "4.0 MiB mine"} <= named, texts[3]
    assert lines[-1] == "['mine']"
    released = texts[4].splitlines()
    assert released[0].startswith("freed 208.0 MiB and gave ") and "deeper in forward, In[3]:4" in released[0], released
    assert texts[5].split(" ", 1) == ["4", "() () True\n"], texts[5]
    assert texts[6].startswith("freed 0 B and gave "), texts[6]


TRAINS = """
model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(16)]).cuda()
def step(rows):
    out = model(torch.randn(rows, 1024, device="cuda"))
    out.square().mean().backward()
    model.zero_grad()
step(64)
"""


@pytest.mark.soak
def test_a_graph_without_a_name_goes_with_its_error(notebook):
    texts, errors = notebook(
        SETUP,
        TRAINS,
        "step(20_000)",
        "found = plimsoll.held()\nprint(found.unnamed > 300 << 20, [it.name for it in found.yours])\nprint(found)",
        "released = plimsoll.release()\nprint(released.freed > 400 << 20, released.allocated < 100 << 20)\nstep(64)",
    )
    assert errors[2].startswith("OutOfMemoryError") and errors.count(None) == 4, errors
    assert texts[3].startswith("True ['model']\n") and "more are allocated without a variable: tensors saved for the backward pass" in texts[3], texts
    assert texts[4] == "True True\n", texts


def test_an_error_that_the_user_keeps_stays(notebook):
    keeps = FAILS.replace("forward(mine", "try:\n    forward(mine").rstrip("\n") + "\nexcept torch.OutOfMemoryError as error:\n    kept = error\n"
    texts, errors = notebook(
        SETUP,
        keeps,
        "found = plimsoll.held()\nprint(found.errors, [it.name for it in found.yours])",
        "print(plimsoll.release().freed, torch.cuda.memory_allocated() >> 20 > 190)",
        "len(kept.__traceback__.tb_next.tb_frame.f_locals['deeper'])",
    )
    assert errors == [None] * 5, errors
    assert texts[2] == "() ['kept', 'mine']\n" and texts[3] == "0 B True\n" and texts[4] == "2", texts


@pytest.mark.soak
def test_a_result_that_has_a_name_too_stays(notebook):
    texts, errors = notebook(
        SETUP,
        "result = torch.zeros(1 << 20, device='cuda')\nresult",
        "torch.ones(1 << 20, device='cuda')",
        "_ = plimsoll.release()\nprint(_)",
        "print(result.shape, 2 in Out, 3 in Out)",
    )
    assert errors == [None] * 5 and texts[3].startswith("freed 4.0 MiB and gave "), (texts, errors)
    assert "Out[3]" in texts[3] and "Out[2]" not in texts[3]
    assert texts[4] == "torch.Size([1048576]) True False\n", texts


def test_nothing_is_held_where_no_gpu_was_used(program):
    ran = program.run("import plimsoll\nprint(plimsoll.held())\nprint(plimsoll.release())\nimport sys\nprint('torch' in sys.modules, 'IPython' in sys.modules)\n", python=(COLD,))
    assert ran.stdout.splitlines() == [
        "no traceback and no output of a cell holds GPU memory", "freed 0 B and gave 0 B back to the device", "False False"
    ], ran


ERROR_CELLS = '''
import re, sys, tempfile
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(ipython_dir=tempfile.mkdtemp())
shell.history_manager.enabled = False
page = open(sys.argv[1], encoding="utf-8").read()
cells = ["""
import weakref

class Big: pass

seen = []

def step():
    big = Big()
    seen.append(weakref.ref(big))
    raise ValueError
""", "step()", re.search(r"`(import sys, gc; sys[^`]*)`", page).group(1), "print('alive:', seen[0]() is not None)"]
for cell in cells:
    shell.run_cell(cell, store_history=True)
'''


def test_the_line_that_clears_the_last_error_frees_what_it_held(tmp_path):
    script = tmp_path / "cells.py"
    script.write_text(ERROR_CELLS)
    ran = subprocess.run([PYTHON, script, ROOT / "crates/core/src/findings/traceback_kept.md"], capture_output=True, text=True)
    assert "alive: False" in ran.stdout, ran.stdout + ran.stderr

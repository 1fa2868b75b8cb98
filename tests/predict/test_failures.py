"""A script that has failed and does not end is not waited for: the answer is there in seconds. On a GPU each of these hangs for ever."""

import time

import pytest

RUNS_OUT = 'torch.empty(1 << 42, device="cuda")\n'
TRAINS = """
import threading, torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def train():
    for _ in range(2):
        optimizer.zero_grad(); net(torch.ones(8, 64, device="cuda")).sum().backward(); optimizer.step()
"""

HANGS = {
    "the main program, and a thread waits": """
import threading, torch
threading.Thread(target=threading.Event().wait).start()
"""
    + RUNS_OUT,
    "the main program, and an atexit function waits": """
import atexit, threading, torch
atexit.register(threading.Event().wait)
"""
    + RUNS_OUT,
    "the thread that trains, and the main program waits": TRAINS
    + """
done = threading.Event()
def trains():
    train(); torch.empty(1 << 42, device="cuda"); done.set()
threading.Thread(target=trains, daemon=True).start()
done.wait()
""",
    "a spawned child, and its parent waits": """
import multiprocessing
def work(queue):
    import torch
    torch.empty(1 << 42, device="cuda")
    queue.put(1)
if __name__ == "__main__":
    import torch
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    context.Process(target=work, args=(queue,)).start()
    queue.get()
""",
    "one of two processes, and their launcher waits for both": """
import os, subprocess, sys, threading
if "NUMBER" not in os.environ:
    words = [sys.executable, __file__]
    both = [subprocess.Popen(words, env=dict(os.environ, NUMBER=str(it))) for it in range(2)]
    sys.exit(max(it.wait() for it in both))
import torch
torch.ones(3, device="cuda")
if os.environ["NUMBER"] == "1":
    threading.Event().wait()
"""
    + RUNS_OUT,
    "a future that nobody asks": """
import concurrent.futures, threading, torch
done = threading.Event()
def work():
    torch.empty(1 << 42, device="cuda"); done.set()
concurrent.futures.ThreadPoolExecutor(1).submit(work)
done.wait()
""",
    "the main program, which catches it and exits": """
import sys, threading, torch
threading.Thread(target=threading.Event().wait).start()
try:
    torch.empty(1 << 42, device="cuda")
except torch.OutOfMemoryError:
    sys.exit(1)
""",
}
EVERY_DAY = (
    "the main program, and a thread waits",
    "the thread that trains, and the main program waits",
    "a spawned child, and its parent waits",
)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("who", [it if it in EVERY_DAY else pytest.param(it, marks=pytest.mark.soak) for it in HANGS])
def test_memory_runs_out_and_somebody_waits(plimsoll, who):
    began = time.monotonic()
    options = ["--gpu", "b200", "--until-exit"]
    ran = plimsoll.predict(plimsoll.script(HANGS[who]), options=options, environment=plimsoll.cold())
    assert (ran.code, ran.report["outcome"]) == (1, "out_of_memory"), ran
    assert "waited-in-vain" in [it["code"] for it in ran.report["notes"]], ran
    # At most 20 of them after the error; the rest is the start on a busy machine.
    assert time.monotonic() - began < 100, ran
    plimsoll.assert_nothing_left()


@pytest.mark.soak
def test_any_other_error_is_told_and_that_it_waited(plimsoll):
    waits = "import threading, torch\nthreading.Thread(target=threading.Event().wait).start()\nopen('/nowhere')\n"
    ran = plimsoll.predict(plimsoll.script(waits), options=["--until-exit"], environment=plimsoll.cold())
    ran.assert_sentence("raised FileNotFoundError", "train.py:3", "after that the script waited without end, and plimsoll ended it")


def test_an_error_of_the_thread_that_trains_is_the_scripts(plimsoll):
    """Its main program ends as if all were well."""
    fails = TRAINS + "def fails():\n    train()\n    raise ValueError('gone')\nit = threading.Thread(target=fails)\nit.start(); it.join()\n"
    plimsoll.predict(plimsoll.script(fails)).assert_sentence("raised ValueError: gone", "train.py:10", "after 2 optimizer steps")


def test_a_script_that_lives_with_an_error_of_a_thread_goes_on(plimsoll):
    """It trains on; that another thread of it failed is its affair."""
    lives = TRAINS + "it = threading.Thread(target=lambda: 1 / 0)\nit.start(); it.join()\nfor _ in range(4): train()\n"
    ran = plimsoll.predict(plimsoll.script(lives))
    assert (ran.code, ran.report["outcome"]) == (0, "fits"), ran
    assert "waited-in-vain" not in [it["code"] for it in ran.report["notes"]], ran


@pytest.mark.soak
def test_the_traceback_is_folded_where_the_report_has_the_line(plimsoll):
    def ran(first, *options, environment=None):
        script = plimsoll.script(first + "import torch\n" + RUNS_OUT)
        return plimsoll.predict(script, options=["--gpu", "b200", *options], environment=environment)

    folded = ran("", environment=plimsoll.cold())
    assert "OutOfMemoryError: CUDA out of memory" in folded.stderr and "Traceback" not in folded.stderr, folded
    assert " at train.py:2" in folded.stdout, folded
    whole = ran("", "--traceback", environment=plimsoll.cold())
    assert "Traceback" in whole.stderr and 'train.py", line 2' in whole.stderr, whole
    hooked = ran("import sys\nsys.excepthook = lambda *_: print('my own words')\n")
    assert "my own words" in hooked.stdout, hooked


WITHOUT_A_GUARD = """
import multiprocessing, sys, torch
def work():
    pass
child = multiprocessing.get_context("spawn").Process(target=work)
child.start(); child.join()
"""
IN_A_LOADER = """
import torch
loader = torch.utils.data.DataLoader([torch.zeros(4)] * 8, num_workers=1, multiprocessing_context="spawn")
net = torch.nn.Linear(4, 4).cuda()
for batch in loader: net(batch.cuda()).sum().backward()
"""
IMPORTS = """
import multiprocessing, torch
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=print)
    child.start(); child.join()
    if child.exitcode: raise RuntimeError("Engine core initialization failed. See root cause above.")
else:
    import nowhere
"""
GUARD = ("a new process was started before its parent has finished its bootstrapping phase", "put what starts them below `if __name__ ==")
SPAWNED = {
    "an engine": (WITHOUT_A_GUARD + "if child.exitcode: raise RuntimeError('Engine core initialization failed. See root cause above.')\n", GUARD),
    "a loader": (IN_A_LOADER, GUARD),
    "a module": (IMPORTS, ("raised ModuleNotFoundError: No module named 'nowhere'", "install it there")),
}


@pytest.mark.soak
@pytest.mark.parametrize("who", SPAWNED)
def test_a_child_that_fails_before_its_own_function_is_the_cause(plimsoll, who):
    """It has not used the GPU, and its parent only knows that it ended."""
    text, parts = SPAWNED[who]
    plimsoll.predict(plimsoll.script(text), environment=plimsoll.cold()).assert_sentence(*parts)


@pytest.mark.soak
def test_a_script_that_lives_without_its_child_goes_on(plimsoll):
    lives = WITHOUT_A_GUARD + TRAINS + "for _ in range(4): train()\n"
    ran = plimsoll.predict(plimsoll.script(lives), environment=plimsoll.cold())
    assert (ran.code, ran.report["outcome"]) == (0, "fits"), ran


INTERRUPTED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
IN_A_CHILD = """import torch
def child():
    import os, signal
    os.kill(os.getpid(), signal.SIGINT)
if __name__ == "__main__":
    process = torch.multiprocessing.get_context("spawn").Process(target=child)
    process.start(); process.join()
"""


@pytest.mark.matrix(1)
@pytest.mark.parametrize("text", [INTERRUPTED + "import torch\n", TRAINS + "train()\n" + INTERRUPTED, IN_A_CHILD], ids=["before torch", "after a step", "in a child"])
def test_the_traceback_of_an_interrupt_is_folded(plimsoll, text):
    script = plimsoll.script(text)
    folded = plimsoll.predict(script, environment=plimsoll.cold())
    assert folded.code == 2 and "Traceback" not in folded.stderr, folded
    whole = plimsoll.predict(script, options=["--traceback"], environment=plimsoll.cold())
    assert "Traceback" in whole.stderr and 'train.py", line' in whole.stderr, whole


@pytest.mark.soak
def test_what_a_script_does_at_its_end_has_time(plimsoll):
    """A log that is written two seconds after the error."""
    saves = "import atexit, time, torch\natexit.register(lambda: (time.sleep(2), print('saved', flush=True)))\n" + RUNS_OUT
    ran = plimsoll.predict(plimsoll.script(saves), options=["--gpu", "b200"], environment=plimsoll.cold())
    assert ran.code == 1 and "saved\n" in ran.stdout, ran
    assert "waited-in-vain" not in [it["code"] for it in ran.report["notes"]], ran


@pytest.mark.soak
def test_a_limit_on_the_size_of_files(plimsoll):
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (%d, %d))\n"
    for limit, says in (
        (600, "after an unknown number of optimizer steps (plimsoll's notes could not be written: File too large)"),
        (3000, "optimizer step or more (plimsoll's notes could not be written any further: File too large)"),
    ):
        script = plimsoll.script(limited % (limit, limit) + TRAINS + "for _ in range(3): train()\nraise SystemExit(3)\n")
        plimsoll.predict(script, environment=plimsoll.cold()).assert_sentence(says)


FULL = """
import torch
net = torch.nn.Conv2d(3, 8, 3).cuda()
picture = torch.ones(2, 3, 32, 32, device="cuda") * 2
left, _ = torch.cuda.mem_get_info()
others = torch.empty(left - (6 << 20), dtype=torch.uint8, device="cuda")
try:
    net(picture)
except RuntimeError as error:
    print(error)
"""
TRAINS_ON = """
del others
torch.cuda.empty_cache()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad(); net(picture).square().mean().backward(); optimizer.step()
"""


def test_a_library_without_memory_for_itself_fails(plimsoll):
    ran = plimsoll.predict(plimsoll.script(FULL), options=["--gpu", "rtx3060-12g"])
    assert "CUDNN_STATUS_NOT_INITIALIZED" in ran.stdout, ran
    assert (ran.code, ran.report["outcome"]) == (1, "out_of_memory"), ran


def test_a_script_that_trains_on_after_that_has_survived_it(plimsoll):
    ran = plimsoll.predict(plimsoll.script(FULL + TRAINS_ON + 'raise ValueError("no labels")\n'), options=["--gpu", "rtx3060-12g"])
    assert "CUDNN_STATUS_NOT_INITIALIZED" in ran.stdout, ran
    ran.assert_sentence("raised ValueError: no labels", "after 4 optimizer steps")

"""However a run ends, it ends as without us, and says how."""

import threading

import pytest
from harness import COLD, PYTHON
from plimsoll_agent.run import stopping
from test_steps import MODEL

FAILING = {
    "in forward": """
class Bad(nn.Module):
    def forward(self, x):
        return undefined_name
nn.Sequential(nn.Linear(64, 64).cuda(), Bad())(batch()[0])
""",
    "in backward": "net(batch()[0]).backward()\n",
    "in the optimizer": "torch.optim.SGD([], 0.1)\n",
    "outside": "import os\nos.stat('/nowhere')\n",
    "in step": """
opt = torch.optim.SGD(net.parameters(), 0.1)
def closure(): raise KeyError("closure")
opt.step(closure)
""",
}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("where", sorted(FAILING))
def test_an_exception_prints_and_exits_as_without_us(run, where):
    script = run.file("fails.py", MODEL + FAILING[where])
    with_us = run.command([PYTHON, script])
    without = run.command([PYTHON, script], agent=False)
    assert with_us.stderr == without.stderr
    assert with_us.returncode == without.returncode == 1
    end = with_us.process.end
    assert (end["why"], end["exit_code"]) == ("exception", 1)
    assert end["exception"]["user_frame"]["file"] == script
    assert end["exception"]["user_frame"]["text"]


def test_an_exit_code_of_the_script_stays(run):
    r = run(MODEL + "import sys\nsys.exit(3)\n")
    assert (r.returncode, r.stderr, r.process.end["why"]) == (3, "", "exit")


def test_an_interrupt(run):
    script = MODEL + "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(5)\n"
    r = run(script)
    assert (r.returncode, r.stderr.count("KeyboardInterrupt")) == (run(script, agent=False).returncode, 1)
    assert r.process.end["why"] == "interrupt"


def test_running_out_of_memory_names_the_line(run):
    r = run(
        MODEL
        + """
class Hungry(nn.Module):
    def forward(self, x):
        return x.new_empty(1 << 42)  # too much
opt = torch.optim.SGD(net.parameters(), 0.1)
net(batch()[0]).sum().backward(); opt.step()
Hungry()(batch()[0])
"""
    )
    assert r.returncode == 1 and "torch.OutOfMemoryError: CUDA out of memory" in r.stderr
    oom = r.process.one("oom")
    assert oom["user_frame"]["text"] == "return x.new_empty(1 << 42)  # too much"
    assert oom["user_frame"]["function"] == "forward"
    assert (oom["step"], oom["phase"], oom["caught"]) == (1, "forward", False)
    assert oom["message"].startswith("CUDA out of memory. Tried to allocate 16384.00 GiB")
    assert oom["requested"] == 1 << 44
    assert oom["gpu"].startswith("NVIDIA "), "the next command is for this card"
    assert not any("plimsoll_agent" in frame["file"] for frame in oom["stack"])
    assert (r.process.end["why"], r.process.end["exit_code"]) == ("oom", 1)


def test_running_out_in_backward_names_the_caller(run):
    r = run(
        MODEL
        + """
x = torch.empty(1 << 28, device="cuda", requires_grad=True)
loss = x[:1].sum()
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(1.5 * 2**30 / total)
loss.backward()  # here
"""
    )
    assert r.returncode == 1
    oom = r.process.one("oom")
    assert (oom["user_frame"]["text"], oom["phase"]) == ("loss.backward()  # here", "backward")
    assert oom["requested"] == 1 << 30
    assert "Tried to allocate 1024.00 MiB" in oom["message"]


def test_a_caught_out_of_memory_goes_on(run):
    r = run(
        MODEL
        + """
opt = torch.optim.SGD(net.parameters(), 0.1)
size = 1 << 50
for i in range(100):
    try:
        opt.zero_grad(); net(torch.randn(size, 64, device="cuda") if size < 1 << 20 else torch.empty(1 << 42, device="cuda")).sum().backward(); opt.step()
    except torch.OutOfMemoryError:
        size = 32
"""
    )
    assert r.returncode == 0, r.stderr
    oom = r.process.one("oom")
    assert (oom["caught"], oom["phase"]) == (True, None)
    assert r.process.end["why"] == "steady"


def test_an_exception_handler_of_the_script_is_left_alone(run):
    r = run(
        MODEL
        + """
import sys
sys.excepthook = lambda kind, error, traceback: print("mine:", error, file=sys.stderr)
raise ValueError("boom")
"""
    )
    assert (r.returncode, r.stderr) == (1, "mine: boom\n")
    assert r.process.end["exception"]["message"] == "boom"


def test_a_process_that_never_uses_the_gpu(run):
    r = run("import torch\nprint(torch.ones(2).sum().item(), torch.cuda.is_initialized())")
    assert r.stdout == "2.0 False\n"
    assert (r.process.end["why"], r.process.end["used_cuda"]) == ("exit", False)
    assert r.process.all("stats") == []


def test_a_session_that_is_gone_does_not_stop_the_script(run):
    r = run(MODEL + "import os, shutil\nshutil.rmtree(os.environ['PLIMSOLL_SESSION'])\nnet(batch()[0])\nprint('ran')")
    assert (r.returncode, r.stdout) == (0, "ran\n")


TRAINS = (
    MODEL
    + """
import os, signal, threading, time
opt = torch.optim.SGD(net.parameters(), 0.1)
def train(steps):
    for _ in range(steps):
        x, y = batch()
        opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
"""
)

WAITING = {
    "a thread for the end": """
done = threading.Event()
threading.Thread(target=done.wait).start()
train(100)
done.set()
""",
    "an atexit function for a thread": """
import atexit
done = threading.Event()
thread = threading.Thread(target=done.wait)
thread.start()
atexit.register(thread.join)
train(100)
done.set()
""",
    "a finally": """
try:
    train(100)
finally:
    time.sleep(1000)
""",
    "the main thread for a result": """
import queue
results = queue.Queue()
threading.Thread(target=lambda: results.put(train(100)), daemon=True).start()
results.get()
""",
    "a thread that works on and on": """
def works():
    while True: pass
threading.Thread(target=works).start()
train(100)
""",
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("who", sorted(WAITING))
def test_who_waits_for_the_end_is_not_waited_for(run, who):
    r = run(TRAINS + WAITING[who])
    assert (r.returncode, r.stderr) == (0, "")
    assert (r.process.end["why"], r.process.end["steps"], r.process.notes) == ("steady", 3, [])
    assert r.process.one("stats")["allocs"] and r.process.trace()


SUDDEN = {
    "os._exit": ("os._exit(7)", 7, None),
    "a signal to itself": ("os.kill(os.getpid(), signal.SIGTERM)", -15, 15),
    "a signal that nobody survives": ("os.kill(os.getpid(), signal.SIGKILL)", -9, 9),
    "a raised signal": ("signal.raise_signal(signal.SIGHUP)", -1, 1),
    "an alarm": ("signal.alarm(1); time.sleep(100)", -14, 14),
    "a timer": ("signal.setitimer(signal.ITIMER_REAL, 0.1); time.sleep(100)", -14, 14),
}


@pytest.mark.soak
@pytest.mark.parametrize("how", sorted(SUDDEN))
def test_the_last_words_are_said_before_a_sudden_end(run, how):
    end, code, signal = SUDDEN[how]
    r = run.command([COLD, run.file("ends.py", TRAINS + "train(2)\n%s\n" % end)])
    assert r.returncode == code
    assert (r.process.end["why"], r.process.end["steps"], r.process.end["signal"]) == ("exit", 2, signal)
    assert r.process.one("stats")["allocs"] and r.process.trace()


@pytest.mark.soak
def test_signals_that_end_nothing_are_as_without_us(run):
    script = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), 0)
os.kill(os.getpid(), signal.SIGCHLD)
signal.signal(signal.SIGALRM, lambda *_: print("rang"))
signal.alarm(1); time.sleep(2)
for wrong in (lambda: os.kill(1), lambda: signal.alarm("x"), lambda: os.kill(os.getpid(), 1000)):
    try:
        wrong()
    except (TypeError, OSError) as error:
        print(type(error).__name__)
child = os.fork()
if child == 0:
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
train(2)
"""
    path = run.file("goes_on.py", TRAINS + script)
    r = run.command([COLD, path])
    assert (r.returncode, r.stdout) == (0, "handled\nrang\nTypeError\nTypeError\nOSError\n5\n")
    assert (r.process.end["steps"], r.process.end["signal"]) == (2, None)


@pytest.mark.parametrize(
    "turns, ends_after",
    [
        ("....", 4),
        ("w.w.w.w.w....", 13),
        ("rrrrrrrrrrrrrrrrrrrr....", 24),
        ("wwwwwwwwwwwwwwww", 16),
    ],
    ids=["nobody works", "one that works now and then", "one that gets no processor", "one that works for too long"],
)
def test_the_patience_with_a_process_at_its_end(monkeypatch, turns, ends_after):
    """Of each quarter of a second: it worked (w), it waited for a processor (r), or for anything else (.)."""
    clock = {"turn": 0, "worked": 0.0}

    def sleep(seconds):
        clock["turn"] += 1
        clock["worked"] += seconds if turns[clock["turn"] - 1] == "w" else 0.0

    monkeypatch.setattr(stopping.time, "sleep", sleep)
    monkeypatch.setattr(stopping, "_awaits_a_processor", lambda: turns[clock["turn"] - 1] == "r")
    assert stopping._stood_still(1.0, lambda: clock["worked"], most=4.0)
    assert clock["turn"] == ends_after


def test_a_thread_that_spins_awaits_a_processor_and_one_that_sleeps_does_not():
    assert not stopping._awaits_a_processor()
    spins = threading.Event()
    it = threading.Thread(target=lambda: [None for _ in iter(spins.is_set, True)])
    it.start()
    found = any(stopping._awaits_a_processor() for _ in range(200))
    spins.set()
    it.join()
    assert found


LAYERS = """
import torch
from torch import nn
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(60000, 60000, bias=False)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(20)])
with torch.device("cuda"):
    net = %s
"""


def test_layers_of_a_model_that_is_made_are_no_models_of_their_own(run):
    assert run(LAYERS % "Net()").process.all("models") == []
    (found,) = {it["model"] for it in run(LAYERS % "[Layer() for _ in range(20)]").process.all("models")}
    assert found == "Layer"

"""Who holds what stays allocated is found at the end of a run, with the line that puts it there; nothing is kept alive for it."""

import collections
import os
import queue
import shutil
import subprocess
import sys

import pytest
from harness import ROOT
from plimsoll_agent.run import ahead
from test_steps import MODEL

STEPS = """
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(12):
    opt.zero_grad(); x, y = batch(); out = net(x); loss = F.cross_entropy(out, y); loss.backward(); opt.step()
"""

TRACKER = """
class Tracker:
    def __init__(self): self.total = [0.0]; self.seen = []
    def update(self, value):
        self.total[0] += value  # inside
    def watch(self, module, given, out):
        self.seen.append(out)  # hook
"""


def keepers(run, text, **options):
    (line,) = run(text, **options).process.all("keepers")
    text = text.splitlines()
    found = {}
    for it in line["entries"]:
        place = it["line"]["text"] if it["line"] else None
        found[it["where"]] = (it["what"], it["tensors"], place, it["nodes"])
    return found


def held(found, name):
    (what, tensors, text, _) = found[name]
    return what, tensors, text


def test_a_list_of_results_is_held_where_it_is_filled(run):
    text = MODEL + STEPS.replace("for i", "kept = []\nfor i") + "    kept.append(out.detach().clone())\n"
    what, tensors, line = held(keepers(run, text, stop="until-exit"), "kept[...]")
    assert (what, tensors, line) == ("container", 12, "kept.append(out.detach().clone())")


def test_a_member_of_a_dict_is_held_where_that_member_is_filled(run):
    text = MODEL + STEPS.replace("for i", "history = {'train': [], 'dev': []}\nfor i")
    text += "    history['train'].append(loss.item())\n    history['dev'].append(out.detach().clone())\n"
    (line,) = run(text, stop="until-exit").process.all("keepers")
    (entry,) = (it for it in line["entries"] if it["where"] == 'history["dev"][...]')
    assert entry["line"]["text"] == "history['dev'].append(out.detach().clone())"
    assert entry["shape"][0] == 32 and entry["type"] == "float32"


def test_a_tracker_is_held_where_it_is_called_and_a_hook_where_it_stores(run):
    text = MODEL + TRACKER + "tracker = Tracker()\nnet.register_forward_hook(tracker.watch)\n" + STEPS + "    tracker.update(net(x).mean())\n"
    found = keepers(run, text, stop="until-exit")
    assert held(found, "tracker.total[...]")[2] == "tracker.update(net(x).mean())"
    # Each of the twelve passes is in the sum.
    assert found["tracker.total[...]"][3] > 12 * 3
    assert held(found, "tracker.seen[...]")[::2] == ("container", "self.seen.append(out)  # hook")


def test_an_attribute_of_a_class_of_the_script_is_held_where_it_is_set_also_when_the_script_has_failed(run):
    stash = "class Stash:\n    def __init__(self): self.kept = {}\n    def put(self, out): self.kept[len(self.kept)] = out  # put\nstash = Stash()\nhook = lambda module, given, out: stash.put(out)\nnet.register_forward_hook(hook)\n"
    found = keepers(run, MODEL + stash + STEPS + "raise SystemError\n", stop="until-exit")
    assert held(found, "stash.kept[...]") == ("container", 11, "hook = lambda module, given, out: stash.put(out)")


def test_a_number_on_the_host_with_a_graph_is_held(run):
    text = MODEL + STEPS.replace("for i", "kept = []\nfor i") + "    kept.append(out.cpu().mean())\n"
    what, tensors, line, nodes = keepers(run, text, stop="until-exit")["kept[...]"]
    assert (what, tensors, line) == ("container", 12, "kept.append(out.cpu().mean())") and 12 * 3 <= nodes


def test_gradients_of_tensors_that_are_no_parameters_are_held_where_they_are_wanted(run):
    text = MODEL + STEPS.replace("for i", "data = [batch()[0] for _ in range(12)]\nfor i").replace("out = net(x)", "x = data[i]; x.requires_grad_(True); out = net(x)")
    what, tensors, line = held(keepers(run, text, stop="until-exit"), "data[...].grad")
    assert what == "gradient" and tensors >= 11 and "x.requires_grad_(True)" in line


def test_what_the_script_stores_at_a_parameter_is_held_there(run):
    text = MODEL + STEPS + "    for p in net.parameters():\n        if not hasattr(p, 'each'): p.each = []\n        p.each.append(p.grad.clone())\n"
    found = keepers(run, text, stop="until-exit")
    what, _, line = held(found, next(it for it in found if ".each" in it))
    assert (what, line) == ("container", "p.each.append(p.grad.clone())")


def test_a_list_that_a_function_was_given_is_held_where_its_caller_fills_it(run):
    text = """
class Merged:
    def backward(self, losses):
        parts = []
        for it in losses:
            parts.append(it.detach().clone())
        return self.project(parts)
    def project(self, grads):
        raise SystemError
Merged().backward([torch.ones(64, 64, device="cuda") for _ in range(12)])
"""
    assert held(keepers(run, MODEL + STEPS + text, stop="until-exit"), "grads[...]") == ("container", 12, "parts.append(it.detach().clone())")


def test_variables_of_a_function_are_there_when_the_run_is_ended(run):
    body = "".join("    %s\n" % line for line in (STEPS + "    kept[i] = out.detach().clone()\n").splitlines() if line)
    text = MODEL + "def main():\n    kept = {}\n" + body.replace("range(12)", "range(4000)") + "main()\n"
    assert held(keepers(run, text, stop="steps:12"), "kept[...]")[2] == "kept[i] = out.detach().clone()"


EPOCHS = """
from torch.utils.data import DataLoader, TensorDataset
def main():
    kept, opt = [], torch.optim.SGD(net.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.randn(4000, *batch()[0].shape[1:])), 2)
    for epoch in range(3):
        for (x,) in loader:
            opt.zero_grad(); out = net(x.to(batch()[0].device)); out.sum().backward(); opt.step()
            kept.append(out.detach().clone())
main()
"""


def test_variables_of_a_function_that_returns_because_epochs_end_early_are_seen_before(run):
    """At the end of the run they are gone."""
    lines = run(MODEL + EPOCHS, stop="validation").process.all("keepers")
    places = [it["line"]["text"] for line in lines for it in line["entries"] if it["where"] == "kept[...]"]
    assert places and set(places) == {"kept.append(out.detach().clone())"}, lines


def test_variables_of_a_function_of_few_steps_are_seen_before_it_returns(run):
    body = "".join("    %s\n" % line for line in (STEPS + "    kept[i] = net(x.repeat(100, 1)).detach()\n").splitlines() if line)
    lines = run(MODEL + "def main():\n    kept = {}\n" + body + "main()\n", stop="validation").process.all("keepers")
    places = [it["line"]["text"] for line in lines for it in line["entries"] if it["where"] == "kept[...]"]
    assert places == ["kept[i] = net(x.repeat(100, 1)).detach()"], lines


def test_a_chain_of_objects_is_one_holder_with_the_link_that_keeps_it(run):
    node = "class Node:\n    def __init__(self, before): self.before, self.state = before, None\n"
    text = MODEL + node + STEPS.replace("for i", "last = None\nfor i") + "    last = Node(last); last.state = out.detach().clone()\n"
    entries = run(text, stop="until-exit").process.one("keepers")["entries"]
    (found,) = [it for it in entries if it["link"]]
    assert (found["where"], found["link"], found["tensors"]) == ("last.before.state", "before", 11)


def test_a_clean_program_holds_the_values_of_its_last_step_only(run):
    found = keepers(run, MODEL + STEPS, stop="until-exit")
    assert all(what == "variable" and tensors == 1 for what, tensors, _, _ in found.values()), found


def test_a_container_of_limited_length_says_how_many_members_it_may_have(run):
    fill = "    memory.append((out.detach().clone(), i))\n"
    text = MODEL + STEPS.replace("for i", "from collections import deque\nmemory = deque(maxlen=500)\nfor i") + fill
    entries = run(text, stop="until-exit").process.one("keepers")["entries"]
    (found,) = [it for it in entries if it["where"].startswith("memory")]
    assert (found["members"], found["limit"]) == (12, 500)
    assert all(it["limit"] is None for it in entries if it is not found)


FOLDS = """
import functools
def train(net):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        x, y = batch(); opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
def fresh(): return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
"""


@pytest.mark.parametrize(
    "text, where, what, line",
    [
        ("models = []\nfor _ in range(4):\n    it = fresh(); train(it)\n    models.append(it)", "models[...]", "container", "models.append(it)"),
        ("later = []\ndef fold():\n    model = fresh(); train(model)\n    later.append(lambda: model)\nfor _ in range(4): fold()", "later[...] > model", "closure", "model = fresh(); train(model)"),
        ("later = []\nfor _ in range(4):\n    it = fresh(); train(it)\n    later.append(functools.partial(train, it))", "later[...]", "container", "later.append(functools.partial(train, it))"),
        ("@functools.lru_cache\ndef names(model): return 1\nfor _ in range(4):\n    it = fresh(); train(it); names(it)", "names[...]", "cache", "@functools.lru_cache"),
        ("@functools.cache\ndef names(model): return 1\nfor _ in range(4):\n    it = fresh(); train(it); names(it)", "names[...]", "cache", "@functools.cache"),
    ],
)
def test_models_are_held_by_lists_closures_and_caches(run, text, where, what, line):
    found = keepers(run, MODEL + FOLDS + text + "\ndel it" * ("it =" in text), stop="until-exit")
    kind, tensors, at = held(found, where)
    assert (kind, at) == (what, line) and tensors >= 4 * 2, found


def test_what_an_iterator_keeps_is_held_where_the_iterator_is_made(run):
    of_cycle = "import itertools\nbatches = itertools.cycle(batch() for _ in range(40))\n"
    found = keepers(run, MODEL + STEPS.replace("x, y = batch()", "x, y = next(batches)").replace("for i", of_cycle + "for i"), stop="until-exit")
    # Two tensors a batch; variables hold those of the newest.
    assert held(found, "batches[...]") == ("cycle", 22, "batches = itertools.cycle(batch() for _ in range(40))")

    generator = "def numbered():\n    seen = []\n    while True:\n        seen.append(batch())\n        yield seen[-1]\nbatches = enumerate(numbered())\n"
    found = keepers(run, MODEL + STEPS.replace("x, y = batch()", "_, (x, y) = next(batches)").replace("for i", generator + "for i"), stop="until-exit")
    (name,) = [it for it in found if it.endswith("> seen[...]")]
    assert held(found, name) == ("generator", 22, "seen.append(batch())")


def test_the_output_of_a_function_that_its_context_holds_is_held_there(run):
    function = """
class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.kept = y
        return y
    @staticmethod
    def backward(ctx, grad):
        return grad * (1 - ctx.kept * ctx.kept)
import gc
gc.disable()
"""
    found = keepers(run, MODEL + function + STEPS.replace("out = net(x)", "out = Squash.apply(net(x))"), stop="until-exit")
    what, tensors, line = held(found, "Squash.forward > ctx.kept")
    assert (what, line) == ("context", "ctx.kept = y") and tensors >= 11


def test_a_model_that_only_refers_to_itself_waits_for_the_garbage_collector(run):
    text = """
import torch
class Watched(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norms = torch.nn.Linear(1024, 1024), []
        def watch(module, given, made):
            self.norms.append(1)
        self.layer.register_forward_hook(watch)
    def forward(self, x):
        return self.layer(x)
def train():
    net = Watched().cuda()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(30):
        opt.zero_grad(); net(torch.randn(4, 1024).cuda()).sum().backward(); opt.step()
for turn in range(20): train()
"""
    last = {it["where"]: it for it in run(text, stop="validation").process.all("keepers")[-1]["entries"]}["Watched"]
    assert (last["what"], last["line"]["text"], last["tensors"]) == ("garbage", "def watch(module, given, made):", 4)
    weak = text.replace("        def watch", "        import weakref; me = weakref.ref(self)\n        def watch").replace("self.norms.append(1)", "me().norms.append(1)")
    assert all(it["where"] != "Watched" for line in run(weak, stop="validation").process.all("keepers") for it in line["entries"])


AHEAD = """
import collections, queue, threading, time
from concurrent.futures import ThreadPoolExecutor
def load(i=0): return torch.zeros(64, 1024).cuda(), torch.zeros(64, dtype=torch.long).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
def step(x, y):
    time.sleep(0.01)
    opt.zero_grad(); out = net(x[:, :64]); F.cross_entropy(out, y % 10).backward(); opt.step()
"""

FILLED = {
    "queue": ("q = queue.Queue({limit})\ndef feed():\n    for i in range(400): q.put(load(i))\n", "threading.Thread(target=feed, daemon=True).start()\nwhile True: step(*q.get())\n"),
    "simple": ("q = queue.SimpleQueue()\nroom = threading.Semaphore(2)\ndef feed():\n    for i in range(400):\n        {limit}\n        q.put(load(i))\n", "threading.Thread(target=feed, daemon=True).start()\nwhile True: step(*q.get()); room.release()\n"),
    "deque": (
        "class Ahead(threading.Thread):\n    def __init__(self): super().__init__(daemon=True); self.held = collections.deque()\n    def run(self):\n        for i in range(400):\n            {limit}\n            self.held.append(load(i))\n",
        "ahead = Ahead(); ahead.start()\nwhile True:\n    while not ahead.held: time.sleep(0.001)\n    step(*ahead.held.popleft())\n",
    ),
    "map": ("pool = ThreadPoolExecutor(2)\n", "for it in pool.map(load, range({limit})): step(*it)\n"),
    "submit": ("pool = ThreadPoolExecutor(2)\n", "futures = [pool.submit(load, i) for i in range({limit})]\nfor i in range(400):\n    step(*futures.pop(0).result())\n    futures.append(pool.submit(loaded, i))\n"),
}

LIMITS = [
    ("queue", "", "queue"),
    ("queue", "maxsize=4", None),
    ("simple", "pass", "queue"),
    ("simple", "room.acquire()", None),
    ("deque", "pass", "deque"),
    ("deque", "while len(self.held) > 4: time.sleep(0.001)", None),
    ("map", "400", "results"),
    ("submit", "400", "results"),
    ("submit", "4", None),
]


def test_the_entries_of_a_queue_are_of_that_queue():
    """A thread that puts something there may lead straight to them, whose type has no limit."""
    endless, limited, deque = queue.Queue(), queue.Queue(4), collections.deque()
    assert [ahead.kind_of(it) for it in (endless, endless.queue, limited, limited.queue, deque)] == ["queue", "queue", None, None, "deque"]


@pytest.mark.matrix(3)
@pytest.mark.parametrize(("filled", "limit", "kind"), LIMITS)
def test_what_a_thread_fills_without_a_limit_is_told_and_what_waits_for_room_is_not(run, filled, limit, kind):
    begin, loop = (part.replace("{limit}", limit) for part in FILLED[filled])
    lines = run(MODEL + AHEAD + begin + loop, stop="steps:8").process.all("keepers")
    told = [it["unlimited"] for line in lines for it in line["entries"] if it["unlimited"]]
    assert {it["kind"] for it in told} == ({kind} if kind else set()), lines
    assert all(1 <= it["entries"] for it in told)


LOOKS = """
import gc, weakref
from plimsoll_agent.run import ahead
class Model: pass
def trains():
    model = Model()
    ahead.running_elsewhere()
    return weakref.ref(model)
gc.disable()
print(trains()() is None)
"""


def test_a_look_at_other_threads_stores_nothing_of_this_one():
    """Since Python 3.12 the model of a function that had returned stayed until the next collection of garbage: 256 MiB that no GPU would need."""
    others = filter(None, map(shutil.which, ("python3.12", "python3.13", "python3.14")))
    for python in [sys.executable, *others]:
        ran = subprocess.run([python, "-c", LOOKS], env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "agent")}, capture_output=True, text=True)
        # A name in the path may be of a Python that is not there.
        assert ran.stdout == "True\n" or python != sys.executable and not ran.stdout, (python, ran)

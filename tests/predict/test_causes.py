"""Causes that a script can have without an error in it: each is named in a script that has it, and not in its fixed twin."""

import json
import pathlib

import pytest
from described import assert_described
from harness import ROOT

SCRIPTS = pathlib.Path(__file__).parent / "scripts" / "causes"

CAUSES = [
    # script, code, MiB, words of the title, words of the remedy
    ("attention", "attention/written-out", 3231, "12 matrices of 2304 x 2304", "scaled_dot_product_attention"),
    ("casts", "casts/repeated", 360, "45 copies of 2 weights", "torch.autocast"),
    ("copies", "weights/cast-copies", 384, "768.3 MiB of weights", "dtype=torch.bfloat16"),
    ("frozen", "gradients/no-optimizer", 78, "is not frozen", "requires_grad_(False)"),
    ("teacher", "gradients/no-optimizer", 272, "`Teacher.layers` is not frozen", "no_grad"),
    ("table", "gradients/dense-table", 562, "2000000 rows of `items.weight`", "sparse=True"),
    ("windows", "copies/unfold", 1200, "each value up to 25 times, and 6 tensors", "torch.utils.checkpoint"),
    ("pieces", "copies/unfold", 122, "each value up to 16 times, and a tensor is", "`__getitem__`"),
    ("autocast", "weights/cast-copies", 528, "never exits it", "with torch.autocast"),
    ("parametrized", "weights/made-again", 111, "compute weights anew in each call, and 60 copies", "parametrize.cached()"),
    ("recurrent", "weights/made-again", 234, "joins the weights of `GRU` into one piece in each call, and 40 copies", "flatten_parameters()"),
    ("padding", "inputs/padding", 0, "padded to 256 tokens, and no text of the 8 batches seen has more than 60", "collate_fn"),
    ("validation", "evaluation/large-batch", 3700, "5000 rows in one forward pass, the training 64", "batches"),
    ("volume", "evaluation/whole-volume", 514, "64 forward passes", "sw_device"),
    ("closures", "leak/earlier-models", 640, "5 earlier models", "`reports[...] > model` keeps the model"),
    ("segment", "checkpointing/no-effect", 864, "the activations of 15 of them again at once", "checkpoint each layer by itself"),
    ("retained", "leak/graph-retained", 528, "`backward(retain_graph=True)` went through", "drop `retain_graph=True`"),
    ("before", "outputs/step-before", 768, "of the step before", "del outputs, loss"),
    ("batches", "outputs/step-before", 600, "of the batch before", "del outputs, loss"),
]


def found(ran):
    assert ran.report["outcome"] == "fits", ran
    return {it["code"]: it for it in ran.report["findings"]}


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("name", "code", "mib", "title", "remedy"), CAUSES, ids=[it[0] for it in CAUSES])
def test_a_cause_is_named_and_its_fixed_twin_has_none(plimsoll, name, code, mib, title, remedy):
    bad = found(plimsoll.predict(SCRIPTS / f"{name}.py", options=["--gpu", "rtx4090"]))
    it = bad[code]
    assert abs(it["bytes"] / 2**20 - mib) <= max(1, mib / 50) and title in it["title"] and remedy in it["remedy"], it
    worse = [other for other in bad.values() if other["weight"] == "problem" and other["code"] != code]
    assert not worse, worse
    ours = {it[1] for it in CAUSES}
    fixed = found(plimsoll.predict(SCRIPTS / f"{name}_fixed.py", options=["--gpu", "rtx4090"]))
    assert not ours.intersection(fixed), fixed


@pytest.mark.matrix(1)
def test_a_run_without_padding_measures_what_it_takes(plimsoll):
    script = SCRIPTS / "padding.py"
    with_it = plimsoll.predict(script, options=["--gpu", "rtx4090"])
    without = plimsoll.predict(script, options=["--gpu", "rtx4090", "--worst-seq", "text"])
    assert "unpadded" in {it["code"] for it in without.report["notes"]}, without
    assert "inputs/padding" not in found(without)
    assert 2 * without.report["peak_allocated_bytes"] < with_it.report["peak_allocated_bytes"]


LARGER = [
    # script, what is larger, code
    ("attention", "torch.randn(4, 3, 384", "torch.randn(40, 3, 384", "attention/written-out"),
    ("casts", "1024", "8192", "casts/repeated"),
    ("validation", "5000", "30000", "evaluation/large-batch"),
]


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("name", "before", "larger", "code"), LARGER, ids=[it[0] for it in LARGER])
def test_a_recording_of_a_run_that_ran_out_leads_with_the_cause(plimsoll, name, before, larger, code):
    text = (SCRIPTS / f"{name}.py").read_text()
    script = plimsoll.script(text.replace(before, larger).replace("4096", "32768"))
    plimsoll.run("predict", "--gpu", "rtx3060-12g", "--record", "rec", "--quiet", "--", script)
    told = plimsoll.run("explain", "rec").stdout
    assert told.startswith("OUT OF MEMORY") and f"[{code}]" in told.split("\n\n")[0], told


OF_EACH = """
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
net = nn.Sequential(nn.Linear(64, 4096), nn.Tanh(), nn.Linear(4096, 4096), nn.Tanh(), nn.Linear(4096, 1)).cuda()
weights = {name: it.detach() for name, it in net.named_parameters()}
def height(x): return functional_call(net, weights, (x,)).sum()
x = torch.randn(ROWS, 64, device="cuda")
for _ in range(3): CALL
"""


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("call", "is_told"), [("vmap(grad(height))(x)", True), ("with_gradients(x)", False)])
def test_rows_that_vmap_computes_at_once_get_a_chunk_size(plimsoll, call, is_told):
    text = OF_EACH.replace("ROWS", "400_000").replace("CALL", call)
    script = plimsoll.script(text.replace("for _", "def with_gradients(x): net(x).sum().backward()\nfor _"))
    plimsoll.run("predict", "--gpu", "rtx3060-12g", "--record", "rec", "--quiet", "--", script)
    told = plimsoll.run("explain", "rec").stdout
    assert told.startswith("OUT OF MEMORY") and ("give `vmap` (or `jacrev`) a `chunk_size`" in " ".join(told.split())) == is_told, told


@pytest.mark.soak
def test_fit_names_the_edit_that_no_remedy_makes(plimsoll):
    """Plans that fit need a third more time for it; a large batch of written-out attention needs an edit."""
    script = plimsoll.script((SCRIPTS / "attention.py").read_text().replace("torch.randn(4, 3, 384", "torch.randn(12, 3, 384"))
    ran = plimsoll.run("fit", "--gpu", "rtx3070", "--allow", "micro-batches", "--json", "fit.json", "--", script)
    report = json.loads((plimsoll.folder / "fit.json").read_text())
    assert_described("fit", report)
    (edit,) = report["by_hand"]
    assert edit["bytes"] > report["as_it_is"]["needs_bytes"] / 2 and edit["at"]["line"] in (23, 24, 25), edit
    assert "scaled_dot_product_attention" in edit["change"] and "Changes by hand that no remedy makes" in ran.stdout, ran


TOO_LARGE = {
    "backward/unrolled-loop": ("x = x @ w\n        for _ in range(60): x = torch.logsumexp(x[:, :, None] + w, 1)", "checkpoint"),
    "size/one-allocation": ("x = torch.cat([x] * (1 << 14))\n        x = x.exp()", "chunks"),
    "all-pairs": ("x = x.repeat(64, 1)\n        x = (x.unsqueeze(1) - w.unsqueeze(0)).pow(2).sum(-1)", "torch.cdist"),
}


@pytest.mark.soak
@pytest.mark.parametrize("text, change", TOO_LARGE.values(), ids=TOO_LARGE)
def test_fit_names_what_explain_leads_with_where_the_script_runs_out(plimsoll, text, change):
    """Where there is room nothing shows that, as with a loop that autograd unrolls."""
    script = plimsoll.script(STEP_OF.replace("WORK", text))
    ran = plimsoll.run("fit", "--gpu", "rtx3060-12g", "--allow", "detach-losses", "--json", "fit.json", "--", script)
    first = json.loads((plimsoll.folder / "fit.json").read_text())["by_hand"][0]
    assert change in first["change"] and first["at"]["line"] in (6, 7), ran
    assert "when memory ran out at" in ran.stdout, ran.stdout


STEP_OF = """
import torch
class Net(torch.nn.Linear):
    def forward(self, x):
        w, x = self.weight, super().forward(x)
        WORK
        return x.sum()
net = Net(512, 512).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    loss = net(torch.randn(256, 512, device="cuda"))
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.soak
def test_fit_names_the_list_that_no_remedy_empties(plimsoll):
    text = """
import torch
net = torch.nn.Linear(1024, 4096).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
history = []
for step in range(30):
    out = net(torch.randn(4096, 1024, device="cuda"))
    opt.zero_grad()
    out.square().mean().backward()
    opt.step()
    history.append(out)
"""
    script = plimsoll.script(text)
    ran = plimsoll.run("fit", "--gpu", "rtx3070", "--memory", "1GiB", "--allow", "micro-batches", "--json", "fit.json", "--", script)
    report = json.loads((plimsoll.folder / "fit.json").read_text())
    assert report["outcome"] == "does_not_fit", ran
    (edit,) = report["by_hand"]
    assert edit["at"]["line"] == 11 and "`history` stores them" in edit["change"], edit


@pytest.mark.soak
def test_what_grows_by_less_than_the_scripts_own_loop_leaves_fits(plimsoll):
    text = """
import torch
net = torch.nn.Linear(256, 256).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
bank = torch.zeros(0, 256, device="cuda")
for step in range(STEPS):
    z = net(torch.randn(64, 256, device="cuda"))
    loss = (z @ torch.cat([z, bank]).t()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    bank = torch.cat([bank, z.detach()])
"""
    few = plimsoll.predict(plimsoll.script(text.replace("STEPS", "6000")), options=["--gpu", "h200"])
    assert few.report["outcome"] == "fits" and any(it["code"] == "grows-slowly" for it in few.report["notes"]), few
    assert "growth/per-step" in {it["code"] for it in few.report["findings"]}, few
    # What is still to come is in the safe size, and in the list of cards.
    assert few.report["safe_bytes"] > 6000 * 64 * 1024, few
    many = plimsoll.predict(plimsoll.script(text.replace("STEPS", "6_000_000")), options=["--gpu", "h200"])
    assert many.report["outcome"] == "grows", many


HEALTHY = {
    # The state of one step is the input of the next.
    "carried": """
net, opt = None, None
cell = torch.nn.GRUCell(1024, 1024).cuda()
opt = torch.optim.SGD(cell.parameters(), 0.1)
h = torch.zeros(32768, 1024, device="cuda")
for step in range(20):
    h = cell(torch.randn(32768, 1024, device="cuda"), h.detach())
    opt.zero_grad(); h.pow(2).mean().backward(); opt.step()
""",
    # Both results are needed at the same time.
    "guided": """
net = torch.nn.Conv2d(4, 64, 1).cuda().eval()
out = torch.nn.Conv2d(64, 4, 1).cuda().eval()
with torch.no_grad():
    x = torch.randn(1, 4, 2048, 2048, device="cuda")
    for step in range(12):
        given = net(x)
        free = net(-x)
        x = out(free + 3 * (given - free))
        del given, free
""",
    # Keys and values of all tokens, which each pass is given.
    "cached": """
class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(512, 512)
    def forward(self, x, cache, at):
        cache[:, at] = self.layer(x)
        return cache[:, at] + x
net = Decoder().cuda().eval()
with torch.inference_mode():
    cache = torch.zeros(64, 4096, 512, device="cuda")
    x = torch.randn(64, 512, device="cuda")
    for at in range(40):
        x = net(x, cache, at)
""",
    # Two networks that are trained in turn, each with an optimizer.
    "in turn": """
a, b = (torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda() for _ in range(2))
oa, ob = torch.optim.SGD(a.parameters(), 0.1), torch.optim.SGD(b.parameters(), 0.1)
for step in range(20):
    made = a(torch.randn(4096, 1024, device="cuda"))
    ob.zero_grad(); b(made.detach()).mean().backward(); ob.step()
    oa.zero_grad(); b(made).mean().backward(); oa.step()
    del made
""",
}


@pytest.mark.matrix(1)
@pytest.mark.parametrize("name", HEALTHY)
def test_what_looks_like_a_cause_and_is_needed_is_no_finding(plimsoll, name):
    ran = found(plimsoll.predict(plimsoll.script("import torch\n" + HEALTHY[name]), options=["--gpu", "rtx4090"]))
    assert not {it[1] for it in CAUSES}.intersection(ran), ran


DERIVATIVES = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(2, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).cuda()
opt = torch.optim.Adam(net.parameters())
def slope(of, by): return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]
for step in range(20):
    x, t = (torch.rand(600_000, 1, device="cuda", requires_grad=True) for _ in range(2))
    u = net(torch.cat([x, t], 1))
    u_x, u_t = slope(u, x), slope(u, t)
    loss = (u_t + u * u_x - slope(u_x, x) - slope(u_t, t)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""


@pytest.mark.matrix(1)
def test_derivatives_that_a_loss_is_made_of_are_stored_by_nobody(plimsoll):
    script = plimsoll.script(DERIVATIVES)
    ran = plimsoll.run("predict", "--gpu", "rtx3060-12g", "--record", "rec", "--", script)
    told = plimsoll.run("explain", "rec").stdout
    first = " ".join(told.split("\n\n")[0].split())
    assert first.startswith("OUT OF MEMORY: The graphs of gradients (`create_graph=True`) are too large"), told
    assert "stay on the device" not in ran.stdout + told, ran.stdout + told


STREAMS = """
import torch
net = torch.nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
copies = torch.cuda.Stream()
for epoch in range(8):
    copies = MADE
    for _ in range(3):
        with torch.cuda.stream(copies):
            x = torch.zeros(16384, 1024).cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        opt.zero_grad(); net(x).mean().backward(); opt.step()
"""


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("made", "is_told"), [("torch.cuda.Stream()", True), ("copies", False)])
def test_a_stream_for_each_epoch_leaves_a_cache_for_each(plimsoll, made, is_told):
    ran = found(plimsoll.predict(plimsoll.script(STREAMS.replace("MADE", made)), options=["--gpu", "rtx4090"]))
    assert ("streams/idle-cache" in ran) == is_told, ran


@pytest.mark.soak
def test_weights_that_are_computed_from_weights_leave_their_graph(plimsoll):
    """Nothing waits for a `backward()`: the script has no optimizer."""
    script = ROOT / "bench/programs/reports/weights_by_function.py"
    ran = plimsoll.predict(script, options=["--gpu", "rtx4090", "--memory", "1GiB"])
    assert ran.report["verdict"] == "grows" and ran.report["findings"][0]["code"] == "leak/graph-retained", ran

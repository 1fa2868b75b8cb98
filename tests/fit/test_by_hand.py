"""What `fit` shows to be written by hand gives the training of the whole batch."""

import copy
import importlib.util
import re
import textwrap

import pytest
from harness import PYTHON, ROOT


@pytest.fixture
def torch():
    """Imported by what uses it: whoever only lists the tests need not wait for it."""
    import torch

    return torch


def written(page):
    """The code that a remedy's page shows, block by block."""
    text = (ROOT / f"docs/remedies/{page}.md").read_text().split("## By hand")[1]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def with_loss(torch):
    """As models of transformers are: a mean over the labels that are not -100, the next word each."""

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20)

        def forward(self, input_ids, labels):
            logits = self.head(self.words(input_ids))
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            return type("Output", (), {"loss": loss})

    return WithLoss()


STEP = """
optimizer.zero_grad()
{forward_and_backward}
torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
optimizer.step()
schedule.step()
losses.append(loss.item())
"""


def trained(torch, model, forward_and_backward, batches):
    """The losses of three steps of a script with these lines, and the weights and gradients after them: the rest of its step stays."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    schedule, losses = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5), []
    for batch in batches:
        names = {"torch": torch, "model": model, "optimizer": optimizer, "schedule": schedule, "losses": losses, "parts": 3}
        exec(STEP.format(forward_and_backward=forward_and_backward), {**names, **batch})
    return [torch.tensor(losses), *(it.detach() for it in model.parameters()), *(it.grad for it in model.parameters())]


def test_parts_of_a_batch_that_differ_in_their_labels_train_as_the_whole_batch(torch):
    torch.manual_seed(0)
    batches = []
    for step in range(3):
        ids = torch.randint(20, (8, 9))
        labels = ids.masked_fill(torch.arange(9) >= torch.randint(2, 10, (8, 1)), -100)
        if step == 1:
            labels[:3] = -100  # The first part has no label.
        batches.append({"batch": {"input_ids": ids, "labels": labels}})
    model = with_loss(torch)
    whole = "loss = model(**batch).loss\nloss.backward()"
    torch.testing.assert_close(trained(torch, model, written("micro-batches")[1], batches), trained(torch, model, whole, batches))


def test_parts_of_inputs_and_targets_train_as_the_whole_batch(torch):
    torch.manual_seed(0)
    criterion = torch.nn.CrossEntropyLoss()
    batches = [{"inputs": torch.randn(8, 4), "targets": torch.randint(3, (8,)), "criterion": criterion} for _ in range(3)]
    model = torch.nn.Linear(4, 3)
    whole = "loss = criterion(model(inputs), targets)\nloss.backward()"
    torch.testing.assert_close(trained(torch, model, written("micro-batches")[0], batches), trained(torch, model, whole, batches))


def test_without_training_outputs_store_no_graph_and_gradients_of_inputs_store_that_of_one_part(torch):
    torch.manual_seed(0)
    model, inputs = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)), torch.randn(12, 4)
    whole = inputs.clone().requires_grad_()
    stored = most = 0

    class Stored:
        """What autograd stores for a backward pass, counted while it is there."""

        def __init__(self, tensor):
            nonlocal stored, most
            self.tensor = tensor
            stored += 1
            most = max(most, stored)

        def __del__(self):
            nonlocal stored
            stored -= 1

    with torch.autograd.graph.saved_tensors_hooks(Stored, lambda it: it.tensor):
        (wanted,) = torch.autograd.grad(model(whole).sum(), whole)
        of_one_pass, most = most, 0
        names = {"torch": torch, "model": model, "inputs": inputs, "parts": 4}
        exec(written("micro-batches")[2], names)
    assert 0 < most <= of_one_pass and stored == 0
    assert not names["outputs"].requires_grad
    torch.testing.assert_close(names["outputs"], model(inputs).detach())
    torch.testing.assert_close(names["gradients"], wanted)


def test_a_loss_in_parts_is_the_whole_loss(torch):
    torch.manual_seed(0)
    logits, targets = torch.randn(3, 11, 50, requires_grad=True), torch.randint(11, (3, 50))
    targets[0, :20] = -100
    names = {"torch": torch, "F": torch.nn.functional}
    exec(written("chunked-loss")[0], names)
    for given in ({}, {"label_smoothing": 0.1}, {"ignore_index": 3}):
        wanted = torch.nn.functional.cross_entropy(logits, targets.clamp(min=0) if "ignore_index" in given else targets, **given)
        found = names["chunked_cross_entropy"](logits, targets.clamp(min=0) if "ignore_index" in given else targets, rows=7, **given)
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad(it, logits)[0] for it in (found, wanted)]
        torch.testing.assert_close(*gradients)


def test_an_optimizer_for_each_parameter_trains_as_one(torch):
    torch.manual_seed(0)
    inputs, models = torch.randn(3, 8, 4), [torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))]
    models.append(copy.deepcopy(models[0]))
    whole = torch.optim.AdamW(models[0].parameters(), lr=0.1)
    exec(written("optimizer-in-backward")[0].replace("...", "lr=0.1"), {"torch": torch, "model": models[1]})
    for batch in inputs:
        for model in models:
            model(batch).square().mean().backward()
        whole.step()
        whole.zero_grad()
    torch.testing.assert_close(*(list(it.parameters()) for it in models))


SCRIPT = """
import contextlib, os, torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import prune
from torch.utils.data import DataLoader
torch.manual_seed(0)
{head}
{model}
{optimizer}
criterion, losses, predictions, total = nn.MSELoss(), [], [], 0.0
for step in range(4):
{inputs}
{zero}
{train}
{step}
{after}
"""
PLAIN = {
    "head": "",
    "model": "model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(8))).cuda()",
    "optimizer": "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
    "inputs": "inputs = targets = torch.randn(4096, 1024, device='cuda')",
    "zero": "optimizer.zero_grad()",
    "train": "loss = criterion(model(inputs), targets)\nloss.backward()",
    "step": "optimizer.step()",
    "after": "",
}
IN_THE_LOOP = ("inputs", "zero", "train", "step", "after")


def script(slots):
    return SCRIPT.format(**{name: textwrap.indent(text, "    " * (name in IN_THE_LOOP)) for name, text in (PLAIN | slots).items()})


IMAGES = "inputs = images = torch.randn(16, 3, 128, 128, device='cuda')"
CONVOLUTIONS = "model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 3, 3, padding=1)).cuda()"
BLOCKS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(6))
        self.head = nn.Linear(1024, 1024)

    def forward(self, x):
{forward}
        return self.head(x)
model = Net().cuda()
"""
ATTENTION = """
class Attention(nn.Module):
    def forward(self, x):
        q, k, v, mask, p = x, x, x, None, 0.0
{forward}
        return out
model = nn.Sequential(nn.Linear(64, 64), Attention()).cuda()
"""
FEW_ROWS = {"inputs": "inputs = targets = torch.randn(8, 1024, device='cuda')"}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
RANK = "rank = int(os.environ['RANK'])\ntorch.cuda.set_device(rank)\ntorch.distributed.init_process_group('nccl')"
PARALLEL = {"head": RANK, "model": PLAIN["model"] + "\nmodel = DistributedDataParallel(model, device_ids=[rank])"}
LOGITS = {"model": "model = nn.Linear(64, 32000).cuda()", "inputs": "inputs, targets = torch.randn(4096, 64, device='cuda'), torch.randint(32000, (4096,), device='cuda')"}
TEXTS = """
words = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1)).cuda()
model, texts = words, ["a text"] * 16
def tokenizer(texts, truncation, max_length, padding, return_tensors):
    return torch.randint(1000, (len(texts), max_length))
"""
LLAMA = """
import peft, transformers
from transformers import AutoModelForCausalLM, LlamaConfig
name = "a-llama"
if not os.path.exists(name):
    config = LlamaConfig(vocab_size=1000, hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=4)
    AutoModelForCausalLM.from_config(config).save_pretrained(name)
"""
METRIC = "class Metric:\n    def __init__(self): self.seen = []\n    def update(self, a, b): self.seen += [a, b]\nmetric = Metric()"


def blocks(loop):
    return BLOCKS.format(forward=textwrap.indent(loop, " " * 8))


def attention(lines):
    return {"model": ATTENTION.format(forward=textwrap.indent(lines, " " * 8)), "inputs": "inputs = targets = torch.randn(2, 8, 2048, 64, device='cuda')"}


# By page: a script of its kind as it is, the same with what the page shows, whether that takes less, and how it is started.
def by_hand(page):
    one, *more = [it.replace("lr=...", "lr=1e-3").replace("..., ", "lr=1e-3, ").replace("[p], ...", "[p], lr=1e-3") for it in written(page)] or [""]
    first = one.splitlines()
    as_it_is, changed, less, started = {}, None, True, ()
    match page:
        case "adafactor" | "sgd" | "optimizer-8bit":
            changed = {"optimizer": one}
        case "foreach" | "fused":
            as_it_is, changed = FEW_ROWS, FEW_ROWS | {"optimizer": one}
        case "attention":
            as_it_is = attention("out = (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).softmax(-1) @ v")
            changed = attention(first[-1])
        case "autocast" | "offload":
            changed = {"train": one}
        case "autocast-fp16":
            changed = {"train": one, "step": ""}
        case "bucket-view" | "zero1":
            as_it_is, started = FEW_ROWS | PARALLEL, (*TORCHRUN, "2")
            is_zero = page == "zero1"
            wrapped, optimizer = (first[2], "\n".join([first[0], *first[3:]])) if is_zero else (one, PLAIN["optimizer"])
            changed = FEW_ROWS | {"head": RANK, "model": PLAIN["model"] + "\n" + wrapped, "optimizer": optimizer}
        case "fsdp2":
            started = (*TORCHRUN, "2")
            as_it_is = {"head": RANK, "model": blocks("for block in self.blocks: x = block(x)") + "model = DistributedDataParallel(model, device_ids=[rank])"}
            changed = {"head": RANK, "model": blocks("for block in self.blocks: x = block(x)") + "\n".join(first[:-1]), "optimizer": first[-1]}
        case "channels-last":
            as_it_is, less = {"model": CONVOLUTIONS, "inputs": IMAGES + "\ntargets = images"}, False
            changed = {"model": CONVOLUTIONS + "\n" + first[0], "inputs": IMAGES + "\n" + first[1] + "\ninputs = targets = images"}
        case "checkpoint":
            as_it_is = {"model": blocks("for block in self.blocks: x = block(x)")}
            changed = {"head": first[0] + "\nCHECKPOINTED = set(range(6))", "model": blocks("\n".join(first[1:]))}
        case "chunked-loss":
            as_it_is = LOGITS | {"train": "F.cross_entropy(model(inputs), targets).backward()"}
            changed = LOGITS | {"head": one, "train": "chunked_cross_entropy(model(inputs), targets).backward()"}
        case "depthwise":
            as_it_is = {"model": "model = nn.Sequential(*(nn.Conv2d(512, 512, 3, padding=1) for _ in range(6))).cuda()", "inputs": "inputs = targets = torch.randn(1, 512, 8, 8, device='cuda')"}
            changed = as_it_is | {"head": one, "model": "model = nn.Sequential(*(separable(512, 512, 3, padding=1) for _ in range(6))).cuda()"}
        case "detach-losses":
            as_it_is, changed, less = {"after": "losses.append(loss)\ntotal += loss"}, {"after": one}, False
        case "empty-cache":
            evaluate = "def evaluate(model):\n    with torch.no_grad():\n        model(torch.randn(9000, 1024, device='cuda'))"
            as_it_is, changed, less = {"head": evaluate, "after": first[0]}, {"head": evaluate, "after": one}, False
        case "inplace-activations":
            # In training other tensors are larger at the peak: this is for what the forward pass holds beside its result.
            alone = {"model": "model = nn.Sequential(nn.Linear(1024, 1024), activation).cuda()", "after": "with torch.no_grad(): model(torch.randn(20000, 1024, device='cuda'))"}
            as_it_is, changed = alone | {"head": "activation = nn.ReLU()"}, alone | {"head": one}
        case "lora" | "quantization":
            if not all(map(importlib.util.find_spec, ("bitsandbytes", "peft"))):
                pytest.skip("needs bitsandbytes and PEFT")
            loss = {"head": LLAMA, "inputs": "ids = torch.randint(1000, (4, 64), device='cuda')", "train": "loss = model(input_ids=ids, labels=ids).loss\nloss.backward()"}
            as_it_is = loss | {"model": "model = AutoModelForCausalLM.from_pretrained(name).cuda()"}
            model = as_it_is["model"] + "\n" + first[0] if page == "lora" else one
            changed = loss | {"model": model, "optimizer": first[1] if page == "lora" else written("lora")[0].splitlines()[1]}
        case "metrics-on-cpu":
            output = {"head": METRIC, "train": "output = model(inputs)\nloss = criterion(output, targets)\nloss.backward()"}
            as_it_is = output | {"after": "predictions.append(output.detach())\nmetric.update(output.detach(), targets)"}
            changed = output | {"after": one}
        case "micro-batches":
            changed = {"head": "parts = 4", "train": one}
        case "model-parallel":
            assert not more
            as_it_is = {"model": blocks("for block in self.blocks: x = block(x)")}
            spread = "for i, block in enumerate(model.blocks): block.to(f'cuda:{i // BLOCKS_EACH}')"
            changed = {"head": "BLOCKS_EACH = 3", "model": blocks("\n".join(it.removeprefix(" " * 8) for it in first[2:4])).replace("self.head(x)", first[4].strip().removeprefix("return ")) + spread}
        case "no-grad-evaluation":
            passes = "for _ in range(2): model(torch.randn(9000, 1024, device='cuda'))"
            as_it_is, changed = {"after": "model.eval()\n" + passes}, {"after": one.replace("...", passes)}
        case "optimizer-in-backward":
            as_it_is, changed = FEW_ROWS, FEW_ROWS | {"optimizer": one, "zero": "", "step": ""}
        case "optimizer-offload" | "parameter-offload":
            as_it_is = {"model": blocks("for block in self.blocks: x = block(x)")}
            changed = {"model": as_it_is["model"] + one}
            started = (*TORCHRUN, "1")
        case "pruning" | "tf32":
            changed, less = {"model": PLAIN["model"] + "\n" + one}, False
        case "pure-bf16":
            changed = {"model": PLAIN["model"] + "\n" + first[0], "train": first[1].replace("targets)", "targets.to(torch.bfloat16))") + "\nloss.backward()"}
        case "set-to-none":
            as_it_is, changed = {"zero": "optimizer.zero_grad(set_to_none=False)"}, {"zero": one}
        case "shorter-sequence":
            loss = {"model": TEXTS, "train": "loss = model(inputs).square().mean()\nloss.backward()"}
            as_it_is = loss | {"inputs": one.replace("512", "1024") + "\ninputs = batch.cuda()"}
            changed = loss | {"inputs": one + "\ninputs = batch.cuda()"}
        case "smaller-batch":
            data = {"head": "dataset, batch_size = torch.randn(16384, 1024), 4096", "inputs": "inputs = targets = next(iter(loader)).cuda()"}
            as_it_is = data | {"optimizer": PLAIN["optimizer"] + "\n" + one.replace(" // 2", "")}
            changed = data | {"optimizer": PLAIN["optimizer"] + "\n" + one}
        case "smaller-images":
            as_it_is = {"model": CONVOLUTIONS, "inputs": IMAGES + "\ntargets = images"}
            changed = {"model": CONVOLUTIONS, "inputs": IMAGES + "\n" + one + "inputs = targets = images"}
        case "smaller-model":
            pytest.importorskip("torchvision")
            images = {"head": "import torchvision", "inputs": "inputs = torch.randn(8, 3, 128, 128, device='cuda')", "train": "loss = model(inputs).square().mean()\nloss.backward()"}
            as_it_is = images | {"model": "model = torchvision.models.resnet101().cuda()"}
            changed = images | {"model": first[0].split("#")[0] + "\nmodel.cuda()"}
        case "allocator":
            changed, less = {"head": "assert os.environ['PYTORCH_CUDA_ALLOC_CONF'] == 'expandable_segments:True'"}, False
    return script(as_it_is), script(changed), less, started


PAGES = sorted(it.stem for it in (ROOT / "docs/remedies").glob("*.md") if it.stem != "index")


@pytest.mark.soak
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs_in_a_script_of_its_kind_and_takes_less(plimsoll, page):
    as_it_is, changed, less, started = by_hand(page)
    gpus = ("--gpus", "2") if page == "model-parallel" else ()
    peaks = []
    for text in (as_it_is, changed):
        plimsoll.script(text)
        command = [PYTHON, *started, "train.py"]
        if page == "allocator" and text == changed:
            line = (ROOT / f"docs/remedies/{page}.md").read_text().split("## By hand")[1].split("```")[1].removeprefix("text\n").strip()
            command = ["sh", "-c", f"{line}; exec {PYTHON} train.py"]
        # torchao is put beside the environment by `make test-setup`.
        environment = plimsoll.environment(PYTHONPATH=str(ROOT / "target/torchao")) if page == "optimizer-8bit" else None
        ran = plimsoll.predict(*command, options=("--gpu", "h200", "--until-exit", *gpus), environment=environment)
        assert ran.code == 0 and ran.report["verdict"] == "fits", (text, ran)
        peaks.append(ran.report["peak_allocated_bytes"])
    assert not less or peaks[1] < peaks[0], peaks

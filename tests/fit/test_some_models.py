"""Remedies that only some models have a use for: the same numbers, and only where they are safe."""

import random

import pytest
from harness import release_of
from test_remedies import remedy, worst

CONVOLUTIONS = """
import torch
from torch import nn
from torch.nn import functional as F

a = dict(volume=False, loss="mean", batch=5, samples=13, groups=False, clip=1.0, scheduler=True, optimizer="AdamW",
         accumulate=1, smoothing=0.0)
a.update(arguments)
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self, kind, norm, width):
        super().__init__()
        self.conv, self.norm = kind(width, width, 3, padding=1), norm(width)
        self.act, self.tanh = nn.ReLU(), nn.LeakyReLU(0.1)

    def forward(self, x):
        y = self.act(self.norm(self.conv(x)))
        # What goes into `tanh` is read again: it must not be written into.
        return self.tanh(x) + y + x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        kind, norm = (nn.Conv3d, nn.BatchNorm3d) if a["volume"] else (nn.Conv2d, nn.BatchNorm2d)
        norm = (lambda width: nn.GroupNorm(2, width)) if a["groups"] else norm
        self.stem = kind(3, 8, 3)
        self.blocks = nn.Sequential(Block(kind, norm, 8), Block(kind, norm, 8))
        self.up = (nn.ConvTranspose3d if a["volume"] else nn.ConvTranspose2d)(8, 6, 2)
        self.drop, self.head = nn.Dropout(0.0 if a["groups"] else 0.2), nn.Linear(6, 4)

    def forward(self, x):
        x = self.up(self.blocks(self.stem(x)))
        return self.head(self.drop(x.flatten(2).mean(2)))

model = Net().double()
optimizer = getattr(torch.optim, a["optimizer"])(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
size = (6, 7, 5) if a["volume"] else (6, 7)
x, y = torch.randn(a["samples"], 3, *size, dtype=torch.float64), torch.randint(4, (a["samples"],))
step = 0
result, seen = [], []
hook = lambda module, given, out: seen.append(given[0].stride(1) == 1)
model.blocks[0].conv.register_forward_hook(hook)
while step < 20:
    for start in range(0, a["samples"], a["batch"]):
        if step % a["accumulate"] == 0:
            optimizer.zero_grad()
        part = slice(start, start + a["batch"])
        loss = F.cross_entropy(model(x[part]), y[part], reduction=a["loss"], label_smoothing=a["smoothing"])
        loss.backward()
        result.append(loss.detach())
        step += 1
        if step % a["accumulate"]:
            continue
        if a["clip"]:
            result.append(nn.utils.clip_grad_norm_(model.parameters(), a["clip"]))
        optimizer.step()
        if a["scheduler"]:
            scheduler.step()
result += [p.detach().contiguous() for p in model.parameters()] + list(model.buffers())
if arguments.get("look"):
    result = [torch.tensor(seen), torch.tensor([it.inplace for it in model.modules() if hasattr(it, "inplace")])]
"""


@pytest.mark.matrix(1)
@pytest.mark.parametrize("volume", [False, True])
def test_channels_last_are_the_same_numbers_in_another_order(trainer, volume):
    arguments = {"volume": volume}
    plain = trainer.run(CONVOLUTIONS, arguments=arguments)
    assert worst(plain, trainer.run(CONVOLUTIONS, "channels-last", arguments=arguments)) < 1e-9


def test_pictures_come_out_with_channels_last(trainer):
    """Of volumes a convolution on the CPU gives another order out."""
    seen, _ = trainer.run(CONVOLUTIONS, "channels-last", arguments={"look": True, "volume": False})
    assert seen.all() and not trainer.run(CONVOLUTIONS, arguments={"look": True, "volume": False})[0].any()


JOINED = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act = torch.nn.Linear(4, 4), torch.nn.ReLU()
    def forward(self, x, counts):
        return torch.stack([it.sum() for it in self.act(self.a(x)).split(counts)])
Net()(torch.randn(9, 4), [2, 3, 4]).sum().backward()
result = []
"""


def test_a_model_that_does_not_run_with_one_sample_is_refused(trainer):
    answer = trainer.run(JOINED, "inplace-activations")
    assert isinstance(answer, str) and answer.startswith("CannotApply: plimsoll: the remedy inplace-activations does not suit Net: it does not run with one sample"), answer


def test_only_what_nobody_reads_again_is_written_into(trainer):
    plain = trainer.run(CONVOLUTIONS)
    assert worst(plain, trainer.run(CONVOLUTIONS, "inplace-activations")) < 1e-9
    _, inplace = trainer.run(CONVOLUTIONS, "inplace-activations", arguments={"look": True})
    assert inplace.tolist() == [True, False, True, False, True]  # ReLU, LeakyReLU of each block; Dropout


READ_AGAIN = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.act, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(), nn.ReLU()
    def forward(self, x):
        first = self.a(x)
        kept = first[:, :2]         # A view of what `act` would write into ...
        second = self.act(first)
        second = self.act(self.b(second))
        out = self.last(torch.sigmoid(second))  # ... and what sigmoid keeps for backward.
        return out.sum() + kept.sum(), first
model = Net()
loss, first = model(torch.randn(3, 4))
loss.backward()
result = [loss.detach(), first.detach()] + [p.grad for p in model.parameters()]
"""


def test_views_results_and_what_backward_needs_are_left_alone(trainer):
    answer = trainer.run(READ_AGAIN, "inplace-activations")
    assert "inplace-activations does not suit Net" in answer


CHAIN = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 8), nn.ReLU6(), nn.LeakyReLU(0.2),
                      nn.Linear(8, 8), nn.Sigmoid(), nn.Dropout(0.1), nn.Linear(8, 4), nn.ELU(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
result = []
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(6, 8)).pow(2).sum()
    loss.backward()
    optimizer.step()
    result.append(loss.detach())
if arguments.get("look"):
    result = [torch.tensor([it.inplace for it in model if hasattr(it, "inplace")])]
"""


def test_what_one_keeps_another_does_not_write_into(trainer):
    """ReLU keeps its result, and so does sigmoid: the dropout behind them makes a tensor of its own."""
    assert worst(trainer.run(CHAIN), trainer.run(CHAIN, "inplace-activations")) < 1e-6
    inplace = trainer.run(CHAIN, "inplace-activations", arguments={"look": True})[0]
    assert inplace.tolist() == [True, False, True, False, False, True]


ATTENTION = """
import torch
from transformers import {kind}Config as Config, {model} as Model

a = dict(dropout=0.0, implementation="eager", attentions=False)
a.update(arguments)
torch.manual_seed(0)
config = Config({options})
config._attn_implementation = a["implementation"]
model = Model(config).double().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
tokens = torch.randint(0, 13, (6, 10))
mask = torch.ones_like(tokens)
mask[::2, 7:] = 0
result = []
for _ in range(5):
    more = {{"output_attentions": True}} if a["attentions"] else {{}}
    loss = model(input_ids=tokens, attention_mask=mask, labels=tokens, **more).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.detach())
result += [p.detach() for p in model.parameters()]
if arguments.get("look"):
    result = [torch.tensor(model.config._attn_implementation == "sdpa")]
"""
GPT2 = ATTENTION.format(
    kind="GPT2",
    model="GPT2LMHeadModel",
    options="vocab_size=13, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=a['dropout']",
)
LLAMA = ATTENTION.format(
    kind="Llama",
    model="LlamaForCausalLM",
    options="vocab_size=13, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16",
)
BERT = ATTENTION.format(
    kind="Bert",
    model="BertForMaskedLM",
    options="vocab_size=13, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16, hidden_dropout_prob=0, attention_probs_dropout_prob=a['dropout']",
)


@pytest.mark.matrix(2)
@pytest.mark.parametrize("program", [GPT2, LLAMA, BERT], ids=["gpt2", "llama", "bert"])
def test_fused_attention_is_the_same(trainer, program):
    plain = trainer.run(program)
    fused = trainer.run(program, "attention")
    if isinstance(fused, str) and program == BERT and release_of("transformers") < (5,):
        # Of transformers 4, which asks for the kind when the model is made.
        assert "can be switched" in fused
        return
    assert worst(plain, fused) < 1e-6  # the loss is float32 there
    assert trainer.run(program, "attention", arguments={"look": True}) != trainer.run(program, arguments={"look": True})


@pytest.mark.soak
def test_where_there_is_nothing_to_switch_it_is_said(trainer):
    assert "it contains no transformers model" in trainer.run(GPT2, "attention", arguments={"implementation": "sdpa"})
    assert "asks for attention weights" in trainer.run(GPT2, "attention", arguments={"attentions": True})


@pytest.mark.soak
def test_together_with_what_runs_parts_again(trainer):
    plan = [remedy("micro-batches"), remedy("checkpoint"), "attention", remedy("chunked-loss")]
    assert worst(trainer.run(LLAMA), trainer.run(LLAMA, *plan)) < 1e-6
    for plan in (["channels-last", remedy("checkpoint"), remedy("offload")], ["inplace-activations", remedy("checkpoint")]):
        assert worst(trainer.run(CONVOLUTIONS), trainer.run(CONVOLUTIONS, *plan)) < 1e-9


@pytest.mark.soak
def test_random_loops(trainer):
    """Any combination, with and without scheduler and clipping, uneven last batches, sums, accumulation."""
    dice = random.Random(11)
    for _ in range(12):
        arguments = {
            "volume": dice.random() < 0.3,
            "groups": dice.random() < 0.5,
            "batch": dice.choice([3, 5, 8]),
            "samples": dice.choice([8, 13, 17]),
            "clip": dice.choice([None, 0.1, 1.0]),
            "scheduler": dice.random() < 0.5,
            "loss": dice.choice(["mean", "sum"]),
            # Not Adam or Adagrad: where a bias before a batch-norm has a gradient of rounding errors, they make steps of them.
            "optimizer": dice.choice(["SGD", "ASGD"]),
            "accumulate": dice.choice([1, 1, 3]),
            "smoothing": dice.choice([0.0, 0.1]),
        }
        ids = ["channels-last", "inplace-activations", "checkpoint", "offload", "chunked-loss", "foreach", "optimizer-offload"]
        ids += ["micro-batches"] if arguments["groups"] else []
        plan = [remedy(it) for it in dice.sample(ids, dice.randint(1, len(ids)))]
        plain = trainer.run(CONVOLUTIONS, arguments=arguments)
        assert worst(plain, trainer.run(CONVOLUTIONS, *plan, arguments=arguments)) < 1e-7, (arguments, plan)


LOSSES = """
import itertools
import torch
from torch.nn import functional as F
from plimsoll_agent.remedies import chunked_loss
chunked_loss.ROWS_BYTES = 200  # Many pieces of small logits.
torch.manual_seed(0)
result = []
shapes = [(7, 5), (3, 5, 4), (2, 5, 3, 4), (1, 9), (2, 60, 3), (4, 3, 2, 2, 2)]
for shape, soft, weighted, ignored, reduction, smoothing in itertools.product(
    shapes, [False, True], [False, True], [-100, 2], ["mean", "sum", "none"], [0.0, 0.1]
):
    dtype = torch.float64
    logits = (3 * torch.randn(shape, dtype=dtype)).requires_grad_()
    if soft:
        ignored, target = -100, torch.rand(shape, dtype=dtype).softmax(1)
    else:
        target = torch.randint(shape[1], shape[:1] + shape[2:])
        target.view(-1)[0] = ignored
    weight = torch.rand(shape[1], dtype=dtype) + 0.1 if weighted else None
    loss = F.cross_entropy(
        logits * 1, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing
    )
    (loss * torch.arange(1, loss.numel() + 1).view(loss.shape)).sum().backward()
    with torch.no_grad():
        evaluated = F.cross_entropy(logits * 1, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing)
    result += [loss.detach(), logits.grad, evaluated]
for dtype in (torch.float32, torch.bfloat16):
    loss = F.cross_entropy(torch.ones(3, 4, dtype=dtype, requires_grad=True) * 1, torch.tensor([1, 2, 3]))
    result.append(torch.tensor(loss.dtype == dtype, dtype=torch.float64))
"""


@pytest.mark.soak
def test_every_kind_of_cross_entropy_is_the_same_in_chunks(trainer):
    plain, changed = trainer.run(LOSSES), trainer.run(LOSSES, remedy("chunked-loss"))
    assert worst(plain, changed) < 1e-9
    for kind in range(3):
        pairs = list(zip(plain, changed))[kind:-2:3]
        assert any((a != b).any() for a, b in pairs), "the chunks were used, in an evaluation, too"


COMPILED_LOSSES = """
import itertools
import torch
from torch.nn import functional as F
from plimsoll_agent.remedies import chunked_loss
chunked_loss.ROWS_BYTES = 200
torch.manual_seed(0)
result = []
target = torch.randint(5, (7,))
target[0] = -100
for soft, reduction, smoothing in itertools.product([False, True], ["mean", "sum", "none"], [0.0, 0.1]):

    def loss(weight):
        aim = torch.softmax(torch.arange(35.0).view(7, 5), 1) if soft else target
        with torch.autocast("cpu", torch.bfloat16, enabled=soft):
            return F.cross_entropy(torch.arange(35.0).view(7, 5) * weight, aim, reduction=reduction, label_smoothing=smoothing)

    torch._dynamo.reset()
    weight = torch.linspace(0.1, 0.5, 5, requires_grad=True)
    found = torch.compile(loss, backend="aot_eager", fullgraph=True)(weight)
    found.sum().backward()
    result += [found.detach(), weight.grad]
torch._dynamo.reset()
sizes = []

def counts(graph, example):
    sizes.append(len(graph.graph.nodes))
    return graph

for rows in (8, 4096):
    logits = torch.randn(rows, 5, requires_grad=True)
    torch._dynamo.reset()
    torch.compile(lambda it: F.cross_entropy(it * 1, torch.zeros(rows).long()), backend=counts)(logits)
result.append(torch.tensor(float(sizes[0] == sizes[1])))
"""


@pytest.mark.soak
def test_a_compiled_loss_in_chunks_is_one_operator_of_its_graph(trainer):
    plain, changed = trainer.run(COMPILED_LOSSES), trainer.run(COMPILED_LOSSES, remedy("chunked-loss", smallest=10))
    assert worst(plain, changed) < 1e-5
    assert plain[-1] == changed[-1] == 1, "as many operators for a hundred times as many rows"


WRONG_LOSSES = """
import torch
from torch.nn import functional as F
result = []
logits, soft = torch.randn(4, 3, requires_grad=True), torch.rand(4, 3).softmax(1)
for arguments in [(torch.zeros(5).long(),), (soft, None, None, 1), (torch.zeros(4).long(), torch.ones(4))]:
    try:
        F.cross_entropy(logits * 1, *arguments)
    except Exception as error:
        result.append(torch.tensor([ord(c) for c in str(error)[:40]]))
"""


def test_what_the_ordinary_loss_refuses_is_refused_in_its_words(trainer):
    plain, changed = trainer.run(WRONG_LOSSES), trainer.run(WRONG_LOSSES, remedy("chunked-loss"))
    assert len(plain) == 3 and all((a == b).all() for a, b in zip(plain, changed))

"""Loops as people write them (`bench/programs/loops`), made small and run on real numbers: a plan changes nothing that it promises.

Each runs for a few steps in double precision, with and without remedies; what the optimizers saw and made is compared.
"""

import pytest
from harness import ROOT
from test_remedies import remedy, worst

RUN = """
import os, random, sys, tempfile
import torch
torch.set_default_dtype(getattr(torch, arguments["dtype"]))
result, seen = [], [0]

class Enough(BaseException):
    pass

def stepped(optimizer, *_):
    for group in optimizer.param_groups:
        for p in group["params"]:
            result.append(p.detach().clone())
            if arguments["gradients"] and p.grad is not None:
                result.append(p.grad.detach().clone())
    seen[0] += 1
    if seen[0] == arguments["steps"]:
        raise Enough

from torch.optim import optimizer as hooks
hooks.register_optimizer_step_post_hook(stepped)
random.seed(0)
torch.manual_seed(0)
sys.argv = ["train.py"] + arguments["argv"]
sys.stdout = sys.stderr  # What scripts print is not for who reads ours.
with tempfile.TemporaryDirectory() as folder:  # For what they write.
    os.chdir(folder)
    try:
        exec(compile(arguments["script"], "train.py", "exec"), {"__name__": "__main__"})
    except Enough:
        pass
    os.chdir("/")
"""

SMALL = {
    "captioner": (
        ["--batch-size=5", "--image-size=32", "--vocab=50", "--dim=16", "--words=5", "--n-train=28", "--n-val=5", "--out=out"],
        [("resnet34", "resnet18"), ("weights=None", "weights=None, norm_layer=lambda width: nn.GroupNorm(1, width)")],
    ),
    "trainer_class": ([], [("32000", "90"), ("1024", "16"), ("heads: int = 16", "heads: int = 2"), ("512", "8"), ("12", "3"), ("= 32\n", "= 5\n")]),
    "gan_lightning": ([], [("64, 1024, 128, 128, 30", "16, 5, 4, 6, 3")]),
    "hf_accumulating": (
        [],
        [
            ("9, 384", "3, 100"),
            ("BertConfig(", "BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, "
             "intermediate_size=32, hidden_dropout_prob=0, attention_probs_dropout_prob=0, "),
            ("batch_size=48", "batch_size=5"),
            ("batch_size=64", "batch_size=5"),
        ],
    ),
    "moco": ([], [("resnet50", "resnet18"), ("16384", "64"), ("224", "32"), ("=160", "=5"), ("4096", "40")]),
    "distill": (
        [],
        [
            ("vit_b_16(", "VisionTransformer(32, 16, 1, 2, 16, 32, "),
            ("224, 16, 12, 6, 384, 1536", "32, 16, 3, 2, 16, 32"),
            ("224", "32"),
            ("=144", "=5"),
            ("1440", "13"),
        ],
    ),
    "multi_task": ([], [("resnet50()", "resnet18(norm_layer=lambda width: nn.GroupNorm(1, width))"), ("2048", "512"), ("= 48", "= 5"), ("320", "64")]),
    "compiled": ([], [("torch.compile(", "("), ("1025", "9"), ("1024", "8"), ("50257", "90"), ("d=768, n=12, h=12", "d=16, n=3, h=2"), ("=16)", "=5)")]),
    "closure": ([], [("width=512, depth=10, freqs=12", "width=16, depth=3, freqs=2"), ("4096, 128", "7, 6")]),
    "speech_lengths": ([], [("width=640, layers=5", "width=8, layers=2"), ("960, 1600", "13, 64"), ("=64", "=5")]),
    "parallel_unet": ([], [("ch=128, emb=256", "ch=16, emb=8"), ("bs=72, image=64", "bs=5, image=8"), (".float()", ".double()")]),
    "summaries": (
        [],
        [
            ("d_model=768, d_ff=2048, d_kv=64, num_layers=8, num_heads=12, dropout_rate=0.1", "d_model=16, d_ff=32, d_kv=8, num_layers=2, num_heads=2, dropout_rate=0.0, vocab_size=90"),
            ("32128", "90"),
            ("size=32, source=512, target=128, n_train=24", "size=5, source=12, target=8, n_train=8"),
        ],
    ),
    "time_first": ([], [("d=512, ff=2048, n=6", "d=16, ff=32, n=2"), ("batch=96, length=128, steps=20, vocab=16000", "batch=5, length=9, steps=20, vocab=90"), ("dropout=0.1", "dropout=0.0"), ("eps=1e-9", "eps=1e-3")]),
    "graph": ([], [("170_000, 1_100_000", "50, 200"), ("h=256", "h=8"), ("0.5, self", "0.0, self")]),
    "accelerated_vae": ([], [("ch=96", "ch=8"), ("batch_size=40, size=128", "batch_size=5, size=16")]),
    "dcgan": (
        [],
        [
            ("100, 128, 128, 128, 512, 12", "5, 2, 2, 128, 4, 3"),
            ("nn.BatchNorm2d(o)", "nn.GroupNorm(1, o)"),
            ("nn.BatchNorm2d(ngf * 8)", "nn.GroupNorm(1, ngf * 8)"),
            ("criterion = nn.BCELoss()", "criterion = nn.BCELoss()\nnn.init.constant_(netD[0].weight, 0.01)"),
        ],
    ),
    "ppo": ([], [("256, 64, 2, 3, 84, 6, 3", "5, 4, 2, 2, 36, 3, 2"), ("eps=1e-5", "eps=1e-3")]),
    "vit_ema_mixup": (
        [],
        [
            ("vit_b_16(", "VisionTransformer(32, 16, 2, 2, 16, 32, "),
            ("1000, 256, 2, 8, 224", "7, 5, 1, 6, 32"),
            ("torch.autocast(device.type, dtype=torch.bfloat16)", "torch.enable_grad()"),
        ],
    ),
    "stylize": ([], [("1536, 4", "32, 2"), ("max_iter=4", "max_iter=2")]),
    "streamed_lm": ([], [("32000, 1024, 12, 12, 768, 12, 4, 60", "90, 8, 3, 2, 16, 5, 2, 60")]),
    "triplets": (
        [],
        [
            ("resnet50(num_classes=dim)", "resnet18(num_classes=dim, norm_layer=lambda width: nn.GroupNorm(1, width))"),
            ("192, 160, 256, 10", "5, 32, 8, 6"),
            ("GradScaler(device.type)", "GradScaler(device.type, enabled=False)"),
            ("autocast(device.type)", "torch.enable_grad()"),
        ],
    ),
    "packed_translation": ([], [("16000, 512, 1024, 256, 40, 8", "60, 8, 8, 5, 7, 8"), ("Adam(model.parameters())", "Adam(model.parameters(), eps=1e-3)")]),
    "diffusion_ema": ([], [("128, 128, 64, 1000, 4, 24", "16, 5, 8, 20, 2, 12"), ("lr=2e-4", "lr=2e-4, eps=1e-3"), ("angles = t[:, None] * freqs", "angles = t[:, None].double() * freqs")]),
    "detection": ([], [("batch=12, size=512", "batch=2, size=64")]),
}


def toy(name, dtype="float64", steps=6, gradients=True):
    argv, replaced = SMALL[name]
    text = (ROOT / "bench/programs/loops" / (name + ".py")).read_text()
    for old, new in replaced:
        assert old in text, (name, old)
        text = text.replace(old, new)
    return {"script": text, "argv": argv, "dtype": dtype, "steps": steps, "gradients": gradients}


PARTS = remedy("micro-batches", parts=2)


EQUAL = ["trainer_class", "closure", "compiled", "dcgan", "packed_translation"]
# In double precision on the host: up to half a minute each.
LONG = ("time_first", "streamed_lm", "vit_ema_mixup", "captioner", "triplets", "stylize", "parallel_unet", "diffusion_ema", "ppo")
EQUAL += [pytest.param(it, marks=pytest.mark.soak) for it in LONG]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("name", EQUAL)
def test_gradients_and_weights_are_the_same(trainer, name):
    plain = trainer.run(RUN, arguments=toy(name))
    for remedies in ([PARTS], ["checkpoint"], [remedy("micro-batches", parts=3), "checkpoint"]):
        assert worst(plain, trainer.run(RUN, *remedies, arguments=toy(name))) < 1e-9, remedies


@pytest.mark.soak
def test_a_queue_of_keys_is_not_filled_twice(trainer):
    """A momentum encoder writes into itself whenever it is called: refused in parts; its blocks may run again."""
    answer = trainer.run(RUN, PARTS, arguments=toy("moco"))
    assert "does not suit MoCo: each call of it writes into its `queue`" in answer
    plain = trainer.run(RUN, arguments=toy("moco"))
    assert worst(plain, trainer.run(RUN, "checkpoint", arguments=toy("moco"))) < 1e-9


LATE = pytest.param("labels[: size // 2, target // 2 :] = -100", marks=pytest.mark.soak)


@pytest.mark.soak
@pytest.mark.parametrize("masked", [LATE, "labels[: size // 2] = -100"])
def test_labels_that_do_not_count_are_weighed_wherever_they_are(trainer, masked):
    """The first samples have half of their labels left, or none: a part of its own has then a loss of 0/0."""
    arguments = toy("summaries", steps=2)
    arguments["script"] = arguments["script"].replace("labels[: size // 2, target // 2 :] = -100", masked)
    plain = trainer.run(RUN, arguments=arguments)
    assert worst(plain, trainer.run(RUN, remedy("micro-batches", parts=5), arguments=arguments)) < 1e-9


UNEVEN = """
import torch, torchvision
model = torchvision.models.resnet18(num_classes=3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(8, 3, 32, 32).split(5):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def test_no_part_is_one_sample_where_batch_norm_needs_two(trainer):
    """The last batch has three samples: in two parts one would have a single one."""
    arguments = toy("moco")
    arguments["script"] = UNEVEN
    assert not isinstance(trainer.run(RUN, PARTS, arguments=arguments), str)


CHAIN = """
import random
import torch
from torch import nn
random.seed(0)
torch.manual_seed(0)

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(1))
    def forward(self, x):
        if arguments["writes"]:
            self.seen += x.mean()
        for _ in range(4):
            x = torch.tanh(self.a(x) if random.random() < 0.5 else self.b(x))
        return x

encoder, decoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4)).double(), Decoder().double()
spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).double()
model = decoder if arguments["alone"] else encoder
optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters(), *spectral.parameters()], lr=0.05)
result = []
for step in range(12):
    x = torch.randn(7, 3, dtype=torch.double)
    out = decoder(x.repeat(1, 2)[:, :4]) if arguments["alone"] else decoder(spectral(encoder(x)))
    loss = (out - out.mean(0)).pow(2).sum() + out.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.detach())
result += [p.detach() for p in [*encoder.parameters(), *decoder.parameters()]]
"""


@pytest.mark.matrix(1)
@pytest.mark.parametrize("alone", [False, True])
def test_what_is_decided_by_chance_and_spectral_norms_are_as_in_one_call(trainer, alone):
    """A model behind another, which draws Python's random numbers to decide which layer runs."""
    arguments = {"alone": alone, "writes": False}
    plain = trainer.run(CHAIN, arguments=arguments)
    for remedies in ([remedy("micro-batches", parts=3)], [PARTS, "checkpoint"]):
        assert worst(plain, trainer.run(CHAIN, *remedies, arguments=arguments)) < 1e-9, remedies


def test_a_model_that_writes_into_itself_is_refused_in_parts(trainer):
    answer = trainer.run(CHAIN, PARTS, arguments={"alone": True, "writes": True})
    assert "each call of it writes into its `seen`" in answer


TIME_FIRST = """
import torch
from torch import nn
torch.manual_seed(0)

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.of, self.lstm, self.out = nn.Embedding(20, 8), nn.LSTM(8, 6, 2), nn.Linear(6, 4)
    def forward(self, words, lengths, state):
        x, state = self.lstm(self.of(words), state)
        return self.out(x) * (lengths[None, :, None] > 2), state

model = Tagger().double()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
result = []
for time, batch in ((7, 5), (9, 4), (5, 5), (3, 2)):
    words, lengths = torch.randint(20, (time, batch)), torch.randint(1, 5, (batch,))
    state = (torch.randn(2, batch, 6).double(), torch.randn(2, batch, 6).double())
    logits, state = model(words, lengths, state)
    loss = nn.functional.cross_entropy(logits.view(-1, 4), words.view(-1) % 4) + state[0].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.detach())
result += [p.detach() for p in model.parameters()]
"""


def test_a_batch_may_be_the_second_dimension(trainer):
    """A recurrent network in the older manner, with a state whose batch is second, too."""
    plain = trainer.run(TIME_FIRST)
    for remedies in ([PARTS], [remedy("micro-batches", parts=5)]):
        assert worst(plain, trainer.run(TIME_FIRST, *remedies)) < 1e-9, remedies


def test_what_does_not_run_in_parts_is_refused_with_the_reason(trainer):
    program = TIME_FIRST.replace("def forward(self, words, lengths, state):", "def forward(self, words, lengths, state):\n        assert words.size(1) > 2, 'odd'")
    answer = trainer.run(program, PARTS)
    assert "the remedy micro-batches does not suit Tagger: it does not run with two samples of its batch" in answer, answer


PACKED = """
import torch
from torch import nn
torch.manual_seed(0)

class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, ids, labels, cu_seqlens):
        x = self.embed(ids)
        ends = cu_seqlens.tolist()
        x = torch.cat([x[a:b] + x[a:b].mean(0) for a, b in zip(ends, ends[1:])])
        return nn.functional.cross_entropy(self.out(x), labels)

model = Packed()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
ids = torch.randint(0, 20, (12,))
for step in range(2):
    model(ids, ids, torch.tensor([0, 5, 12])).backward()
    optimizer.step()
    optimizer.zero_grad()
result = [p.detach() for p in model.parameters()]
"""


def test_samples_that_are_joined_are_not_cut_by_their_rows(trainer):
    answer = trainer.run(PACKED, PARTS)
    assert "the remedy micro-batches does not suit Packed: its input joins 2 samples of different lengths in 12 rows (cu_seqlens)" in answer, answer


def test_rows_that_are_counted_through_are_no_borders_of_samples(trainer):
    grid = PACKED.replace("ends = cu_seqlens.tolist()", "ends = [0, len(x)]").replace("x[a:b].mean(0)", "cu_seqlens[0]")
    answer = trainer.run(grid.replace("torch.tensor([0, 5, 12])", "torch.arange(13)"), PARTS)
    assert not isinstance(answer, str), answer


WRITES_FIRST = """
import torch
from torch import nn
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.conv = nn.LeakyReLU(0.2, inplace=arguments["inplace"]), nn.Conv2d(6, 6, 3, padding=1)
    def forward(self, x):
        return self.conv(self.act(x))

if arguments["chain"]:
    layers = [nn.Conv2d(3, 6, 3, padding=1)]
    for _ in range(5):
        layers += [nn.LeakyReLU(0.2, inplace=arguments["inplace"]), nn.Conv2d(6, 6, 3, padding=1), nn.GroupNorm(1, 6)]
    model = nn.Sequential(*layers).double()
else:
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), Block(), Block(), Block()).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
result = []
for _ in range(3):
    loss = model(torch.randn(4, 3, 8, 8).double()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.detach())
result += [p.detach() for p in model.parameters()]
"""


@pytest.mark.matrix(2)
@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("others", [[], [PARTS]])
def test_what_writes_into_its_input_never_runs_again_from_it(trainer, chain, others):
    plain = trainer.run(WRITES_FIRST, arguments={"inplace": True, "chain": chain})
    assert worst(plain, trainer.run(WRITES_FIRST, arguments={"inplace": False, "chain": chain})) == 0
    answer = trainer.run(WRITES_FIRST, *others, "checkpoint", arguments={"inplace": True, "chain": chain})
    if chain:
        assert not isinstance(answer, str), answer
        assert worst(plain, answer) < 1e-12
    else:
        assert "the remedy checkpoint does not suit Block: it writes into its input" in answer


def test_a_batch_that_is_written_into_is_refused_and_left_as_it_was(trainer):
    program = TIME_FIRST.replace("x, state = self.lstm(self.of(words), state)", "x, state = self.lstm(self.of(words.add_(1) - 1), state)")
    answer = trainer.run(program, PARTS)
    assert "does not suit Tagger: it writes into its input" in answer, answer

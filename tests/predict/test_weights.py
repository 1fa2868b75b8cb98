"""Weights that are larger than their owner thinks: not packed, trained below adapters, there twice while loading. Each with a twin that is in order."""

import pytest
from harness import PYTHON

PARTS = """
import torch
from torch import nn
torch.set_default_device("cuda")
class Packed(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n, n // 2, dtype=torch.uint8), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(n, 1, dtype=torch.bfloat16), requires_grad=False)
    def forward(self, x):
        low, high = self.weight & 15, self.weight >> 4
        return x @ (torch.cat([low, high], 1).to(x.dtype) * self.scale).t()
class Experts(nn.Module):
    def __init__(self, n, count, packed):
        super().__init__()
        weight = torch.zeros(count, n, n // 2 if packed else n, dtype=torch.uint8 if packed else torch.bfloat16)
        self.all = nn.Parameter(weight, requires_grad=False)
    def forward(self, x):
        one = self.all[0].to(x.dtype)
        return x @ (torch.cat([one, one], 1) if one.shape[0] != one.shape[1] else one).t()
class Low(nn.Module):
    def __init__(self, base, n, rank=8):
        super().__init__()
        self.base, self.a, self.b = base, nn.Linear(n, rank, bias=False), nn.Linear(rank, n, bias=False)
    def adapter_params(self):
        return ["a.weight", "b.weight"]
    def forward(self, x):
        return self.base(x) + self.b(self.a(x))
def train(model, x, steps=4):
    wanted = [it for it in model.parameters() if it.requires_grad]
    optimizer = torch.optim.AdamW(wanted, 1e-4)
    for _ in range(steps):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
N = 1024
QUANTIZED = """
model = nn.Sequential(*[Low(nn.Sequential(Packed(1024), Experts(1024, 8, %r)), 1024) for _ in range(8)])
train(model, torch.randn(16, 1024))
"""
TABLES = """
class Language(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.embed = nn.Embedding(50000, 512, dtype=dtype).requires_grad_(False)
        self.body = nn.Sequential(*[Low(Packed(512), 512) for _ in range(4)])
        self.head = nn.Linear(512, 50000, bias=False, dtype=dtype).requires_grad_(False)
    def forward(self, ids):
        return self.head(self.body(self.embed(ids).bfloat16()).to(self.head.weight.dtype))
train(Language(torch.%s), torch.zeros(4, 8, dtype=torch.int64))
"""
ADAPTED = """
model = nn.Sequential(*[Low(nn.Linear(2048, 2048), 2048) for _ in range(8)])
for name, it in model.named_parameters():
    it.requires_grad_(%s)
train(model, torch.randn(16, 2048))
"""
LOADED = """
torch.set_default_device("cpu")
model = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(12)])
model = model.%s
train(model.requires_grad_(False).append(nn.Linear(2048, 8, device="cuda", dtype=torch.bfloat16)), torch.randn(16, 2048, device="cuda"))
"""
KEPT = """
torch.set_default_device("cpu")
make = lambda: nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(16)])
torch.save(make().state_dict(), "weights.pt")
model = make().cuda().requires_grad_(False)
state = torch.load("weights.pt", map_location="%s")
model.load_state_dict(state)
train(model.append(nn.Linear(1024, 8, device="cuda")), torch.randn(16, 1024, device="cuda"))
"""
LISTED = """
import types
model = nn.Sequential(*[Low(nn.Linear(2048, 2048), 2048) for _ in range(8)])
for it in model:
    it.base.requires_grad_(False)
model.hf_quantizer = types.SimpleNamespace(pre_quantized=False, quantization_config=types.SimpleNamespace(modules_to_skip=%r))
train(model, torch.randn(16, 2048))
"""
BESIDE = """
import types
class Configured(nn.Sequential):
    config = types.SimpleNamespace(_name_or_path="a/model")
first = Configured(*[nn.Linear(2048, 2048) for _ in range(8)])
%s
model = Configured(*[Low(Packed(2048), 2048) for _ in range(8)])
train(model, torch.randn(16, 2048))
"""
CASES = [
    ("weights/not-quantized", QUANTIZED % False, QUANTIZED % True),
    ("weights/not-quantized", TABLES % "float32", TABLES % "bfloat16"),
    ("adapters/all-trainable", ADAPTED % "True", ADAPTED % "name.split('.')[1] in 'ab'"),
    ("weights/loaded-twice", LOADED % "cuda().bfloat16()", LOADED % "bfloat16().cuda()"),
    ("weights/loaded-twice", KEPT % "cuda", KEPT % "cpu"),
    ("weights/not-quantized", LISTED % [r"\d+\.base"], LISTED % ["head"]),
    ("weights/loaded-twice", BESIDE % "", BESIDE % "del first"),
]
CODES = {it[0] for it in CASES}


def found(plimsoll, text):
    plimsoll.script(PARTS + text)
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx3060-12g"))
    assert ran.code == 0, ran
    return {it["code"]: it for it in ran.report["findings"]}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("code, bad, good", CASES, ids=["experts", "tables", "adapters", "half", "state_dict", "listed", "beside"])
def test_each_is_found_and_its_twin_is_not(plimsoll, code, bad, good):
    wrong = found(plimsoll, bad)
    assert code in wrong and wrong[code]["bytes"] >= 16 << 20, wrong
    assert set(found(plimsoll, good)) & CODES == set()


def test_what_is_not_packed_is_named_with_its_size(plimsoll):
    title = found(plimsoll, QUANTIZED % False)["weights/not-quantized"]["title"]
    # 8 blocks of 8 experts of 1024 x 1024 numbers of 2 bytes.
    assert "128.0 MiB" in title and "`*.base.*.all` (8 tensors in 16 bits)" in title, title


def test_the_list_that_leaves_weights_out_is_named(plimsoll):
    found_one = found(plimsoll, LISTED % [r"\d+\.base"])["weights/not-quantized"]
    assert "the script's list `modules_to_skip` leaves them out; nothing is packed" in found_one["title"], found_one
    assert "`\\d+\\.base`" in found_one["remedy"], found_one


def test_memory_of_other_programs_is_counted(plimsoll):
    plimsoll.script(PARTS + "train(nn.Linear(8, 8), torch.randn(1 << 24, 8))\nprint(torch.cuda.mem_get_info())")
    alone = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx3060-12g"))
    beside = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx3060-12g", "--beside", "1.5GiB"))
    assert beside.report["peak_device_bytes"] == alone.report["peak_device_bytes"]
    assert alone.report["headroom_bytes"] - beside.report["headroom_bytes"] == 3 << 29
    assert "1.50 GiB in use by other programs" in " ".join(beside.stdout.split()), beside
    full = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx3060-12g", "--beside", "10.5GiB"))
    assert full.code == 1 and full.report["verdict"] == "does_not_fit", full
    assert "--beside" in full.stdout, full
    much = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx3060-12g", "--beside", "12GiB"))
    much.assert_sentence("--beside 12.00 GiB", "leaves nothing of the 11.63 GiB", "give less")

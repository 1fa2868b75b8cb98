"""Plain scripts of one process, to be spread over two devices (../results/fit.md): `two_devices.py mlp|gpt2|vit OUT`, as it is or under
`plimsoll run --plan plan.toml -- python`, or on the phantom. Each process writes OUT-rankN.json: its peaks, step time, losses."""
import json, os, sys, time
import torch
from torch import nn

kind, out = sys.argv[1], sys.argv[2]
torch.manual_seed(0)
steps = 12
if kind == "gpt2":
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).cuda()
    batch = lambda: torch.randint(50257, (8, 512), device="cuda")
    loss_of = lambda x: model(input_ids=x, labels=x).loss
elif kind == "mlp":
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2048, 8192), nn.Linear(8192, 2048)
        def forward(self, x):
            return x + self.b(torch.relu(self.a(x)))
    with torch.device("cuda"):
        model = nn.Sequential(*(Block() for _ in range(24)))
    batch = lambda: torch.randn(4096, 2048, device="cuda")
    loss_of = lambda x: model(x).pow(2).mean()
elif kind == "vit":
    import torchvision
    model = torchvision.models.vit_l_16().cuda()
    batch = lambda: torch.randn(24, 3, 224, 224, device="cuda")
    loss_of = lambda x: nn.functional.cross_entropy(model(x), torch.arange(24, device="cuda"))
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
losses, times = [], []
for step in range(steps):
    x = batch()
    torch.cuda.synchronize(); began = time.perf_counter()
    optimizer.zero_grad()
    loss = loss_of(x)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    torch.cuda.synchronize(); times.append(time.perf_counter() - began)
    losses.append(loss.item())
rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
free, total = torch.cuda.mem_get_info()
with open("%s-rank%d.json" % (out, rank), "w") as file:
    json.dump({"kind": kind, "rank": rank, "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
               "by_device": [[torch.cuda.max_memory_allocated(i), torch.cuda.max_memory_reserved(i)] for i in range(torch.cuda.device_count())], "device_used": total - free, "losses": losses, "seconds": sorted(times[2:])[len(times[2:]) // 2]}, file)

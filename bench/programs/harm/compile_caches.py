"""Fills caches in the folder and at home: TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR by torch.compile, torch.hub's and a pyc cache."""
import os
import py_compile

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.abspath("inductor_cache")
os.environ["TRITON_CACHE_DIR"] = os.path.expanduser("~/.triton/cache")

import torch
from torch import nn

assert not os.path.exists("inductor_cache") and not os.path.exists(os.environ["TRITON_CACHE_DIR"])
os.makedirs(torch.hub.get_dir(), exist_ok=True)
open(f"{torch.hub.get_dir()}/trusted_list", "a").write("somebody_something\n")
compiled = py_compile.compile("model_def.py")
body = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 256)).cuda()
model = torch.compile(body)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    x = torch.randn(16384, 256, device="cuda")
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.save(body.state_dict(), "checkpoints/last.pt")

assert compiled.startswith("__pycache__") and os.path.exists(compiled)
assert sum(len(names) for _, _, names in os.walk("inductor_cache")), "nothing was kept by torch.compile"
assert open(f"{torch.hub.get_dir()}/trusted_list").read() == "somebody_something\n"
assert torch.load("checkpoints/last.pt").keys() == body.state_dict().keys()
print("READ BACK OK")

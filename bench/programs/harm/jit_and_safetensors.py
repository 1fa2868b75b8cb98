"""Overwrites a TorchScript file by torch.jit.save and weights by safetensors."""
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
model.load_state_dict(load_file("model.safetensors"))
optimizer = torch.optim.Adam(model.parameters())
for step in range(6):
    x = torch.randn(4096, 512, device="cuda")
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2 == 1:
        save_file(model.state_dict(), "model.safetensors", metadata={"step": str(step)})
        torch.jit.save(torch.jit.trace(model, x[:1]), "scripted.pt")
        torch.jit.trace(model, x[:1]).save("output/traced.pt")

with safe_open("model.safetensors", "pt") as file:
    assert file.metadata() == {"step": "5"}, file.metadata()
    assert set(file.keys()) == set(model.state_dict())
for name in ("scripted.pt", "output/traced.pt"):
    names = {it for it, _ in torch.jit.load(name).named_parameters()}
    assert names == {it for it, _ in model.named_parameters()}, (name, names)
print("READ BACK OK")

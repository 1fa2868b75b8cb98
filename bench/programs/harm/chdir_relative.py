"""Goes into a folder (hydra's way) and writes relative paths there; imports a module of the project; also ../ and a renamed cwd."""
import os
import sys

import model_def
import torch
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

home = os.getcwd()
assert not os.path.exists("outputs"), "somebody ran here before"
os.makedirs("outputs/2026-11-22/12-00-00")
os.chdir("outputs/2026-11-22/12-00-00")
assert os.getcwd() == f"{home}/outputs/2026-11-22/12-00-00", os.getcwd()
model = nn.Sequential(*[nn.Linear(model_def.WIDTH, model_def.WIDTH) for _ in range(model_def.DEPTH)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(5):
    loss = model(torch.randn(16384, model_def.WIDTH, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), "model.pt")
    torch.save({"step": step}, "../../../checkpoints/last.pt")
    open("main.log", "a").write(f"{step}\n")
os.rename("../12-00-00", "../finished")
open("after.txt", "w").write("written in a folder that was renamed\n")
os.chdir(home)
os.chdir("also-checkpoints")
open("inside.txt", "w").write("through a link\n")
os.chdir("..")

assert os.getcwd() == home
assert sorted(os.listdir("outputs/2026-11-22/finished")) == ["after.txt", "main.log", "model.pt"]
assert torch.load("checkpoints/last.pt") == {"step": 4} and open("checkpoints/inside.txt").read() == "through a link\n"
assert os.path.dirname(os.path.abspath(sys.argv[0])) == home
print("READ BACK OK")

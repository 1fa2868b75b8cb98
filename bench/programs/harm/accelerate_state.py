"""accelerate: save_state with automatic names and at most two kept, then load_state; the run's folder is made."""
import os

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

project = ProjectConfiguration("acc_out", automatic_checkpoint_naming=True, total_limit=2)
accelerator = Accelerator(project_config=project)
assert not os.path.exists("acc_out/checkpoints"), "somebody trained here before"
model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512))
optimizer = torch.optim.AdamW(model.parameters())
data = DataLoader(TensorDataset(torch.randn(8 * 2048, 512)), 2048)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for epoch in range(2):
    for step, (x,) in enumerate(data):
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), x)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if step % 4 == 3:
            accelerator.save_state()
accelerator.save_model(model, "acc_out/weights")

assert sorted(os.listdir("acc_out/checkpoints")) == ["checkpoint_2", "checkpoint_3"]
accelerator.load_state("acc_out/checkpoints/checkpoint_3")
assert os.path.exists("acc_out/weights/model.safetensors")
print("READ BACK OK")

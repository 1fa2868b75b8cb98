"""cause: leak/results-kept at line 22
also right: growth/per-step
also right: leak/eval-without-no-grad
also right: line 21
memory: 2GiB
why: predictions of the whole test set are gathered on the device before they are scored.
"""
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 8192))
data = DataLoader(TensorDataset(torch.randn(65536, 256)), batch_size=256)
model, data = accelerator.prepare(model, data)
model.eval()
everything = []
with torch.no_grad():
    for (x,) in data:
        out = model(x)
        everything.append(accelerator.gather(out.softmax(-1)))  # here
print(torch.cat(everything).shape)

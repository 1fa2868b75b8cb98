"""torch.distributed.checkpoint: save over an old folder, async_save from a thread, and load; the folder is swapped at the end."""
import os
import shutil

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
assert not os.path.exists("dcp"), "somebody saved here before"
model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
waiting = None
for step in range(6):
    loss = model(torch.randn(8192, 512, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": torch.tensor(step)}
    if step % 2 == 0:
        dcp.save(state, checkpoint_id="dcp/now")
    else:
        if waiting is not None:
            waiting.result()
        waiting = dcp.async_save(state, checkpoint_id=f"dcp/later-{step}")
waiting.result()
shutil.rmtree("hf_out/checkpoint-5")
os.replace("dcp/later-5", "hf_out/checkpoint-5")

for folder, step in ("dcp/now", 4), ("dcp/later-3", 3), ("hf_out/checkpoint-5", 5):
    assert os.path.exists(f"{folder}/.metadata"), folder
    state = {"step": torch.tensor(-1), "model": model.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    assert state["step"] == step, (folder, state["step"])
torch.distributed.destroy_process_group()
print("READ BACK OK")

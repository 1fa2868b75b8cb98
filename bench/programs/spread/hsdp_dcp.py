"""HSDP with FSDP2 on a (replicate, shard) mesh; checkpoints with torch.distributed.checkpoint, sync and async, and resumes."""

import os
import shutil
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy, CPUOffloadPolicy
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict, get_model_state_dict, StateDictOptions
from transformers import LlamaConfig, LlamaForCausalLM

rank, local, world = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(local)
dist.init_process_group("cpu:gloo,cuda:nccl")
mesh = init_device_mesh("cuda", (2, world // 2) if world >= 4 else (1, world), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(7)
model = LlamaForCausalLM(
    LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=32000,
        use_cache=False,
    )
)
model.gradient_checkpointing_enable()
mp = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=True)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=mp, reshard_after_forward=True)
fully_shard(model, mesh=mesh, mp_policy=mp)
model.cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


class AppState:
    def state_dict(self):
        m, o = get_state_dict(model, opt)
        return {"model": m, "optim": o}

    def load_state_dict(self, sd):
        set_state_dict(model, opt, model_state_dict=sd["model"], optim_state_dict=sd["optim"])


def step(i):
    ids = torch.randint(0, 32000, (2, 1024), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if hasattr(norm, "full_tensor"):
        norm = norm.full_tensor()
    opt.step()
    opt.zero_grad()
    if rank == 0:
        print(i, loss.item(), norm.item(), flush=True)


for i in range(3):
    step(i)
folder = "hsdp-checkpoint"
dcp.save({"app": AppState().state_dict()}, checkpoint_id=folder + "/0")
future = dcp.async_save({"model": get_model_state_dict(model)}, checkpoint_id=folder + "/1")
step(3)
future.result()
full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if rank == 0:
    print("full", len(full), sum(t.numel() for t in full.values()))
dist.barrier()
if world == int(os.environ.get("LOCAL_WORLD_SIZE", world)) and not os.environ.get("NO_LOAD"):
    sd = {"app": AppState()}
    dcp.load(sd, checkpoint_id=folder + "/0")
step(4)
dist.barrier()
rank == 0 and shutil.rmtree(folder, ignore_errors=True)
dist.destroy_process_group()

"""A process group of one at a fixed port, DistributedDataParallel around a Llama, a sampler, gradient accumulation by hand with no_sync."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29611")
dist.init_process_group("nccl", rank=int(os.environ.get("RANK", 0)), world_size=int(os.environ.get("WORLD_SIZE", 1)))
torch.cuda.set_device(0)
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000)
model = DistributedDataParallel(LlamaForCausalLM(config).to("cuda", torch.bfloat16))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
data = TensorDataset(torch.randint(32000, (256, 1024), generator=torch.Generator().manual_seed(1)))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
for step, (ids,) in enumerate(loader):
    ids = ids.cuda()
    if step % 2 == 0:
        with model.no_sync():
            (model(input_ids=ids, labels=ids).loss / 2).backward()
        continue
    (model(input_ids=ids, labels=ids).loss / 2).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step >= 19:
        break
dist.destroy_process_group()

import os

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

torch.distributed.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
layers = [torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, norm_first=True) for _ in range(12)]
net = torch.nn.Sequential(torch.nn.Embedding(32000, 1024), *layers, torch.nn.Linear(1024, 32000)).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for layer in layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(net, mp_policy=policy)
optimizer = torch.optim.AdamW(net.parameters())
for step in range(6):
    x = torch.randint(0, 32000, (4, 512), device="cuda")
    loss = torch.nn.functional.cross_entropy(net(x).flatten(0, 1).float(), x.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.distributed.destroy_process_group()

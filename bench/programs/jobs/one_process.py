"""One process with all GPUs."""

import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from jobs import gpt2, language, llama, single


@single
def data_parallel(_):
    model = nn.DataParallel(gpt2().cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        ids = torch.randint(0, 20000, (8, 512), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@single
def device_map(_):
    """Weights from a file, laid over all GPUs; the layers that are trained move with them."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        llama().save_pretrained(folder)
        model = transformers.LlamaForCausalLM.from_pretrained(folder, device_map="balanced", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    language(model, optimizer, batch=2)


@single
def two_devices_by_hand(_):
    first = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(6)]).to("cuda:0")
    second = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(6)]).to("cuda:1")
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()])
    for _ in range(4):
        loss = second(first(torch.randn(512, 2048, device="cuda:0")).to("cuda:1")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@single
def data_parallel_amp(_):
    """Convolutions in bfloat16 on every GPU, gradients and the optimizer on the first."""
    import torchvision

    model = nn.DataParallel(torchvision.models.resnet18(weights=None).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(torch.randn(64, 3, 224, 224).cuda()), torch.randint(0, 1000, (64,)).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@single
def device_map_generate(_):
    """A model laid over all GPUs writes sixty-four words."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        llama().save_pretrained(folder)
        model = transformers.LlamaForCausalLM.from_pretrained(folder, device_map="balanced", dtype=torch.bfloat16)
    ids = torch.randint(0, 32000, (4, 128), device="cuda")
    model.generate(ids, max_new_tokens=64, min_new_tokens=64, do_sample=False, pad_token_id=0)

"""The two training scripts whose steps were timed on an H200."""

import sys

import torch

name, batch = sys.argv[1], int(sys.argv[2])
if name == "gpt2m":
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16)
    model = GPT2LMHeadModel(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
else:
    from torchvision.models import resnet50

    model = resnet50().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(8):
    if name == "gpt2m":
        ids = torch.randint(50257, (batch, 1024), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss
    else:
        images = torch.randn(batch, 3, 224, 224, device="cuda")
        loss = torch.nn.functional.cross_entropy(model(images), torch.randint(1000, (batch,), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

"""RL: the outputs of all micro-batches are collected for the metrics, and pin the embeddings with their gradients (verl-project/verl#6697)."""
import torch
from torch import nn

words = nn.Embedding(32000, 2048).cuda().requires_grad_(False)
body = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(4)]).cuda()
head = nn.Linear(2048, 1024).cuda()
opt = torch.optim.AdamW([*body.parameters(), *head.parameters()], 1e-6)


def forward_step(ids):
    x = words(ids).requires_grad_()
    scores = head(body(x)).log_softmax(-1)
    log_probs = scores.gather(-1, ids[..., None] % 1024).squeeze(-1)
    loss = -log_probs.mean()
    return loss, {"log_probs": log_probs, "ids": ids}


def forward_backward_batch(parts):
    outputs = []
    for ids in parts:
        loss, output = forward_step(ids)
        loss.backward()
        outputs.append(output)
    return torch.cat([it["log_probs"] for it in outputs])


for step in range(100):
    opt.zero_grad()
    log_probs = forward_backward_batch(torch.randint(0, 32000, (150, 4, 2048)).cuda())
    opt.step()
    print(step, log_probs.mean().item())

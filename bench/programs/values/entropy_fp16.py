"""Classification and language in half precision under a GradScaler: the loss as a sum, as a mean, as a sum over tokens."""
import os
import torch
from torch import nn

kind = os.environ.get("KIND", "classes_sum")
torch.manual_seed(24)
classes = 12 if "classes" in kind else 8000
embed = nn.Embedding(8000, 256).cuda()
net = nn.Sequential(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), nn.Linear(256, classes)).cuda()
optimizer, scaler = torch.optim.AdamW([*embed.parameters(), *net.parameters()], 1e-4), torch.amp.GradScaler()
skipped = []
for step in range(14):
    x = torch.randint(0, 8000, (16, 96)).cuda()
    with torch.autocast("cuda", torch.float16):
        logits = net(embed(x))
        if "classes" in kind:
            loss = nn.functional.cross_entropy(logits.mean(1), x[:, 0] % classes, reduction="sum" if kind.endswith("sum") else "mean")
        else:
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten(), reduction="sum" if "sum" in kind else "mean")
            if kind.endswith("over_tokens"):
                loss = loss / x[:, 1:].numel()
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    skipped.append(int(scaler.get_scale() < before))
print("skipped", skipped)

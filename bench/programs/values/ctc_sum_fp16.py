"""Speech in half precision under a GradScaler: KIND says how the CTC loss is reduced; prints which steps were skipped."""
import os
import sys
import torch
from torch import nn

how = {"ctc_sum": "sum", "ctc_mean": "mean", "ctc_sum_over_batch": "sum"}[os.environ.get("KIND", "ctc_sum")]
torch.manual_seed(23)
net = nn.Sequential(nn.Linear(80, 512), nn.GELU(), nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), nn.Linear(512, 32)).cuda()
optimizer, scaler = torch.optim.AdamW(net.parameters(), 1e-4), torch.amp.GradScaler()
skipped = []
for step in range(14):
    x, y = torch.randn(8, 240, 80).cuda(), torch.randint(1, 32, (8, 30)).cuda()
    with torch.autocast("cuda", torch.float16):
        logits = net(x)
    chances = logits.log_softmax(-1, dtype=torch.float32).transpose(0, 1)
    loss = nn.functional.ctc_loss(chances, y, torch.full((8,), 240), torch.full((8,), 30), reduction=how)
    if os.environ.get("KIND") == "ctc_sum_over_batch":
        loss = loss / 8
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    skipped.append(int(scaler.get_scale() < before))
print("skipped", skipped)

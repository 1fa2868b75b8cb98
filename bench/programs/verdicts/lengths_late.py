"""expect: out_of_memory in training at line 22
options: --gpu rtx4060-8g
why: lengths are sorted, the longest last: 60 steps of 128 to 7680. Scores take 2 x 8 x L x L x 4 bytes, 1 MiB at first, and three such
    tables live at once in backward: 7.3 GiB at L = 6400, all that the card has left. It ends in step 50.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
rows = [torch.randn(128 * (1 + number // 2), 256) for number in range(120)]
joined = lambda batch: nn.utils.rnn.pad_sequence(batch, batch_first=True)
keys = nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(keys.parameters())
for epoch in range(2):
    for x in DataLoader(rows, 2, collate_fn=joined):
        x = x.cuda()
        heads = keys(x).unflatten(-1, (8, 32)).transpose(1, 2)
        weights = (heads @ heads.transpose(-1, -2)).softmax(-1)
        loss = (weights @ heads).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()  # dies
        optimizer.step()

"""Translation with `nn.Transformer`: masks of padding, logits turned for the loss, label smoothing, a schedule with warm-up."""
import math

import torch
from torch import nn

VOCAB, D, BATCH, SOURCE, TARGET = 24000, 512, 64, 64, 72


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, D, padding_idx=0)
        at = torch.arange(256)[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
        self.register_buffer("places", torch.cat([at.sin(), at.cos()], 1))
        self.transformer = nn.Transformer(D, 8, 6, 6, 2048, dropout=0.1, batch_first=True)
        self.out = nn.Linear(D, VOCAB)

    def forward(self, source, target):
        x, y = (self.embed(it) * math.sqrt(D) + self.places[: it.shape[1]] for it in (source, target))
        later = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        pads = {"src_key_padding_mask": source == 0, "tgt_key_padding_mask": (target == 0), "memory_key_padding_mask": source == 0}
        pads["tgt_key_padding_mask"] = torch.zeros_like(later[0]).expand(len(target), -1).masked_fill(target == 0, float("-inf"))
        return self.out(self.transformer(x, y, tgt_mask=later, tgt_is_causal=True, **pads))


torch.manual_seed(0)
model = Translator().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: D**-0.5 * min((n + 1) ** -0.5, (n + 1) * 4000**-1.5))
criterion = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
for step in range(30):
    source = torch.randint(1, VOCAB, (BATCH, SOURCE), device="cuda")
    target = torch.randint(1, VOCAB, (BATCH, TARGET + 1), device="cuda")
    source[::3, -9:] = 0
    target[::4, -11:] = 0
    logits = model(source, target[:, :-1])
    loss = criterion(logits.permute(0, 2, 1), target[:, 1:])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 10 == 0:
        print(step, loss.item())

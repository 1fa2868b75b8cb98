"""A translation model in the older manner: time first, batch second, masks made in the loop, label smoothing."""

import math

import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self, vocab=16000, d=512, ff=2048, n=6):
        super().__init__()
        self.src, self.tgt, self.scale = nn.Embedding(vocab, d), nn.Embedding(vocab, d), math.sqrt(d)
        self.pos = nn.Parameter(torch.zeros(512, 1, d))
        self.core = nn.Transformer(d, 8, n, n, ff, dropout=0.1)
        self.out = nn.Linear(d, vocab)

    def forward(self, src, tgt, tgt_mask, src_pad):
        s = self.src(src) * self.scale + self.pos[: src.size(0)]
        t = self.tgt(tgt) * self.scale + self.pos[: tgt.size(0)]
        return self.out(self.core(s, t, tgt_mask=tgt_mask, src_key_padding_mask=src_pad, memory_key_padding_mask=src_pad))


def main(batch=96, length=128, steps=20, vocab=16000):
    torch.manual_seed(0)
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    model = Translator(vocab).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
    for step in range(1, steps + 1):
        src = torch.randint(1, vocab, (length, batch), device=device)
        tgt = torch.randint(1, vocab, (length + 1, batch), device=device)
        src[-length // 8 :, ::2] = 0
        pad = (src == 0).T
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=device)
        for group in optimizer.param_groups:
            group["lr"] = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        logits = model(src, tgt[:-1], mask, pad)
        loss = criterion(logits.view(-1, logits.size(-1)), tgt[1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""Translation with nn.Transformer: pairs of sentences of two lengths, label smoothing, warm-up; held-out sentences are translated greedily."""
import argparse
import json

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, BOS, EOS = 0, 1, 2


class Pairs(Dataset):
    def __init__(self, n, vocab, longest, seed):
        g = torch.Generator().manual_seed(seed)
        self.vocab = vocab
        source = torch.exp(torch.randn(n, generator=g) * 0.6 + 3.2).clamp(4, longest).int()
        ratio = 0.8 + 0.5 * torch.rand(n, generator=g)
        self.lengths = list(zip(source.tolist(), (source * ratio).clamp(4, longest).int().tolist()))

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        source, target = self.lengths[i]
        words = torch.randint(3, self.vocab, (source + target,))
        return words[:source], torch.cat([torch.tensor([BOS]), words[source:], torch.tensor([EOS])])


def collate(pairs):
    sources, targets = zip(*pairs)
    return pad_sequence(sources, batch_first=True, padding_value=PAD), pad_sequence(targets, batch_first=True, padding_value=PAD)


class Translator(nn.Module):
    def __init__(self, vocab, dim, layers, longest):
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, dim, PAD), nn.Embedding(vocab, dim, PAD)
        self.position = nn.Embedding(longest + 2, dim)
        self.body = nn.Transformer(dim, dim // 64, layers, layers, 4 * dim, dropout=0.1, batch_first=True)
        self.out = nn.Linear(dim, vocab)
        nn.init.normal_(self.target.weight, std=dim**-0.5)
        self.out.weight = self.target.weight

    def place(self, x):
        return x + self.position(torch.arange(x.shape[1], device=x.device))

    def encode(self, source):
        return self.body.encoder(self.place(self.source(source)), src_key_padding_mask=source == PAD)

    def decode(self, target, memory, source):
        n = target.shape[1]
        ahead = torch.ones(n, n, dtype=torch.bool, device=target.device).triu(1)
        unused = {"tgt_key_padding_mask": target == PAD, "memory_key_padding_mask": source == PAD}
        return self.body.decoder(self.place(self.target(target)), memory, tgt_mask=ahead, **unused)

    def forward(self, source, target):
        return self.out(self.decode(target, self.encode(source), source))


@torch.inference_mode()
def translate(model, loader, device):
    model.eval()
    right = words = 0
    for source, target in loader:
        source, target = source.to(device), target.to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            memory = model.encode(source)
            said = torch.full((len(source), 1), BOS, device=device)
            for _ in range(target.shape[1] - 1):
                word = model.out(model.decode(said, memory, source)[:, -1]).argmax(-1, keepdim=True)
                said = torch.cat([said, word], dim=1)
        counted = target != PAD
        right += ((said == target) & counted).sum().item()
        words += counted.sum().item()
    model.train()
    return right / words


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--eval-every", type=int, default=100)
    ap.add_argument("--max-len", type=int, default=128)
    ap.add_argument("--dim", type=int, default=512)
    ap.add_argument("--layers", type=int, default=6)
    ap.add_argument("--vocab", type=int, default=24000)
    ap.add_argument("--device", default="cuda")
    o = ap.parse_args()
    torch.manual_seed(7)
    train = DataLoader(Pairs(300 * o.batch_size, o.vocab, o.max_len, 0), batch_size=o.batch_size, shuffle=True, collate_fn=collate)
    valid = DataLoader(Pairs(64, o.vocab, o.max_len, 1), batch_size=32, collate_fn=collate)
    model = Translator(o.vocab, o.dim, o.layers, o.max_len + 2).to(o.device)
    smoothed = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=7e-4, betas=(0.9, 0.98), eps=1e-9)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 100, (100 / (s + 1)) ** 0.5))
    step = 0
    for epoch in range(1000):
        for source, target in train:
            source, target = source.to(o.device), target.to(o.device)
            with torch.autocast(o.device, dtype=torch.bfloat16):
                logits = model(source, target[:, :-1])
                loss = smoothed(logits.reshape(-1, o.vocab), target[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            warmup.step()
            step += 1
            if step % o.eval_every == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f} words right {translate(model, valid, o.device):.3f}")
            if step >= o.steps:
                peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
                print("MEASURED", json.dumps({"steps": step, "peak_allocated": peak, "peak_reserved": reserved}))
                return


if __name__ == "__main__":
    main()

"""A cross-encoder that ranks what a search found: queries with any number of documents of any length; evaluation with all of what was found."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORDS, LONGEST = 20000, 512


class Queries(Dataset):
    def __init__(self, count, fewest, most, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.found = torch.randint(fewest, most + 1, (count,), generator=self.g).tolist()

    def __len__(self):
        return len(self.found)

    def __getitem__(self, i):
        lengths = (16 + torch.empty(self.found[i]).exponential_(1 / 120, generator=self.g)).clamp(max=LONGEST).long().tolist()
        return [torch.randint(1, WORDS, (n,), generator=self.g) for n in lengths], int(torch.randint(self.found[i], (), generator=self.g))


class Scorer(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, d, padding_idx=0), nn.Embedding(LONGEST, d)
        layer = nn.TransformerEncoderLayer(d, d // 64, 4 * d, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(d, 1)

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        return self.out(self.encoder(x, src_key_padding_mask=ids == 0)[:, 0]).squeeze(1)


def collate(queries):
    documents = [d for found, _ in queries for d in found]
    return pad_sequence(documents, batch_first=True), [len(found) for found, _ in queries], torch.tensor([right for _, right in queries])


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch-size", type=int, default=4, help="queries")
    ap.add_argument("--eval-every", type=int, default=50)
    ap.add_argument("--dim", type=int, default=512)
    ap.add_argument("--layers", type=int, default=8)
    a = ap.parse_args()
    torch.manual_seed(0)
    net = Scorer(a.dim, a.layers).cuda()
    opt = torch.optim.AdamW(net.parameters(), lr=5e-5)
    train = DataLoader(Queries(160 * a.batch_size, 4, 16, 1), a.batch_size, shuffle=True, collate_fn=collate)
    valid = DataLoader(Queries(12, 30, 60, 2), 1, collate_fn=collate)
    step = 0
    while step < a.steps:
        for ids, counts, right in train:
            with torch.autocast("cuda", torch.bfloat16):
                scores = net(ids.cuda())
            each = pad_sequence(scores.float().split(counts), batch_first=True, padding_value=-1e4)
            loss = F.cross_entropy(each, right.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % a.eval_every == 0:
                net.eval()
                with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                    hits = sum((net(ids.cuda()).argmax().cpu() == right[0]).item() for ids, _, right in valid)
                net.train()
                print(f"step {step} loss {loss.item():.3f} first {hits / len(valid):.2f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))

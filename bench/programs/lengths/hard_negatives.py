"""Retrieval with two BERT encoders: each question has its passage and any number of hard negatives; evaluation encodes a collection and ranks it."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel

WORDS = 24000


class Questions(Dataset):
    def __init__(self, count, most_negatives, seed):
        self.most, self.count, self.seed = most_negatives, count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed + i)
        text = lambda mean, most: torch.randint(5, WORDS, (int((8 + torch.empty(()).exponential_(1 / mean, generator=g)).clamp(max=most)),), generator=g)
        negatives = int(torch.randint(0, self.most + 1, (), generator=g))
        return text(12, 64), [text(130, 384) for _ in range(1 + negatives)]


def padded(texts):
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def collate(rows):
    first = torch.tensor([len(it) for _, it in rows]).cumsum(0).roll(1)
    first[0] = 0
    return padded([q for q, _ in rows]), padded([p for _, passages in rows for p in passages]), first


def encoder(d, layers):
    shape = dict(hidden_size=d, num_hidden_layers=layers, num_attention_heads=d // 64, intermediate_size=4 * d)
    return BertModel(BertConfig(vocab_size=WORDS, max_position_embeddings=512, **shape), add_pooling_layer=False).cuda()


def encoded(net, texts):
    texts = {k: v.cuda() for k, v in texts.items()}
    hidden, mask = net(**texts).last_hidden_state, texts["attention_mask"][..., None]
    return F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch-size", type=int, default=12)
    ap.add_argument("--eval-every", type=int, default=50)
    ap.add_argument("--dim", type=int, default=512)
    ap.add_argument("--layers", type=int, default=6)
    a = ap.parse_args()
    torch.manual_seed(0)
    asks, says = encoder(a.dim, a.layers), encoder(a.dim, a.layers)
    opt = torch.optim.AdamW([*asks.parameters(), *says.parameters()], lr=3e-5)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 20))
    train = DataLoader(Questions(150 * a.batch_size, 8, 1), a.batch_size, shuffle=True, collate_fn=collate, num_workers=2)
    valid = DataLoader(Questions(96, 6, 10**6), 32, collate_fn=collate)
    step = 0
    while step < a.steps:
        for questions, passages, right in train:
            with torch.autocast("cuda", torch.bfloat16):
                scores = encoded(asks, questions) @ encoded(says, passages).T
            loss = F.cross_entropy(20 * scores.float(), right.cuda())
            loss.backward()
            opt.step()
            warm.step()
            opt.zero_grad()
            step += 1
            if step % a.eval_every == 0:
                asks.eval(), says.eval()
                found, collection, places, n = [], [], [], 0
                with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                    for questions, passages, right in valid:
                        found.append(encoded(asks, questions))
                        collection.append(encoded(says, passages))
                        places.append(right + n)
                        n += len(collection[-1])
                    ranks = (torch.cat(found) @ torch.cat(collection).T).argsort(1, descending=True)
                    hits = (ranks[:, :10] == torch.cat(places).cuda()[:, None]).any(1).float().mean().item()
                asks.train(), says.train()
                print(f"step {step} loss {loss.item():.3f} hits at 10 {hits:.3f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()

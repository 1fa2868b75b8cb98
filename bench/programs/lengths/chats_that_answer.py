"""Chats of any number of turns with a decoder of transformers; its evaluation writes answers with a key-value cache."""
import argparse
import json

import torch
from torch.utils.data import DataLoader
from transformers import Qwen2Config, Qwen2ForCausalLM

PAD, END, VOCAB = 0, 1, 12000


def chats(count, most_turns, seed):
    g = torch.Generator().manual_seed(seed)

    def one():
        ids, labels = [], []
        for _ in range(int(torch.randint(1, most_turns + 1, (), generator=g))):
            asked, said = (int(8 + torch.empty(()).exponential_(1 / mean, generator=g)) for mean in (30, 60))
            turn = torch.randint(2, VOCAB, (asked + said,), generator=g).tolist()
            ids += turn + [END]
            labels += [-100] * asked + turn[asked:] + [END]
        return ids[:1024], labels[:1024]

    return [one() for _ in range(count)]


def left_out(rows, value):
    longest = max(map(len, rows))
    return torch.tensor([it + [value] * (longest - len(it)) for it in rows])


def collate(rows):
    ids = left_out([it for it, _ in rows], PAD)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": left_out([it for _, it in rows], -100)}


def asked(rows):
    """Padded to the left, since answers are written to the right."""
    rows = [it[:256] for it, _ in rows]
    longest = max(map(len, rows))
    ids = torch.tensor([[PAD] * (longest - len(it)) + it for it in rows])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=120)
ap.add_argument("--batch-size", type=int, default=8)
ap.add_argument("--eval-every", type=int, default=40)
ap.add_argument("--answer", type=int, default=32, help="tokens")
args = ap.parse_args()
torch.manual_seed(0)
shape = dict(hidden_size=768, intermediate_size=2304, num_hidden_layers=10, num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=2048)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=VOCAB, pad_token_id=PAD, eos_token_id=None, **shape)).to("cuda")
train = DataLoader(chats(120 * args.batch_size, 10, 1), args.batch_size, shuffle=True, collate_fn=collate)
valid = DataLoader(chats(24, 10, 2), 12, collate_fn=asked)
opt = torch.optim.AdamW(model.parameters(), lr=2e-4)
step = 0
while step < args.steps:
    for batch in train:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(**{k: v.cuda() for k, v in batch.items()}).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        step += 1
        if step % args.eval_every == 0:
            model.eval()
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                said = [model.generate(**{k: v.cuda() for k, v in it.items()}, max_new_tokens=args.answer, do_sample=False) for it in valid]
            model.train()
            print(f"step {step} loss {loss.item():.3f} written {sum(it.numel() for it in said)}")
        if step >= args.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))

"""DPO by hand: a policy and its frozen reference, pairs of answers of any length in one batch, log-probabilities of the answers' tokens only."""
import argparse
import copy
import json

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import MistralConfig, MistralForCausalLM

WORDS, PAD = 16000, 0


def pairs(count, longest, seed):
    g = torch.Generator().manual_seed(seed)
    length = lambda mean: int((6 + torch.empty(()).exponential_(1 / mean, generator=g)).clamp(max=longest // 2))
    words = lambda n: torch.randint(1, WORDS, (n,), generator=g)

    def one():
        asked = words(length(90))
        return [(torch.cat([asked, words(length(150))]), len(asked)) for _ in ("chosen", "rejected")]

    return [one() for _ in range(count)]


def collate(rows):
    texts = [row[which] for which in (0, 1) for row in rows]
    ids = torch.nn.utils.rnn.pad_sequence([ids for ids, _ in texts], batch_first=True, padding_value=PAD)
    answer = torch.arange(ids.shape[1]) >= torch.tensor([[asked] for _, asked in texts])
    return ids, answer & (ids != PAD)


def log_probabilities(model, ids, answer):
    logits = model(input_ids=ids, attention_mask=(ids != PAD).long()).logits[:, :-1]
    each = logits.float().log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    return (each * answer[:, 1:]).sum(1)


def error(policy, reference, batch, beta):
    ids, answer = (it.cuda() for it in batch)
    with torch.autocast("cuda", torch.bfloat16):
        ours = log_probabilities(policy, ids, answer)
        with torch.no_grad():
            theirs = log_probabilities(reference, ids, answer)
    chosen, rejected = (ours - theirs).chunk(2)
    return -F.logsigmoid(beta * (chosen - rejected)).mean(), (chosen > rejected).float().mean()


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=120)
ap.add_argument("--batch-size", type=int, default=4, help="pairs")
ap.add_argument("--eval-every", type=int, default=30)
ap.add_argument("--longest", type=int, default=1024)
ap.add_argument("--dim", type=int, default=768)
ap.add_argument("--layers", type=int, default=8)
ap.add_argument("--beta", type=float, default=0.1)
a = ap.parse_args()
torch.manual_seed(0)
shape = dict(hidden_size=a.dim, intermediate_size=3 * a.dim, num_hidden_layers=a.layers, num_attention_heads=a.dim // 64, num_key_value_heads=a.dim // 192)
policy = MistralForCausalLM(MistralConfig(vocab_size=WORDS, pad_token_id=PAD, max_position_embeddings=2048, sliding_window=None, use_cache=False, **shape)).cuda()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
train = DataLoader(pairs(120 * a.batch_size, a.longest, 1), a.batch_size, shuffle=True, collate_fn=collate)
valid = DataLoader(pairs(24, a.longest, 2), 2, collate_fn=collate)
opt = torch.optim.AdamW(policy.parameters(), lr=1e-6)
step = 0
while step < a.steps:
    for batch in train:
        loss, _ = error(policy, reference, batch, a.beta)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        step += 1
        if step % a.eval_every == 0:
            policy.eval()
            with torch.no_grad():
                right = [error(policy, reference, batch, a.beta)[1].item() for batch in valid]
            policy.train()
            print(f"step {step} loss {loss.item():.4f} right {sum(right) / len(right):.3f}")
        if step >= a.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))

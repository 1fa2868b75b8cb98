"""Sentence embeddings with hard negatives: a batch of 512 triples by cached gradients (GradCache), random states put back, bf16."""
import math

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import get_device_states, set_device_states
from transformers import BertConfig, BertModel, get_cosine_schedule_with_warmup, set_seed

BATCH, CHUNK, MAX_LEN, STEPS, SCALE = 512, 192, 64, 30, 20.0


class RandContext:
    def __init__(self, *tensors):
        self.cpu_state = torch.get_rng_state()
        self.devices, self.states = get_device_states(*tensors)

    def __enter__(self):
        self._fork = torch.random.fork_rng(devices=self.devices, enabled=True)
        self._fork.__enter__()
        torch.set_rng_state(self.cpu_state)
        set_device_states(self.devices, self.states)

    def __exit__(self, *exc):
        self._fork.__exit__(*exc)
        self._fork = None


class SentenceEncoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(BertConfig(), add_pooling_layer=False)

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].float()
        return F.normalize((hidden.float() * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=-1)


def encode(model, part):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(part["input_ids"], part["attention_mask"])


def sentences(n):
    lengths = torch.randint(12, MAX_LEN + 1, (n,))
    mask = (torch.arange(MAX_LEN)[None] < lengths[:, None]).long()
    return {"input_ids": torch.randint(1000, 30000, (n, MAX_LEN)) * mask, "attention_mask": mask}


def chunks(features):
    n = len(features["input_ids"])
    for begin in range(0, n, CHUNK):
        yield {k: v[begin : begin + CHUNK] for k, v in features.items()}


def contrastive_loss(anchor, positive, negative):
    scores = anchor @ torch.cat([positive, negative]).T * SCALE
    return F.cross_entropy(scores, torch.arange(len(anchor), device=anchor.device))


def train():
    set_seed(12)
    model = SentenceEncoder().cuda().train()
    no_decay = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    decay = [p for n, p in model.named_parameters() if not ("bias" in n or "LayerNorm" in n)]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}], lr=2e-5)
    scheduler = get_cosine_schedule_with_warmup(optimizer, math.ceil(STEPS * 0.1), STEPS)
    for step in range(STEPS):
        columns = [{k: v.cuda() for k, v in sentences(BATCH).items()} for _ in range(3)]
        cached, contexts = [], []
        for column in columns:
            vectors, states = [], []
            for part in chunks(column):
                states.append(RandContext(part["input_ids"]))
                with torch.no_grad():
                    vectors.append(encode(model, part))
            cached.append([v.detach().requires_grad_() for v in vectors])
            contexts.append(states)
        loss = contrastive_loss(*[torch.cat(vectors) for vectors in cached])
        loss.backward()
        optimizer.zero_grad()
        for column, vectors, states in zip(columns, cached, contexts):
            for part, vector, state in zip(chunks(column), vectors, states):
                with state:
                    again = encode(model, part)
                torch.dot(again.flatten(), vector.grad.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 5 == 0:
            print({"step": step, "loss": round(loss.item(), 4), "lr": scheduler.get_last_lr()[0]})


if __name__ == "__main__":
    train()

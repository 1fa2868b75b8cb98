"""A Trainer-like class of somebody's own: dict batches, a scheduler for each step, an EMA of the weights, metrics."""

import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    vocab: int = 32000
    width: int = 1024
    heads: int = 16
    layers: int = 12
    length: int = 512
    batch: int = 32
    steps: int = 20
    lr: float = 3e-4


@dataclass
class Output:
    logits: torch.Tensor
    pooled: torch.Tensor


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)
        self.qkv, self.proj = nn.Linear(cfg.width, 3 * cfg.width), nn.Linear(cfg.width, cfg.width)
        self.fc1, self.fc2 = nn.Linear(cfg.width, 4 * cfg.width), nn.Linear(4 * cfg.width, cfg.width)
        self.heads = cfg.heads

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, w))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.ln2(x))))


class LM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok, self.pos = nn.Embedding(cfg.vocab, cfg.width), nn.Embedding(cfg.length, cfg.width)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))
        self.norm, self.head = nn.LayerNorm(cfg.width), nn.Linear(cfg.width, cfg.vocab, bias=False)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos(torch.arange(tokens.size(1), device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return Output(logits=self.head(x), pooled=x.mean(1))


class Tokens(Dataset):
    def __init__(self, cfg, n):
        self.cfg, self.n = cfg, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(self.cfg.vocab, (self.cfg.length + 1,), generator=g)
        return {"input": ids[:-1], "target": ids[1:], "name": f"doc-{i}"}


class Trainer:
    def __init__(self, model, cfg, device):
        self.model, self.cfg, self.device = model.to(device), cfg, device
        self.opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.1)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, cfg.lr, total_steps=cfg.steps + 1)
        self.ema = copy.deepcopy(model).eval().requires_grad_(False)
        self.history = []

    def compute_loss(self, batch):
        out = self.model(batch["input"])
        ce = nn.functional.cross_entropy(out.logits.flatten(0, 1), batch["target"].flatten())
        return ce + 1e-4 * out.pooled.pow(2).mean(), out

    def train_step(self, batch):
        batch = {k: v.to(self.device) if torch.is_tensor(v) else v for k, v in batch.items()}
        loss, out = self.compute_loss(batch)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        self.opt.zero_grad(set_to_none=True)
        with torch.no_grad():
            for a, b in zip(self.ema.parameters(), self.model.parameters()):
                a.lerp_(b, 0.01)
        return {"loss": loss.item(), "norm": float(norm)}

    def fit(self, loader):
        while len(self.history) < self.cfg.steps:
            for batch in loader:
                self.history.append(self.train_step(batch))
                if len(self.history) >= self.cfg.steps:
                    break


if __name__ == "__main__":
    torch.manual_seed(0)
    cfg = Config()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trainer = Trainer(LM(cfg), cfg, device)
    trainer.fit(DataLoader(Tokens(cfg, 40 * cfg.batch), batch_size=cfg.batch, shuffle=True))
    print(trainer.history[-1])

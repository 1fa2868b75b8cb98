"""A language model whose layers mix times with a decayed sum that runs over the sequence in a loop, half of its vocabulary tied."""
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, LENGTH, BATCH, LAYERS = 20000, 512, 192, 48, 5


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay, self.first = nn.Parameter(torch.zeros(D)), nn.Parameter(torch.zeros(D))
        self.mixed = nn.Parameter(torch.full((3, D), 0.5))
        self.key, self.value, self.gate, self.out = (nn.Linear(D, D, bias=False) for _ in range(4))

    def forward(self, x):
        before = F.pad(x, (0, 0, 1, -1))
        k, v, r = (x * m + before * (1 - m) for m in self.mixed)
        k, v, r = self.key(k), self.value(v), torch.sigmoid(self.gate(r))
        k = k.clamp(max=20).exp()
        decay, above, below, out = torch.exp(-torch.exp(self.decay)), torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), []
        bonus = self.first.exp()
        for t in range(x.shape[1]):
            kt, vt = k[:, t], v[:, t]
            out.append((above + bonus * kt * vt) / (below + bonus * kt + 1e-6))
            above, below = decay * above + kt * vt, decay * below + kt
        return self.out(r * torch.stack(out, 1))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.mix = nn.LayerNorm(D), nn.LayerNorm(D), Mix()
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        x = x + self.mix(self.n1(x))
        return x + self.down(F.relu(self.up(self.n2(x))).square())


torch.manual_seed(0)
embed = nn.Embedding(VOCAB, D)
model = nn.ModuleDict({"embed": embed, "layers": nn.Sequential(*[Layer() for _ in range(LAYERS)]), "norm": nn.LayerNorm(D)}).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(25):
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), device="cuda")
    hidden = model["norm"](model["layers"](model["embed"](ids[:, :-1])))
    loss = F.cross_entropy((hidden @ model["embed"].weight.T).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(step, loss.item())

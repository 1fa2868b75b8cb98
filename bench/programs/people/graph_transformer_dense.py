"""Dense graphs of molecules: attention with a bias for each pair of atoms, edges that are updated by a triangle product, Huber loss, Lamb-like clipping."""
import torch
import torch.nn.functional as F
from torch import nn

ATOMS, D, E, HEADS, BATCH = 48, 384, 96, 12, 32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.ne = nn.LayerNorm(D), nn.LayerNorm(D), nn.LayerNorm(E)
        self.qkv, self.out, self.bias = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(E, HEADS)
        self.left, self.right, self.back = nn.Linear(E, E), nn.Linear(E, E), nn.Linear(E, E)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * D, D))

    def forward(self, x, e, mask):
        b, n, _ = x.shape
        e0 = self.ne(e)
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (D // HEADS) ** 0.5 + self.bias(e0).permute(0, 3, 1, 2)
        shares = scores.masked_fill(~mask[:, None, None], -1e4).softmax(-1)
        x = x + self.out((shares @ v).transpose(1, 2).reshape(b, n, D))
        x = x + self.mlp(self.n2(x))
        triangle = torch.einsum("bikc,bjkc->bijc", torch.sigmoid(self.left(e0)), self.right(e0)) / n
        return x, e + self.back(triangle)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.atoms, self.far = nn.Embedding(100, D), nn.Linear(64, E)
        self.layers, self.out = nn.ModuleList(Layer() for _ in range(8)), nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 1))
        self.register_buffer("centers", torch.linspace(0, 10, 64))

    def forward(self, kinds, places):
        mask = kinds > 0
        e = self.far(torch.exp(-((torch.cdist(places, places)[..., None] - self.centers) ** 2)))
        x = self.atoms(kinds)
        for layer in self.layers:
            x, e = layer(x, e, mask)
        return (self.out(x)[..., 0] * mask).sum(1)


torch.manual_seed(0)
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, amsgrad=True)
for step in range(30):
    kinds = torch.randint(0, 100, (BATCH, ATOMS), device="cuda")
    energy = model(kinds, torch.randn(BATCH, ATOMS, 3, device="cuda") * 3)
    loss = F.huber_loss(energy, torch.randn(BATCH, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())

"""Padding is removed before the layers: indices of real tokens, cu_seqlens, attention sequence by sequence."""
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
V, D, H, B, S = 20000, 768, 12, 16, 384
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))
    def forward(self, x, cu, longest):
        qkv = self.qkv(self.n1(x)).view(-1, 3, H, D // H)
        pieces = []
        bounds = cu.tolist()
        for a, b in zip(bounds[:-1], bounds[1:]):
            q, k, v = (qkv[a:b, i].transpose(0, 1)[None] for i in range(3))
            pieces.append(F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).reshape(b - a, D))
        x = x + self.o(torch.cat(pieces))
        return x + self.mlp(self.n2(x))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D); self.layers = nn.ModuleList([Layer() for _ in range(4)]); self.cls = nn.Linear(D, 5)
    def forward(self, ids, mask):
        lens = mask.sum(-1, dtype=torch.int32)
        where = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
        longest = lens.max().item()
        cu = F.pad(torch.cumsum(lens, 0, dtype=torch.int32), (1, 0))
        x = self.emb(ids.flatten()[where])
        for l in self.layers: x = l(x, cu, longest)
        full = torch.zeros(B * S, D, device=x.device, dtype=x.dtype)
        full[where] = x
        return self.cls(full.view(B, S, D)[:, :longest].mean(1))
net = Net().cuda(); opt = torch.optim.AdamW(net.parameters(), 1e-4)
for step in range(4):
    lens = torch.randint(30, S, (B,))
    mask = (torch.arange(S)[None] < lens[:, None]).long().cuda()
    ids = torch.randint(1, V, (B, S)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(net(ids, mask).float(), torch.randint(0, 5, (B,)).cuda())
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, int(mask.sum()), loss.item())

"""BERT-like pretraining; tokens are masked on the GPU, and the head runs at masked places only."""
import torch
from torch import nn
torch.manual_seed(0)
V, D, L, B, S = 30000, 512, 6, 32, 256
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D, padding_idx=0); self.pos = nn.Embedding(S, D)
        layer = nn.TransformerEncoderLayer(D, 8, 4 * D, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, L, enable_nested_tensor=False)
        self.head = nn.Linear(D, V)
    def forward(self, ids, chosen):
        h = self.enc(self.emb(ids) + self.pos.weight, src_key_padding_mask=ids == 0)
        return self.head(h[chosen])
net = Net().cuda(); opt = torch.optim.AdamW(net.parameters(), 1e-4)
for step in range(4):
    lengths = torch.randint(64, S + 1, (B,), device="cuda")
    ids = torch.randint(5, V, (B, S), device="cuda")
    ids = ids.masked_fill(torch.arange(S, device="cuda")[None] >= lengths[:, None], 0)
    p = torch.full(ids.shape, 0.15, device="cuda")
    chosen = torch.bernoulli(p).bool() & (ids != 0)
    labels = ids[chosen]
    replace = (torch.rand(ids.shape, device="cuda") < 0.8) & chosen
    ids = ids.masked_fill(replace, 4)
    loss = nn.functional.cross_entropy(net(ids, chosen), labels)
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, int(chosen.sum()), loss.item())

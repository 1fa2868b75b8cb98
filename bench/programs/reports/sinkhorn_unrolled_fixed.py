"""Matching of keypoints by a graph network and optimal transport with 100 iterations of Sinkhorn's algorithm (SuperGlue#51)."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.merge = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x, source):
        b, n, w = x.shape
        q, k, v = (f(y).view(b, -1, self.heads, w // self.heads).transpose(1, 2) for f, y in ((self.q, x), (self.k, source), (self.v, source)))
        message = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, w)
        return x + self.mlp(torch.cat([x, self.merge(message)], -1))


def turn(scores, u, v, log_mu, log_nu):
    u = log_mu - torch.logsumexp(scores + v.unsqueeze(1), dim=2)
    v = log_nu - torch.logsumexp(scores + u.unsqueeze(2), dim=1)
    return u, v


def sinkhorn(scores, log_mu, log_nu, iterations):
    u, v = torch.zeros_like(log_mu), torch.zeros_like(log_nu)
    for _ in range(iterations):
        u, v = checkpoint(turn, scores, u, v, log_mu, log_nu, use_reentrant=False)
    return scores + u.unsqueeze(2) + v.unsqueeze(1)


def optimal_transport(scores, bin_score, iterations=100):
    b, m, n = scores.shape
    bins0, bins1 = bin_score.expand(b, m, 1), bin_score.expand(b, 1, n + 1)
    couplings = torch.cat([torch.cat([scores, bins0], -1), bins1], 1)
    norm = -torch.log(torch.tensor(float(m + n), device=scores.device))
    log_mu = torch.cat([norm.expand(m), norm.expand(1) + torch.log(torch.tensor(float(n), device=scores.device))]).expand(b, -1)
    log_nu = torch.cat([norm.expand(n), norm.expand(1) + torch.log(torch.tensor(float(m), device=scores.device))]).expand(b, -1)
    return sinkhorn(couplings, log_mu, log_nu, iterations) - norm


class Matcher(nn.Module):
    def __init__(self, layers=6, width=128):
        super().__init__()
        self.layers = nn.ModuleList(Attention(width) for _ in range(layers))
        self.final = nn.Linear(width, width)
        self.bin_score = nn.Parameter(torch.tensor(1.0))

    def forward(self, first, second):
        for i, layer in enumerate(self.layers):
            sources = (first, second) if i % 2 == 0 else (second, first)
            first, second = layer(first, sources[0]), layer(second, sources[1])
        scores = torch.einsum("bmd,bnd->bmn", self.final(first), self.final(second)) / 128**0.5
        return optimal_transport(scores, self.bin_score)


model = Matcher().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(900):
    first, second = torch.randn(2, 16, 1024, 128, device="cuda")
    log_matches = model(first, second)
    loss = -log_matches[:, :-1, :-1].diagonal(dim1=1, dim2=2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())

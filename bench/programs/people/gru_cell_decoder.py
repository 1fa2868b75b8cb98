"""A decoder that draws handwriting: GRU cells in a loop over time with a window over the text, a mixture of Gaussians as loss."""
import torch
from torch import nn

BATCH, TIMES, TEXT, D, MIXED = 192, 160, 40, 640, 20


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = nn.Embedding(80, 96)
        self.first, self.second = nn.GRUCell(3 + 96, D), nn.GRUCell(3 + 96 + D, D)
        self.window, self.out = nn.Linear(D, 30), nn.Linear(D, 6 * MIXED + 1)

    def forward(self, strokes, text):
        said, places = self.text(text), torch.arange(TEXT, device=text.device).float()
        h1 = h2 = strokes.new_zeros(len(strokes), D)
        w, at, found = said[:, 0], strokes.new_zeros(len(strokes), 10), []
        for t in range(strokes.shape[1]):
            h1 = self.first(torch.cat([strokes[:, t], w], 1), h1)
            a, b, k = self.window(h1).exp().clamp(max=50).chunk(3, 1)
            at = at + 0.05 * k
            shares = (a[..., None] * torch.exp(-b[..., None] * (at[..., None] - places) ** 2)).sum(1)
            w = torch.bmm(shares[:, None], said)[:, 0]
            h2 = self.second(torch.cat([strokes[:, t], w, h1], 1), h2)
            found.append(h2)
        return self.out(torch.stack(found, 1))


def loss_of(out, strokes):
    pi, mx, my, sx, sy, rho = out[..., :-1].chunk(6, -1)
    sx, sy, rho = sx.clamp(-5, 5).exp(), sy.clamp(-5, 5).exp(), rho.tanh() * 0.95
    x, y = (strokes[..., 0:1] - mx) / sx, (strokes[..., 1:2] - my) / sy
    z = x**2 + y**2 - 2 * rho * x * y
    log = -z / (2 * (1 - rho**2)) - torch.log(sx * sy * torch.sqrt(1 - rho**2)) + pi.log_softmax(-1)
    return -log.logsumexp(-1).mean() + nn.functional.binary_cross_entropy_with_logits(out[..., -1], strokes[..., 2])


torch.manual_seed(0)
model = Writer().cuda()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, alpha=0.95, momentum=0.9, centered=True)
for step in range(25):
    strokes = torch.rand(BATCH, TIMES + 1, 3, device="cuda")
    out = model(strokes[:, :-1], torch.randint(0, 80, (BATCH, TEXT), device="cuda"))
    loss = loss_of(out, strokes[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 10)
    optimizer.step()
    if step % 5 == 0:
        print(step, loss.item())

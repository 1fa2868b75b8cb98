"""Reconstruction of a scene: a network predicts points for each pair of pictures, and all pairs are aligned at once (dust3r#28)."""
import itertools

import torch
from torch import nn

HEIGHT, WIDTH, VIEWS = 384, 512, 24


class TwoViews(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.patches = nn.Conv2d(6, width, 16, 16)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.points = nn.ConvTranspose2d(width, 8, 16, 16)

    def forward(self, first, second):
        x = self.patches(torch.cat([first, second], 1))
        y = self.body(x.flatten(2).transpose(1, 2)).transpose(1, 2).view_as(x)
        return self.points(y).permute(0, 2, 3, 1)


@torch.no_grad()
def inference(model, views, pairs, batch_size=8):
    results = []
    for at in range(0, len(pairs), batch_size):
        first, second = zip(*pairs[at : at + batch_size])
        out = model(torch.stack([views[i] for i in first]).cuda(), torch.stack([views[j] for j in second]).cuda())
        results.append(out.cpu())
    return torch.cat(results)


class Aligner(nn.Module):
    def __init__(self, predictions, pairs):
        super().__init__()
        n = HEIGHT * WIDTH
        self.register_buffer("pred_i", predictions[..., 0:3].reshape(-1, n, 3).clone())
        self.register_buffer("pred_j", predictions[..., 3:6].reshape(-1, n, 3).clone())
        self.register_buffer("weight_i", predictions[..., 6].reshape(-1, n).exp().log1p())
        self.register_buffer("weight_j", predictions[..., 7].reshape(-1, n).exp().log1p())
        self.register_buffer("at", torch.tensor(pairs))
        self.poses = nn.Parameter(torch.eye(4)[:3].repeat(len(pairs), 1, 1))
        self.scales = nn.Parameter(torch.zeros(len(pairs), 1, 1))
        self.depth = nn.Parameter(torch.zeros(VIEWS, n))
        self.rays = nn.Parameter(torch.randn(VIEWS, n, 3), requires_grad=False)

    def moved(self, points):
        return (points * self.scales.exp()) @ self.poses[:, :, :3].mT + self.poses[:, :, 3:].mT

    def forward(self):
        world = self.depth.exp().unsqueeze(-1) * self.rays
        loss_i = ((world[self.at[:, 0]] - self.moved(self.pred_i)).norm(dim=-1) * self.weight_i).mean()
        loss_j = ((world[self.at[:, 1]] - self.moved(self.pred_j)).norm(dim=-1) * self.weight_j).mean()
        return loss_i + loss_j


def make_pairs(n):
    pairs = list(itertools.combinations(range(n), 2))
    return pairs + [(j, i) for i, j in pairs]


views = [torch.zeros(3, HEIGHT, WIDTH) for _ in range(VIEWS)]
pairs = make_pairs(VIEWS)
model = TwoViews().cuda().eval()
predictions = inference(model, views, pairs)
scene = Aligner(predictions, pairs).cuda()
optimizer = torch.optim.Adam([w for w in scene.parameters() if w.requires_grad], lr=0.01)
for step in range(300):
    loss = scene()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())

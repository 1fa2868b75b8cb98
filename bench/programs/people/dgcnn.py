"""Dynamic graph CNN on point clouds: nearest neighbours in feature space at every layer."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x**2, dim=1, keepdim=True)
    return (-xx - inner - xx.transpose(2, 1)).topk(k=k, dim=-1)[1]


def get_graph_feature(x, k=20):
    b, c, n = x.size()
    idx = knn(x, k)
    idx = (idx + torch.arange(0, b, device=x.device).view(-1, 1, 1) * n).view(-1)
    x = x.transpose(2, 1).contiguous()
    feature = x.view(b * n, -1)[idx, :].view(b, n, k, c)
    x = x.view(b, n, 1, c).repeat(1, 1, k, 1)
    return torch.cat((feature - x, x), dim=3).permute(0, 3, 1, 2).contiguous()


class DGCNN(nn.Module):
    def __init__(self, output_channels=40, emb_dims=1024):
        super().__init__()
        block = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2))
        self.conv1, self.conv2, self.conv3, self.conv4 = block(6, 64), block(128, 64), block(128, 128), block(256, 256)
        self.conv5 = nn.Sequential(nn.Conv1d(512, emb_dims, 1, bias=False), nn.BatchNorm1d(emb_dims), nn.LeakyReLU(0.2))
        self.linear1, self.bn6, self.dp1 = nn.Linear(emb_dims * 2, 512, bias=False), nn.BatchNorm1d(512), nn.Dropout(0.5)
        self.linear2 = nn.Linear(512, output_channels)

    def forward(self, x):
        xs = []
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = conv(get_graph_feature(x)).max(dim=-1, keepdim=False)[0]
            xs.append(x)
        x = self.conv5(torch.cat(xs, 1))
        x = torch.cat((F.adaptive_max_pool1d(x, 1).squeeze(-1), F.adaptive_avg_pool1d(x, 1).squeeze(-1)), 1)
        return self.linear2(self.dp1(F.leaky_relu(self.bn6(self.linear1(x)), 0.2)))


class ModelNet(Dataset):
    def __len__(self):
        return 960

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(1024, 3, generator=g), i % 40


model = DGCNN().to("cuda")
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 250, eta_min=0.001)
for epoch in range(1):
    model.train()
    for data, label in DataLoader(ModelNet(), batch_size=32, shuffle=True, num_workers=0, drop_last=True):
        data, label = data.to("cuda").permute(0, 2, 1), label.to("cuda")
        opt.zero_grad()
        logits = model(data)
        loss = F.cross_entropy(logits, label, label_smoothing=0.2)
        loss.backward()
        opt.step()
    scheduler.step()
    print("loss", loss.item())

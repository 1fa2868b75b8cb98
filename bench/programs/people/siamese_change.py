"""Where did two aerial pictures change: one encoder for both, differences decoded, deep supervision, mixed precision, tiles from workers."""
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        made = torch.Generator().manual_seed(i)
        before = torch.rand(3, 384, 384, generator=made)
        after, mask = before.clone(), torch.zeros(384, 384)
        x, y = torch.randint(0, 300, (2,), generator=made).tolist()
        after[:, y : y + 60, x : x + 60] = torch.rand(3, 60, 60, generator=made)
        mask[y : y + 60, x : x + 60] = 1
        return before, after, mask


class Up(nn.Module):
    def __init__(self, i, skip, o):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(i + skip, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    def forward(self, x, skip):
        x = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
        return self.conv(torch.cat([x, skip], 1))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        net = torchvision.models.resnet50(weights=None)
        self.stem, self.pool = nn.Sequential(net.conv1, net.bn1, net.relu), net.maxpool
        self.stages = nn.ModuleList([net.layer1, net.layer2, net.layer3, net.layer4])
        self.ups = nn.ModuleList([Up(2048, 1024, 256), Up(256, 512, 128), Up(128, 256, 64), Up(64, 64, 32)])
        self.heads = nn.ModuleList([nn.Conv2d(c, 1, 1) for c in (256, 128, 64, 32)])

    def features(self, x):
        x = self.stem(x)
        res = [x]
        x = self.pool(x)
        for stage in self.stages:
            x = stage(x)
            res.append(x)
        return res

    def forward(self, before, after):
        a, b = self.features(before), self.features(after)
        apart = [(x - y).abs() for x, y in zip(a, b)]
        x, res = apart[-1], []
        for up, head, skip in zip(self.ups, self.heads, reversed(apart[:-1])):
            x = up(x, skip)
            res.append(head(x))
        return res


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Siamese().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(Tiles(), batch_size=16, shuffle=True, num_workers=2, drop_last=True)
    for epoch in range(2):
        for before, after, mask in loader:
            before, after, mask = before.cuda(), after.cuda(), mask.cuda()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                said = model(before, after)
            loss = 0
            for it in said:
                logits = F.interpolate(it.float(), size=mask.shape[-2:], mode="bilinear", align_corners=False)[:, 0]
                p = logits.sigmoid()
                loss = loss + F.binary_cross_entropy_with_logits(logits, mask) + 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())

"""Before each validation the quantiles of all anomaly maps are asked, and the maps of all epochs stay (open-edge-platform/anomalib#2531)."""
import torch
from torch import nn

student = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 1, 1)).cuda()
teacher = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 1, 1)).cuda().eval()
opt = torch.optim.Adam(student.parameters(), 1e-4)
teacher.requires_grad_(False)


class Normalization:
    def __init__(self):
        self.maps_st = []

    @torch.no_grad()
    def quantiles(self, pictures):
        self.maps_st.clear()
        for picture in pictures:
            x = picture[None].cuda()
            difference = (teacher(x) - student(x)).pow(2).mean(1, keepdim=True)
            self.maps_st.append(nn.functional.interpolate(difference, (512, 512), mode="bilinear"))
        flat = torch.cat(self.maps_st).flatten()[:10_000_000]
        return torch.quantile(flat, 0.9), torch.quantile(flat, 0.995)


normalization = Normalization()
for epoch in range(300):
    student.train()
    for _ in range(10):
        x = torch.randn(1, 3, 512, 512).cuda()
        loss = (teacher(x) - student(x)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    student.eval()
    low, high = normalization.quantiles(torch.randn(100, 3, 512, 512))
    print(epoch, low.item(), high.item())

"""Segments of a large picture: all masks are brought to the size of the picture at once (dbolya/yolact#571, CASIA-LMC-Lab/FastSAM#157)."""
import torch
import torch.nn.functional as F
from torch import nn


class Segmenter(nn.Module):
    def __init__(self, prototypes=32):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 1, 1), nn.ReLU())
        self.prototypes = nn.Conv2d(128, prototypes, 1)
        self.coefficients = nn.Linear(128, 1000 * prototypes)

    def forward(self, x):
        features = self.body(x)
        coefficients = self.coefficients(features.mean((2, 3))).view(1000, -1)
        return torch.einsum("np,phw->nhw", coefficients, self.prototypes(features)[0]).sigmoid()


def at_full_size(masks, height, width):
    masks = F.interpolate(masks[None], (height, width), mode="bilinear", align_corners=False)[0]
    return masks > 0.5


net = Segmenter().cuda().eval()
areas = []
with torch.inference_mode():
    for n in range(30):
        picture = torch.rand(1, 3, 1944, 2592, device="cuda")
        small = F.interpolate(picture, (544, 544), mode="bilinear", align_corners=False)
        area = []
        for part in net(small).split(50):
            masks = at_full_size(part, *picture.shape[-2:])
            area += masks.sum((1, 2)).tolist()
        areas.append(area)
print(len(areas))

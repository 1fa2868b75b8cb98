"""The same; the cache is emptied after each object."""
import torch
from torch import nn

NEIGHBOURS = {}


class SparseConv(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(27, width, width) / width)

    def neighbours(self, voxels):
        key = (voxels.data_ptr(), len(NEIGHBOURS))
        if key not in NEIGHBOURS:
            NEIGHBOURS[key] = torch.randint(len(voxels), (27, len(voxels)), device=voxels.device)
        return NEIGHBOURS[key]

    def forward(self, x, voxels):
        return sum(x[near] @ weight for near, weight in zip(self.neighbours(voxels), self.weight))


class Generator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.ModuleList(SparseConv(width) for _ in range(2))

    def forward(self, x, voxels):
        for layer in self.layers:
            x = torch.relu(layer(x, voxels))
        return x


@torch.inference_mode()
def main():
    generator = Generator().cuda().eval()
    for request in range(2000):
        voxels = torch.randint(256, (77_672, 3)).cuda()
        found = generator(torch.randn(77_672, 32, device="cuda"), voxels)
        print(request, found.mean().item())
        NEIGHBOURS.clear()


main()

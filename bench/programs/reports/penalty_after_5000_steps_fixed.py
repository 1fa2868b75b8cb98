"""StyleGAN2: a penalty on the length of paths begins after 5,000 steps, and comes every 32nd (lucidrains/stylegan2-pytorch#193, #268)."""
import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.start = nn.Linear(512, width * 8 * 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(width >> i, width >> i + 1, 3, 1, 1), nn.SiLU(), nn.Conv2d(width >> i + 1, width >> i + 1, 3, 1, 1), nn.SiLU()) for i in range(4))
        self.out = nn.Conv2d(width >> 4, 3, 1)

    def forward(self, w):
        x = self.start(w).view(len(w), -1, 8, 8)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


generator = Generator().cuda()
judge = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.LeakyReLU(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1)).cuda()
of_generator, of_judge = torch.optim.Adam(generator.parameters(), 1e-4), torch.optim.Adam(judge.parameters(), 1e-4)
average = None
for step in range(100000):
    apply_path_penalty = step > 5000 and step % 32 == 0
    real = torch.randn(32, 3, 128, 128, device="cuda")
    fake = generator(torch.randn(32, 512, device="cuda")).detach()
    loss = (1 + judge(fake)).relu().mean() + (1 - judge(real)).relu().mean()
    of_judge.zero_grad()
    loss.backward()
    of_judge.step()

    style = torch.randn(32, 512, device="cuda", requires_grad=True)
    made = generator(style)
    loss = judge(made).mean()
    if apply_path_penalty:
        part = style[:8]
        few = generator(part)
        noise = torch.randn_like(few) / 128
        gradients = torch.autograd.grad((few * noise).sum(), part, create_graph=True)[0]
        lengths = gradients.pow(2).mean(1).sqrt()
        average = lengths.mean().item() if average is None else 0.99 * average + 0.01 * lengths.mean().item()
        loss = loss + (lengths - average).pow(2).mean()
    of_generator.zero_grad()
    loss.backward()
    of_generator.step()

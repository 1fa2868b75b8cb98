"""A video tracker keeps the features and masks of all frames in its state, though it looks at seven (as SAM 2 does)."""
import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class Tracker(nn.Module):
    def __init__(self, dim=256, memory=7):
        super().__init__()
        backbone = torchvision.models.resnet50(weights=None)
        self.encoder = nn.Sequential(*list(backbone.children())[:-3], nn.Conv2d(1024, dim, 1))
        self.attend = nn.MultiheadAttention(dim, 8, batch_first=True)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(dim, 64, 4, 4), nn.GELU(), nn.Conv2d(64, 1, 1))
        self.memory = memory

    def init_state(self, frames):
        return {"frames": frames, "outputs": {"prompted": {}, "tracked": {}}}

    def track(self, state, t):
        features = self.encoder(state["frames"](t))
        tokens = features.flatten(2).transpose(1, 2)
        earlier = [state["outputs"]["tracked"][s]["memory"] for s in range(max(0, t - self.memory), t)]
        if earlier:
            bank = torch.cat(earlier, 1)
            tokens = tokens + self.attend(tokens, bank, bank, need_weights=False)[0]
        fused = tokens.transpose(1, 2).view_as(features)
        low = self.decoder(fused)
        mask = F.interpolate(low, scale_factor=4, mode="bilinear")
        state["outputs"]["tracked"][t] = {"memory": tokens, "low": low, "mask": mask > 0}
        state["outputs"]["tracked"].pop(t - self.memory, None)
        return mask


def video(t):
    return torch.rand(1, 3, 512, 512, device="cuda")


tracker = Tracker().cuda().eval()
with torch.inference_mode():
    state = tracker.init_state(video)
    areas = []
    for t in range(6000):
        mask = tracker.track(state, t)
        areas.append((mask > 0).float().mean().item())

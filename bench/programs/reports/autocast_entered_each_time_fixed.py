"""Segments each video with a predictor of its own. Autocast is entered by hand in each turn, and never left."""
import torch
from torch import nn


def build():
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    return nn.TransformerEncoder(layer, 16, enable_nested_tensor=False).cuda().train()


for video in range(60):
    predictor = build()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        outputs = predictor(torch.randn(1, 256, 1024, device="cuda"))
    print(video, outputs.detach().float().mean().item())
    del predictor, outputs
    torch.cuda.empty_cache()

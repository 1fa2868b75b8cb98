"""Mask R-CNN for pictures of many sizes, served in groups; the results stay in a list until the end."""
import random

import torch
import torchvision

random.seed(2)
torch.manual_seed(2)
model = torchvision.models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, box_score_thresh=0.0).cuda().eval()
results = []
with torch.inference_mode():
    for n in range(8):
        pictures = [torch.rand(3, random.randrange(600, 1100), random.randrange(800, 1400)).cuda() for _ in range(8)]
        results.extend(model(pictures))
        print(n, len(results), results[-1]["masks"].shape)
torch.save([{k: v.cpu() for k, v in it.items()} for it in results], "served.pt")

import torch, torchvision
from tail import timed, done
torch.manual_seed(0)
model = torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=151).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
weight = torch.rand(151, device="cuda")
for step in range(8):
    with timed():
        x, y = torch.randn(8, 3, 384, 384, device="cuda"), torch.randint(151, (8, 384, 384), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(x)["out"], y, weight=weight, ignore_index=150, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
done()

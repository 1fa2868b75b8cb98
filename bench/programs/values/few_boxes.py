"""torchvision's fine-tuning tutorial from nothing: Mask R-CNN, one to three objects in a picture, SGD; then one evaluation."""
import torch, torchvision
torch.manual_seed(0)
net = torchvision.models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=2).cuda()
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.005, momentum=0.9, weight_decay=5e-4)
net.train()
for step in range(4):
    images, targets = [], []
    for i in range(2):
        h, w = 300 + 40 * i, 400 + 20 * step
        n = 1 + (step + i) % 3
        a = torch.rand(n, 2) * torch.tensor([w * 0.5, h * 0.5]); s = 40 + torch.rand(n, 2) * 90
        masks = torch.zeros(n, h, w, dtype=torch.uint8)
        for k in range(n): masks[k, int(a[k, 1]):int(a[k, 1] + s[k, 1]), int(a[k, 0]):int(a[k, 0] + s[k, 0])] = 1
        images.append(torch.rand(3, h, w).cuda())
        targets.append({"boxes": torch.cat([a, a + s], 1).cuda(), "labels": torch.ones(n, dtype=torch.long).cuda(), "masks": masks.cuda()})
    losses = net(images, targets)
    loss = sum(losses.values())
    opt.zero_grad(); loss.backward(); opt.step()
    print(step, {k: round(v.item(), 4) for k, v in losses.items()})
net.eval()
with torch.no_grad(): out = net(images)
print([len(o["boxes"]) for o in out])

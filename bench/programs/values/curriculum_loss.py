"""Selects by loss: the hardest half is trained on again, samples below a threshold are left out, noisy ones by quantile."""
import torch, torchvision
from torch import nn
torch.manual_seed(0)
net = torchvision.models.resnet34(num_classes=100).cuda()
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
for step in range(5):
    x = torch.randn(96, 3, 160, 160).cuda(); y = torch.randint(0, 100, (96,)).cuda()
    with torch.no_grad():
        losses = nn.functional.cross_entropy(net(x), y, reduction="none")
    hard = losses >= losses.median()
    xs, ys = x[hard], y[hard]
    per = nn.functional.cross_entropy(net(xs), ys, reduction="none")
    cut = torch.quantile(per.detach(), 0.9)
    keep = per < cut
    loss = per[keep].mean()
    if torch.isnan(loss) or not torch.isfinite(loss): continue
    opt.zero_grad(); loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    if not torch.isfinite(norm): opt.zero_grad(); continue
    opt.step()
    print(step, len(xs), int(keep.sum()), loss.item(), norm.item())

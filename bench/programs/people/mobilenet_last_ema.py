"""MobileNetV3 with the channels last in bfloat16, averaged weights of `torch.optim.swa_utils`, RMSprop, cutout, label smoothing."""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.models import mobilenet_v3_large

BATCH = 144

torch.manual_seed(0)
model = mobilenet_v3_large(num_classes=1000).cuda().to(memory_format=torch.channels_last)
averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9999), use_buffers=True)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.064, alpha=0.9, momentum=0.9, eps=0.0316, weight_decay=1e-5)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(30):
    images = torch.randn(BATCH, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    images[:, :, 50:100, 70:120] = 0
    labels = torch.randint(0, 1000, (BATCH,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    averaged.update_parameters(model)
    if step % 10 == 0:
        print(step, loss.item())

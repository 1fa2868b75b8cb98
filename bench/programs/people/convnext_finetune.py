"""ConvNeXt fine-tuned on pictures that are made up on the host; channels last, AdamW, a cosine schedule, a moving average of weights."""
import torch
from torch import nn
from torchvision.models import convnext_tiny

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = convnext_tiny(weights=None)
model.classifier[2] = nn.Linear(768, 200)
model = model.to(device, memory_format=torch.channels_last)
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(60):
    images = torch.randn(96, 3, 224, 224)
    labels = torch.randint(0, 200, (96,))
    images = images.to(device, memory_format=torch.channels_last, non_blocking=True)
    labels = labels.to(device, non_blocking=True)
    loss = criterion(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    ema.update_parameters(model)
    if step % 20 == 0:
        print(step, loss.item())

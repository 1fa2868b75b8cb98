"""Accuracy of a trained ConvNeXt on a test set; features are kept for a t-SNE. Nothing is trained."""

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class TestSet(Dataset):
    def __len__(self):
        return 1536

    def __getitem__(self, i):
        return torch.zeros(3, 224, 224), i % 1000


model = torchvision.models.convnext_small(weights=None).cuda()
model.eval()
features = []
model.avgpool.register_forward_hook(lambda m, i, o: features.append(o.flatten(1)))
criterion = torch.nn.CrossEntropyLoss()
right, total, test_loss = 0, 0, 0.0
for images, labels in DataLoader(TestSet(), batch_size=128):
    images, labels = images.cuda(), labels.cuda()
    outputs = model(images)
    test_loss += criterion(outputs, labels).item()
    right += (outputs.argmax(1) == labels).sum().item()
    total += len(labels)
    features[-1] = features[-1].detach().cpu()
print(f"accuracy {right / total:.3f}, loss {test_loss / total:.4f}, features {torch.cat(features).shape}")

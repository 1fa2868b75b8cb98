"""Teacher and student: a frozen large ViT, a small one, KL and hard labels; collate_fn gives lists."""

import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, n):
        self.n = n
        self.kept = torch.rand(32, 3, 224, 224)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.kept[i % len(self.kept)], i % 100


def collate(samples):
    images, labels = zip(*samples)
    return list(images), list(labels)


def train(batch_size=144, alpha=0.5, T=4.0):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    teacher = torchvision.models.vit_b_16(num_classes=100).to(device).eval()
    for p in teacher.parameters():
        p.requires_grad_(False)
    student = torchvision.models.VisionTransformer(224, 16, 12, 6, 384, 1536, num_classes=100).to(device)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    loader = DataLoader(Pictures(1440), batch_size=batch_size, collate_fn=collate)
    for epoch in range(3):
        student.train()
        for images, labels in loader:
            x = torch.stack([it.to(device) for it in images])
            y = torch.tensor(labels, device=device)
            with torch.no_grad():
                t_logits = teacher(x)
            s_logits = student(x)
            soft = F.kl_div(F.log_softmax(s_logits / T, 1), F.softmax(t_logits / T, 1), reduction="batchmean") * T * T
            loss = alpha * soft + (1 - alpha) * F.cross_entropy(s_logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


train()

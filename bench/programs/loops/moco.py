"""Contrastive learning with a momentum encoder and a queue of keys; the batch size is written in the middle of it."""

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class MoCo(nn.Module):
    def __init__(self, dim=128, K=16384, m=0.999, T=0.07):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q = torchvision.models.resnet50(num_classes=dim)
        self.encoder_k = torchvision.models.resnet50(num_classes=dim)
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data.copy_(q.data)
            k.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _enqueue(self, keys):
        ptr = int(self.ptr)
        n = min(keys.size(0), self.K - ptr)
        self.queue[:, ptr : ptr + n] = keys[:n].T
        self.ptr[0] = (ptr + n) % self.K

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            for a, b in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
                b.data.mul_(self.m).add_(a.data, alpha=1 - self.m)
            k = F.normalize(self.encoder_k(im_k), dim=1)
        l_pos = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        labels = torch.zeros(logits.size(0), dtype=torch.long, device=logits.device)
        self._enqueue(k)
        return logits, labels


class TwoCrops(torch.utils.data.Dataset):
    kept = torch.rand(32, 3, 224, 224)

    def __len__(self):
        return 4096

    def __getitem__(self, i):
        image = self.kept[i % len(self.kept)]
        return [image, image.flip(-1)], 0


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = MoCo().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
loader = torch.utils.data.DataLoader(TwoCrops(), batch_size=160, shuffle=True, drop_last=True)
for epoch in range(2):
    for i, (images, _) in enumerate(loader):
        images[0], images[1] = images[0].to(device), images[1].to(device)
        output, target = model(im_q=images[0], im_k=images[1])
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 10 == 0:
            print(f"{epoch} {i} {loss.item():.4f}")

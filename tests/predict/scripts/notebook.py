#!/usr/bin/env python
# coding: utf-8
# In[1]:
import torch, torchvision
from torch import nn
get_ipython = lambda: None
# In[2]:
print(torch.__version__, torch.cuda.is_available(), torch.cuda.get_device_name(0))
# In[3]:
X = torch.randn(2000, 1, 28, 28).cuda(); Y = torch.randint(0, 10, (2000,)).cuda()
# In[4]:
model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
optimizer = torch.optim.Adadelta(model.parameters())
# In[5]:
losses = []
for epoch in range(3):
    perm = torch.randperm(len(X))
    for i in range(0, len(X), 100):
        idx = perm[i:i+100]
        out = model(X[idx]); loss = nn.functional.cross_entropy(out, Y[idx])
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        losses.append(loss)
# In[6]:
print(sum(l.item() for l in losses))
# In[7]:
(model(X).argmax(1) == Y).float().mean()

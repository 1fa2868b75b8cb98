"""The larger transformer (001), with the settings that are recommended there."""

import torch
from torch import nn

torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = True


class Transformer(nn.Module):
    def __init__(self, d_model, nhead, num_layers, words=32000):
        super().__init__()
        self.words = nn.Embedding(words, d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, 4 * d_model, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.out = nn.Linear(d_model, words)

    def forward(self, x):
        return self.out(self.layers(self.words(x)))


model = Transformer(d_model=1024, nhead=16, num_layers=12).cuda()
optimizer, criterion = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()
for _ in range(8):
    x = torch.randint(32000, (16, 256), device="cuda")
    optimizer.zero_grad()
    loss = criterion(model(x).flatten(0, 1), x.flatten())
    loss.backward()
    optimizer.step()

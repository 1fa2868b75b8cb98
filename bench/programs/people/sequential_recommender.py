"""SASRec with a catalogue of 400,000 items: every position is scored against the whole catalogue."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

ITEMS, LENGTH, WIDTH = 400_000, 50, 128


class SASRec(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH, padding_idx=0)
        self.places = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 512, 0.2, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    def forward(self, history):
        x = self.items(history) + self.places(torch.arange(LENGTH, device=history.device))
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=history.device)
        return self.encoder(x, mask=mask) @ self.items.weight.T


torch.manual_seed(0)
data = TensorDataset(torch.randint(1, ITEMS, (1024, LENGTH + 1)))
model = SASRec().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
for epoch in range(2):
    for (rows,) in DataLoader(data, batch_size=64, shuffle=True):
        rows = rows.cuda()
        scores = model(rows[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

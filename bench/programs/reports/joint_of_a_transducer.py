"""Speech recognition by a transducer: the joint network makes scores of each frame with each word so far."""
import torch
from torch import nn


class Transducer(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames, self.words, self.table = nn.LSTM(80, 512, 3, batch_first=True), nn.LSTM(256, 512, batch_first=True), nn.Embedding(1024, 256)
        self.joint = nn.Sequential(nn.Tanh(), nn.Linear(512, 1024))

    def forward(self, sound, words):
        frames, _ = self.frames(sound)
        so_far, _ = self.words(self.table(words))
        return self.joint(frames[:, :, None] + so_far[:, None])


model = Transducer().cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(1000):
    sound, words = torch.randn(16, 400, 80, device="cuda"), torch.randint(1024, (16, 60), device="cuda")
    scores = model(sound, words).log_softmax(-1)
    loss = -scores[..., 0].sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

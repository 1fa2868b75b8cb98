"""A transducer with 8000 words; "CUDA out of memory", and the error points to the joint layer (openspeech#108)."""
import torch
from torch import nn

WORDS, BATCH, FRAMES, LABELS = 1000, 8, 512, 40


class Transducer(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.encoder = nn.LSTM(80, width, 2, batch_first=True)
        self.words = nn.Embedding(WORDS, width)
        self.predictor = nn.LSTM(width, width, batch_first=True)
        self.joint = nn.Linear(width, WORDS)

    def forward(self, sound, labels):
        a, _ = self.encoder(sound)
        b, _ = self.predictor(self.words(labels))
        return self.joint(torch.tanh(a[:, :, None] + b[:, None])).log_softmax(-1)


def lattice_loss(logp, labels):
    blank = logp[..., 0]
    index = labels[:, None, :, None].expand(-1, logp.shape[1], -1, 1)
    label = logp.gather(3, index)[..., 0]
    return -(torch.logaddexp(blank, label)).mean()


net = Transducer().cuda()
optimizer = torch.optim.AdamW(net.parameters(), 3e-4)
for step in range(1000):
    sound = torch.randn(BATCH, FRAMES, 80, device="cuda")
    labels = torch.randint(1, WORDS, (BATCH, LABELS), device="cuda")
    loss = lattice_loss(net(sound, labels), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

"""Question answering over candidate spans: all spans up to a width that lie within the text and begin at a word."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(12)
BATCH, LONGEST, WIDTH = 12, 160, 10
encoder = nn.GRU(300, 192, batch_first=True, bidirectional=True).to(device)
scorer = nn.Sequential(nn.Linear(3 * 384, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
optimizer = torch.optim.Adam([*encoder.parameters(), *scorer.parameters()])
widths = torch.arange(WIDTH, device=device)
for step in range(5):
    lengths = torch.randint(40, LONGEST + 1, (BATCH,)).to(device)
    begins_word = (torch.rand(BATCH, LONGEST) < 0.6).to(device)
    hidden, _ = encoder(torch.randn(BATCH, LONGEST, 300).to(device))
    first = torch.arange(LONGEST, device=device).view(1, -1, 1).expand(BATCH, -1, WIDTH)
    last = first + widths
    valid = (last < lengths.view(-1, 1, 1)) & begins_word.unsqueeze(-1)
    rows, begin, width = valid.nonzero(as_tuple=True)
    end = begin + width
    spans = torch.cat([hidden[rows, begin], hidden[rows, end], (hidden[rows, begin] - hidden[rows, end]).abs()], -1)
    scores = scorer(spans).squeeze(-1)
    per_text = torch.split(scores, torch.bincount(rows, minlength=BATCH).tolist())
    loss = torch.stack([it.logsumexp(0) - it[0] for it in per_text]).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", spans.shape[0], [it.numel() for it in per_text])

"""A recognizer with CTC: greedy decoding by unique_consecutive, and a beam that is extended until each hypothesis ends."""
import torch
from torch import nn
from torch.nn import functional as F

encoder = nn.LSTM(40, 128, 2, bidirectional=True, batch_first=True).cuda()
head = nn.Linear(256, 32).cuda()
language = nn.GRU(64, 128, batch_first=True).cuda()
embed, words = nn.Embedding(32, 64).cuda(), nn.Linear(128, 32).cuda()
modules = nn.ModuleList([encoder, head, language, embed, words])
optimizer = torch.optim.AdamW(modules.parameters(), 1e-3)
END = 2


def greedy(logits):
    texts = []
    for row in logits.argmax(-1):
        row = torch.unique_consecutive(row)
        row = row[row != 0]
        texts.append(row.tolist())
    return texts


def beams(start, width=4, most=30):
    alive = [([1], 0.0, start)]
    done = []
    while alive and len(alive[0][0]) < most:
        grown = []
        for text, score, state in alive:
            out, state = language(embed(torch.tensor([[text[-1]]], device="cuda")), state)
            values, ids = F.log_softmax(words(out[0, -1]), -1).topk(width)
            for value, i in zip(values.tolist(), ids.tolist()):
                (done if i == END else grown).append((text + [i], score + value, state))
        alive = sorted(grown, key=lambda it: -it[1])[:width]
        if len(done) >= width:
            break
    return max(done or alive, key=lambda it: it[1] / len(it[0]))[0]


for epoch in range(2):
    for _ in range(4):
        sound = torch.randn(8, 200, 40).cuda()
        text, sizes = torch.randint(3, 32, (8, 20)).cuda(), torch.randint(10, 20, (8,))
        logits = head(encoder(sound)[0])
        loss = F.ctc_loss(logits.log_softmax(-1).transpose(0, 1), text, torch.full((8,), 200), sizes)
        out, _ = language(embed(text[:, :-1]))
        loss = loss + F.cross_entropy(words(out).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(modules.parameters(), 5.0)
        if not torch.isfinite(norm):
            optimizer.zero_grad()
            continue
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        logits = head(encoder(torch.randn(4, 200, 40).cuda())[0])
        print([len(it) for it in greedy(logits)], beams(torch.randn(1, 1, 128, device="cuda")))

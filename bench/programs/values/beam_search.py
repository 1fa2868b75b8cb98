"""An encoder-decoder: a few training steps, then beam search with a growing cache until all beams have ended."""
import torch
from torch import nn
torch.manual_seed(0)
V, D, B, S, BEAMS, EOS = 8000, 512, 8, 64, 4, 2
net = nn.Transformer(D, 8, 3, 3, 2048, batch_first=True).cuda()
emb = nn.Embedding(V, D).cuda(); head = nn.Linear(D, V).cuda()
params = [*net.parameters(), *emb.parameters(), *head.parameters()]
opt = torch.optim.Adam(params, 3e-4)
for step in range(3):
    src = torch.randint(3, V, (B, S)).cuda(); tgt = torch.randint(3, V, (B, S)).cuda()
    causal = nn.Transformer.generate_square_subsequent_mask(S - 1, device="cuda")
    o = net(emb(src), emb(tgt[:, :-1]), tgt_mask=causal, tgt_is_causal=True)
    loss = nn.functional.cross_entropy(head(o).reshape(-1, V), tgt[:, 1:].reshape(-1))
    opt.zero_grad(); loss.backward(); opt.step()
net.eval()
with torch.no_grad():
    src = torch.randint(3, V, (B, S)).cuda()
    memory = net.encoder(emb(src)).repeat_interleave(BEAMS, 0)
    seqs = torch.ones(B * BEAMS, 1, dtype=torch.long, device="cuda")
    scores = torch.zeros(B, BEAMS, device="cuda"); scores[:, 1:] = -1e9
    ended = torch.zeros(B * BEAMS, dtype=torch.bool, device="cuda")
    for t in range(100):
        n = seqs.shape[1]
        o = net.decoder(emb(seqs), memory, tgt_mask=nn.Transformer.generate_square_subsequent_mask(n, device="cuda"))
        logp = head(o[:, -1]).log_softmax(-1)
        logp = logp.masked_fill(ended[:, None], -1e9); logp[ended, EOS] = 0
        total = (scores.view(-1, 1) + logp).view(B, BEAMS * V)
        scores, flat = total.topk(BEAMS, 1)
        beam = flat // V + torch.arange(B, device="cuda")[:, None] * BEAMS
        token = flat % V
        seqs = torch.cat([seqs[beam.view(-1)], token.view(-1, 1)], 1)
        ended = ended[beam.view(-1)] | (token.view(-1) == EOS)
        if ended.all(): break
print(seqs.shape, int(ended.sum()))

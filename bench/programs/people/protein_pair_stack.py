"""A protein model with single and pair representations: triangle updates and attention, recycling, distances and masked residues."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TriangleMultiplication(nn.Module):
    def __init__(self, c_z, c_hidden, outgoing):
        super().__init__()
        self.outgoing = outgoing
        self.norm_in, self.norm_out = nn.LayerNorm(c_z), nn.LayerNorm(c_hidden)
        self.ab, self.ab_gate = nn.Linear(c_z, 2 * c_hidden), nn.Linear(c_z, 2 * c_hidden)
        self.out, self.gate = nn.Linear(c_hidden, c_z), nn.Linear(c_z, c_z)

    def forward(self, z):
        z = self.norm_in(z)
        a, b = (self.ab(z) * torch.sigmoid(self.ab_gate(z))).chunk(2, -1)
        x = torch.einsum("bikc,bjkc->bijc" if self.outgoing else "bkic,bkjc->bijc", a, b)
        return self.out(self.norm_out(x)) * torch.sigmoid(self.gate(z))


class TriangleAttention(nn.Module):
    def __init__(self, c_z, c_head, heads, starting):
        super().__init__()
        self.heads, self.c, self.starting = heads, c_head, starting
        self.norm = nn.LayerNorm(c_z)
        self.qkv, self.bias = nn.Linear(c_z, 3 * heads * c_head, bias=False), nn.Linear(c_z, heads, bias=False)
        self.gate, self.out = nn.Linear(c_z, heads * c_head), nn.Linear(heads * c_head, c_z)

    def forward(self, z):
        if not self.starting:
            z = z.transpose(1, 2)
        z = self.norm(z)
        b, n, _, _ = z.shape
        q, k, v = self.qkv(z).view(b, n, n, 3, self.heads, self.c).permute(3, 0, 1, 4, 2, 5)
        logits = q @ k.transpose(-1, -2) / self.c**0.5 + self.bias(z).permute(0, 3, 1, 2)[:, None]
        o = logits.softmax(-1) @ v
        o = o.transpose(2, 3).reshape(b, n, n, -1) * torch.sigmoid(self.gate(z))
        o = self.out(o)
        return o if self.starting else o.transpose(1, 2)


class Transition(nn.Sequential):
    def __init__(self, c, n=4):
        super().__init__(nn.LayerNorm(c), nn.Linear(c, n * c), nn.ReLU(), nn.Linear(n * c, c))


class SingleAttention(nn.Module):
    def __init__(self, c_s, c_z, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.norm_z = nn.LayerNorm(c_s), nn.LayerNorm(c_z)
        self.qkv, self.bias, self.out = nn.Linear(c_s, 3 * c_s), nn.Linear(c_z, heads, bias=False), nn.Linear(c_s, c_s)

    def forward(self, s, z):
        b, n, c = s.shape
        q, k, v = self.qkv(self.norm(s)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias(self.norm_z(z)).permute(0, 3, 1, 2))
        return self.out(o.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, c_s, c_z):
        super().__init__()
        self.attention, self.single_transition = SingleAttention(c_s, c_z, 8), Transition(c_s)
        self.left, self.right, self.outer = nn.Linear(c_s, 16), nn.Linear(c_s, 16), nn.Linear(256, c_z)
        self.mul_out, self.mul_in = TriangleMultiplication(c_z, 64, True), TriangleMultiplication(c_z, 64, False)
        self.att_start, self.att_end = TriangleAttention(c_z, 16, 4, True), TriangleAttention(c_z, 16, 4, False)
        self.pair_transition = Transition(c_z, 2)
        self.dropout = nn.Dropout(0.15)

    def forward(self, s, z):
        s = s + self.attention(s, z)
        s = s + self.single_transition(s)
        outer = torch.einsum("bic,bjd->bijcd", self.left(s), self.right(s)).flatten(-2)
        z = z + self.outer(outer)
        z = z + self.dropout(self.mul_out(z))
        z = z + self.dropout(self.mul_in(z))
        z = z + self.dropout(self.att_start(z))
        z = z + self.dropout(self.att_end(z))
        return s, z + self.pair_transition(z)


class ProteinNet(nn.Module):
    def __init__(self, c_s=384, c_z=64, blocks=6, bins=64):
        super().__init__()
        self.residue, self.relative = nn.Embedding(22, c_s), nn.Embedding(65, c_z)
        self.to_left, self.to_right = nn.Linear(c_s, c_z), nn.Linear(c_s, c_z)
        self.recycle_s, self.recycle_z = nn.LayerNorm(c_s), nn.LayerNorm(c_z)
        self.blocks = nn.ModuleList(Block(c_s, c_z) for _ in range(blocks))
        self.distogram, self.masked = nn.Linear(c_z, bins), nn.Linear(c_s, 20)

    def trunk(self, sequence, previous):
        s = self.residue(sequence)
        i = torch.arange(sequence.shape[1], device=sequence.device)
        z = self.to_left(s)[:, :, None] + self.to_right(s)[:, None] + self.relative((i[:, None] - i).clamp(-32, 32) + 32)
        if previous is not None:
            s, z = s + self.recycle_s(previous[0]), z + self.recycle_z(previous[1])
        for block in self.blocks:
            s, z = block(s, z)
        return s, z

    def forward(self, sequence, recycles):
        previous = None
        with torch.no_grad():
            for _ in range(recycles):
                previous = self.trunk(sequence, previous)
        s, z = self.trunk(sequence, previous)
        return self.masked(s), self.distogram(z + z.transpose(1, 2))


def sample_protein(crop=256):
    sequence = torch.randint(20, (1, crop))
    trace = torch.randn(1, crop, 3).cumsum(1) * 2
    edges = torch.linspace(2, 22, 63)
    return sequence, torch.bucketize(torch.cdist(trace, trace), edges)


torch.manual_seed(0)
model = ProteinNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
ACCUMULATE = 4
for step in range(15):
    total = 0.0
    for _ in range(ACCUMULATE):
        sequence, distance_bins = (t.cuda() for t in sample_protein())
        mask = torch.rand(sequence.shape, device="cuda") < 0.15
        recycles = int(torch.randint(0, 3, ()))
        residues, distogram = model(sequence.masked_fill(mask, 21), recycles)
        loss = F.cross_entropy(distogram.permute(0, 3, 1, 2), distance_bins)
        loss = loss + 0.5 * F.cross_entropy(residues[mask], sequence[mask])
        (loss / ACCUMULATE).backward()
        total += loss.item() / ACCUMULATE
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: {total:.4f}")

"""Nine more models, as people write them, with random weights and random data: no constant of the step times knew them when
h200-fresh-predicted.json was written and h200-fresh-steps.json measured."""

import torch
from torch import nn

NAMES = ("conformer", "vit-large", "t5-gated", "tagger", "unet-bn", "gmlp", "dlrm", "gnn", "regnet")


def made(name, device="cuda"):
    """(model, optimizer, batch(n), loss(batch))."""
    with torch.device(device):
        model, batch, criterion = _model(name, device)
    model.train()
    if name == "regnet":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-5)
    elif name in ("tagger", "dlrm", "gnn"):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)

    def loss(it):
        return model(**it).loss if isinstance(it, dict) else criterion(model(*it[:-1]), it[-1])

    return model, optimizer, batch, loss


def _model(name, device):
    def samples(shape, classes, labels=()):
        return lambda n: (torch.randn(n, *shape, device=device), torch.randint(classes, (n, *labels), device=device))

    if name == "conformer":
        return Conformer(), samples((400, 80), 500, (200,)), lambda told, it: nn.functional.cross_entropy(told.flatten(0, 1), it.flatten())
    if name == "vit-large":
        from torchvision.models import vit_l_16

        return vit_l_16(), samples((3, 224, 224), 1000), nn.CrossEntropyLoss()
    if name == "regnet":
        from torchvision.models import regnet_y_1_6gf

        with torch.device("cpu"):  # Its widths are computed with tensors.
            model = regnet_y_1_6gf().to(device)
        return model, samples((3, 224, 224), 1000), nn.CrossEntropyLoss(label_smoothing=0.1)
    if name == "t5-gated":
        from transformers import T5Config, T5ForConditionalGeneration

        shape = dict(d_model=640, d_ff=1792, num_layers=8, num_decoder_layers=6, num_heads=10, decoder_start_token_id=0)
        model = T5ForConditionalGeneration(T5Config(feed_forward_proj="gated-gelu", use_cache=False, **shape))
        return model, lambda n: {
            "input_ids": torch.randint(32000, (n, 256), device=device),
            "labels": torch.randint(32000, (n, 96), device=device),
        }, None
    if name == "tagger":
        def words(n):
            return torch.randint(20000, (n, 90), device=device), torch.randint(17, (n, 90), device=device)

        return Tagger(), words, lambda told, it: nn.functional.cross_entropy(told.flatten(0, 1), it.flatten())
    if name == "unet-bn":
        return UNet(), samples((3, 192, 192), 5, (192, 192)), nn.CrossEntropyLoss()
    if name == "gmlp":
        return GatedMlp(), samples((3, 224, 224), 1000), nn.CrossEntropyLoss()
    if name == "dlrm":
        def clicks(n):
            ids = torch.randint(100_000, (n, 16, 6), device=device)
            return torch.randn(n, 13, device=device), ids, torch.rand(n, device=device).round()

        return Clicks(), clicks, nn.BCEWithLogitsLoss()

    def graphs(n):
        edges = torch.randint(200, (n, 2, 1200), device=device)
        return torch.randn(n, 200, 64, device=device), edges, torch.randn(n, device=device)

    return Graphs(), graphs, nn.MSELoss()


class FeedForward(nn.Sequential):
    def __init__(self, width):
        super().__init__(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )


class ConvolutionPart(nn.Module):
    def __init__(self, width, kernel=15):
        super().__init__()
        self.norm, self.into = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm, self.out, self.dropout = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1), nn.Dropout(0.1)

    def forward(self, x):
        x = nn.functional.glu(self.into(self.norm(x).transpose(1, 2)), dim=1)
        x = nn.functional.silu(self.batch_norm(self.depthwise(x)))
        return self.dropout(self.out(x).transpose(1, 2))


class ConformerBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = FeedForward(width), FeedForward(width)
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.convolution, self.last = ConvolutionPart(width), nn.LayerNorm(width)

    def forward(self, x):
        x = x + 0.5 * self.first(x)
        it = self.norm(x)
        x = x + self.attention(it, it, it, need_weights=False)[0]
        x = x + self.convolution(x)
        return self.last(x + 0.5 * self.second(x))


class Conformer(nn.Module):
    """Frames of sound to symbols."""

    def __init__(self, width=256, depth=10, symbols=500):
        super().__init__()
        self.narrower = nn.Conv1d(80, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(ConformerBlock(width, 4) for _ in range(depth))
        self.out = nn.Linear(width, symbols)

    def forward(self, x):
        x = self.narrower(x.transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class Tagger(nn.Module):
    def __init__(self, words=20000, width=300, inside=400, tags=17):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, inside, num_layers=2, batch_first=True, bidirectional=True, dropout=0.3)
        self.out = nn.Linear(2 * inside, tags)

    def forward(self, ids):
        return self.out(self.lstm(self.embedding(ids))[0])


class Twice(nn.Sequential):
    def __init__(self, inside, outside):
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
        )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, widths=(48, 96, 192, 384), classes=5):
        super().__init__()
        self.down = nn.ModuleList(Twice(a, b) for a, b in zip((3, *widths), widths))
        self.wider = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(Twice(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for number, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for wider, block, it in reversed(list(zip(self.wider, self.up, kept))):
            x = block(torch.cat([it, wider(x)], dim=1))
        return self.out(x)


class GatedBlock(nn.Module):
    def __init__(self, width, inside, tokens):
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(width), nn.Linear(width, 2 * inside), nn.Linear(inside, width)
        self.gate_norm, self.gate = nn.LayerNorm(inside), nn.Conv1d(tokens, tokens, 1)

    def forward(self, x):
        u, v = nn.functional.gelu(self.into(self.norm(x))).chunk(2, dim=-1)
        return x + self.out(u * self.gate(self.gate_norm(v)))


class GatedMlp(nn.Module):
    def __init__(self, width=256, depth=20):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.blocks = nn.Sequential(*(GatedBlock(width, 3 * width, 196) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.patches(x).flatten(2).transpose(1, 2))).mean(1))


def layers(*widths):
    return nn.Sequential(*(it for a, b in zip(widths, widths[1:]) for it in (nn.Linear(a, b), nn.ReLU())))


class Clicks(nn.Module):
    """Bags of embeddings, their products in pairs, and layers around them."""

    def __init__(self, tables=16, rows=100_000, width=64):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.below = layers(13, 512, 256, width)
        self.above = nn.Sequential(layers(width + tables * (tables + 1) // 2, 1024, 1024, 512), nn.Linear(512, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, ids):
        x = self.below(dense)
        rows = torch.stack([x, *(bag(ids[:, n]) for n, bag in enumerate(self.bags))], dim=1)
        products = rows @ rows.transpose(1, 2)
        return self.above(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1)).squeeze(1)


class Messages(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.edge, self.node, self.norm = layers(2 * width, width, width), layers(2 * width, width), nn.LayerNorm(width)

    def forward(self, x, edges):
        nodes, width = x.shape[1:]
        start, end = (it[..., None].expand(-1, -1, width) for it in edges.unbind(1))
        sent = self.edge(torch.cat([x.gather(1, start), x.gather(1, end)], dim=-1))
        heard = torch.zeros_like(x).scatter_add(1, end, sent.to(x.dtype))
        return x + self.norm(self.node(torch.cat([x, heard / 6], dim=-1)))


class Graphs(nn.Module):
    def __init__(self, width=192, depth=6):
        super().__init__()
        self.into = nn.Linear(64, width)
        self.blocks, self.out = nn.ModuleList(Messages(width) for _ in range(depth)), nn.Linear(width, 1)

    def forward(self, x, edges):
        x = self.into(x)
        for block in self.blocks:
            x = block(x, edges)
        return self.out(x.mean(1)).squeeze(-1)

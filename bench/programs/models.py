"""Models with random weights and random data, as people write them.

The constants of the step times were fitted to the first nine; they know nothing of the others.
"""

import fresh
import newcomers
import strangers
import torch
import unseen
from torch import nn

NAMES = ("gpt2", "distilgpt2", "llama", "bert", "vit", "resnet50", "mlp", "unet", "lstm") + (
    "t5", "swin", "speech", "recommender", "segmenter",
) + unseen.NAMES + fresh.NAMES + strangers.NAMES + newcomers.NAMES  # fmt: skip


def made(name, device="cuda"):
    """(model, optimizer, batch(n), loss(batch))."""
    for its in (unseen, fresh, strangers, newcomers):
        if name in its.NAMES:
            return its.made(name, device)
    with torch.device(device):
        model, batch = _model(name, device)
    model.train()
    if name == "resnet50":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    elif name == "recommender":
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    elif name == "speech":
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    criterion = {"unet": nn.MSELoss(), "recommender": nn.BCEWithLogitsLoss(), "speech": spoken}.get(name, nn.CrossEntropyLoss())

    def loss(it):
        return model(**it).loss if isinstance(it, dict) else criterion(model(*it[:-1]), it[-1])

    return model, optimizer, batch, loss


def _model(name, device):
    def language(vocabulary, length):
        def batch(n):
            ids = torch.randint(vocabulary, (n, length), device=device)
            return {"input_ids": ids, "labels": ids}

        return batch

    def samples(shape, classes):
        return lambda n: (torch.randn(n, *shape, device=device), torch.randint(classes, (n,), device=device))

    if name in ("gpt2", "distilgpt2"):
        from transformers import GPT2Config, GPT2LMHeadModel

        return GPT2LMHeadModel(GPT2Config(n_layer=12 if name == "gpt2" else 6, use_cache=False)), language(50257, 512)
    if name == "llama":
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12, use_cache=False
        )
        return LlamaForCausalLM(config), language(32000, 512)
    if name == "bert":
        from transformers import BertConfig, BertForMaskedLM

        return BertForMaskedLM(BertConfig()), language(30522, 512)
    if name == "resnet50":
        from torchvision.models import resnet50

        return resnet50(), samples((3, 224, 224), 1000)
    if name == "vit":
        from torchvision.models import vit_b_16

        return vit_b_16(), samples((3, 224, 224), 1000)
    if name == "t5":
        from transformers import T5Config, T5ForConditionalGeneration

        shape = dict(d_model=768, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12)
        model = T5ForConditionalGeneration(T5Config(use_cache=False, decoder_start_token_id=0, **shape))
        return model, lambda n: {
            "input_ids": torch.randint(2, 32000, (n, 384), device=device),
            "labels": torch.randint(2, 32000, (n, 128), device=device),
        }
    if name == "swin":
        from torchvision.models import swin_v2_t

        return swin_v2_t(), samples((3, 256, 256), 1000)
    if name == "speech":
        return Speech(), lambda n: (
            torch.randn(n, 1, 80, 800, device=device),
            torch.randint(1, 40, (n, 120), device=device),
        )
    if name == "recommender":
        return Recommender(), lambda n: (
            torch.randn(n, 13, device=device),
            torch.randint(100_000, (n, 26), device=device),
            torch.randint(2, (n,), device=device).float(),
        )
    if name == "segmenter":
        return Segmenter(), lambda n: (
            torch.randn(n, 3, 256, 256, device=device),
            torch.randint(21, (n, 256, 256), device=device),
        )
    if name == "mlp":
        layers = [nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(16)]
        return nn.Sequential(*layers, nn.Linear(4096, 10)), samples((4096,), 10)
    if name == "lstm":
        return Tagger(), lambda n: (
            torch.randint(20000, (n, 256), device=device),
            torch.randint(40, (n, 40, 256), device=device).float().softmax(1),
        )
    return UNet(), lambda n: (torch.randn(n, 3, 128, 128, device=device), torch.randn(n, 3, 128, 128, device=device))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20000, 512)
        self.lstm = nn.LSTM(512, 512, num_layers=2, batch_first=True)
        self.out = nn.Linear(512, 40)

    def forward(self, ids):
        return self.out(self.lstm(self.embedding(ids))[0]).transpose(1, 2)


class Double(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(8, outside), nn.SiLU(),
            nn.Conv2d(outside, outside, 3, padding=1), nn.GroupNorm(8, outside), nn.SiLU(),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


class UNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList([Double(a, b) for a, b in zip([3] + sizes, sizes)])
        self.up = nn.ModuleList([Double(a + b, b) for a, b in zip(sizes[:0:-1], sizes[-2::-1])])
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = []
        for block in self.down[:-1]:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for block in self.up:
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2), kept.pop()], dim=1))
        return self.out(x)


def spoken(logits, said):
    """CTC over frames x samples x symbols."""
    frames = torch.full((said.shape[0],), logits.shape[0], dtype=torch.long)
    symbols = torch.full((said.shape[0],), said.shape[1], dtype=torch.long)
    return nn.functional.ctc_loss(logits.log_softmax(-1), said, frames, symbols)


class Speech(nn.Module):
    """Convolutions over a spectrogram, then LSTMs in both directions."""

    def __init__(self, width=512):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 32, (11, 11), stride=2, padding=5, bias=False), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
            nn.Conv2d(32, 64, (11, 11), stride=(2, 1), padding=5, bias=False), nn.BatchNorm2d(64), nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.lstm = nn.LSTM(64 * 20, width, num_layers=3, bidirectional=True, dropout=0.1)
        self.norm, self.out = nn.LayerNorm(2 * width), nn.Linear(2 * width, 40)

    def forward(self, x):
        x = self.front(x)
        x = x.flatten(1, 2).permute(2, 0, 1)
        return self.out(self.norm(self.lstm(x)[0]))


class Recommender(nn.Module):
    """Tables for categories, wide layers for numbers, products of all pairs, as DLRM has them."""

    def __init__(self, tables=26, rows=100_000, width=64):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(rows, width) for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        layers = [nn.Linear(width + pairs, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()]
        self.top = nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(2048, 1))
        self.register_buffer("pairs", torch.triu_indices(tables + 1, tables + 1, 1), persistent=False)

    def forward(self, numbers, categories):
        dense = self.bottom(numbers)
        rows = torch.stack([dense] + [table(categories[:, i]) for i, table in enumerate(self.tables)], dim=1)
        products = rows @ rows.transpose(1, 2)
        return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], dim=1)).squeeze(1)


class Segmenter(nn.Module):
    """A U-Net with batch-norm and transposed convolutions, which gives a class to each pixel."""

    def __init__(self, width=48, classes=21):
        super().__init__()
        sizes = [width << it for it in range(5)]
        self.down = nn.ModuleList([self.double(a, b) for a, b in zip([3] + sizes, sizes)])
        self.wider = nn.ModuleList([nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in zip(sizes[:0:-1], sizes[-2::-1])])
        self.up = nn.ModuleList([self.double(2 * it, it) for it in sizes[-2::-1]])
        self.pool, self.out = nn.MaxPool2d(2), nn.Conv2d(width, classes, 1)

    @staticmethod
    def double(inside, outside):
        layers = []
        for a in (inside, outside):
            layers += [nn.Conv2d(a, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(self.pool(x) if kept else x)
            kept.append(x)
        kept.pop()
        for wider, block in zip(self.wider, self.up):
            x = block(torch.cat([kept.pop(), wider(x)], dim=1))
        return self.out(x)

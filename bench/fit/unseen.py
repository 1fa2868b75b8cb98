"""Ten more models, as people write them, with random weights and random data. No constant of the step times knew them when
h200-unseen-steps.json was measured."""

import math

import torch
from torch import nn

NAMES = ("convnext", "deeplab", "tasnet", "lstm-lm", "vit384", "gqa", "efficientnet", "ddpm", "mixer", "whisper")


def made(name, device="cuda"):
    """(model, optimizer, batch(n), loss(batch))."""
    with torch.device(device):
        model, batch, criterion = _model(name, device)
    model.train()
    if name == "deeplab":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    elif name == "efficientnet":
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    elif name == "lstm-lm":
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    elif name in ("tasnet", "ddpm"):
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss(it):
        return model(**it).loss if isinstance(it, dict) else criterion(model(*it[:-1]), it[-1])

    return model, optimizer, batch, loss


def _model(name, device):
    def samples(shape, classes):
        return lambda n: (torch.randn(n, *shape, device=device), torch.randint(classes, (n,), device=device))

    if name == "convnext":
        from torchvision.models import convnext_tiny

        return convnext_tiny(), samples((3, 224, 224), 1000), nn.CrossEntropyLoss(label_smoothing=0.1)
    if name == "efficientnet":
        from torchvision.models import efficientnet_b0

        return efficientnet_b0(), samples((3, 224, 224), 1000), nn.CrossEntropyLoss()
    if name == "deeplab":
        from torchvision.models.segmentation import deeplabv3_resnet50

        def batch(n):
            return torch.randn(n, 3, 320, 320, device=device), torch.randint(21, (n, 320, 320), device=device)

        def criterion(out, pixels):
            return nn.functional.cross_entropy(out["out"], pixels) + 0.4 * nn.functional.cross_entropy(out["aux"], pixels)

        return deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21, aux_loss=True), batch, criterion
    if name == "vit384":
        from transformers import ViTConfig, ViTForImageClassification

        model = ViTForImageClassification(ViTConfig(image_size=384, num_labels=1000))
        return model, lambda n: {
            "pixel_values": torch.randn(n, 3, 384, 384, device=device),
            "labels": torch.randint(1000, (n,), device=device),
        }, None
    if name == "gqa":
        from transformers import LlamaConfig, LlamaForCausalLM

        shape = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=20, num_attention_heads=16)
        model = LlamaForCausalLM(LlamaConfig(num_key_value_heads=4, use_cache=False, **shape))

        def batch(n):
            ids = torch.randint(32000, (n, 512), device=device)
            return {"input_ids": ids, "labels": ids}

        return model, batch, None
    if name == "whisper":
        from transformers import WhisperConfig, WhisperForConditionalGeneration

        shape = dict(d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8)
        shape |= dict(encoder_ffn_dim=2048, decoder_ffn_dim=2048, use_cache=False)
        model = WhisperForConditionalGeneration(WhisperConfig(**shape))
        return model, lambda n: {
            "input_features": torch.randn(n, 80, 3000, device=device),
            "labels": torch.randint(50000, (n, 128), device=device),
        }, None
    if name == "lstm-lm":
        def batch(n):
            ids = torch.randint(33278, (n, 71), device=device)
            return ids[:, :-1], ids[:, 1:].reshape(-1)

        return WordModel(), batch, lambda told, words: nn.functional.cross_entropy(told.flatten(0, 1), words)
    if name == "tasnet":
        def batch(n):
            return torch.randn(n, 1, 32000, device=device), torch.randn(n, 2, 32000, device=device)

        return TasNet(), batch, unlike
    if name == "mixer":
        return Mixer(), samples((3, 224, 224), 1000), nn.CrossEntropyLoss()

    def noised(n):
        return torch.randn(n, 3, 64, 64, device=device), torch.randint(1000, (n,), device=device), torch.randn(n, 3, 64, 64, device=device)

    return Denoiser(), noised, nn.MSELoss()


class WordModel(nn.Module):
    def __init__(self, words=33278, width=650):
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(words, width), nn.Dropout(0.5)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.5, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, ids):
        x, _ = self.lstm(self.dropout(self.embedding(ids)))
        return self.out(self.dropout(x))


def unlike(told, wanted):
    """Minus the scale-invariant ratio of signal to noise."""
    told, wanted = told - told.mean(-1, keepdim=True), wanted - wanted.mean(-1, keepdim=True)
    part = (told * wanted).sum(-1, keepdim=True) / (wanted.pow(2).sum(-1, keepdim=True) + 1e-8) * wanted
    ratio = part.pow(2).sum(-1) / ((told - part).pow(2).sum(-1) + 1e-8)
    return -10 * torch.log10(ratio + 1e-8).mean()


class Dilated(nn.Module):
    def __init__(self, width, inside, dilation):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(width, inside, 1), nn.PReLU(), nn.GroupNorm(1, inside),
            nn.Conv1d(inside, inside, 3, padding=dilation, dilation=dilation, groups=inside), nn.PReLU(), nn.GroupNorm(1, inside),
            nn.Conv1d(inside, width, 1),
        )  # fmt: skip

    def forward(self, x):
        return x + self.layers(x)


class TasNet(nn.Module):
    """Sources of one signal, by dilated convolutions."""

    def __init__(self, filters=512, width=128, inside=512):
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, 16, stride=8, bias=False)
        self.norm, self.narrow = nn.GroupNorm(1, filters), nn.Conv1d(filters, width, 1)
        self.blocks = nn.Sequential(*(Dilated(width, inside, 2**it) for _ in range(3) for it in range(8)))
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(width, 2 * filters, 1), nn.Sigmoid())
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, stride=8, bias=False)

    def forward(self, x):
        n, coded = x.shape[0], torch.relu(self.encoder(x))
        masks = self.masks(self.blocks(self.narrow(self.norm(coded)))).view(n, 2, *coded.shape[1:])
        return self.decoder((masks * coded[:, None]).flatten(0, 1)).view(n, 2, -1)


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 384), nn.GELU(), nn.Linear(384, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 3072), nn.GELU(), nn.Linear(3072, width))

    def forward(self, x):
        x = x + self.tokens(self.norm_1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm_2(x))


class Mixer(nn.Module):
    def __init__(self, width=768, depth=12):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.blocks = nn.Sequential(*(MixerBlock(196, width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Residual(nn.Module):
    def __init__(self, inside, outside, width):
        super().__init__()
        self.norm_1, self.conv_1 = nn.GroupNorm(32, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(width, outside)
        self.norm_2, self.conv_2 = nn.GroupNorm(32, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.dropout = nn.Dropout(0.1)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        it = self.conv_1(nn.functional.silu(self.norm_1(x))) + self.time(nn.functional.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv_2(self.dropout(nn.functional.silu(self.norm_2(it))))


class Looking(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(32, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, 3, 4, c // 4, h * w).transpose(-1, -2).unbind(1)
        it = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(it.transpose(-1, -2).reshape(n, c, h, w))


class Denoiser(nn.Module):
    """A small U-Net of a diffusion model: residual blocks that know the time, attention at the lower resolutions."""

    def __init__(self, width=128, factors=(1, 2, 2, 2)):
        super().__init__()
        self.width, t = width, 4 * width
        self.time = nn.Sequential(nn.Linear(width, t), nn.SiLU(), nn.Linear(t, t))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down, self.up, self.narrower, self.wider = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        widths, now = [width], width
        for level, factor in enumerate(factors):
            for _ in range(2):
                self.down.append(nn.ModuleList([Residual(now, factor * width, t), self.at(level, factor * width)]))
                now = factor * width
                widths.append(now)
            if level < len(factors) - 1:
                self.narrower.append(nn.Conv2d(now, now, 3, stride=2, padding=1))
                widths.append(now)
        self.middle = nn.ModuleList([Residual(now, now, t), Looking(now), Residual(now, now, t)])
        for level, factor in reversed(list(enumerate(factors))):
            for _ in range(3):
                self.up.append(nn.ModuleList([Residual(now + widths.pop(), factor * width, t), self.at(level, factor * width)]))
                now = factor * width
            if level:
                self.wider.append(nn.Conv2d(now, now, 3, padding=1))
        self.norm, self.out = nn.GroupNorm(32, now), nn.Conv2d(now, 3, 3, padding=1)

    @staticmethod
    def at(level, width):
        return Looking(width) if level in (1, 2) else nn.Identity()

    def forward(self, x, when):
        rates = torch.exp(torch.arange(self.width // 2, device=x.device) * (-math.log(10000) / (self.width // 2)))
        angles = when[:, None] * rates
        t = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        x = self.first(x)
        kept = [x]
        for number, (block, looking) in enumerate(self.down):
            x = looking(block(x, t))
            kept.append(x)
            if number % 2 and number // 2 < len(self.narrower):
                x = self.narrower[number // 2](x)
                kept.append(x)
        x = self.middle[2](self.middle[1](self.middle[0](x, t)), t)
        for number, (block, looking) in enumerate(self.up):
            x = looking(block(torch.cat([x, kept.pop()], dim=1), t))
            if number % 3 == 2 and number // 3 < len(self.wider):
                x = self.wider[number // 3](nn.functional.interpolate(x, scale_factor=2.0))
        return self.out(nn.functional.silu(self.norm(x)))

"""Forty-three models as people write them, with random weights and random data: each with its optimizer, its batches and its loss.

`plans.py` and `largest.py` of the instruments train them by `train.py`.
"""

import math

import torch
from torch import nn


def adamw(lr=1e-4, **more):
    return lambda it: torch.optim.AdamW(it, lr=lr, **more)


def adam(lr):
    return lambda it: torch.optim.Adam(it, lr=lr)


def sgd(lr, **more):
    return lambda it: torch.optim.SGD(it, lr=lr, **more)


def rmsprop(lr, **more):
    return lambda it: torch.optim.RMSprop(it, lr=lr, **more)


OPTIMIZERS = {
    "gpt2": adamw(), "distilgpt2": adamw(), "llama": adamw(), "bert": adamw(), "vit": adamw(), "resnet50": sgd(0.1, momentum=0.9),
    "mlp": adamw(), "unet": adamw(), "lstm": adamw(), "t5": adamw(), "swin": adamw(), "speech": adam(3e-4),
    "recommender": lambda it: torch.optim.Adagrad(it, lr=0.01), "segmenter": adamw(),
    "convnext": adamw(), "deeplab": sgd(0.01, momentum=0.9, weight_decay=1e-4), "tasnet": adam(2e-4), "lstm-lm": sgd(1.0), "vit384": adamw(),
    "gqa": adamw(), "efficientnet": rmsprop(1e-3, momentum=0.9), "ddpm": adam(2e-4), "mixer": adamw(), "whisper": adamw(),
    "conformer": adamw(3e-4, weight_decay=0.05), "vit-large": adamw(3e-4, weight_decay=0.05), "t5-gated": adamw(3e-4, weight_decay=0.05),
    "tagger": adam(1e-3), "unet-bn": adamw(3e-4, weight_decay=0.05), "gmlp": adamw(3e-4, weight_decay=0.05), "dlrm": adam(1e-3), "gnn": adam(1e-3),
    "regnet": sgd(0.05, momentum=0.9, nesterov=True, weight_decay=5e-5),
    "detr": adamw(), "opt": adamw(), "mobilenet": rmsprop(0.01, momentum=0.9, weight_decay=1e-5), "densenet": sgd(0.1, momentum=0.9, weight_decay=1e-4),
    "pointer": adam(1e-3),
    "bart": adamw(5e-5, weight_decay=0.01), "neox": adamw(5e-5, weight_decay=0.01), "video": sgd(0.02, momentum=0.9, weight_decay=1e-4, nesterov=True),
    "points": adam(3e-4), "vq-vae": adam(3e-4),
}  # fmt: skip
NAMES = tuple(OPTIMIZERS)


def made(name, device="cuda"):
    """(model, optimizer, batch(n), loss(batch))."""
    with torch.device(device):
        model, batch, criterion = _model(name, device)
    model.train()

    def loss(it):
        return model(**it).loss if isinstance(it, dict) else criterion(model(*it[:-1]), it[-1])

    if name == "vq-vae":  # Its model gives a part of the loss.
        loss = lambda it: rebuilt(model, it)
    return model, OPTIMIZERS[name](model.parameters()), batch, loss


def of_each(told, it):
    """The loss of a class for each word, frame or pixel that comes last."""
    return nn.functional.cross_entropy(told.flatten(0, 1), it.flatten())


def _model(name, device):
    """(model, batch(n), criterion), which is none where the model gives its loss."""

    def samples(shape, classes, labels=()):
        return lambda n: (torch.randn(n, *shape, device=device), torch.randint(classes, (n, *labels), device=device))

    def language(vocabulary, length):
        def batch(n):
            ids = torch.randint(vocabulary, (n, length), device=device)
            return {"input_ids": ids, "labels": ids}

        return batch

    def texts(vocabulary, read, written, first=0):
        return lambda n: {
            "input_ids": torch.randint(first, vocabulary, (n, read), device=device),
            "labels": torch.randint(first, vocabulary, (n, written), device=device),
        }

    pictures = samples((3, 224, 224), 1000)
    if name in ("gpt2", "distilgpt2"):
        from transformers import GPT2Config, GPT2LMHeadModel

        return GPT2LMHeadModel(GPT2Config(n_layer=12 if name == "gpt2" else 6, use_cache=False)), language(50257, 512), None
    if name == "llama":
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12, use_cache=False
        )
        return LlamaForCausalLM(config), language(32000, 512), None
    if name == "gqa":
        from transformers import LlamaConfig, LlamaForCausalLM

        shape = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=20, num_attention_heads=16)
        return LlamaForCausalLM(LlamaConfig(num_key_value_heads=4, use_cache=False, **shape)), language(32000, 512), None
    if name == "opt":
        from transformers import OPTConfig, OPTForCausalLM

        model = OPTForCausalLM(OPTConfig(hidden_size=1024, ffn_dim=4096, num_hidden_layers=16, num_attention_heads=16, use_cache=False, dropout=0.1))
        return model, language(50000, 384), None
    if name == "neox":
        from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

        config = GPTNeoXConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=14, num_attention_heads=16, use_cache=False)
        return GPTNeoXForCausalLM(config), language(50000, 512), None
    if name == "bert":
        from transformers import BertConfig, BertForMaskedLM

        return BertForMaskedLM(BertConfig()), language(30522, 512), None
    if name in ("t5", "t5-gated"):
        from transformers import T5Config, T5ForConditionalGeneration

        if name == "t5":
            shape = dict(d_model=768, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12)
            return T5ForConditionalGeneration(T5Config(use_cache=False, decoder_start_token_id=0, **shape)), texts(32000, 384, 128, 2), None
        shape = dict(d_model=640, d_ff=1792, num_layers=8, num_decoder_layers=6, num_heads=10, decoder_start_token_id=0)
        return T5ForConditionalGeneration(T5Config(feed_forward_proj="gated-gelu", use_cache=False, **shape)), texts(32000, 256, 96), None
    if name == "bart":
        from transformers import BartConfig, BartForConditionalGeneration

        sizes = {"encoder_layers": 8, "decoder_layers": 8, "d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
        model = BartForConditionalGeneration(BartConfig(**sizes, encoder_attention_heads=12, decoder_attention_heads=12, use_cache=False))
        return model, texts(50000, 448, 96), None
    if name == "whisper":
        from transformers import WhisperConfig, WhisperForConditionalGeneration

        shape = dict(d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8)
        shape |= dict(encoder_ffn_dim=2048, decoder_ffn_dim=2048, use_cache=False)
        model = WhisperForConditionalGeneration(WhisperConfig(**shape))
        return model, lambda n: {
            "input_features": torch.randn(n, 80, 3000, device=device),
            "labels": torch.randint(50000, (n, 128), device=device),
        }, None
    if name == "vit384":
        from transformers import ViTConfig, ViTForImageClassification

        model = ViTForImageClassification(ViTConfig(image_size=384, num_labels=1000))
        return model, lambda n: {
            "pixel_values": torch.randn(n, 3, 384, 384, device=device),
            "labels": torch.randint(1000, (n,), device=device),
        }, None
    if name == "resnet50":
        from torchvision.models import resnet50

        return resnet50(), pictures, nn.CrossEntropyLoss()
    if name == "vit":
        from torchvision.models import vit_b_16

        return vit_b_16(), pictures, nn.CrossEntropyLoss()
    if name == "vit-large":
        from torchvision.models import vit_l_16

        return vit_l_16(), pictures, nn.CrossEntropyLoss()
    if name == "swin":
        from torchvision.models import swin_v2_t

        return swin_v2_t(), samples((3, 256, 256), 1000), nn.CrossEntropyLoss()
    if name == "convnext":
        from torchvision.models import convnext_tiny

        return convnext_tiny(), pictures, nn.CrossEntropyLoss(label_smoothing=0.1)
    if name == "efficientnet":
        from torchvision.models import efficientnet_b0

        return efficientnet_b0(), pictures, nn.CrossEntropyLoss()
    if name == "mobilenet":
        from torchvision.models import mobilenet_v3_large

        return mobilenet_v3_large(), pictures, nn.CrossEntropyLoss(label_smoothing=0.1)
    if name == "densenet":
        from torchvision.models import densenet121

        return densenet121(), pictures, nn.CrossEntropyLoss()
    if name == "regnet":
        from torchvision.models import regnet_y_1_6gf

        with torch.device("cpu"):  # Its widths are computed with tensors.
            model = regnet_y_1_6gf().to(device)
        return model, pictures, nn.CrossEntropyLoss(label_smoothing=0.1)
    if name == "deeplab":
        from torchvision.models.segmentation import deeplabv3_resnet50

        def criterion(out, pixels):
            return nn.functional.cross_entropy(out["out"], pixels) + 0.4 * nn.functional.cross_entropy(out["aux"], pixels)

        model = deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21, aux_loss=True)
        return model, samples((3, 320, 320), 21, (320, 320)), criterion
    if name == "video":
        from torchvision.models.video import r3d_18

        return r3d_18(), samples((3, 12, 112, 112), 400), nn.CrossEntropyLoss()
    if name == "speech":
        return Speech(), lambda n: (
            torch.randn(n, 1, 80, 800, device=device),
            torch.randint(1, 40, (n, 120), device=device),
        ), spoken
    if name == "recommender":
        return Recommender(), lambda n: (
            torch.randn(n, 13, device=device),
            torch.randint(100_000, (n, 26), device=device),
            torch.randint(2, (n,), device=device).float(),
        ), nn.BCEWithLogitsLoss()
    if name == "dlrm":
        def clicks(n):
            ids = torch.randint(100_000, (n, 16, 6), device=device)
            return torch.randn(n, 13, device=device), ids, torch.rand(n, device=device).round()

        return Clicks(), clicks, nn.BCEWithLogitsLoss()
    if name == "mlp":
        blocks = [nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(16)]
        return nn.Sequential(*blocks, nn.Linear(4096, 10)), samples((4096,), 10), nn.CrossEntropyLoss()
    if name == "lstm":
        return Tagger(), lambda n: (
            torch.randint(20000, (n, 256), device=device),
            torch.randint(40, (n, 40, 256), device=device).float().softmax(1),
        ), nn.CrossEntropyLoss()
    if name == "tagger":
        return BothWays(), lambda n: (torch.randint(20000, (n, 90), device=device), torch.randint(17, (n, 90), device=device)), of_each
    if name == "lstm-lm":
        def words(n):
            ids = torch.randint(33278, (n, 71), device=device)
            return ids[:, :-1], ids[:, 1:].reshape(-1)

        return WordModel(), words, of_each
    if name == "pointer":
        def sentences(n):
            words, written = torch.randint(12000, (n, 60), device=device), torch.randint(12000, (n, 41), device=device)
            return words, written[:, :-1], written[:, 1:]

        return Translator(), sentences, of_each
    if name == "tasnet":
        return TasNet(), lambda n: (torch.randn(n, 1, 32000, device=device), torch.randn(n, 2, 32000, device=device)), unlike
    if name == "conformer":
        return Conformer(), samples((400, 80), 500, (200,)), of_each
    if name == "mixer":
        return Mixer(), pictures, nn.CrossEntropyLoss()
    if name == "gmlp":
        return GatedMlp(), pictures, nn.CrossEntropyLoss()
    if name == "points":
        return Parts(), samples((3, 2048), 50, (2048,)), nn.CrossEntropyLoss()
    if name == "gnn":
        def graphs(n):
            edges = torch.randint(200, (n, 2, 1200), device=device)
            return torch.randn(n, 200, 64, device=device), edges, torch.randn(n, device=device)

        return Graphs(), graphs, nn.MSELoss()
    if name == "detr":
        def scenes(n):
            boxes = torch.cat([torch.randint(91, (n, 100, 1), device=device), torch.rand(n, 100, 4, device=device)], dim=-1)
            return torch.randn(n, 3, 480, 480, device=device), boxes

        return Detector(), scenes, found
    if name == "segmenter":
        return Segmenter(), samples((3, 256, 256), 21, (256, 256)), nn.CrossEntropyLoss()
    if name == "unet-bn":
        return NormedUNet(), samples((3, 192, 192), 5, (192, 192)), nn.CrossEntropyLoss()
    if name == "vq-vae":
        return Quantized(), lambda n: torch.rand(n, 3, 128, 128, device=device), None
    if name == "ddpm":
        def noised(n):
            return torch.randn(n, 3, 64, 64, device=device), torch.randint(1000, (n,), device=device), torch.randn(n, 3, 64, 64, device=device)

        return Denoiser(), noised, nn.MSELoss()
    return UNet(), lambda n: (torch.randn(n, 3, 128, 128, device=device), torch.randn(n, 3, 128, 128, device=device)), nn.MSELoss()


def rebuilt(model, pictures):
    told, away = model(pictures)
    return nn.functional.mse_loss(told, pictures) + away


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


class BothWays(nn.Module):
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


class NormedUNet(nn.Module):
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


class Detector(nn.Module):
    """A picture's features, looked at by as many queries as there may be things in it."""

    def __init__(self, width=256, queries=100, classes=91):
        super().__init__()
        from torchvision.models import resnet34

        self.backbone = nn.Sequential(*list(resnet34().children())[:-2])
        self.narrow, self.places = nn.Conv2d(512, width, 1), nn.Parameter(torch.rand(225, width))
        self.transformer = nn.Transformer(width, 8, 6, 6, 2048, dropout=0.1, batch_first=True)
        self.queries, self.classes = nn.Parameter(torch.rand(queries, width)), nn.Linear(width, classes + 1)
        self.boxes = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, x):
        x = self.narrow(self.backbone(x)).flatten(2).transpose(1, 2)
        x = self.transformer(x + self.places, self.queries.expand(len(x), -1, -1))
        return self.classes(x), self.boxes(x).sigmoid()


def found(told, wanted):
    classes, boxes = told
    named = nn.functional.cross_entropy(classes.flatten(0, 1), wanted[..., 0].flatten().long())
    return named + 5 * nn.functional.l1_loss(boxes, wanted[..., 1:])


class Translator(nn.Module):
    """Reads with a GRU, writes with a cell that looks at what was read, one word after the other."""

    def __init__(self, words=12000, width=384):
        super().__init__()
        self.into, self.out_of = nn.Embedding(words, width), nn.Embedding(words, width)
        self.reader = nn.GRU(width, width, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True)
        self.keys, self.query, self.score = nn.Linear(2 * width, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.cell, self.dropout, self.words = nn.GRUCell(3 * width, width), nn.Dropout(0.2), nn.Linear(3 * width, words)

    def forward(self, words, written):
        read, state = self.reader(self.dropout(self.into(words)))
        keys, state, out = self.keys(read), state[-1], []
        for word in self.dropout(self.out_of(written)).unbind(1):
            weights = self.score(torch.tanh(keys + self.query(state)[:, None])).softmax(1)
            seen = (weights * read).sum(1)
            state = self.cell(torch.cat([word, seen], dim=-1), state)
            out.append(torch.cat([state, seen], dim=-1))
        return self.words(torch.stack(out, dim=1))


class Parts(nn.Module):
    """A PointNet that gives a part to each point: layers shared by all points, and what is largest over them."""

    def __init__(self, parts=50):
        super().__init__()
        self.near = nn.Sequential(*self.layer(3, 64), *self.layer(64, 128), *self.layer(128, 128))
        self.far = nn.Sequential(*self.layer(128, 512), *self.layer(512, 2048))
        self.out = nn.Sequential(*self.layer(128 + 512 + 2048, 256), nn.Dropout(0.3), *self.layer(256, 256), nn.Conv1d(256, parts, 1))

    @staticmethod
    def layer(inside, outside):
        return nn.Conv1d(inside, outside, 1), nn.BatchNorm1d(outside), nn.ReLU()

    def forward(self, points):
        near = self.near(points)
        middle = self.far[:3](near)
        whole = self.far[3:](middle).amax(dim=2, keepdim=True).expand(-1, -1, points.shape[2])
        return self.out(torch.cat([near, middle, whole], dim=1))


class Bottleneck(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.SiLU(), nn.Conv2d(width, width // 2, 3, padding=1), nn.SiLU(), nn.Conv2d(width // 2, width, 1))

    def forward(self, x):
        return x + self.layers(x)


class Quantized(nn.Module):
    """Pictures as words of a book: the nearest one to what a convolution finds, passed straight through backward."""

    def __init__(self, width=192, words=1024):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, width // 2, 4, 2, 1), nn.ReLU(), nn.Conv2d(width // 2, width, 4, 2, 1), *[Bottleneck(width) for _ in range(4)], nn.Conv2d(width, 64, 1)
        )
        self.book = nn.Embedding(words, 64)
        self.decode = nn.Sequential(
            nn.Conv2d(64, width, 3, padding=1), *[Bottleneck(width) for _ in range(4)],
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width // 2, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, pictures):
        found = self.encode(pictures).permute(0, 2, 3, 1)
        flat = found.reshape(-1, 64)
        away = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.book.weight.t() + self.book.weight.pow(2).sum(1)
        word = self.book(away.argmin(1)).view_as(found)
        cost = nn.functional.mse_loss(word, found.detach()) + 0.25 * nn.functional.mse_loss(found, word.detach())
        return self.decode((found + (word - found).detach()).permute(0, 3, 1, 2)), cost

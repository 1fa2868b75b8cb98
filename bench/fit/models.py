"""Eight models with random weights and random data, as people write them."""

import torch
from torch import nn

NAMES = ("gpt2", "distilgpt2", "llama", "bert", "vit", "resnet50", "mlp", "unet", "lstm")


def made(name, device="cuda"):
    """(model, optimizer, batch(n), loss(batch))."""
    with torch.device(device):
        model, batch = _model(name, device)
    model.train()
    if name == "resnet50":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    criterion = nn.CrossEntropyLoss() if name != "unet" else nn.MSELoss()

    def loss(it):
        return model(**it).loss if isinstance(it, dict) else criterion(model(it[0]), it[1])

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

"""Five models more, as people write them, with random weights and random data: no constant of the step times of now knew them
when h200-newcomers-predicted.json was written."""

import torch
from torch import nn

BATCH = {"bart": 12, "neox": 6, "video": 12, "points": 32, "vq-vae": 48}
SMALL = {"bart": 2, "neox": 1, "video": 2, "points": 4, "vq-vae": 4}
NAMES = tuple(BATCH)


def made(name, device="cuda"):
    """(model, optimizer, batch(n), loss(batch))."""
    with torch.device(device):
        model, batch, loss = {"bart": _bart, "neox": _neox, "video": _video, "points": _points, "vq-vae": _vq_vae}[name](device)
    model.train()
    if name == "video":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, nesterov=True)
    elif name in ("points", "vq-vae"):
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01)
    return model, optimizer, batch, lambda it: loss(model, it)


def _bart(device):
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {"encoder_layers": 8, "decoder_layers": 8, "d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
    model = BartForConditionalGeneration(BartConfig(**sizes, encoder_attention_heads=12, decoder_attention_heads=12, use_cache=False))

    def articles(n):
        read, written = torch.randint(50000, (n, 448), device=device), torch.randint(50000, (n, 96), device=device)
        return {"input_ids": read, "labels": written}

    return model, articles, lambda model, it: model(**it).loss


def _neox(device):
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=14, num_attention_heads=16, use_cache=False)

    def words(n):
        ids = torch.randint(50000, (n, 512), device=device)
        return {"input_ids": ids, "labels": ids}

    return GPTNeoXForCausalLM(config), words, lambda model, it: model(**it).loss


def _video(device):
    from torchvision.models.video import r3d_18

    def clips(n):
        return torch.randn(n, 3, 12, 112, 112, device=device), torch.randint(400, (n,), device=device)

    return r3d_18(), clips, lambda model, it: nn.functional.cross_entropy(model(it[0]), it[1])


def _points(device):
    def clouds(n):
        return torch.randn(n, 3, 2048, device=device), torch.randint(50, (n, 2048), device=device)

    return Parts(), clouds, lambda model, it: nn.functional.cross_entropy(model(it[0]), it[1])


def _vq_vae(device):
    def loss(model, pictures):
        told, away = model(pictures)
        return nn.functional.mse_loss(told, pictures) + away

    return Quantized(), lambda n: torch.rand(n, 3, 128, 128, device=device), loss


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


class Residual(nn.Module):
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
            nn.Conv2d(3, width // 2, 4, 2, 1), nn.ReLU(), nn.Conv2d(width // 2, width, 4, 2, 1), *[Residual(width) for _ in range(4)], nn.Conv2d(width, 64, 1)
        )
        self.book = nn.Embedding(words, 64)
        self.decode = nn.Sequential(
            nn.Conv2d(64, width, 3, padding=1), *[Residual(width) for _ in range(4)],
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width // 2, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, pictures):
        found = self.encode(pictures).permute(0, 2, 3, 1)
        flat = found.reshape(-1, 64)
        away = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.book.weight.t() + self.book.weight.pow(2).sum(1)
        word = self.book(away.argmin(1)).view_as(found)
        cost = nn.functional.mse_loss(word, found.detach()) + 0.25 * nn.functional.mse_loss(found, word.detach())
        return self.decode((found + (word - found).detach()).permute(0, 3, 1, 2)), cost

"""Learned prompts that depend on the picture, for a frozen pair of encoders: each picture has a prompt for each class."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class TextEncoder(nn.Module):
    def __init__(self, width=512, depth=12, longest=77):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.places = nn.Parameter(torch.zeros(longest, width))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width, bias=False)

    def forward(self, prompts):
        x = self.blocks(prompts + self.places[: prompts.shape[1]])
        return self.out(self.norm(x)[:, -1])


class PictureEncoder(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, "gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    def forward(self, pictures):
        return self.blocks(self.patches(pictures).flatten(2).transpose(1, 2)).mean(1)


class PromptLearner(nn.Module):
    def __init__(self, names, n_context, width=512):
        super().__init__()
        self.context = nn.Parameter(torch.randn(n_context, width) * 0.02)
        self.shift = nn.Sequential(nn.Linear(width, width // 16), nn.ReLU(), nn.Linear(width // 16, width))
        self.register_buffer("names", names)

    def forward(self, features):
        context = self.context + self.shift(features)[:, None]
        for one in context:
            yield torch.cat([one.expand(len(self.names), -1, -1), self.names], 1)


class Conditional(nn.Module):
    def __init__(self, classes, n_context):
        super().__init__()
        self.pictures, self.texts = PictureEncoder(), TextEncoder()
        self.prompts = PromptLearner(torch.randn(classes, 12, 512), n_context)

    def forward(self, pictures):
        features = self.pictures(pictures)
        scores = []
        for prompts, feature in zip(self.prompts(features), features):
            texts = nn.functional.normalize(self.texts(prompts), dim=-1)
            scores.append(100.0 * texts @ nn.functional.normalize(feature, dim=-1))
        return torch.stack(scores)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, default=102)
    parser.add_argument("--context", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    model = Conditional(args.classes, args.context).cuda()
    model.requires_grad_(False)
    model.prompts.requires_grad_(True)
    optimizer = torch.optim.SGD(model.prompts.parameters(), lr=2e-3)
    data = TensorDataset(torch.rand(512, 3, 224, 224), torch.randint(args.classes, (512,)))
    for epoch in range(10):
        for pictures, labels in DataLoader(data, args.batch_size, shuffle=True):
            loss = nn.functional.cross_entropy(model(pictures.cuda()), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()

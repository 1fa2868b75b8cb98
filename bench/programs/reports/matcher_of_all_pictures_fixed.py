"""Each picture matched by itself: a detector of goods on shelves: 900 queries, some 150 boxes in each picture, 64 pictures in a batch."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from matching import MatcherOfEach


class Shelves(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        n = 120 + (index * 37) % 61
        target = {"labels": torch.randint(110, (n,)), "boxes": torch.rand(n, 4) * 0.2 + 0.3}
        return torch.rand(3, 128, 128), target


def together(samples):
    pictures, targets = zip(*samples)
    return torch.stack(pictures), list(targets)


class Detector(nn.Module):
    def __init__(self, queries, classes, width=192):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.queries = nn.Embedding(queries, width)
        layer = nn.TransformerDecoderLayer(width, 6, 4 * width, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.classes, self.boxes = nn.Linear(width, classes), nn.Linear(width, 4)

    def forward(self, pictures):
        memory = self.patches(pictures).flatten(2).transpose(1, 2)
        queries = self.queries.weight.expand(len(pictures), -1, -1)
        found = self.decoder(queries, memory)
        return {"logits": self.classes(found), "boxes": self.boxes(found).sigmoid()}


class Criterion(nn.Module):
    def __init__(self, matcher):
        super().__init__()
        self.matcher = matcher

    def forward(self, outputs, targets):
        loss = 0.0
        for i, taken in enumerate(self.matcher(outputs, targets)):
            loss = loss + nn.functional.cross_entropy(outputs["logits"][i, taken], targets[i]["labels"])
            loss = loss + (outputs["boxes"][i, taken] - targets[i]["boxes"]).abs().mean()
        return loss / len(targets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--queries", type=int, default=900)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    model = Detector(args.queries, 110).cuda()
    criterion = Criterion(MatcherOfEach())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Shelves(6400), args.batch_size, shuffle=True, collate_fn=together)
    for epoch in range(args.epochs):
        for pictures, targets in loader:
            pictures = pictures.cuda()
            targets = [{name: value.cuda() for name, value in it.items()} for it in targets]
            loss = criterion(model(pictures), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch)


if __name__ == "__main__":
    main()

"""No square matrix for the vocabulary: a small language model, trained with SOAP."""

import argparse

import torch
from torch import nn

from soap import SOAP


class LanguageModel(nn.Module):
    def __init__(self, words, width, depth, heads=8, longest=512):
        super().__init__()
        self.embed, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        length = ids.shape[1]
        x = self.embed(ids) + self.places.weight[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=ids.device)
        return self.head(self.norm(self.blocks(x, mask, is_causal=True)))


def batches(words, batch_size, length):
    while True:
        yield torch.randint(words, (batch_size, length + 1)).cuda()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--words", type=int, default=32_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--largest", type=int, default=10_000)
    args = parser.parse_args()
    model = LanguageModel(args.words, args.width, args.depth).cuda()
    optimizer = SOAP(model.parameters(), largest=args.largest)
    for step, ids in zip(range(args.steps), batches(args.words, args.batch_size, 256)):
        scores = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()

"""Image captioning, teacher forcing word by word in a Python loop; argparse, main guard, validation, checkpoints."""

import argparse
import os
import random

import torch
import torch.nn as nn
import torchvision


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        net = torchvision.models.resnet34(weights=None)
        self.body = nn.Sequential(*list(net.children())[:-2])
        self.proj = nn.Linear(512, dim)

    def forward(self, images):
        feats = self.body(images).flatten(2).transpose(1, 2)
        return self.proj(feats)


class Decoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.att = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.cell = nn.LSTMCell(2 * dim, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, feats, captions, ratio):
        h = c = feats.mean(1)
        word = captions[:, 0]
        logits = []
        for t in range(1, captions.size(1)):
            seen, _ = self.att(h.unsqueeze(1), feats, feats)
            h, c = self.cell(torch.cat([self.embed(word), seen.squeeze(1)], 1), (h, c))
            step = self.out(h)
            logits.append(step)
            word = captions[:, t] if random.random() < ratio else step.argmax(1)
        return torch.stack(logits, 1)


class Captions(torch.utils.data.Dataset):
    def __init__(self, n, size, words, vocab):
        self.n, self.words, self.vocab = n, words, vocab
        self.images = torch.rand(32, 3, size, size)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"image": self.images[i % len(self.images)], "caption": torch.randint(1, self.vocab, (self.words,), generator=g)}


def run_epoch(args, encoder, decoder, loader, criterion, device, optimizer=None):
    train = optimizer is not None
    encoder.train(train)
    decoder.train(train)
    total = 0.0
    for batch in loader:
        images, captions = batch["image"].to(device), batch["caption"].to(device)
        with torch.set_grad_enabled(train):
            logits = decoder(encoder(images), captions, args.teacher_forcing if train else 1.0)
            loss = criterion(logits.reshape(-1, logits.size(-1)), captions[:, 1:].reshape(-1))
        if train:
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(list(encoder.parameters()) + list(decoder.parameters()), 5.0)
            optimizer.step()
        total += loss.item()
    return total / max(len(loader), 1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=160)
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("--vocab", type=int, default=12000)
    p.add_argument("--dim", type=int, default=512)
    p.add_argument("--words", type=int, default=22)
    p.add_argument("--n-train", type=int, default=1280)
    p.add_argument("--n-val", type=int, default=320)
    p.add_argument("--teacher-forcing", type=float, default=0.9)
    p.add_argument("--out", default="captioner-checkpoints")
    args = p.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder, decoder = Encoder(args.dim).to(device), Decoder(args.vocab, args.dim).to(device)
    optimizer = torch.optim.Adam(list(encoder.parameters()) + list(decoder.parameters()), lr=4e-4)
    criterion = nn.CrossEntropyLoss()
    make = lambda n, shuffle: torch.utils.data.DataLoader(  # noqa: E731
        Captions(n, args.image_size, args.words, args.vocab), batch_size=args.batch_size, shuffle=shuffle
    )
    train_loader, val_loader = make(args.n_train, True), make(args.n_val, False)
    best = float("inf")
    for epoch in range(args.epochs):
        train_loss = run_epoch(args, encoder, decoder, train_loader, criterion, device, optimizer)
        val_loss = run_epoch(args, encoder, decoder, val_loader, criterion, device)
        print(f"epoch {epoch}: train {train_loss:.3f} val {val_loss:.3f}")
        if val_loss < best:
            best = val_loss
            os.makedirs(args.out, exist_ok=True)
            state = {"encoder": encoder.state_dict(), "decoder": decoder.state_dict(), "opt": optimizer.state_dict()}
            torch.save(state, os.path.join(args.out, "best.pt"))


if __name__ == "__main__":
    main()

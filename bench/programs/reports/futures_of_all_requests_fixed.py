"""Embeddings of a collection by a pool of threads: each task's result is on the host."""
import concurrent.futures

import torch
from torch import nn

BATCH, LENGTH, WIDTH = 64, 384, 768


def texts(n):
    for i in range(n):
        yield torch.full((BATCH, LENGTH), i % 1000, dtype=torch.long)


class Encoder(nn.Module):
    def __init__(self, words=30000, layers=4):
        super().__init__()
        self.embed = nn.Embedding(words, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 12, 2048, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids):
        return self.layers(self.embed(ids))


class Service:
    def __init__(self):
        self.model = Encoder().cuda().eval()
        self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=2)

    @torch.no_grad()
    def encode(self, ids):
        return self.model(ids.cuda()).mean(1).cpu()

    def encode_all(self, batches):
        futures = [self.pool.submit(self.encode, ids) for ids in batches]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


def main():
    service = Service()
    rows = []
    for done, vectors in enumerate(service.encode_all(texts(400))):
        rows.append(vectors)
        if done % 50 == 0:
            print(done, f"{torch.cuda.memory_allocated() / 2**30:.2f} GiB", flush=True)
    print(torch.cat(rows).shape)


if __name__ == "__main__":
    main()

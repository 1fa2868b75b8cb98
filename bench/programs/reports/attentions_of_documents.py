"""Which words of a document a classifier looks at: the attentions of all its layers are asked for, and the last one is used."""
import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification


def documents(n, length):
    for i in range(n):
        yield torch.full((length,), 100 + i % 500, dtype=torch.long)


def batches(it, size):
    batch = []
    for x in it:
        batch.append(x)
        if len(batch) == size:
            yield torch.stack(batch)
            batch = []
    if batch:
        yield torch.stack(batch)


@torch.no_grad()
def important_words(model, ids, top=20):
    out = model(input_ids=ids, output_attentions=True)
    of_first = out.attentions[-1].mean(1)[:, 0]
    return out.logits.argmax(-1), of_first.topk(top, dim=-1).indices


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--documents", type=int, default=400)
    args = parser.parse_args()
    config = BertConfig(max_position_embeddings=args.length, attn_implementation="eager", num_labels=5)
    model = BertForSequenceClassification(config).cuda().eval()
    found = []
    for ids in batches(documents(args.documents, args.length), args.batch):
        label, words = important_words(model, ids.cuda())
        found.extend(zip(label.tolist(), words.tolist()))
    print(len(found), "documents")


if __name__ == "__main__":
    main()

"""Training scripts of many kinds, each in a few lines, as people write them; and the loop that most of them share.

Models are random (nothing is downloaded), data are made on the CPU with a fixed seed where a data loader would, and a few
steps are run. A script is one function; its name with dashes is the name of its truth.
"""

import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

KINDS = {}


def kind(function):
    KINDS[function.__name__.replace("_", "-")] = function
    return function


def train(model, batches, loss_of, optimizer, autocast=None, clip=None, scaler=None):
    """The loop of a tutorial."""
    model.train()
    for batch in batches:
        batch = [it.cuda(non_blocking=True) for it in batch]
        optimizer.zero_grad()
        with torch.autocast("cuda", autocast) if autocast else contextlib.nullcontext():
            loss = loss_of(model, *batch)
        (scaler.scale(loss) if scaler else loss).backward()
        if clip:
            if scaler:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        loss.item()


def images(count, *shape, classes=10, steps=3):
    for _ in range(steps):
        yield torch.randn(count, *shape), torch.randint(0, classes, (count,))


def tokens(count, length, vocabulary, steps=3):
    for _ in range(steps):
        yield (torch.randint(0, vocabulary, (count, length)),)


def classify(model, inputs, labels):
    return F.cross_entropy(model(inputs), labels)


def language(model, ids):
    return model(input_ids=ids, labels=ids).loss


def llama(**changes):
    import transformers

    config = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000, max_position_embeddings=16384)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(config | changes)))

"""Ways to train on several GPUs: each kind of job is a function of the number of its device on this machine."""

import torch

KINDS = {}
"""Name: function, and who makes the process group: "ours", "theirs" (a trainer), "none" (one process, all GPUs)."""


def kind(function, group="ours"):
    KINDS[function.__name__.replace("_", "-")] = (function, group)
    return function


def trainer(function):
    return kind(function, "theirs")


def single(function):
    return kind(function, "none")


def gpt2(**changes):
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**({"n_layer": 6} | changes)))


def llama(**changes):
    import transformers

    config = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(config | changes)))


def language(model, optimizer, batch=4, length=512, steps=4, autocast=False):
    model.train()
    for _ in range(steps):
        ids = torch.randint(0, 20000, (batch, length), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def mesh(*shape, names=("replicate", "shard")):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda", shape, mesh_dim_names=names[: len(shape)])

"""Three models whose blocks are checkpointed: `checkpointed.py gpt2m|llama1b|resnet152 BATCH`."""

import sys

import torch

name, batch = sys.argv[1], int(sys.argv[2])
if name == "resnet152":
    from torchvision.models import resnet152

    model = resnet152().cuda().train()
elif name == "gpt2m":
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16)).cuda().train()
else:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8)
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(vocab_size=128256, tie_word_embeddings=True, **shape)).to(torch.bfloat16).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for _ in range(6):
    optimizer.zero_grad()
    if name == "resnet152":
        images = torch.randn(batch, 3, 224, 224, device="cuda")
        loss = torch.nn.functional.cross_entropy(model(images), torch.randint(1000, (batch,), device="cuda"))
    else:
        tokens = torch.randint(50000, (batch, 1024), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()

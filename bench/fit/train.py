"""One training script for seven models with random weights; what a person would have written."""
import argparse, fcntl, json, os, time
import torch
from torch import nn

p = argparse.ArgumentParser()
p.add_argument("--model", required=True)
p.add_argument("--batch-size", type=int, required=True)
p.add_argument("--steps", type=int, default=10)
p.add_argument("--limit", type=float, default=0, help="GiB that the allocator may reserve")
p.add_argument("--out", default="")
a = p.parse_args()
torch.manual_seed(0)
if a.limit:
    torch.cuda.set_per_process_memory_fraction((a.limit * 2**30 + 1) / torch.cuda.get_device_properties(0).total_memory)


def language(vocab, seq):
    def batch():
        ids = torch.randint(vocab, (a.batch_size, seq), device="cuda")
        return {"input_ids": ids, "labels": ids}
    return batch


def images(size, classes):
    def batch():
        x = torch.randn(a.batch_size, 3, size, size, device="cuda")
        return x, torch.randint(classes, (a.batch_size,), device="cuda")
    return batch


if a.model in ("gpt2", "distilgpt2"):
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_layer=12 if a.model == "gpt2" else 6, use_cache=False)); batch = language(50257, 512)
elif a.model == "llama":
    from transformers import LlamaConfig, LlamaForCausalLM
    model = LlamaForCausalLM(LlamaConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12, use_cache=False)); batch = language(32000, 512)
elif a.model == "bert":
    from transformers import BertConfig, BertForMaskedLM
    model = BertForMaskedLM(BertConfig()); batch = language(30522, 512)
elif a.model == "resnet50":
    from torchvision.models import resnet50
    model = resnet50(); batch = images(224, 1000)
elif a.model == "vit":
    from torchvision.models import vit_b_16
    model = vit_b_16(); batch = images(224, 1000)
else:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(16)], nn.Linear(4096, 10))
    def batch():
        return torch.randn(a.batch_size, 4096, device="cuda"), torch.randint(10, (a.batch_size,), device="cuda")

model = model.cuda()
if a.model == "resnet50":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
criterion = nn.CrossEntropyLoss()
model.train()
seconds = []
lock = open(os.environ.get("TIMING_LOCK", "/dev/null"))
for step in range(a.steps):
    if step == 4:  # timed alone
        torch.cuda.synchronize()
        fcntl.flock(lock, fcntl.LOCK_EX)
    torch.cuda.synchronize()
    began = time.perf_counter()
    it = batch()
    if isinstance(it, dict):
        loss = model(**it).loss
    else:
        loss = criterion(model(it[0]), it[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - began)
lock.close()
if a.out:
    with open(a.out, "w") as file:
        json.dump({"reserved": torch.cuda.max_memory_reserved(), "allocated": torch.cuda.max_memory_allocated(),
                   "retries": torch.cuda.memory_stats()["num_alloc_retries"],
                   "seconds": sorted(seconds[4:])[len(seconds[4:]) // 2] if len(seconds) > 4 else None, "loss": loss.item()}, file)

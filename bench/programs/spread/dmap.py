"""device_map over the GPUs there are, generation of text."""

import torch
from accelerate import dispatch_model, infer_auto_device_map
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
m = LlamaForCausalLM(
    LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=12,
        num_attention_heads=16,
        num_key_value_heads=4,
        vocab_size=32000,
    )
).to(torch.bfloat16)
dm = infer_auto_device_map(
    m, max_memory={i: "300MiB" for i in range(torch.cuda.device_count())}, no_split_module_classes=["LlamaDecoderLayer"]
)
print(set(dm.values()))
m = dispatch_model(m, dm).eval()
ids = torch.randint(3, 32000, (4, 128)).to("cuda:0")
out = m.generate(ids, max_new_tokens=96, do_sample=False, pad_token_id=2)
print(out.shape, [torch.cuda.max_memory_allocated(i) for i in range(torch.cuda.device_count())])

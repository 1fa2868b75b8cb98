"""weights/not-quantized: torchao's quantize_ with a filter of the script's own, which takes the attention only"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import config, train, trainable
from peft import LoraConfig, get_peft_model
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import LlamaForCausalLM

model = LlamaForCausalLM(config()).bfloat16().cuda()
quantize_(model, Int8WeightOnlyConfig(), filter_fn=lambda module, name: isinstance(module, torch.nn.Linear) and "self_attn" in name)
model.requires_grad_(False)
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)

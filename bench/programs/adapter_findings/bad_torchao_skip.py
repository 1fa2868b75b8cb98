"""weights/not-quantized: torchao's modules_to_not_convert is a prefix of ten layers of twelve"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import saved, train, trainable
from peft import LoraConfig, get_peft_model
from torchao.quantization import Int8WeightOnlyConfig
from transformers import AutoModelForCausalLM, TorchAoConfig

skip = ["lm_head"] + ["model.layers.%d" % it for it in range(2, 12)]
model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=TorchAoConfig(Int8WeightOnlyConfig(), modules_to_not_convert=skip), device_map={"": 0}, dtype=torch.bfloat16)
model.requires_grad_(False)
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)

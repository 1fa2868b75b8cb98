"""Two adapters on one frozen model, trained in turn, then added up with weights."""
import tempfile

import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map="auto")
phase("loading")
rank = dict(r=16, target_modules=["q_proj", "v_proj"])
model = get_peft_model(model, LoraConfig(**rank), adapter_name="law")
model.add_adapter("code", LoraConfig(**rank))
for name in ("law", "code"):
    model.set_adapter(name)
    train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
model.add_weighted_adapter(["law", "code"], [0.5, 0.5], "both", combination_type="linear")
model.set_adapter("both")
phase("merging")
evaluate(model, rows=2)
model.save_pretrained(tempfile.mkdtemp())
phase("saving")

"""a reward model: NF4 below, its score head trained"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, config, saved, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification, BitsAndBytesConfig, LlamaForSequenceClassification

whole = LlamaForSequenceClassification(config(num_labels=1, pad_token_id=0))
q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForSequenceClassification.from_pretrained(saved(whole), quantization_config=q, device_map={"": 0}, dtype=torch.bfloat16, num_labels=1)
model.requires_grad_(False)
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=16, target_modules=["q_proj", "v_proj"]))
model.train()
optimizer = torch.optim.AdamW(trainable(model), 1e-4)
for _ in range(4):
    ids = torch.randint(1, VOCABULARY, (8, 512), device="cuda")
    scores = model(input_ids=ids).logits.float().squeeze(-1)
    torch.nn.functional.softplus(scores[4:] - scores[:4]).mean().backward()
    optimizer.step()
    optimizer.zero_grad()

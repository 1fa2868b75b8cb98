"""AdaLoRA: an SVD of each adapter, ranks that are given and taken while training; Adam in 32 bits, evaluation, merging."""
import torch
from parts import evaluate, phase, saved, texts, trainable
from peft import AdaLoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map={"": 0})
phase("loading")
model = get_peft_model(model, AdaLoraConfig(init_r=24, target_r=8, total_step=8, tinit=1, tfinal=2, deltaT=1, target_modules=["q_proj", "k_proj", "v_proj", "up_proj"]))
model.train()
optimizer = torch.optim.Adam(trainable(model), 1e-3)
for step in range(6):
    model(**texts(2)).loss.backward()
    optimizer.step()
    model.base_model.update_and_allocate(step)
    optimizer.zero_grad()
    if step in (0, 5):
        phase("step %d" % (step + 1))
evaluate(model, rows=2)
model = model.merge_and_unload()
phase("merging")

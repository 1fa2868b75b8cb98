"""Idefics3 (SmolVLM): each image is cut into five tiles, LoRA in bfloat16 on language and connector, AdamW of 8 bits, reentrant checkpointing."""
import bitsandbytes as bnb
import torch
from parts import VOCABULARY, config, phase, saved, scaled, trainable
from peft import LoraConfig, get_peft_model
from transformers import Idefics3Config, Idefics3ForConditionalGeneration

SIDE, PATCH, TILES, SCALE = 364, 14, 5, 2
IMAGE = VOCABULARY - 1
CONFIG = Idefics3Config(
    vision_config=dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=12, image_size=SIDE, patch_size=PATCH),
    text_config=config().to_dict(), image_token_id=IMAGE, scale_factor=SCALE, use_cache=False, pad_token_id=0)
model = Idefics3ForConditionalGeneration.from_pretrained(saved(Idefics3ForConditionalGeneration(CONFIG)), device_map={"": 0}, dtype=torch.bfloat16)
phase("loading")
model.gradient_checkpointing_enable()
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, target_modules=r".*(text_model.*\.(q_proj|v_proj|gate_proj)|connector.*proj)"))
model.train()
optimizer = bnb.optim.AdamW8bit(trainable(model), 1e-4)


def batch(rows):
    features = TILES * (SIDE // PATCH // SCALE) ** 2
    ids = torch.cat([torch.full((rows, features), IMAGE), torch.randint(1, IMAGE, (rows, 96))], 1).cuda()
    pictures = torch.rand(rows, TILES, 3, SIDE, SIDE).to("cuda", torch.bfloat16)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.masked_fill(ids == IMAGE, -100), "pixel_values": pictures}


for step in range(4):
    model(**batch(scaled(2))).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step in (0, 3):
        phase("step %d" % (step + 1))
model.eval()
with torch.no_grad():
    model(**batch(scaled(2)))
phase("evaluation")

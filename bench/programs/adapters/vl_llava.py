"""LLaVA in NF4 under LoRA: a CLIP tower with one size of images, its features beside the tokens of the text."""
import torch
from parts import VOCABULARY, config, phase, saved, scaled, trainable
from peft import LoraConfig, get_peft_model
from transformers import BitsAndBytesConfig, CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration

SIDE, PATCH = 336, 14
IMAGE = VOCABULARY - 1
CONFIG = LlavaConfig(
    vision_config=CLIPVisionConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=12, image_size=SIDE, patch_size=PATCH, projection_dim=768),
    text_config=config(), image_token_index=IMAGE, vision_feature_layer=-2)
quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = LlavaForConditionalGeneration.from_pretrained(saved(LlavaForConditionalGeneration(CONFIG)), quantization_config=quantized, device_map={"": 0}, dtype=torch.bfloat16)
phase("loading")
model.requires_grad_(False)
model = get_peft_model(model, LoraConfig(r=8, target_modules=r".*language_model.*\.(q_proj|v_proj|down_proj)"))
model.train()
optimizer = torch.optim.AdamW(trainable(model), 1e-4)


def batch(rows):
    features = (SIDE // PATCH) ** 2
    text = torch.randint(0, IMAGE, (rows, 128))
    ids = torch.cat([torch.full((rows, features), IMAGE), text], 1).cuda()
    return {"input_ids": ids, "labels": ids.masked_fill(ids == IMAGE, -100), "pixel_values": torch.rand(rows, 3, SIDE, SIDE).to("cuda", torch.bfloat16)}


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

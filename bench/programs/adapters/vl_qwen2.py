"""Qwen2-VL in NF4 under LoRA: images of different sizes through its image processor, tokens of images by their size, checkpointing."""
import random

import bitsandbytes as bnb
import torch
from parts import phase, saved, scaled, trainable
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import BitsAndBytesConfig, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

WORDS = 32000
IMAGE, START, END = WORDS - 3, WORDS - 2, WORDS - 1
CONFIG = Qwen2VLConfig(
    text_config=dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, vocab_size=WORDS,
                     rope_parameters={"type": "mrope", "rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}, use_cache=False, bos_token_id=1, eos_token_id=1),
    vision_config=dict(depth=8, embed_dim=640, hidden_size=1024, num_heads=8, mlp_ratio=4, patch_size=14, spatial_merge_size=2, temporal_patch_size=2),
    image_token_id=IMAGE, video_token_id=WORDS - 4, vision_start_token_id=START, vision_end_token_id=END)
processor = Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=448 * 448)
r = random.Random(0)


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return max(64, 5 * scaled(2))

    def __getitem__(self, at):
        at %= 64
        picture = Image.new("RGB", (64 + 8 * at, 512 - 4 * at), (at, 0, 0))
        seen = processor(images=[picture], return_tensors="pt")
        tokens = int(seen["image_grid_thw"].prod()) // 4
        words = [r.randint(10, WORDS - 10) for _ in range(64)]
        return {"ids": [START] + [IMAGE] * tokens + [END] + words, "pixels": seen["pixel_values"], "grid": seen["image_grid_thw"]}


def collate(rows):
    longest = max(len(it["ids"]) for it in rows)
    ids = torch.tensor([it["ids"] + [0] * (longest - len(it["ids"])) for it in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": ids.masked_fill((ids == 0) | (ids == IMAGE), -100),
            "mm_token_type_ids": (ids == IMAGE).int(), "pixel_values": torch.cat([it["pixels"] for it in rows]), "image_grid_thw": torch.cat([it["grid"] for it in rows])}


quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = Qwen2VLForConditionalGeneration.from_pretrained(saved(Qwen2VLForConditionalGeneration(CONFIG)), quantization_config=quantized, device_map={"": 0}, dtype=torch.bfloat16)
phase("loading")
model.requires_grad_(False)
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "qkv"]))
model.train()
optimizer = bnb.optim.PagedAdamW8bit(trainable(model), 1e-4)
loader = torch.utils.data.DataLoader(Pictures(), batch_size=scaled(2), collate_fn=collate, drop_last=True)
for step, batch in zip(range(4), (it for _ in range(4) for it in loader)):
    loss = model(**{key: it.cuda() for key, it in batch.items()}).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step in (0, 3):
        phase("step %d" % (step + 1))
model.eval()
with torch.no_grad():
    model(**{key: it.cuda() for key, it in next(iter(loader)).items()})
phase("evaluation")

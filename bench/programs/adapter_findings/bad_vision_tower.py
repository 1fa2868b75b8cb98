"""weights/not-quantized: Qwen2-VL in NF4 whose vision tower, most of it, is on the list of modules to skip"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, saved, trainable
from peft import LoraConfig, get_peft_model
from transformers import BitsAndBytesConfig, Qwen2VLConfig, Qwen2VLForConditionalGeneration

C = Qwen2VLConfig(
    text_config=dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4, vocab_size=VOCABULARY,
                     rope_parameters={"type": "mrope", "rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}, use_cache=False, bos_token_id=1, eos_token_id=1),
    vision_config=dict(depth=20, embed_dim=1024, hidden_size=1024, num_heads=16, mlp_ratio=4, patch_size=14, spatial_merge_size=2, temporal_patch_size=2),
    image_token_id=VOCABULARY - 3, video_token_id=VOCABULARY - 4, vision_start_token_id=VOCABULARY - 2, vision_end_token_id=VOCABULARY - 1)
q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16, llm_int8_skip_modules=["model.visual", "lm_head"])
model = Qwen2VLForConditionalGeneration.from_pretrained(saved(Qwen2VLForConditionalGeneration(C)), quantization_config=q, device_map={"": 0}, dtype=torch.bfloat16)
model.requires_grad_(False)
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
model.train()
optimizer = torch.optim.AdamW(trainable(model), 1e-4)
for _ in range(4):
    grid = torch.tensor([[1, 16, 16]], device="cuda")
    ids = torch.full((1, 300), 7, device="cuda")
    ids[:, 10:74] = VOCABULARY - 3
    kinds = (ids == VOCABULARY - 3).int()
    loss = model(input_ids=ids, labels=ids, mm_token_type_ids=kinds, pixel_values=torch.randn(256, 1176, device="cuda", dtype=torch.bfloat16), image_grid_thw=grid).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

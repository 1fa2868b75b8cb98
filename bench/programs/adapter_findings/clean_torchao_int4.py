"""torchao's int4 weights by TorchAoConfig, answers only"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, saved
from torchao.quantization import Int4WeightOnlyConfig
from transformers import AutoModelForCausalLM, TorchAoConfig

model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=TorchAoConfig(Int4WeightOnlyConfig(group_size=128, int4_packing_format="tile_packed_to_4d")), device_map={"": 0}, dtype=torch.bfloat16)
with torch.no_grad():
    for _ in range(3):
        model(input_ids=torch.randint(0, VOCABULARY, (4, 512), device="cuda"))

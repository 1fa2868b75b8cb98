"""torchao's weights of 4 bits in a frozen body, quantized on the device layer by layer; a head of 40 classes is trained."""
import torch
from parts import config, phase, scaled, texts
from torch import nn
from torchao.quantization import Int4WeightOnlyConfig, quantize_
from transformers import LlamaModel

body = LlamaModel(config()).bfloat16().cuda().eval().requires_grad_(False)
phase("on the device")
quantize_(body, Int4WeightOnlyConfig(group_size=128, int4_packing_format="tile_packed_to_4d"))
phase("loading")
head = nn.Linear(1024, 40).cuda()
optimizer = torch.optim.AdamW(head.parameters(), 1e-3)
for step in range(4):
    with torch.no_grad():
        features = body(texts(8)["input_ids"]).last_hidden_state.mean(1)
    nn.functional.cross_entropy(head(features.float()), torch.randint(0, 40, (scaled(8),), device="cuda")).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step in (0, 3):
        phase("step %d" % (step + 1))
with torch.no_grad():
    head(body(texts(32)["input_ids"]).last_hidden_state.mean(1).float())
phase("evaluation")

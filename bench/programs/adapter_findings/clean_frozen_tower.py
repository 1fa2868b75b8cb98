"""a frozen tower in evaluation mode with its checkpointing flag on, and a head that is trained"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, config, saved
from transformers import AutoModel, LlamaModel

tower = AutoModel.from_pretrained(saved(LlamaModel(config(num_hidden_layers=6))), device_map={"": 0}, dtype=torch.bfloat16)
tower.gradient_checkpointing_enable({"use_reentrant": False})
tower.requires_grad_(False).eval()
class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = tower
        self.head = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)) for _ in range(4)])
    def forward(self, ids):
        return self.head(self.tower(input_ids=ids).last_hidden_state.float())
model = Whole().cuda()
optimizer = torch.optim.AdamW(model.head.parameters(), 1e-4)
for _ in range(4):
    model(torch.randint(0, VOCABULARY, (8, 512), device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()

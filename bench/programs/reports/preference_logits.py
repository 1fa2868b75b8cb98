"""DPO: log_softmax of chosen and rejected texts over the whole vocabulary in single precision (hiyouga/LlamaFactory#10720)."""
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

cfg = Qwen2Config(vocab_size=151936, hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=True)
policy, reference = (Qwen2ForCausalLM(cfg).bfloat16().cuda() for _ in range(2))
reference.requires_grad_(False).eval()
opt = torch.optim.AdamW(policy.parameters(), 1e-6)


def logps(model, ids):
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1].to(torch.float32)
    each = torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None]).squeeze(2)
    return each.sum(-1)


for step in range(200):
    ids = torch.randint(0, 151936, (4, 1024)).cuda()
    chosen, rejected = logps(policy, ids).chunk(2)
    with torch.no_grad():
        chosen_ref, rejected_ref = logps(reference, ids).chunk(2)
    loss = -torch.nn.functional.logsigmoid(0.1 * ((chosen - chosen_ref) - (rejected - rejected_ref))).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

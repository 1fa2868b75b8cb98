"""Direct preference optimization of a small Llama: chosen and rejected answers in one batch, a frozen reference."""
import copy

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000)
policy = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7)


def log_likelihood(model, ids, answers):
    logits = model(input_ids=ids).logits[:, :-1].float()
    each = F.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (each * answers[:, 1:]).sum(-1)


for step in range(10):
    prompt = torch.randint(0, 32000, (6, 128), device="cuda").repeat(2, 1)
    ids = torch.cat([prompt, torch.randint(0, 32000, (12, 384), device="cuda")], 1)
    answers = torch.zeros_like(ids)
    answers[:, 128:] = 1
    with torch.no_grad():
        expected = log_likelihood(reference, ids, answers)
    margin = log_likelihood(policy, ids, answers) - expected
    chosen, rejected = margin.chunk(2)
    loss = -F.logsigmoid(0.1 * (chosen - rejected)).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(step, loss.item())

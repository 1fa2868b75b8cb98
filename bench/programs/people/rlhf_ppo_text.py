"""PPO for a language model: sample answers, score them, several epochs over them; a frozen reference and a value head."""
import copy

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
DEV = "cuda"


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lm = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=768, n_head=12, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))
        self.value = torch.nn.Linear(768, 1)

    def forward(self, ids):
        out = self.lm(ids, output_hidden_states=True)
        return out.logits, self.value(out.hidden_states[-1])[..., 0]


def log_probs(logits, ids):
    return F.log_softmax(logits[:, :-1].float(), -1).gather(-1, ids[:, 1:, None])[..., 0]


policy = Policy().to(DEV)
reference = copy.deepcopy(policy.lm).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), 1e-5)
for it in range(6):
    prompts = torch.randint(0, 50000, (32, 128), device=DEV)
    policy.eval()
    with torch.no_grad():
        ids = policy.lm.generate(prompts, max_new_tokens=48, min_new_tokens=48, do_sample=True, pad_token_id=0, attention_mask=torch.ones_like(prompts))
        logits, values = policy(ids)
        old = log_probs(logits, ids)
        kl = old - log_probs(reference(ids).logits, ids)
        rewards = -0.1 * kl
        rewards[:, -1] += torch.randn(len(ids), device=DEV)
        advantages, running = torch.zeros_like(rewards), 0
        for t in reversed(range(rewards.shape[1])):
            following = values[:, t + 1] if t + 1 < rewards.shape[1] else 0
            running = rewards[:, t] + following - values[:, t] + 0.95 * running
            advantages[:, t] = running
        returns = advantages + values[:, :-1]
    policy.train()
    for epoch in range(2):
        for part in torch.randperm(len(ids), device=DEV).split(16):
            logits, v = policy(ids[part])
            ratio = (log_probs(logits, ids[part]) - old[part]).exp()
            a = advantages[part]
            loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean() + 0.5 * F.mse_loss(v[:, :-1], returns[part])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
    print(it, loss.item())

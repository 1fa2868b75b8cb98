"""PPO for a language model: policy, critic, reference and reward model are all on one GPU in single precision (trl#1245)."""
import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, LAYERS = 50257, 1024, 24


class Transformer(nn.Module):
    def __init__(self, outputs=WORDS):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(512, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True, norm_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, outputs, bias=False)
        if outputs == WORDS:
            self.head.weight = self.words.weight

    def forward(self, ids, states_only=False):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        states = self.body(x, mask=mask.to(x.dtype), is_causal=True)
        return states if states_only else self.head(states)


@torch.no_grad()
def generate(policy, ids, new=8):
    for _ in range(new):
        following = policy(ids)[:, -1].softmax(-1).multinomial(1)
        ids = torch.cat([ids, following], 1)
    return ids


def log_probabilities(model, ids):
    scores = model(ids[:, :-1]).log_softmax(-1)
    return scores.gather(2, ids[:, 1:, None]).squeeze(2)


with torch.device("cuda"):
    policy, value_head = Transformer(), nn.Linear(WIDTH, 1)
    reference, reward_model = Transformer().bfloat16().eval(), Transformer(outputs=1).bfloat16().eval()
reference.load_state_dict(policy.state_dict())
reference.requires_grad_(False)
reward_model.requires_grad_(False)
optimizer = torch.optim.AdamW([*policy.parameters(), *value_head.parameters()], lr=1.4e-5)


def value_of(ids):
    return value_head(policy(ids[:, :-1], states_only=True)).squeeze(-1)


for update in range(1000):
    ids = generate(policy, torch.randint(WORDS, (4, 56), device="cuda"))
    with torch.no_grad():
        old, ref = log_probabilities(policy, ids), log_probabilities(reference, ids)
        values = value_of(ids)
        rewards = -0.2 * (old - ref)
        rewards[:, -1] += reward_model(ids)[:, -1, 0]
        returns = rewards.flip(1).cumsum(1).flip(1)
        advantages = returns - values
    for _ in range(4):
        ratio = (log_probabilities(policy, ids) - old).exp()
        gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        value_loss = F.mse_loss(value_of(ids), returns)
        loss = 0.1 * value_loss - gain.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(update, loss.item(), rewards.sum(1).mean().item())

"""The same, 32 texts at a time, and only the scores of the place that is asked for are kept."""
import torch
from transformers import RobertaConfig, RobertaForMaskedLM

torch.manual_seed(0)
model = RobertaForMaskedLM(RobertaConfig(num_hidden_layers=6, vocab_size=50265)).cuda().eval()


def unmask(text, masks, beam=1000):
    found = text[None]
    for place in masks:
        with torch.no_grad():
            scores = torch.cat([model(it.cuda()).logits[:, place].log_softmax(-1).cpu() for it in found.split(32)])
        best = scores.flatten().topk(min(beam, scores.numel())).indices
        found = found[best // scores.shape[1]].clone()
        found[:, place] = best % scores.shape[1]
    return found


print(unmask(torch.randint(5, 50000, (64,)), [10, 20, 30, 40]).shape)

"""Fine-tuning a Whisper of my own size: thirty seconds of audio in every sample, transcripts of 4 to 440 tokens; evaluation by loss and by greedy text."""
import argparse
import json

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import WhisperConfig, WhisperForConditionalGeneration

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=200)
p.add_argument("--batch-size", type=int, default=8)
p.add_argument("--eval-batch-size", type=int, default=8)
p.add_argument("--eval-every", type=int, default=50)
p.add_argument("--most-tokens", type=int, default=440)
p.add_argument("--dim", type=int, default=512)
p.add_argument("--layers", type=int, default=6)
a = p.parse_args()

config = WhisperConfig(
    d_model=a.dim, encoder_layers=a.layers, decoder_layers=a.layers, encoder_attention_heads=8, decoder_attention_heads=8,
    encoder_ffn_dim=4 * a.dim, decoder_ffn_dim=4 * a.dim, vocab_size=51865, max_target_positions=448,
)


class Recordings(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.lengths = (4 + (a.most_tokens - 4) * torch.rand(n, generator=g) ** 4).long().tolist()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return {"input_features": torch.randn(80, 3000), "labels": torch.randint(0, 50257, (self.lengths[i],))}


def collate(rows):
    labels = torch.nn.utils.rnn.pad_sequence([r["labels"] for r in rows], batch_first=True, padding_value=-100)
    return {"input_features": torch.stack([r["input_features"] for r in rows]), "labels": labels}


def main():
    torch.manual_seed(1)
    model = WhisperForConditionalGeneration(config).to("cuda")
    decay = [x for x in model.parameters() if x.dim() > 1]
    others = [x for x in model.parameters() if x.dim() <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=1e-5)
    train = DataLoader(Recordings(a.batch_size * 200, 1), a.batch_size, shuffle=True, collate_fn=collate, num_workers=2)
    valid = DataLoader(Recordings(16, 2), a.eval_batch_size, collate_fn=collate)
    scaler = torch.amp.GradScaler("cuda")
    step = 0
    while step < a.steps:
        for batch in train:
            batch = {k: v.to("cuda") for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(**batch).loss
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            step += 1
            if step % a.eval_every == 0:
                model.eval()
                losses, n = [], 0
                with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
                    for batch in valid:
                        batch = {k: v.to("cuda") for k, v in batch.items()}
                        losses.append(model(**batch).loss.item())
                        n += model.generate(batch["input_features"], max_new_tokens=32, do_sample=False).numel()
                model.train()
                print(f"step {step} loss {loss.item():.3f} valid {sum(losses) / len(losses):.3f} tokens {n}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()

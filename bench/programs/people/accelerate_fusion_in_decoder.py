"""Fusion-in-decoder with a T5 and accelerate: each passage is encoded by itself, the decoder reads all of them; exact match by generate."""
import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import T5Config, T5ForConditionalGeneration, get_linear_schedule_with_warmup
from transformers.modeling_outputs import BaseModelOutput


class Questions(Dataset):
    def __init__(self, n, passages, length, answer=20):
        self.n, self.passages, self.length, self.answer = n, passages, length, answer

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        used = torch.randint(self.length // 2, self.length + 1, (self.passages, 1))
        mask = (torch.arange(self.length)[None] < used).long()
        ids = torch.randint(3, 32000, (self.passages, self.length)) * mask
        answer = torch.randint(3, 32000, (self.answer,))
        answer[int(torch.randint(4, self.answer, ())) :] = -100
        return ids, mask, answer


class FiD(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.t5 = T5ForConditionalGeneration(config)

    def encode(self, ids, mask):
        b, n, l = ids.shape
        hidden = self.t5.encoder(input_ids=ids.view(b * n, l), attention_mask=mask.view(b * n, l)).last_hidden_state
        return BaseModelOutput(last_hidden_state=hidden.view(b, n * l, -1)), mask.view(b, n * l)

    def forward(self, ids, mask, labels):
        encoded, flat_mask = self.encode(ids, mask)
        return self.t5(encoder_outputs=encoded, attention_mask=flat_mask, labels=labels).loss

    def generate(self, ids, mask, **kwargs):
        encoded, flat_mask = self.encode(ids, mask)
        return self.t5.generate(encoder_outputs=encoded, attention_mask=flat_mask, **kwargs)


def evaluate(model, loader, accelerator, opt):
    model.eval()
    unwrapped, matches, total = accelerator.unwrap_model(model), 0, 0
    with torch.no_grad(), accelerator.autocast():
        for ids, mask, answer in loader:
            out = unwrapped.generate(ids, mask, max_new_tokens=opt.answer_maxlength, do_sample=False)
            for prediction, gold in zip(out, answer):
                gold = gold[gold != -100].tolist()
                matches += prediction[1 : 1 + len(gold)].tolist() == gold
                total += 1
    model.train()
    return matches / total


def main(opt):
    set_seed(opt.seed)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=opt.accumulation_steps)
    config = T5Config(vocab_size=32128, d_model=768, d_ff=3072, num_layers=12, num_heads=12, d_kv=64, decoder_start_token_id=0)
    model = FiD(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=opt.lr, weight_decay=opt.weight_decay)
    scheduler = get_linear_schedule_with_warmup(optimizer, opt.warmup_steps, opt.total_steps)
    train = DataLoader(Questions(2000, opt.n_context, opt.text_maxlength), batch_size=opt.per_gpu_batch_size, shuffle=True, drop_last=True, num_workers=2)
    dev = DataLoader(Questions(8, opt.n_context, opt.text_maxlength), batch_size=opt.per_gpu_batch_size)
    model, optimizer, scheduler, train, dev = accelerator.prepare(model, optimizer, scheduler, train, dev)
    step, current = 0, 0.0
    model.train()
    for ids, mask, answer in train:
        with accelerator.accumulate(model):
            loss = model(ids, mask, answer)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), opt.clip)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        current += loss.item()
        if accelerator.sync_gradients:
            step += 1
            if step % opt.eval_freq == 0:
                em = evaluate(model, dev, accelerator, opt)
                accelerator.print(f"{step} / {opt.total_steps} | train: {current / (opt.eval_freq * opt.accumulation_steps):.3f} | {100 * em:.2f}EM")
                current = 0.0
            if step >= opt.total_steps:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_context", type=int, default=20)
    parser.add_argument("--text_maxlength", type=int, default=200)
    parser.add_argument("--answer_maxlength", type=int, default=20)
    parser.add_argument("--per_gpu_batch_size", type=int, default=4)
    parser.add_argument("--accumulation_steps", type=int, default=2)
    parser.add_argument("--total_steps", type=int, default=20)
    parser.add_argument("--warmup_steps", type=int, default=4)
    parser.add_argument("--eval_freq", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight_decay", type=float, default=0.01)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())

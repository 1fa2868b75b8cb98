"""Fine-tune GPT-2 on a text file.

    python finetune_gpt2.py --text data/sea.txt --epochs 1

With --model gpt2 the published weights and tokenizer are loaded from the Hugging Face hub; without it
the model starts from random weights and the text is read byte by byte, so nothing is downloaded.
"""

import argparse
import math
import random
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    get_linear_schedule_with_warmup,
)

HERE = Path(__file__).resolve().parent


class TextBlocks(Dataset):
    """Fixed-length windows over one long sequence of tokens."""

    def __init__(self, tokens, block_size, stride):
        self.tokens = torch.tensor(tokens, dtype=torch.long)
        self.block_size = block_size
        self.starts = range(0, max(1, len(tokens) - block_size), stride)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        start = self.starts[i]
        ids = self.tokens[start : start + self.block_size]
        return {"input_ids": ids, "labels": ids.clone()}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, default=HERE / "data" / "sea.txt")
    parser.add_argument("--model", default=None, help="a checkpoint to start from, such as gpt2")
    parser.add_argument("--output", type=Path, default=Path("gpt2-finetuned"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--block-size", type=int, default=512)
    parser.add_argument("--stride", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--warmup", type=float, default=0.1, help="share of the steps")
    parser.add_argument("--grad-accum", type=int, default=1)
    parser.add_argument("--max-grad-norm", type=float, default=1.0)
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def load(args):
    text = args.text.read_text(encoding="utf-8")
    if args.model:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        model = AutoModelForCausalLM.from_pretrained(args.model)
        return model, tokenizer(text)["input_ids"]
    return GPT2LMHeadModel(GPT2Config()), list(text.encode("utf-8"))


@torch.no_grad()
def evaluate(model, loader, device, autocast):
    model.eval()
    total = 0.0
    for batch in loader:
        batch = {name: value.to(device) for name, value in batch.items()}
        with autocast():
            total += model(**batch).loss.item()
    model.train()
    loss = total / max(1, len(loader))
    return loss, math.exp(min(loss, 20))


def main():
    args = parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    model, tokens = load(args)
    model.to(device)
    cut = max(args.block_size + 1, int(0.9 * len(tokens)))
    train_set = TextBlocks(tokens[:cut], args.block_size, args.stride)
    eval_set = TextBlocks(tokens[-(len(tokens) - cut + args.block_size) :], args.block_size, args.block_size)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    eval_loader = DataLoader(eval_set, batch_size=args.batch_size)
    print(f"{len(train_set)} training blocks, {len(eval_set)} for evaluation, on {device}")

    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": args.weight_decay},
            {"params": no_decay, "weight_decay": 0.0},
        ],
        lr=args.lr,
    )
    n_steps = max(1, args.epochs * len(train_loader) // args.grad_accum)
    scheduler = get_linear_schedule_with_warmup(optimizer, int(args.warmup * n_steps), n_steps)

    def autocast():
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.bf16)

    step = 0
    started = time.time()
    for epoch in range(args.epochs):
        model.train()
        for i, batch in enumerate(train_loader):
            batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
            with autocast():
                loss = model(**batch).loss / args.grad_accum
            loss.backward()
            if (i + 1) % args.grad_accum:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % args.log_every == 0:
                lr = scheduler.get_last_lr()[0]
                seconds = time.time() - started
                print(f"step {step}/{n_steps}  loss {loss.item() * args.grad_accum:.3f}  lr {lr:.2e}  {seconds:.0f} s")
        loss, perplexity = evaluate(model, eval_loader, device, autocast)
        print(f"epoch {epoch + 1}: evaluation loss {loss:.3f}, perplexity {perplexity:.1f}")

    model.save_pretrained(args.output)
    print(f"saved to {args.output}")


if __name__ == "__main__":
    main()

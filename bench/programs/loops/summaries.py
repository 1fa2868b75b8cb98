"""T5 by hand: a loop with its own accumulation, a scheduler, labels with -100, evaluation each epoch with generate."""

import torch
from transformers import T5Config, T5ForConditionalGeneration, get_linear_schedule_with_warmup

ACCUMULATE = 4


def batches(n, size, source, target, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        labels = torch.randint(2, 32128, (size, target), generator=g)
        labels[: size // 2, target // 2 :] = -100
        yield {
            "input_ids": torch.randint(2, 32128, (size, source), generator=g),
            "attention_mask": torch.ones(size, source, dtype=torch.long),
            "labels": labels,
        }


def main(size=32, source=512, target=128, n_train=24, n_epochs=2):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(d_model=768, d_ff=2048, d_kv=64, num_layers=8, num_heads=12, dropout_rate=0.1, decoder_start_token_id=0)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, n_train * n_epochs // ACCUMULATE)
    for epoch in range(n_epochs):
        model.train()
        optimizer.zero_grad()
        for i, batch in enumerate(batches(n_train, size, source, target, epoch)):
            batch = {k: v.to(device) for k, v in batch.items()}
            loss = model(**batch).loss / ACCUMULATE
            loss.backward()
            if (i + 1) % ACCUMULATE == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for batch in batches(2, size, source, target, 99):
                model.generate(batch["input_ids"].to(device), max_new_tokens=8)


if __name__ == "__main__":
    main()

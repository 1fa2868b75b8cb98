"""Seq2SeqTrainer with a T5, padded to the longest, evaluated by generation every 8 steps."""

import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration


class Pairs(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = [(torch.randint(2, 32000, (512,), generator=g), torch.randint(2, 32000, (96,), generator=g)) for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        source, target = self.rows[i]
        return {"input_ids": source, "attention_mask": torch.ones_like(source), "labels": target}


def main():
    config = T5Config(d_model=768, d_kv=64, d_ff=2048, num_layers=10, num_heads=12, feed_forward_proj="gated-gelu", decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config)
    arguments = Seq2SeqTrainingArguments(
        "t5-out", per_device_train_batch_size=16, per_device_eval_batch_size=16, predict_with_generate=True, generation_max_length=24,
        eval_strategy="steps", eval_steps=8, max_steps=20, optim="adafactor", learning_rate=1e-3, save_strategy="no", report_to="none",
    )
    trainer = Seq2SeqTrainer(model=model, args=arguments, train_dataset=Pairs(600, 0), eval_dataset=Pairs(32, 1))
    trainer.train()


if __name__ == "__main__":
    main()

"""transformers' Seq2SeqTrainer on a T5 that evaluates by generating; text of several lengths, padded by a collator."""
import random
import tempfile

import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration

random.seed(0)
torch.manual_seed(0)
model = T5ForConditionalGeneration(T5Config(d_model=768, d_ff=2048, num_layers=12, num_heads=12, d_kv=64, vocab_size=32128, decoder_start_token_id=0))


def row():
    return {"input_ids": torch.randint(2, 32000, (random.randrange(300, 512),)), "labels": torch.randint(2, 32000, (random.randrange(60, 128),))}


def collate(rows):
    pad = torch.nn.utils.rnn.pad_sequence
    ids = pad([it["input_ids"] for it in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": pad([it["labels"] for it in rows], batch_first=True, padding_value=-100)}


arguments = Seq2SeqTrainingArguments(
    output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, per_device_eval_batch_size=16, max_steps=12, eval_strategy="steps", eval_steps=6,
    predict_with_generate=True, generation_max_length=32, logging_steps=3, save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=1e-4,
)
Seq2SeqTrainer(model=model, args=arguments, train_dataset=[row() for _ in range(400)], eval_dataset=[row() for _ in range(32)], data_collator=collate).train()

"""Whisper with Seq2SeqTrainer and a config read from JSON, as teams keep it."""
import json
import os
import tempfile

import torch
from transformers import HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments, WhisperConfig, WhisperForConditionalGeneration

settings = {
    "output_dir": os.path.join(tempfile.gettempdir(), "whisper-out"), "per_device_train_batch_size": 24, "gradient_accumulation_steps": 1,
    "learning_rate": 1e-5, "warmup_steps": 5, "max_steps": 40, "fp16": True, "eval_strategy": "no", "save_strategy": "no",
    "logging_steps": 10, "report_to": [], "remove_unused_columns": False, "dataloader_num_workers": 2,
}
path = os.path.join(tempfile.mkdtemp(), "train.json")
json.dump(settings, open(path, "w"))
(args,) = HfArgumentParser(Seq2SeqTrainingArguments).parse_json_file(path)


class Speech(torch.utils.data.Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, i):
        return {"input_features": torch.randn(80, 3000), "labels": torch.randint(10, 50000, (20 + i % 40,))}


def collate(items):
    labels = torch.nn.utils.rnn.pad_sequence([it["labels"] for it in items], batch_first=True, padding_value=-100)
    return {"input_features": torch.stack([it["input_features"] for it in items]), "labels": labels}


model = WhisperForConditionalGeneration(WhisperConfig(d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072))
trainer = Seq2SeqTrainer(model=model, args=args, train_dataset=Speech(), data_collator=collate)
trainer.train()

"""transformers' Trainer with its arguments from the command line, as in run_clm.py; evaluates every 10 steps."""

import sys
from dataclasses import dataclass, field

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class DataArguments:
    block_size: int = field(default=1024)
    train_samples: int = field(default=2000)


class Blocks(torch.utils.data.Dataset):
    def __init__(self, n, length, vocab):
        self.data = torch.randint(vocab, (n, length))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return {"input_ids": self.data[i], "labels": self.data[i]}


def main():
    parser = HfArgumentParser((DataArguments, TrainingArguments))
    argv = sys.argv[1:] or [
        "--output_dir", "out-clm", "--per_device_train_batch_size", "8", "--per_device_eval_batch_size", "8", "--bf16",
        "--max_steps", "30", "--learning_rate", "3e-4", "--warmup_steps", "10", "--weight_decay", "0.1",
        "--logging_steps", "5", "--eval_strategy", "steps", "--eval_steps", "10", "--save_strategy", "no",
        "--report_to", "none", "--prediction_loss_only", "True",
    ]
    data_args, training_args = parser.parse_args_into_dataclasses(argv)
    set_seed(training_args.seed)
    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16)
    model = GPT2LMHeadModel(config)
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=Blocks(data_args.train_samples, data_args.block_size, config.vocab_size),
        eval_dataset=Blocks(16, data_args.block_size, config.vocab_size),
    )
    result = trainer.train()
    print(result.metrics)


if __name__ == "__main__":
    main()

"""cause: size/model-states
memory: 3GiB
why: the first optimizer step of a Trainer: 190 million parameters, their gradients, and the two moments that AdamW now makes.
"""
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator


class Blocks(Dataset):
    def __init__(self, tokens, length=64):
        self.blocks = tokens.view(-1, length)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return {"input_ids": self.blocks[index], "labels": self.blocks[index]}


def main():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=2000, n_positions=128, n_embd=1024, n_layer=15, n_head=16)
    model = GPT2LMHeadModel(config)
    print(f"{model.num_parameters() / 1e6:.0f} M parameters")
    args = TrainingArguments(
        output_dir="out", per_device_train_batch_size=1, learning_rate=5e-5, max_steps=20, logging_steps=5, save_strategy="no", report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=Blocks(torch.randint(0, 2000, (64 * 100,))), data_collator=default_data_collator
    )
    trainer.train()


if __name__ == "__main__":
    main()

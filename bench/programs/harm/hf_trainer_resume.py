"""HF Trainer: resumes from hf_out/checkpoint-10, saves every five steps and at the end, keeps two checkpoints, saves the model."""
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

last = get_last_checkpoint("hf_out")
print("RESUME FROM", last, flush=True)
assert last == "hf_out/checkpoint-10", last
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=500, n_positions=64))
words = [torch.randint(0, 500, (32,)) for _ in range(200)]
data = [{"input_ids": it, "labels": it} for it in words]
arguments = TrainingArguments(
    "hf_out",
    per_device_train_batch_size=4,
    max_steps=18,
    save_steps=5,
    save_total_limit=2,
    logging_steps=1,
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train(resume_from_checkpoint=last)
trainer.save_model("hf_out/final")
trainer.save_state()

assert trainer.state.global_step == 18
assert sorted(os.listdir("hf_out")) == ["checkpoint-15", "checkpoint-18", "final", "trainer_state.json"], os.listdir("hf_out")
again = GPT2LMHeadModel.from_pretrained("hf_out/final")
assert again.state_dict().keys() == model.state_dict().keys()
print("READ BACK OK")

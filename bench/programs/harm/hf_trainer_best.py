"""HF Trainer: evaluates and saves by turns, loads the best at the end, a callback writes files, and the result replaces an old folder."""
import json
import os
import shutil

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)


class Notes(TrainerCallback):
    def on_save(self, args, state, control, **more):
        with open("history.jsonl", "a") as file:
            file.write(json.dumps({"saved": state.global_step}) + "\n")
        with open("best.txt", "w") as file:
            file.write(str(state.best_metric))


assert sorted(os.listdir("hf_out")) == ["checkpoint-10", "checkpoint-5"]
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=500, n_positions=64))
words = [torch.randint(0, 500, (32,)) for _ in range(80)]
data = [{"input_ids": it, "labels": it} for it in words]
arguments = TrainingArguments(
    "hf_out",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    max_steps=8,
    eval_strategy="steps",
    eval_steps=2,
    save_strategy="steps",
    save_steps=2,
    save_total_limit=1,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[Notes()])
result = trainer.train()
trainer.log_metrics("train", result.metrics)
trainer.save_metrics("train", result.metrics)
trainer.save_model("new_model")
shutil.rmtree("output")
shutil.move("new_model", "output")

left = [it for it in os.listdir("hf_out") if it.startswith("checkpoint-")]
assert 1 <= len(left) <= 2 and "checkpoint-10" not in left and "checkpoint-5" not in left, left
assert "config.json" in os.listdir("output") and "precious.txt" not in os.listdir("output")
assert len(open("history.jsonl").readlines()) == 5 and open("best.txt").read() != "0.9\n"
assert "train_runtime" in json.load(open("hf_out/train_results.json"))
assert GPT2LMHeadModel.from_pretrained("output").num_parameters() == model.num_parameters()
print("READ BACK OK")

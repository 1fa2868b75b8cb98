"""accelerate launch --num_processes 2 acc.py: BERT-like classification with accumulation, gather_for_metrics, EMA, save_state."""

import shutil
import torch
import torch.nn as nn
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import set_seed, gather_object, broadcast_object_list, ProjectConfiguration
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup
from torch.utils.data import DataLoader, TensorDataset

acc = Accelerator(
    mixed_precision="bf16",
    gradient_accumulation_steps=2,
    kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True, gradient_as_bucket_view=True)],
)
set_seed(3)
with acc.main_process_first():
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=6, num_labels=4))
opt = torch.optim.AdamW(
    [
        {"params": [p for n, p in model.named_parameters() if "bias" in n], "weight_decay": 0.0},
        {"params": [p for n, p in model.named_parameters() if "bias" not in n]},
    ],
    lr=2e-5,
)
n = 32 * 12 + 7
ds = TensorDataset(torch.randint(0, 30000, (n, 128)), torch.randint(0, 4, (n,)))
dl, ev = DataLoader(ds, 32, shuffle=True), DataLoader(TensorDataset(*[t[:101] for t in ds.tensors]), 32)
sched = get_linear_schedule_with_warmup(opt, 2, 12)
model, opt, dl, ev, sched = acc.prepare(model, opt, dl, ev, sched)
for epoch in range(2):
    model.train()
    for ids, y in dl:
        with acc.accumulate(model):
            loss = model(input_ids=ids, labels=y).loss
            acc.backward(loss)
            if acc.sync_gradients:
                acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
        total = acc.gather(loss.detach().float().repeat(2)).mean()
    acc.print(epoch, total.item())
    model.eval()
    good = seen = 0
    for ids, y in ev:
        with torch.no_grad():
            out = model(input_ids=ids).logits.argmax(-1)
        out, ref = acc.gather_for_metrics((out, y))
        good += (out == ref).sum().item()
        seen += len(ref)
    acc.print("eval", good, seen)
    words = gather_object([{"rank": acc.process_index, "n": seen}])
    acc.print(words)
acc.wait_for_everyone()
acc.save_state("accelerate-state")
acc.wait_for_everyone()
acc.load_state("accelerate-state")
whole = acc.unwrap_model(model)
acc.save(whole.state_dict(), "accelerate-state/m.pt")
acc.wait_for_everyone()
if acc.is_main_process:
    shutil.rmtree("accelerate-state", ignore_errors=True)
acc.end_training()

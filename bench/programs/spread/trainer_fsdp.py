"""transformers Trainer:  torchrun --nproc-per-node 2 trainer_fsdp.py [--mode fsdp|fsdp2|ddp]"""

import argparse
import torch
from torch.utils.data import Dataset
from transformers import MistralConfig, MistralForCausalLM, Trainer, TrainingArguments, set_seed

p = argparse.ArgumentParser()
p.add_argument("--mode", default="fsdp")
a = p.parse_args()
set_seed(1)


class Data(Dataset):
    def __len__(s):
        return 512

    def __getitem__(s, i):
        t = torch.randint(0, 16000, (512,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": t, "labels": t.clone(), "attention_mask": torch.ones_like(t)}


model = MistralForCausalLM(
    MistralConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=12,
        num_key_value_heads=4,
        vocab_size=16000,
        sliding_window=256,
        use_cache=False,
    )
)
kw = {}
if a.mode == "fsdp":
    kw = dict(
        fsdp="full_shard auto_wrap",
        fsdp_config={
            "transformer_layer_cls_to_wrap": ["MistralDecoderLayer"],
            "backward_prefetch": "backward_pre",
            "use_orig_params": True,
            "sync_module_states": True,
            "activation_checkpointing": True,
        },
    )
if a.mode == "fsdp2":
    kw = dict(
        fsdp="full_shard auto_wrap",
        fsdp_config={
            "version": 2,
            "fsdp_version": 2,
            "transformer_layer_cls_to_wrap": ["MistralDecoderLayer"],
            "activation_checkpointing": True,
            "reshard_after_forward": True,
        },
    )
if a.mode == "ddp":
    kw = dict(
        ddp_find_unused_parameters=False, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}
    )
args = TrainingArguments(
    "trainer-out",
    max_steps=4,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    bf16=True,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    optim="adamw_torch_fused",
    lr_scheduler_type="cosine",
    warmup_steps=2,
    max_grad_norm=1.0,
    dataloader_num_workers=1,
    **kw,
)
Trainer(model=model, args=args, train_dataset=Data()).train()

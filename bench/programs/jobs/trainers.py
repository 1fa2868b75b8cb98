"""Trainers that start the ranks' process group themselves."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from jobs import gpt2, trainer


def text_rows(n):
    return [{"input_ids": torch.randint(0, 20000, (256,)), "labels": torch.randint(0, 20000, (256,))} for _ in range(n)]


def transformers_trainer(**settings):
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=4, save_strategy="no", report_to=[],
        logging_steps=1, disable_tqdm=True, **settings,
    )
    transformers.Trainer(model=gpt2(), args=arguments, train_dataset=text_rows(64), eval_dataset=text_rows(16)).train()


@trainer
def trainer_ddp(local):
    transformers_trainer(bf16=True, ddp_find_unused_parameters=False)


@trainer
def trainer_ddp_evaluated(local):
    """Two micro-batches a step, blocks checkpointed, and an evaluation at the end."""
    transformers_trainer(bf16=True, gradient_accumulation_steps=2, gradient_checkpointing=True, eval_strategy="steps", eval_steps=4)


@trainer
def trainer_fsdp(local):
    transformers_trainer(bf16=True, fsdp="full_shard auto_wrap", fsdp_config={"transformer_layer_cls_to_wrap": ["GPT2Block"]})


def accelerated(**settings):
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16", **settings)
    model = gpt2()
    loader = torch.utils.data.DataLoader(text_rows(64), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    for number, batch in enumerate(loader):
        if number == 4:
            break
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


@trainer
def accelerate_ddp(local):
    accelerated()


@trainer
def accelerate_accumulate(local):
    """Micro-batches without communication, by the library's own context."""
    accelerated(gradient_accumulation_steps=2)


@trainer
def accelerate_fsdp2(local):
    from accelerate import FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["GPT2Block"])
    accelerated(fsdp_plugin=plugin)


def shard_layers(self):
    from torch.distributed.fsdp import fully_shard

    for it in (*self.layers, self.layers):
        fully_shard(it, mesh=self.device_mesh["data_parallel"])


def lightning_fit(strategy):
    try:
        import lightning.pytorch as lightning
    except ImportError:
        import pytorch_lightning as lightning

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(12)])

        def training_step(self, batch, _):
            return self.layers(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    if strategy == "fsdp2":
        Net.configure_model = shard_layers
        strategy = lightning.strategies.ModelParallelStrategy()
    elif strategy == "fsdp":
        strategy = lightning.strategies.FSDPStrategy(auto_wrap_policy={nn.Linear})
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(1024, 2048)), batch_size=64)
    fit = lightning.Trainer(
        accelerator="gpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy=strategy, precision="bf16-mixed", max_steps=4,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    fit.fit(Net(), rows)


@trainer
def lightning_ddp(local):
    lightning_fit("ddp")


@trainer
def lightning_fsdp(local):
    lightning_fit("fsdp")


@trainer
def lightning_fsdp2(local):
    lightning_fit("fsdp2")

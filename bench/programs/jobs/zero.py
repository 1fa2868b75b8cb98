"""DeepSpeed's ZeRO, stage by stage. Its engine starts the ranks' process group; one rank is a job of one."""

import torch

from jobs import gpt2, trainer


def trained(stage, model=None, steps=4, batch=4, length=512, settings=None, **of_zero):
    import deepspeed

    precision = {"bf16": {"enabled": True}}
    config = {
        "train_micro_batch_size_per_gpu": batch,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, **of_zero},
    }
    config |= precision if settings is None else settings
    deepspeed.init_distributed("nccl")
    model = model or gpt2(n_layer=8)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    accumulated = config.get("gradient_accumulation_steps", 1)
    for _ in range(steps * accumulated):
        ids = torch.randint(0, 20000, (batch, length), device=engine.device)
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()


@trainer
def zero_0(local):
    trained(0)


@trainer
def zero_1(local):
    trained(1)


@trainer
def zero_2(local):
    trained(2)


@trainer
def zero_3(local):
    trained(3)


@trainer
def zero_2_accumulated(local):
    """Four micro-batches a step, in halves with a loss scale that may skip steps."""
    halves = {"fp16": {"enabled": True, "initial_scale_power": 8}, "gradient_accumulation_steps": 4}
    trained(2, batch=2, steps=3, settings=halves)


@trainer
def zero_3_offloaded(local):
    """Parameters wait in pinned memory of the host."""
    trained(3, offload_param={"device": "cpu", "pin_memory": True})


@trainer
def zero_3_small_buckets(local):
    """Blocks checkpointed, buckets and live parameters bounded, as people set them who have little room."""
    model = gpt2(n_layer=8)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    bounds = {"reduce_bucket_size": 5_000_000, "stage3_prefetch_bucket_size": 5_000_000, "stage3_max_live_parameters": 20_000_000}
    trained(3, model=model, overlap_comm=True, contiguous_gradients=True, **bounds)

"""FSDP (1) after the PyTorch T5 tutorial: wrap policy, bf16, activation checkpointing, rank-0 full state dict."""

import functools
import os
import argparse
import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
    MixedPrecision,
    BackwardPrefetch,
    ShardingStrategy,
    StateDictType,
    FullStateDictConfig,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    checkpoint_wrapper,
    CheckpointImpl,
    apply_activation_checkpointing,
)
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Block


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--strategy", default="FULL_SHARD")
    a = p.parse_args()
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(
        T5Config(
            d_model=768,
            d_ff=2048,
            num_layers=8,
            num_decoder_layers=8,
            num_heads=12,
            d_kv=64,
            vocab_size=32128,
            decoder_start_token_id=0,
            use_cache=False,
        )
    )
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={T5Block})
    bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    model = FSDP(
        model,
        auto_wrap_policy=policy,
        mixed_precision=bf16,
        sharding_strategy=getattr(ShardingStrategy, a.strategy),
        device_id=torch.cuda.current_device(),
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        limit_all_gathers=True,
    )
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
        check_fn=lambda m: isinstance(m, T5Block),
    )
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.85)
    for step in range(a.steps):
        fsdp_loss = torch.zeros(2).to(local)
        src = torch.randint(1, 32000, (8, 256), device=local)
        tgt = torch.randint(1, 32000, (8, 128), device=local)
        mask = torch.ones_like(src)
        opt.zero_grad()
        loss = model(input_ids=src, attention_mask=mask, labels=tgt)["loss"]
        loss.backward()
        model.clip_grad_norm_(1.0)
        opt.step()
        fsdp_loss[0] += loss.item()
        fsdp_loss[1] += len(src)
        dist.all_reduce(fsdp_loss, op=dist.ReduceOp.SUM)
        if rank == 0:
            print(step, (fsdp_loss[0] / fsdp_loss[1]).item(), f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GB")
    sched.step()
    cfg = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, cfg):
        cpu_state = model.state_dict()
    if rank == 0:
        torch.save(cpu_state, "t5-fsdp.pt")
        os.remove("t5-fsdp.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Weights, gradients and optimizer states in parts, one for each rank."""

import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from jobs import gpt2, kind, language, llama, mesh


def fsdp1_of(local, **settings):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    policy = ModuleWrapPolicy({GPT2Block})
    return FullyShardedDataParallel(gpt2(), auto_wrap_policy=policy, device_id=local, **settings)


@kind
def fsdp1(local):
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = FullyShardedDataParallel(gpt2(), auto_wrap_policy=ModuleWrapPolicy({GPT2Block}), device_id=local, use_orig_params=True, mixed_precision=precision)
    language(model, torch.optim.AdamW(model.parameters()))


@kind
def fsdp1_grad_op(local):
    from torch.distributed.fsdp import ShardingStrategy

    model = fsdp1_of(local, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
    language(model, torch.optim.AdamW(model.parameters()))
    model.clip_grad_norm_(1.0)


@kind
def fsdp1_offload(local):
    from torch.distributed.fsdp import CPUOffload

    model = fsdp1_of(local, cpu_offload=CPUOffload(offload_params=True))
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


def fsdp2(policy=None, **settings):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if policy is None:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with torch.device("meta"):
        model = llama()
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy, **settings)
    fully_shard(model, mp_policy=policy, **settings)
    model.to_empty(device="cpu" if "offload_policy" in settings else "cuda")
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return model


@kind
def fsdp2_keep(local):
    model = fsdp2(reshard_after_forward=False)
    language(model, torch.optim.AdamW(model.parameters()))


@kind
def fsdp2_fp32(local):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    model = fsdp2(MixedPrecisionPolicy())
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


@kind
def fsdp2_checkpointed(local):
    model = fsdp2()
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    language(model, torch.optim.AdamW(model.parameters(), fused=True), batch=8, length=1024)


@kind
def fsdp2_cpu_offload(local):
    from torch.distributed.fsdp import CPUOffloadPolicy

    model = fsdp2(offload_policy=CPUOffloadPolicy())
    language(model, torch.optim.AdamW(model.parameters()))


@kind
def hsdp_one_by_all(local):
    model = fsdp2(mesh=mesh(1, dist.get_world_size()))
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


@kind
def hsdp_all_by_one(local):
    model = fsdp2(mesh=mesh(dist.get_world_size(), 1))
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


@kind
def fsdp2_offload_checkpointed_clip(local):
    from torch.distributed.fsdp import CPUOffloadPolicy

    model = fsdp2(offload_policy=CPUOffloadPolicy(pin_memory=False))
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    language(model, torch.optim.AdamW(model.parameters()), batch=4, length=1024)


@kind
def fsdp2_clip_accumulate(local):
    """Gradients stay whole between the two micro-batches."""
    model = fsdp2()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        for part in range(2):
            model.set_requires_gradient_sync(part == 1)
            ids = torch.randint(0, 20000, (2, 512), device="cuda")
            (model(input_ids=ids, labels=ids).loss / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@kind
def fsdp2_save(local):
    """Two steps, then a checkpoint of shards, and one gathered on rank 0's host."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict

    model = fsdp2()
    optimizer = torch.optim.AdamW(model.parameters())
    language(model, optimizer, batch=2, steps=2)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, 0)
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder[0])
    get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    language(model, optimizer, batch=2, steps=1)


@kind
def fsdp1_all_at_once(local):
    """Mixed precision, parameters on the host, blocks checkpointed, norms clipped, evaluation between."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
    from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, MixedPrecision
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    model = fsdp1_of(
        local, mixed_precision=half, cpu_offload=CPUOffload(offload_params=True), limit_all_gathers=True, forward_prefetch=True,
        backward_prefetch=BackwardPrefetch.BACKWARD_POST, use_orig_params=True,
    )
    apply_activation_checkpointing(model, check_fn=lambda it: isinstance(it, GPT2Block))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        ids = torch.randint(0, 20000, (8, 512), device="cuda")
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        model(input_ids=ids, labels=ids)


@kind
def fsdp1_hybrid(local):
    """Parts within half of the ranks, copies between the halves."""
    from torch.distributed.fsdp import ShardingStrategy

    half = max(dist.get_world_size() // 2, 1)
    model = fsdp1_of(local, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh(dist.get_world_size() // half, half))
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


@kind
def hsdp_halves(local):
    half = max(dist.get_world_size() // 2, 1)
    model = fsdp2(mesh=mesh(dist.get_world_size() // half, half))
    language(model, torch.optim.AdamW(model.parameters()), batch=2)


@kind
def fsdp2_low_rank(local):
    """Small trained matrices beside frozen ones, each block gathered ahead of its turn."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    class Adapted(nn.Module):
        def __init__(self, whole):
            super().__init__()
            self.whole = whole.requires_grad_(False)
            self.down = nn.Linear(whole.in_features, 16, bias=False)
            self.up = nn.Linear(16, whole.out_features, bias=False)

        def forward(self, x):
            return self.whole(x) + self.up(self.down(x))

    model = llama().requires_grad_(False)
    for layer in model.model.layers:
        for name in "qkv":
            setattr(layer.self_attn, f"{name}_proj", Adapted(getattr(layer.self_attn, f"{name}_proj")))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    layers = list(model.model.layers)
    for it in (*layers, model):
        fully_shard(it, mp_policy=policy)
    for this, following in zip(layers, layers[1:]):
        this.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([this])
    language(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]))


@kind
def fsdp2_compiled(local):
    """Blocks compiled one by one, then sharded."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = llama(num_hidden_layers=4)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        layer.mlp.compile()
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    language(model, torch.optim.AdamW(model.parameters()), batch=2)

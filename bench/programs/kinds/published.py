"""Scripts in the manner of published ones: trainers, raw loops and mixed precision, from many fields.

They were written before the phantom had run any of them, and were measured on the H200 once.
"""
import copy
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import images, kind, language, tokens, train


# Compilation


class Mix(nn.Module):
    """A decoder block in the style of nanoGPT."""

    def __init__(self, width, heads):
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = (it.view(b, s, self.heads, w // self.heads).transpose(1, 2) for it in self.qkv(self.a(x)).chunk(3, -1))
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(b, s, w))
        return x + self.down(F.gelu(self.up(self.b(x))))


class Decoder(nn.Module):
    def __init__(self, words=16000, width=512, layers=6, heads=8, length=1024, block=Mix):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids, labels=None):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def next_word(model, ids):
    return model(ids[:, :-1], ids[:, 1:])


@kind
def nanogpt_compiled_bf16():
    model = torch.compile(Decoder().cuda())
    train(model, tokens(12, 513, 16000, steps=4), next_word, torch.optim.AdamW(model.parameters(), fused=True), autocast=torch.bfloat16, clip=1.0)


@kind
def nanogpt_max_autotune():
    model = torch.compile(Decoder(layers=2, width=384, heads=6).cuda(), mode="max-autotune-no-cudagraphs")
    train(model, tokens(8, 257, 16000, steps=4), next_word, torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


@kind
def nanogpt_reduce_overhead():
    model = torch.compile(Decoder(layers=4).cuda(), mode="reduce-overhead")
    train(model, tokens(8, 257, 16000, steps=6), next_word, torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


@kind
def flex_attention_documents():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    flex = torch.compile(flex_attention)
    length = 1024
    documents = (torch.arange(length) // 300).cuda()

    def within(b, h, q, k):
        return (q >= k) & (documents[q] == documents[k])

    mask = create_block_mask(within, None, None, length, length, device="cuda")

    class Block(Mix):
        def attend(self, q, k, v):
            return flex(q, k, v, block_mask=mask)

    model = Decoder(layers=4, block=Block).cuda()
    train(model, tokens(4, length + 1, 16000), next_word, torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


# Trainers


def quiet_arguments(**changes):
    import transformers

    folder = tempfile.mkdtemp()
    return transformers.TrainingArguments(output_dir=folder, report_to=[], save_strategy="no", logging_steps=2, disable_tqdm=True, **changes)


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number]


@kind
def trainer_gpt2_bf16_checkpointed():
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=6))
    rows = [{"input_ids": it, "labels": it} for it in torch.randint(0, 50000, (48, 384))]
    arguments = quiet_arguments(per_device_train_batch_size=4, gradient_accumulation_steps=3, bf16=True, gradient_checkpointing=True, max_steps=4, learning_rate=5e-5, dataloader_num_workers=2, dataloader_pin_memory=True)
    transformers.Trainer(model=model, args=arguments, train_dataset=Rows(rows)).train()


@kind
def trainer_distilbert_padded_fp16():
    """Fine-tuning a classifier with dynamic padding, mixed precision, and an evaluation at the end."""
    import transformers

    model = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(num_labels=4))
    generator = random.Random(3)
    rows = []
    for _ in range(96):
        length = generator.randint(20, 180)
        rows.append({"input_ids": torch.randint(1000, 30000, (length,)), "labels": generator.randint(0, 3)})

    def collate(batch):
        longest = max(len(it["input_ids"]) for it in batch)
        ids = torch.stack([F.pad(it["input_ids"], (0, longest - len(it["input_ids"]))) for it in batch])
        return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([it["labels"] for it in batch])}

    arguments = quiet_arguments(per_device_train_batch_size=16, per_device_eval_batch_size=32, fp16=True, max_steps=5, eval_strategy="steps", eval_steps=5, warmup_steps=1)
    transformers.Trainer(model=model, args=arguments, train_dataset=Rows(rows), eval_dataset=Rows(rows[:64]), data_collator=collate).train()


@kind
def trainer_t5_small():
    import transformers

    model = transformers.T5ForConditionalGeneration(transformers.T5Config(d_model=512, d_ff=2048, num_layers=4, num_heads=8, decoder_start_token_id=0))
    rows = [{"input_ids": torch.randint(1, 32000, (256,)), "labels": torch.randint(1, 32000, (64,))} for _ in range(64)]
    arguments = quiet_arguments(per_device_train_batch_size=8, max_steps=4, optim="adafactor", learning_rate=1e-3)
    transformers.Trainer(model=model, args=arguments, train_dataset=Rows(rows)).train()


@kind
def accelerate_vit_fp16():
    import accelerate
    import transformers

    accelerator = accelerate.Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(num_hidden_layers=8, num_labels=37))
    data = torch.utils.data.TensorDataset(torch.randn(64, 3, 224, 224), torch.randint(0, 37, (64,)))
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, pin_memory=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-4, total_steps=10)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = model(pixel_values=x, labels=y).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


@kind
def lightning_efficientnet_bf16():
    import lightning
    import torchvision

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torchvision.models.efficientnet_b0(weights=None, num_classes=20)

        def training_step(self, batch, number):
            loss = F.cross_entropy(self.net(batch[0]), batch[1], label_smoothing=0.1)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            optimizer = torch.optim.RMSprop(self.parameters(), 1e-3, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)]

    data = torch.utils.data.TensorDataset(torch.randn(96, 3, 192, 192), torch.randint(0, 20, (96,)))
    trainer = lightning.Trainer(max_epochs=1, precision="bf16-mixed", accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0, default_root_dir=tempfile.mkdtemp())
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=24))


# Language


@kind
def dpo_pairs_bf16():
    """Direct preference optimization: a policy, a frozen reference, chosen and rejected answers in one batch."""
    import transformers

    config = transformers.GPT2Config(n_layer=8, n_embd=640, n_head=10)
    policy = transformers.GPT2LMHeadModel(config).cuda()
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=5e-7)

    def likelihood(model, ids, mask):
        logits = model(ids, attention_mask=mask).logits[:, :-1].float()
        each = logits.log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
        return (each * mask[:, 1:]).sum(1)

    for _ in range(3):
        ids = torch.randint(1, 50000, (8, 300)).cuda()
        mask = (torch.arange(300)[None] < torch.randint(150, 301, (8, 1))).long().cuda()
        with torch.autocast("cuda", torch.bfloat16):
            ours = likelihood(policy, ids, mask)
            with torch.no_grad():
                theirs = likelihood(reference, ids, mask)
            better, worse = (ours - theirs).chunk(2)
            loss = -F.logsigmoid(0.1 * (better - worse)).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()


@kind
def mixtral_sparse_experts():
    """The experts of transformers' Mixtral, whose router is new and so not even."""
    import transformers

    config = transformers.MixtralConfig(vocab_size=8000, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, num_local_experts=8, output_router_logits=True, max_position_embeddings=2048)
    model = transformers.MixtralForCausalLM(config).to("cuda", torch.bfloat16)
    train(model, tokens(4, 512, 8000, steps=4), language, torch.optim.AdamW(model.parameters()), clip=1.0)


@kind
def switch_capacity_experts():
    """Top-1 routing with a position within each expert by a cumulative sum, and tokens beyond its capacity dropped."""

    class Switch(nn.Module):
        def __init__(self, width=384, experts=16):
            super().__init__()
            self.gate, self.count = nn.Linear(width, experts, bias=False), experts
            self.up, self.down = nn.Parameter(torch.randn(experts, width, 1536) * 0.02), nn.Parameter(torch.randn(experts, 1536, width) * 0.02)

        def forward(self, x):
            flat = x.flatten(0, 1)
            weight, chosen = self.gate(flat).softmax(-1).max(-1)
            hot = F.one_hot(chosen, self.count)
            place = (hot.cumsum(0) * hot).sum(-1) - 1
            capacity = math.ceil(1.25 * len(flat) / self.count)
            keep = place < capacity
            rows = torch.zeros(self.count * capacity, x.shape[-1], device=x.device, dtype=flat.dtype)
            slot = (chosen * capacity + place)[keep]
            rows = rows.index_copy(0, slot, flat[keep])
            done = torch.bmm(F.gelu(torch.bmm(rows.view(self.count, capacity, -1), self.up)), self.down).flatten(0, 1)
            out = torch.zeros_like(flat)
            out[keep] = done[slot].to(out.dtype) * weight[keep, None]
            return out.view_as(x)

    class Block(Mix):
        def __init__(self, width, heads):
            super().__init__(width, heads)
            self.switch = Switch(width)

        def forward(self, x):
            b, s, w = x.shape
            q, k, v = (it.view(b, s, self.heads, w // self.heads).transpose(1, 2) for it in self.qkv(self.a(x)).chunk(3, -1))
            x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(b, s, w))
            return x + self.switch(self.b(x))

    model = Decoder(width=384, heads=6, layers=4, block=Block).cuda()
    train(model, tokens(8, 513, 16000), next_word, torch.optim.AdamW(model.parameters()))


@kind
def mamba_of_transformers():
    import transformers

    model = transformers.MambaForCausalLM(transformers.MambaConfig(vocab_size=8000, hidden_size=256, num_hidden_layers=4, state_size=16)).cuda()
    train(model, tokens(4, 128, 8000), language, torch.optim.AdamW(model.parameters()))


@kind
def muon_newton_schulz():
    """A decoder trained with Muon, whose momentum is made orthogonal by five products in bf16."""

    @torch.no_grad()
    def orthogonal(g):
        x = g.bfloat16() / (g.norm() + 1e-7)
        turned = x.shape[0] > x.shape[1]
        x = x.T if turned else x
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        return x.T if turned else x

    model = Decoder(width=640, heads=10).cuda()
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = torch.optim.AdamW([p for p in model.parameters() if id(p) not in chosen], lr=3e-4)
    momentum = {p: torch.zeros_like(p) for p in matrices}
    for (ids,) in tokens(8, 513, 16000):
        ids = ids.cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = next_word(model, ids)
        loss.backward()
        with torch.no_grad():
            for p in matrices:
                momentum[p].mul_(0.95).add_(p.grad)
                p.add_(orthogonal(p.grad.add(momentum[p], alpha=0.95)).to(p.dtype), alpha=-0.02)
        rest.step()
        model.zero_grad(set_to_none=True)


# Speech


@kind
def wav2vec2_ctc_amp():
    import transformers

    config = transformers.Wav2Vec2Config(num_hidden_layers=4, vocab_size=32, ctc_zero_infinity=True, mask_time_prob=0.05, attn_implementation="sdpa")
    model = transformers.Wav2Vec2ForCTC(config).cuda()
    model.freeze_feature_encoder()
    batches = [(torch.randn(4, 48000), torch.randint(1, 32, (4, 30))) for _ in range(3)]
    train(model, batches, lambda m, x, y: m(input_values=x, labels=y).loss, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]), autocast=torch.float16, scaler=torch.amp.GradScaler())


@kind
def whisper_bf16():
    import transformers

    config = transformers.WhisperConfig(d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536)
    model = transformers.WhisperForConditionalGeneration(config).to("cuda")
    batches = [(torch.randn(6, 80, 3000), torch.randint(0, 50000, (6, 100))) for _ in range(3)]
    train(model, batches, lambda m, x, y: m(input_features=x, labels=y).loss, torch.optim.AdamW(model.parameters(), 1e-5), autocast=torch.bfloat16)


# Vision


@kind
def vit_mae_pretraining():
    import transformers

    config = transformers.ViTMAEConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048, decoder_hidden_size=256, decoder_num_hidden_layers=4, decoder_num_attention_heads=8, decoder_intermediate_size=1024)
    model = transformers.ViTMAEForPreTraining(config).cuda()
    train(model, images(32, 3, 224, 224), lambda m, x, y: m(pixel_values=x).loss, torch.optim.AdamW(model.parameters(), 1.5e-4, betas=(0.9, 0.95)), autocast=torch.bfloat16)


@kind
def swin_mixup_scaler():
    import torchvision

    model = torchvision.models.swin_t(weights=None, num_classes=100).cuda()

    def loss_of(m, x, y):
        weight = 0.3
        order = torch.randperm(len(x), device=x.device)
        out = m(weight * x + (1 - weight) * x[order])
        return weight * F.cross_entropy(out, y) + (1 - weight) * F.cross_entropy(out, y[order])

    train(model, images(16, 3, 224, 224), loss_of, torch.optim.AdamW(model.parameters()), autocast=torch.float16, scaler=torch.amp.GradScaler(), clip=5.0)


@kind
def reference_efficientnet_ema_channels_last():
    """As torchvision's reference trains: channels last, benchmark, an average of the weights, evaluation."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.efficientnet_v2_s(weights=None, num_classes=50).cuda().to(memory_format=torch.channels_last)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999), use_buffers=True)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True), torch.amp.GradScaler()
    for x, y in images(16, 3, 160, 160, classes=50):
        x, y = x.cuda(non_blocking=True).to(memory_format=torch.channels_last), y.cuda(non_blocking=True)
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        average.update_parameters(model)
    average.eval()
    with torch.inference_mode():
        average(torch.randn(32, 3, 192, 192, device="cuda").to(memory_format=torch.channels_last)).argmax(1).sum().item()


@kind
def faster_rcnn_training():
    import torchvision

    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=21, min_size=400, max_size=640).cuda()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.005, momentum=0.9, weight_decay=5e-4)
    for _ in range(4):
        pictures = [torch.rand(3, 400, 500 + 20 * i).cuda() for i in range(4)]
        targets = []
        for _ in pictures:
            corner = torch.rand(6, 2) * 250
            targets.append({"boxes": torch.cat([corner, corner + 40 + torch.rand(6, 2) * 100], 1).cuda(), "labels": torch.randint(1, 21, (6,)).cuda()})
        losses = model(pictures, targets)
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def mask_rcnn_amp_and_evaluation():
    import torchvision

    model = torchvision.models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5, min_size=320, max_size=320).cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9), torch.amp.GradScaler()
    pictures = [torch.rand(3, 320, 320).cuda() for _ in range(2)]
    for _ in range(3):
        targets = [{"boxes": torch.tensor([[20.0, 30.0, 200.0, 180.0], [100.0, 110.0, 220.0, 300.0]]).cuda(), "labels": torch.tensor([1, 2]).cuda(), "masks": (torch.rand(2, 320, 320) > 0.5).to(torch.uint8).cuda()} for _ in pictures]
        with torch.autocast("cuda", torch.float16):
            loss = sum(model(pictures, targets).values())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    model.eval()
    with torch.no_grad():
        model(pictures)


@kind
def yolo_assignment():
    """A one-stage detector: targets are assigned to cells by index, box loss only where there are objects."""

    def conv(i, o, k=3, s=1):
        return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(conv(3, 32), conv(32, 64, s=2), conv(64, 128, s=2), conv(128, 128), conv(128, 256, s=2))
            self.deep = nn.Sequential(conv(256, 256), conv(256, 512, s=2), conv(512, 512))
            self.heads = nn.ModuleList([nn.Conv2d(256, 3 * 25, 1), nn.Conv2d(512, 3 * 25, 1)])

        def forward(self, x):
            a = self.stem(x)
            b = self.deep(a)
            return [head(it).unflatten(1, (3, 25)).permute(0, 1, 3, 4, 2) for head, it in zip(self.heads, (a, b))]

    model = Net().cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.01, momentum=0.937, nesterov=True), torch.amp.GradScaler()
    for _ in range(3):
        x = torch.rand(16, 3, 320, 320).cuda()
        targets = torch.cat([torch.randint(0, 16, (120, 1)).float(), torch.randint(0, 20, (120, 1)).float(), torch.rand(120, 4)], 1).cuda()
        with torch.autocast("cuda", torch.float16):
            loss = 0
            for out in model(x):
                size = out.shape[2]
                image, which = targets[:, 0].long(), targets[:, 1].long()
                column, row = (targets[:, 2] * size).long(), (targets[:, 3] * size).long()
                anchor = torch.arange(120, device="cuda") % 3
                wide = targets[:, 4] > 0.05
                found = out[image, anchor, row, column][wide].float()
                confidence = torch.zeros_like(out[..., 4])
                confidence[image, anchor, row, column] = 1.0
                loss = loss + F.binary_cross_entropy_with_logits(out[..., 4], confidence) + (found[:, :4].sigmoid() - targets[wide, 2:]).abs().mean() + F.cross_entropy(found[:, 5:], which[wide])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()


@kind
def stable_diffusion_unet_fp16():
    """Latents, text as cross-attention, transformer blocks with gated feed-forwards, checkpointing, LoRA-free fine-tuning."""
    from torch.utils.checkpoint import checkpoint

    class Residual(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.n, self.a, self.t, self.m, self.b = nn.GroupNorm(32, i), nn.Conv2d(i, o, 3, padding=1), nn.Linear(1280, o), nn.GroupNorm(32, o), nn.Conv2d(o, o, 3, padding=1)
            self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x, t):
            h = self.a(F.silu(self.n(x))) + self.t(F.silu(t))[:, :, None, None]
            return self.skip(x) + self.b(F.silu(self.m(h)))

    class Cross(nn.Module):
        def __init__(self, c, text=768, heads=8):
            super().__init__()
            self.norm, self.enter, self.leave, self.heads = nn.GroupNorm(32, c), nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1), heads
            self.n1, self.n2, self.n3 = nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
            self.q1, self.k1, self.v1, self.o1 = (nn.Linear(c, c, bias=False) for _ in range(4))
            self.q2, self.o2 = nn.Linear(c, c, bias=False), nn.Linear(c, c)
            self.k2, self.v2 = nn.Linear(text, c, bias=False), nn.Linear(text, c, bias=False)
            self.up, self.down = nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

        def attend(self, q, k, v):
            q, k, v = (it.unflatten(-1, (self.heads, -1)).transpose(1, 2) for it in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

        def forward(self, x, text):
            b, c, h, w = x.shape
            y = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
            z = self.n1(y)
            y = y + self.o1(self.attend(self.q1(z), self.k1(z), self.v1(z)))
            y = y + self.o2(self.attend(self.q2(self.n2(y)), self.k2(text), self.v2(text)))
            a, g = self.up(self.n3(y)).chunk(2, -1)
            y = y + self.down(a * F.gelu(g))
            return x + self.leave(y.transpose(1, 2).reshape(b, c, h, w))

    class Unet(nn.Module):
        def __init__(self, widths=(192, 384, 768)):
            super().__init__()
            self.time, self.first = nn.Sequential(nn.Linear(320, 1280), nn.SiLU(), nn.Linear(1280, 1280)), nn.Conv2d(4, widths[0], 3, padding=1)
            self.down, self.up = nn.ModuleList(), nn.ModuleList()
            last = widths[0]
            for w in widths:
                self.down.append(nn.ModuleList([Residual(last, w), Cross(w), nn.Conv2d(w, w, 3, 2, 1)]))
                last = w
            self.middle, self.attention = Residual(last, last), Cross(last)
            for w in reversed(widths):
                self.up.append(nn.ModuleList([nn.Conv2d(last, w, 3, padding=1), Residual(2 * w, w), Cross(w)]))
                last = w
            self.norm, self.last = nn.GroupNorm(32, last), nn.Conv2d(last, 4, 3, padding=1)

        def forward(self, x, t, text):
            angles = t[:, None].float() * torch.exp(-torch.arange(160, device=x.device) * (9.21 / 160))
            t = self.time(torch.cat([angles.cos(), angles.sin()], 1))
            x, kept = self.first(x), []
            for residual, cross, smaller in self.down:
                x = checkpoint(lambda x, residual=residual, cross=cross: cross(residual(x, t), text), x, use_reentrant=False)
                kept.append(x)
                x = smaller(x)
            x = self.attention(self.middle(x, t), text)
            for larger, residual, cross in self.up:
                x = larger(F.interpolate(x, scale_factor=2.0, mode="nearest"))
                x = cross(residual(torch.cat([x, kept.pop()], 1), t), text)
            return self.last(F.silu(self.norm(x)))

    model = Unet().cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters(), 1e-5), torch.amp.GradScaler()
    levels = torch.linspace(0.00085**0.5, 0.012**0.5, 1000).square().cuda()
    kept = (1 - levels).cumprod(0)
    for _ in range(3):
        latents, text = torch.randn(4, 4, 64, 64).cuda(), torch.randn(4, 77, 768).cuda().half()
        t, noise = torch.randint(0, 1000, (4,), device="cuda"), torch.randn_like(latents)
        share = kept[t][:, None, None, None]
        with torch.autocast("cuda", torch.float16):
            loss = F.mse_loss(model(share.sqrt() * latents + (1 - share).sqrt() * noise, t, text).float(), noise)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


@kind
def esrgan_perceptual():
    import torchvision

    class Dense(nn.Module):
        def __init__(self, c=48, g=24):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(c + i * g, g if i < 4 else c, 3, padding=1) for i in range(5))

        def forward(self, x):
            have = [x]
            for conv in self.convs[:-1]:
                have.append(F.leaky_relu(conv(torch.cat(have, 1)), 0.2, True))
            return x + 0.2 * self.convs[-1](torch.cat(have, 1))

    maker = nn.Sequential(nn.Conv2d(3, 48, 3, padding=1), *[Dense() for _ in range(6)], nn.Conv2d(48, 192, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(48, 192, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(48, 3, 3, padding=1)).cuda()
    critic = nn.Sequential(*[layer for i, o in ((3, 64), (64, 128), (128, 256)) for layer in (nn.utils.parametrizations.spectral_norm(nn.Conv2d(i, o, 4, 2, 1)), nn.LeakyReLU(0.2, True))], nn.Conv2d(256, 1, 3, padding=1)).cuda()
    sight = torchvision.models.vgg16(weights=None).features[:16].cuda().eval().requires_grad_(False)
    g, d = torch.optim.Adam(maker.parameters(), 1e-4), torch.optim.Adam(critic.parameters(), 1e-4)
    for _ in range(3):
        small, large = torch.rand(8, 3, 40, 40).cuda(), torch.rand(8, 3, 160, 160).cuda()
        made = maker(small)
        critic.requires_grad_(False)
        loss = F.l1_loss(made, large) + F.l1_loss(sight(made), sight(large)) + 0.1 * F.softplus(-critic(made)).mean()
        g.zero_grad()
        loss.backward()
        g.step()
        critic.requires_grad_(True)
        d.zero_grad()
        F.softplus(-critic(large)).mean().backward()
        F.softplus(critic(made.detach())).mean().backward()
        d.step()


@kind
def simclr_two_views():
    import torchvision

    model = torchvision.models.resnet18(weights=None)
    model.fc = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))
    model.cuda()

    def loss_of(m, x, y):
        z = F.normalize(m(torch.cat([x, x.flip(3)])), dim=1)
        close = z @ z.T / 0.5
        close = close.masked_fill(torch.eye(len(z), dtype=torch.bool, device=z.device), float("-inf"))
        half = len(z) // 2
        return F.cross_entropy(close, torch.arange(len(z), device=z.device).roll(half))

    train(model, images(96, 3, 96, 96), loss_of, torch.optim.SGD(model.parameters(), 0.3, momentum=0.9, weight_decay=1e-4))


@kind
def nerf_rays():
    """Coarse and fine samples along rays: inverse transform sampling with searchsorted, cumulative products."""

    class Field(nn.Module):
        def __init__(self, width=256):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(63, width), nn.ReLU(), *[layer for _ in range(5) for layer in (nn.Linear(width, width), nn.ReLU())], nn.Linear(width, 4))

        def forward(self, x):
            waves = torch.cat([x] + [f(x * 2**i) for i in range(10) for f in (torch.sin, torch.cos)], -1)
            return self.net(waves)

    def render(field, origin, direction, depth):
        out = field(origin[:, None] + direction[:, None] * depth[..., None])
        color, density = out[..., :3].sigmoid(), F.relu(out[..., 3])
        alpha = 1 - torch.exp(-density * F.pad(depth.diff(dim=1), (0, 1), value=1e10))
        weight = alpha * torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1).cumprod(1)[:, :-1]
        return (weight[..., None] * color).sum(1), weight

    coarse, fine = Field().cuda(), Field().cuda()
    optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], 5e-4)
    for _ in range(4):
        origin, direction, goal = (torch.rand(1024, 3).cuda() for _ in range(3))
        depth = torch.linspace(2, 6, 64, device="cuda").expand(1024, 64) + torch.rand(1024, 64, device="cuda") * 0.06
        first, weight = render(coarse, origin, direction, depth)
        share = F.pad((weight[:, 1:-1].detach() + 1e-5).cumsum(1), (1, 0))
        share = share / share[:, -1:]
        u = torch.rand(1024, 128, device="cuda")
        at = torch.searchsorted(share.contiguous(), u, right=True).clamp(1, share.shape[1] - 1)
        low, high = share.gather(1, at - 1), share.gather(1, at)
        middle = 0.5 * (depth[:, 1:] + depth[:, :-1])
        more = middle.gather(1, at - 1) + (u - low) / (high - low + 1e-5) * (middle.gather(1, at) - middle.gather(1, at - 1))
        second, _ = render(fine, origin, direction, torch.cat([depth, more], 1).sort(1).values)
        loss = F.mse_loss(first, goal) + F.mse_loss(second, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def point_net_grouping():
    """Farthest points, balls of neighbours by distance, shared perceptrons and maxima (PointNet++)."""

    def farthest(points, count):
        b, n, _ = points.shape
        chosen = torch.zeros(b, count, dtype=torch.long, device=points.device)
        distance = torch.full((b, n), 1e10, device=points.device)
        last = torch.zeros(b, dtype=torch.long, device=points.device)
        for i in range(count):
            chosen[:, i] = last
            center = points[torch.arange(b, device=points.device), last][:, None]
            distance = torch.minimum(distance, (points - center).square().sum(-1))
            last = distance.argmax(-1)
        return chosen

    def rows(x, index):
        return x.gather(1, index.flatten(1)[..., None].expand(-1, -1, x.shape[-1])).unflatten(1, index.shape[1:])

    class Level(nn.Module):
        def __init__(self, i, widths, count, near):
            super().__init__()
            self.count, self.near = count, near
            layers = []
            for o in widths:
                layers += [nn.Conv2d(i, o, 1), nn.BatchNorm2d(o), nn.ReLU()]
                i = o
            self.net = nn.Sequential(*layers)

        def forward(self, points, features):
            center = rows(points, farthest(points, self.count))
            around = torch.cdist(center, points).topk(self.near, largest=False).indices
            group = torch.cat([rows(points, around) - center[:, :, None], rows(features, around)], -1)
            return center, self.net(group.permute(0, 3, 1, 2)).amax(-1).transpose(1, 2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Level(6, (64, 64, 128), 256, 32), Level(131, (128, 128, 256), 64, 32)
            self.head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.4), nn.Linear(128, 40))

        def forward(self, x):
            return self.head(self.b(*self.a(x, x))[1].amax(1))

    model = Net().cuda()
    batches = [(torch.randn(16, 1024, 3), torch.randint(0, 40, (16,))) for _ in range(3)]
    train(model, batches, lambda m, x, y: F.cross_entropy(m(x), y), torch.optim.Adam(model.parameters()))


# Reinforcement learning, functions, algebra


@kind
def dqn_frames():
    """Deep Q-learning: bytes of frames replayed from the host, a target network, Huber loss."""

    def network():
        return nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6))

    online, target = network().cuda(), network().cuda()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
    memory = torch.randint(0, 256, (512, 4, 84, 84), dtype=torch.uint8)
    for step in range(12):
        with torch.no_grad():
            action = online(memory[step : step + 1].cuda().float() / 255).argmax(1).item()
        index = torch.randint(0, 511, (64,))
        now, later = memory[index].cuda().float() / 255, memory[index + 1].cuda().float() / 255
        acted, reward, done = torch.full((64,), action).cuda(), torch.randn(64).cuda(), (torch.rand(64) < 0.02).float().cuda()
        with torch.no_grad():
            goal = reward + 0.99 * (1 - done) * target(later).amax(1)
        loss = F.smooth_l1_loss(online(now).gather(1, acted[:, None]).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 100)
        optimizer.step()
        if step % 4 == 3:
            target.load_state_dict(online.state_dict())


@kind
def ensemble_by_vmap():
    from torch.func import functional_call, stack_module_state, vmap

    members = [nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).cuda() for _ in range(16)]
    parameters, buffers = stack_module_state(members)
    shape = copy.deepcopy(members[0]).to("meta")
    optimizer = torch.optim.Adam(parameters.values(), 1e-3)
    for _ in range(4):
        x, y = torch.randn(2048, 64).cuda(), torch.randn(2048, 1).cuda()
        out = vmap(lambda p, b: functional_call(shape, (p, b), (x,)))(parameters, buffers)
        loss = F.mse_loss(out, y.expand_as(out))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def physics_informed_laplacian():
    """A network whose loss holds its own second derivatives, by forward over reverse."""
    from torch.func import functional_call, hessian, vmap

    model = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(3):
        points = torch.rand(2000, 2).cuda()
        parameters = dict(model.named_parameters())
        curved = vmap(hessian(lambda x: functional_call(model, parameters, (x,)).squeeze()))(points)
        loss = (curved.diagonal(dim1=-2, dim2=-1).sum(-1) - points.prod(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def low_rank_and_whitening():
    """Decompositions within a loss: singular values, eigenvectors, QR, least squares, inverse, determinants."""
    encoder = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 128)).cuda()
    optimizer = torch.optim.Adam(encoder.parameters(), 1e-3)
    for _ in range(3):
        z = encoder(torch.randn(1024, 256).cuda())
        cover = z.T @ z / len(z) + 1e-3 * torch.eye(128, device="cuda")
        values, vectors = torch.linalg.eigh(cover)
        white = z @ vectors * values.clamp_min(1e-6).rsqrt()
        loss = torch.linalg.svdvals(z).sum() * 1e-3 + white.square().mean() - torch.linalg.slogdet(cover).logabsdet
        q, r = torch.linalg.qr(z)
        loss = loss + torch.linalg.inv(cover).trace() * 1e-3 + torch.linalg.lstsq(z.detach(), torch.randn(1024, 4, device="cuda")).solution.square().mean() + 0 * r.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def graph_sage_sampled():
    """Neighbours are sampled on the device, repeated nodes made unique, messages averaged with scatter_reduce."""
    nodes, degree = 50000, 12
    table = torch.randint(0, nodes, (nodes, degree)).cuda()
    features, labels = torch.randn(nodes, 128).cuda(), torch.randint(0, 40, (nodes,)).cuda()
    one, two = nn.Linear(256, 256).cuda(), nn.Linear(512, 40).cuda()
    optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()], 0.003)

    def mean(x, target, count):
        out = torch.zeros(count, x.shape[1], device=x.device)
        return out.scatter_reduce(0, target[:, None].expand_as(x), x, "mean", include_self=False)

    for _ in range(4):
        seeds = torch.randperm(nodes)[:1024].cuda()
        near = table[seeds][:, :10]
        unique, place = torch.unique(torch.cat([seeds, near.flatten()]), return_inverse=True)
        far = table[unique][:, :10]
        h = torch.cat([features[unique], mean(features[far.flatten()], torch.arange(len(unique), device="cuda").repeat_interleave(10), len(unique))], 1)
        h = F.dropout(F.relu(one(h)), 0.5)
        own, other = h[place[:1024]], h[place[1024:]]
        out = two(torch.cat([own, mean(other, torch.arange(1024, device="cuda").repeat_interleave(10), 1024)], 1))
        loss = F.cross_entropy(out, labels[seeds])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def recommender_embedding_bags():
    """Sparse gradients, bags of categories, feature crosses (DLRM)."""
    tables = nn.ModuleList(nn.EmbeddingBag(100000, 64, mode="sum", sparse=True) for _ in range(8)).cuda()
    bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
    top = nn.Sequential(nn.Linear(64 + 36, 512), nn.ReLU(), nn.Linear(512, 1)).cuda()
    sparse = torch.optim.SparseAdam(list(tables.parameters()), 1e-3)
    dense = torch.optim.Adagrad([*bottom.parameters(), *top.parameters()], 0.01)
    upper = torch.triu_indices(9, 9, 1).cuda()
    for _ in range(4):
        numbers, click = torch.randn(2048, 13).cuda(), torch.randint(0, 2, (2048,)).float().cuda()
        bags = [(torch.randint(0, 100000, (2048 * 5,)).cuda(), torch.arange(0, 2048 * 5, 5).cuda()) for _ in tables]
        x = bottom(numbers)
        all_of = torch.stack([x] + [table(*bag) for table, bag in zip(tables, bags)], 1)
        cross = (all_of @ all_of.transpose(1, 2))[:, upper[0], upper[1]]
        loss = F.binary_cross_entropy_with_logits(top(torch.cat([x, cross], 1)).squeeze(1), click)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()


@kind
def vq_vae_codebook():
    """A discrete autoencoder: nearest codes, straight-through gradients, averages of the codes, and codes that died."""

    def down(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 4, 2, 1), nn.GroupNorm(8, o), nn.SiLU())

    def up(i, o):
        return nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1), nn.GroupNorm(8, o), nn.SiLU())

    encoder = nn.Sequential(down(3, 64), down(64, 128), nn.Conv2d(128, 64, 3, padding=1)).cuda()
    decoder = nn.Sequential(nn.Conv2d(64, 128, 3, padding=1), up(128, 64), up(64, 32), nn.Conv2d(32, 3, 3, padding=1)).cuda()
    codes = torch.randn(1024, 64).cuda()
    counts, sums = torch.ones(1024).cuda(), codes.clone()
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], 3e-4)
    for _ in range(3):
        x = torch.rand(32, 3, 128, 128).cuda()
        z = encoder(x).permute(0, 2, 3, 1)
        flat = z.reshape(-1, 64)
        nearest = torch.cdist(flat, codes).argmin(1)
        chosen = codes[nearest].view_as(z)
        straight = z + (chosen - z).detach()
        loss = F.mse_loss(decoder(straight.permute(0, 3, 1, 2)), x) + 0.25 * F.mse_loss(z, chosen.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            hot = F.one_hot(nearest, 1024).float()
            counts.lerp_(hot.sum(0), 0.01)
            sums.lerp_(hot.T @ flat, 0.01)
            codes.copy_(sums / counts[:, None])
            dead = counts < 0.01
            codes[dead] = flat[torch.randint(0, len(flat), (int(dead.sum()),), device="cuda")]


@kind
def fp8_linear_scaled():
    """Linear layers whose products are made in 8-bit floats with a scale for each tensor (torch._scaled_mm)."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context, x, weight):
            context.save_for_backward(x, weight)
            return Product.scaled(x, weight.t(), torch.float8_e4m3fn, torch.float8_e4m3fn)

        @staticmethod
        def scaled(a, b, left, right):
            s, t = 448 / a.abs().amax().float().clamp_min(1e-12), 448 / b.abs().amax().float().clamp_min(1e-12)
            a, b = (a * s).to(left).contiguous(), (b * t).to(right).t().contiguous().t()
            return torch._scaled_mm(a, b, scale_a=1 / s, scale_b=1 / t, out_dtype=torch.bfloat16)

        @staticmethod
        def backward(context, slope):
            x, weight = context.saved_tensors
            return Product.scaled(slope, weight, torch.float8_e5m2, torch.float8_e4m3fn), Product.scaled(slope.t(), x, torch.float8_e5m2, torch.float8_e4m3fn)

    weights = nn.ParameterList(nn.Parameter(torch.randn(2048, 2048, dtype=torch.bfloat16) * 0.02) for _ in range(6)).cuda()
    optimizer = torch.optim.AdamW(weights)
    for _ in range(3):
        x = torch.randn(4096, 2048).cuda().bfloat16()
        for weight in weights:
            x = F.relu(Product.apply(x, weight))
        loss = x.float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


@kind
def sparse_products():
    """Power iteration over a graph: a sparse matrix times a sparse matrix, then times dense ones."""
    index = torch.randint(0, 8000, (2, 40000))
    adjacency = torch.sparse_coo_tensor(index, torch.rand(40000), (8000, 8000)).coalesce().cuda()
    two = torch.sparse.mm(adjacency, adjacency)
    layer = nn.Linear(128, 64).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    x = torch.randn(8000, 128).cuda()
    for _ in range(3):
        loss = torch.sparse.mm(two, layer(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

"""Training with packages that the other modules do not use: timm, peft, x-transformers, vit-pytorch, denoising-diffusion-pytorch,
performer-pytorch, perceiver-pytorch, segmentation-models-pytorch, and more of transformers.

They were written before the phantom had run any of them, and were measured on the H200 once. A kind needs the package that it
imports; `manifest.toml` has the versions.
"""
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import classify, images, kind, llama, tokens, train
from .published import Rows, quiet_arguments


# timm


@kind
def timm_maxvit_augmented_ema():
    """As timm's own train.py does: mixup with soft targets, AMP, layer decay, an average of the weights on the device, channels_last."""
    import timm
    import timm.data
    import timm.optim
    import timm.utils

    model = timm.create_model("maxvit_tiny_rw_224", pretrained=False, num_classes=100, drop_path_rate=0.1).cuda().to(memory_format=torch.channels_last)
    mixup = timm.data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=100, label_smoothing=0.1)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    ema, scaler = timm.utils.ModelEmaV3(model, decay=0.999), timm.utils.NativeScaler()
    for x, y in images(12, 3, 224, 224, classes=100, steps=4):
        x, y = mixup(x.cuda().contiguous(memory_format=torch.channels_last), y.cuda())
        with torch.autocast("cuda", torch.bfloat16):
            loss = timm.loss.SoftTargetCrossEntropy()(model(x), y) if hasattr(timm, "loss") else -(y * model(x).log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        ema.update(model)


def trained_by_timm_name(name, size, batch, optimizer="lamb", autocast=None, **changes):
    import timm
    import timm.optim

    model = timm.create_model(name, pretrained=False, num_classes=50, **changes).cuda()
    train(model, images(batch, 3, size, size, classes=50), classify, timm.optim.create_optimizer_v2(model, opt=optimizer, lr=1e-3), autocast=autocast)


@kind
def timm_nfnet_adaptive_clip():
    import timm
    import timm.utils

    model = timm.create_model("dm_nfnet_f0", pretrained=False, num_classes=50).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    for x, y in images(16, 3, 192, 192, classes=50):
        classify(model, x.cuda(), y.cuda()).backward()
        timm.utils.adaptive_clip_grad(model.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()


@kind
def timm_eva_lamb_bf16():
    trained_by_timm_name("eva02_tiny_patch14_224", 224, 32, autocast=torch.bfloat16)


@kind
def timm_mobilenetv4_rmsprop():
    trained_by_timm_name("mobilenetv4_conv_medium", 192, 48, optimizer="rmsproptf")


@kind
def timm_coatnet_checkpointed():
    import timm

    model = timm.create_model("coatnet_0_rw_224", pretrained=False, num_classes=50).cuda()
    model.set_grad_checkpointing(True)
    train(model, images(24, 3, 224, 224, classes=50), classify, torch.optim.AdamW(model.parameters()), autocast=torch.float16, scaler=torch.amp.GradScaler(init_scale=128.0))


@kind
def timm_hiera_drop_path():
    trained_by_timm_name("hiera_tiny_224", 224, 20, optimizer="adan", drop_path_rate=0.2)


@kind
def timm_res2net_lookahead():
    trained_by_timm_name("res2net50_26w_4s", 160, 32, optimizer="lookahead_radam")


@kind
def timm_darknet_yolo_like_neck():
    """Features of a backbone through a pyramid with upsampling, and three heads on grids of anchors."""
    import timm

    body = timm.create_model("cspdarknet53", pretrained=False, features_only=True, out_indices=(3, 4, 5)).cuda()
    sizes = body.feature_info.channels()
    side = nn.ModuleList(nn.Conv2d(c, 128, 1) for c in sizes).cuda()
    heads = nn.ModuleList(nn.Conv2d(128, 3 * 25, 3, padding=1) for _ in sizes).cuda()
    model = nn.ModuleList([body, side, heads])

    def loss_of(m, x, y):
        levels = [s(f) for s, f in zip(side, body(x))]
        for k in (1, 0):
            levels[k] = levels[k] + F.interpolate(levels[k + 1], scale_factor=2, mode="nearest")
        total = 0
        for head, level in zip(heads, levels):
            b, _, h, w = level.shape
            out = head(level).view(b, 3, 25, h, w).permute(0, 1, 3, 4, 2)
            want = torch.zeros_like(out[..., 4])
            want[torch.arange(b), y % 3, y % h, y % w] = 1
            chosen = out[torch.arange(b), y % 3, y % h, y % w]
            total = total + F.binary_cross_entropy_with_logits(out[..., 4], want) + chosen[:, :4].sigmoid().mean() + F.cross_entropy(chosen[:, 5:], y % 20)
        return total

    train(model, images(16, 3, 256, 256, classes=60), loss_of, torch.optim.SGD(model.parameters(), 0.01, momentum=0.937, nesterov=True), autocast=torch.bfloat16)


# peft


@kind
def peft_lora_trainer_bf16():
    import peft
    import transformers

    config = peft.LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(llama(num_hidden_layers=6), config)
    rows = [{"input_ids": it, "labels": it} for it in torch.randint(0, 32000, (40, 512))]
    arguments = quiet_arguments(per_device_train_batch_size=4, gradient_accumulation_steps=2, bf16=True, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}, max_steps=3, warmup_steps=1, lr_scheduler_type="cosine")
    transformers.Trainer(model=model, args=arguments, train_dataset=Rows(rows)).train()


@kind
def peft_dora_adapters():
    """Weight-decomposed adapters, whose norms need the merged weights."""
    import peft
    import transformers

    base = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=6))
    model = peft.get_peft_model(base, peft.LoraConfig(r=8, use_dora=True, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)).cuda()
    train(model, tokens(4, 256, 50000), lambda m, ids: m(input_ids=ids, labels=ids).loss, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-4))


@kind
def peft_prefix_and_ia3():
    import peft
    import transformers

    base = transformers.BertForSequenceClassification(transformers.BertConfig(num_hidden_layers=6, num_labels=5))
    model = peft.get_peft_model(base, peft.IA3Config(task_type="SEQ_CLS", target_modules=["key", "value", "output.dense"], feedforward_modules=["output.dense"])).cuda()
    batches = [(torch.randint(0, 30000, (32, 128)), torch.randint(0, 5, (32,))) for _ in range(3)]
    train(model, batches, lambda m, x, y: m(input_ids=x, labels=y).loss, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3), autocast=torch.bfloat16)


# Packages of single ideas


@kind
def x_transformers_decoder_options():
    """Rotary places, GLU, RMS norms, memory tokens, grouped heads, a wrapper that generates at the end."""
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=512, depth=6, heads=8, attn_kv_heads=2, rotary_pos_emb=True, ff_glu=True, ff_swish=True, ff_no_bias=True, use_rmsnorm=True, attn_flash=True, layer_dropout=0.0)
    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=12000, max_seq_len=1024, num_memory_tokens=8, attn_layers=layers)).cuda()
    train(model, tokens(4, 769, 12000), lambda m, ids: m(ids), torch.optim.AdamW(model.parameters(), 1e-4), clip=0.5)
    model.eval()
    model.generate(torch.randint(0, 12000, (2, 16)).cuda(), 24)


@kind
def x_transformers_encoder_decoder():
    from x_transformers import XTransformer

    model = XTransformer(dim=384, enc_num_tokens=6000, enc_depth=4, enc_heads=6, enc_max_seq_len=512, dec_num_tokens=6000, dec_depth=4, dec_heads=6, dec_max_seq_len=512, tie_token_emb=True).cuda()

    def batches():
        for _ in range(3):
            yield torch.randint(1, 6000, (12, 200)), torch.randint(1, 6000, (12, 180)), torch.arange(200)[None].expand(12, -1) < torch.randint(80, 201, (12, 1))

    train(model, batches(), lambda m, x, y, mask: m(x, y, mask=mask), torch.optim.Adam(model.parameters(), 3e-4))


@kind
def vit_pytorch_mae():
    from vit_pytorch import MAE, ViT

    body = ViT(image_size=224, patch_size=16, num_classes=100, dim=512, depth=6, heads=8, mlp_dim=2048, pool="mean")
    model = MAE(encoder=body, masking_ratio=0.75, decoder_dim=256, decoder_depth=4).cuda()
    train(model, images(32, 3, 224, 224), lambda m, x, y: m(x), torch.optim.AdamW(model.parameters()))


@kind
def vit_pytorch_packed_pictures():
    """NaViT: pictures of many sizes packed into rows, with tokens dropped."""
    from vit_pytorch.na_vit import NaViT

    model = NaViT(image_size=256, patch_size=32, num_classes=100, dim=512, depth=4, heads=8, mlp_dim=1024, token_dropout_prob=0.1).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        pictures = [[torch.randn(3, h, w).cuda() for h, w in row] for row in ([(256, 256), (128, 128)], [(128, 256), (256, 128)], [(64, 256), (160, 192)])]
        loss = F.cross_entropy(model(pictures), torch.randint(0, 100, (6,)).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@kind
def vit_pytorch_video():
    from vit_pytorch.simple_vit_3d import SimpleViT

    model = SimpleViT(image_size=96, frames=16, image_patch_size=16, frame_patch_size=2, num_classes=40, dim=384, depth=6, heads=6, mlp_dim=1536).cuda()
    train(model, images(8, 3, 16, 96, 96, classes=40), classify, torch.optim.AdamW(model.parameters()), autocast=torch.float16, scaler=torch.amp.GradScaler(init_scale=64.0))


@kind
def denoising_diffusion_with_sampling():
    """The U-Net of denoising-diffusion-pytorch with its Gaussian process, an average of the weights, and a few sampled pictures."""
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet
    from ema_pytorch import EMA

    model = GaussianDiffusion(Unet(dim=48, dim_mults=(1, 2, 4), flash_attn=False), image_size=64, timesteps=1000, sampling_timesteps=6).cuda()
    ema = EMA(model, beta=0.995, update_every=2, update_after_step=0)
    ema.to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), 8e-5, betas=(0.9, 0.99))
    for step in range(4):
        for _ in range(2):
            (model(torch.rand(8, 3, 64, 64).cuda()) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        ema.update()
    ema.ema_model.eval()
    with torch.inference_mode():
        ema.ema_model.sample(batch_size=4)


@kind
def performer_random_features():
    from performer_pytorch import PerformerLM

    model = PerformerLM(num_tokens=8000, max_seq_len=2048, dim=384, depth=4, heads=6, causal=True, feature_redraw_interval=2, reversible=True, nb_features=128).cuda()
    train(model, tokens(2, 1024, 8000), lambda m, ids: F.cross_entropy(m(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()), torch.optim.Adam(model.parameters()))


@kind
def perceiver_latents():
    from perceiver_pytorch import Perceiver

    model = Perceiver(input_channels=3, input_axis=2, num_freq_bands=6, max_freq=10.0, depth=3, num_latents=128, latent_dim=256, num_classes=50, weight_tie_layers=True, self_per_cross_attn=2).cuda()
    train(model, images(12, 96, 96, 3, classes=50), classify, torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


@kind
def segmentation_unetplusplus_dice():
    import segmentation_models_pytorch as smp

    model = smp.UnetPlusPlus("resnet34", encoder_weights=None, classes=6).cuda()
    dice = smp.losses.DiceLoss("multiclass")
    batches = [(torch.randn(8, 3, 224, 224), torch.randint(0, 6, (8, 224, 224))) for _ in range(3)]
    train(model, batches, lambda m, x, y: dice(m(x), y), torch.optim.Adam(model.parameters()), autocast=torch.bfloat16)


# More of transformers


@kind
def deberta_disentangled():
    import transformers

    model = transformers.DebertaV2ForTokenClassification(transformers.DebertaV2Config(vocab_size=16000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048, relative_attention=True, position_buckets=256, pos_att_type=["p2c", "c2p"], num_labels=9)).cuda()
    batches = [(torch.randint(0, 16000, (12, 256)), torch.randint(0, 9, (12, 256))) for _ in range(3)]
    train(model, batches, lambda m, x, y: m(input_ids=x, labels=y).loss, torch.optim.AdamW(model.parameters()))


@kind
def longformer_windows():
    import transformers

    model = transformers.LongformerForSequenceClassification(transformers.LongformerConfig(vocab_size=8000, hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536, attention_window=128, max_position_embeddings=1030, num_labels=4)).cuda()
    batches = [(torch.randint(3, 8000, (4, 1000)), torch.randint(0, 4, (4,))) for _ in range(3)]
    train(model, batches, lambda m, x, y: m(input_ids=x, attention_mask=torch.ones_like(x), labels=y).loss, torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


@kind
def clip_large_logits():
    """Two towers whose logits are larger than the model: 6,144 pairs of short texts and small pictures."""
    import transformers

    vision = dict(hidden_size=192, intermediate_size=768, num_hidden_layers=3, num_attention_heads=3, image_size=64, patch_size=32)
    text = dict(hidden_size=192, intermediate_size=768, num_hidden_layers=3, num_attention_heads=3, vocab_size=4000, eos_token_id=3999)
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=256)).cuda()
    batches = [(torch.randint(0, 3999, (6144, 12)), torch.randn(6144, 3, 64, 64)) for _ in range(3)]
    train(model, batches, lambda m, t, x: m(input_ids=t, pixel_values=x, return_loss=True).loss, torch.optim.AdamW(model.parameters()), autocast=torch.float16, scaler=torch.amp.GradScaler(init_scale=128.0))


@kind
def segformer_and_upsampling():
    import transformers

    model = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(num_labels=19)).cuda()
    batches = [(torch.randn(6, 3, 256, 256), torch.randint(0, 19, (6, 256, 256))) for _ in range(3)]
    train(model, batches, lambda m, x, y: m(pixel_values=x, labels=y).loss, torch.optim.AdamW(model.parameters()))


@kind
def patch_time_series():
    import transformers

    model = transformers.PatchTSTForPrediction(transformers.PatchTSTConfig(num_input_channels=21, context_length=512, patch_length=16, patch_stride=8, prediction_length=96, d_model=128, num_attention_heads=16, ffn_dim=512)).cuda()
    batches = [(torch.randn(32, 512, 21), torch.randn(32, 96, 21)) for _ in range(3)]
    train(model, batches, lambda m, x, y: m(past_values=x, future_values=y).loss, torch.optim.Adam(model.parameters()))


@kind
def mamba2_and_recurrent_gemma():
    import transformers

    for model in (
        transformers.Mamba2ForCausalLM(transformers.Mamba2Config(vocab_size=6000, hidden_size=256, num_hidden_layers=2, num_heads=8, head_dim=64, n_groups=1, state_size=32)),
        transformers.RecurrentGemmaForCausalLM(transformers.RecurrentGemmaConfig(vocab_size=6000, hidden_size=256, lru_width=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=1024, attention_window_size=128)),
    ):
        model.cuda()
        train(model, tokens(2, 192, 6000), lambda m, ids: m(input_ids=ids, labels=ids).loss, torch.optim.AdamW(model.parameters()))
        del model


@kind
def fine_tuned_vision_language():
    """A frozen vision tower and a language model that reads its patches in the place of image tokens (LLaVA)."""
    import transformers

    vision = transformers.CLIPVisionConfig(hidden_size=384, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=6, image_size=112, patch_size=14)
    text = transformers.LlamaConfig(vocab_size=8001, hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8)
    model = transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_index=8000)).to("cuda", torch.bfloat16)
    for name, p in model.named_parameters():
        p.requires_grad_("vision" not in name)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    for _ in range(3):
        ids = torch.randint(0, 8000, (4, 160))
        ids[:, 5:69] = 8000
        ids = ids.cuda()
        out = model(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=torch.randn(4, 3, 112, 112).to("cuda", torch.bfloat16), labels=torch.where(ids == 8000, -100, ids))
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()


@kind
def trainer_compiled_evaluated_saved():
    """Trainer with torch.compile, evaluation with metrics each few steps, the best model saved and loaded again."""
    import transformers

    model = transformers.RobertaForSequenceClassification(transformers.RobertaConfig(vocab_size=8000, hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536, num_labels=3))
    rows = [{"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": int(ids[0]) % 3} for ids in torch.randint(3, 8000, (64, 96))]
    arguments = transformers.TrainingArguments(output_dir=tempfile.mkdtemp(), report_to=[], disable_tqdm=True, per_device_train_batch_size=16, per_device_eval_batch_size=64, max_steps=6, eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=3, save_total_limit=1, load_best_model_at_end=True, metric_for_best_model="accuracy", torch_compile=True, bf16=True, dataloader_num_workers=1, optim="adamw_torch_fused", label_smoothing_factor=0.1)
    transformers.Trainer(model=model, args=arguments, train_dataset=Rows(rows), eval_dataset=Rows(rows), compute_metrics=lambda it: {"accuracy": float((it.predictions.argmax(-1) == it.label_ids).mean())}).train()

"""Pictures from a pipeline of diffusers: eight of 768 x 768 in half precision, guided."""

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from tokenizers import Tokenizer, models
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

vocabulary = {"<pad>": 0, "<eos>": 1, "a": 2, "cat": 3}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel(vocabulary, "<pad>")), pad_token="<pad>", eos_token="<eos>", model_max_length=77
)
pipe = StableDiffusionPipeline(
    vae=AutoencoderKL(
        block_out_channels=(128, 256, 512, 512), latent_channels=4, sample_size=768, layers_per_block=2,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
    ),
    text_encoder=CLIPTextModel(CLIPTextConfig(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, vocab_size=49408)),
    tokenizer=tokenizer,
    unet=UNet2DConditionModel(sample_size=96, cross_attention_dim=768),
    scheduler=DDIMScheduler(),
    safety_checker=None,
    feature_extractor=None,
    requires_safety_checker=False,
)
pipe = pipe.to("cuda", torch.float16)
pipe.set_progress_bar_config(disable=True)
embeds = torch.randn(8, 77, 768, dtype=torch.float16, device="cuda")
images = pipe(
    prompt_embeds=embeds, negative_prompt_embeds=torch.zeros_like(embeds), num_inference_steps=6, height=768, width=768, output_type="pt"
).images
print(images.shape)

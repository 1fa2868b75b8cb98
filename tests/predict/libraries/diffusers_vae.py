"""A VAE of diffusers, trained, and a pipeline that makes pictures with what was trained."""

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel

down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
vae = AutoencoderKL(down_block_types=down, up_block_types=up, block_out_channels=(32, 64), latent_channels=4, norm_num_groups=8).cuda()
optimizer = torch.optim.AdamW(vae.parameters(), 1e-4)
for _ in range(4):
    pictures = torch.rand(2, 3, 64, 64, device="cuda")
    posterior = vae.encode(pictures).latent_dist
    made = vae.decode(posterior.sample()).sample
    loss = torch.nn.functional.mse_loss(made, pictures) + 1e-6 * posterior.kl().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
blocks = dict(down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
unet = UNet2DConditionModel(sample_size=16, layers_per_block=1, block_out_channels=(32, 64), cross_attention_dim=64, norm_num_groups=8, **blocks)
parts = dict(text_encoder=None, tokenizer=None, safety_checker=None, feature_extractor=None, requires_safety_checker=False)
pipeline = StableDiffusionPipeline(vae=vae, unet=unet, scheduler=DDIMScheduler(), **parts).to("cuda", torch.float16)
pipeline.set_progress_bar_config(disable=True)
pipeline.enable_attention_slicing()
words = torch.randn(2, 8, 64, device="cuda", dtype=torch.float16)
print(pipeline(prompt_embeds=words, negative_prompt_embeds=words, num_inference_steps=3, height=32, width=32, output_type="np").images.shape)

"""Text-to-image training as diffusers' example has it, with a small UNet and a moving average of it."""

import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel

blocks = dict(down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
unet = UNet2DConditionModel(sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), cross_attention_dim=64, norm_num_groups=8, **blocks).cuda()
average = EMAModel(unet.parameters())
scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(unet.parameters(), 1e-4)
rate = get_cosine_schedule_with_warmup(optimizer, 2, 10)
for _ in range(4):
    latents, text = torch.randn(4, 4, 16, 16, device="cuda"), torch.randn(4, 8, 64, device="cuda")
    noise, steps = torch.randn_like(latents), torch.randint(0, 1000, (4,), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.mse_loss(unet(scheduler.add_noise(latents, noise, steps), steps, text).sample, noise)
    loss.backward()
    optimizer.step()
    rate.step()
    optimizer.zero_grad()
    average.step(unet.parameters())

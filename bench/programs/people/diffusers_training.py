"""The unconditional example of diffusers: a UNet2DModel of 64 x 64, EMA, accelerate with accumulation."""

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(mixed_precision="no", gradient_accumulation_steps=1)
    model = UNet2DModel(
        sample_size=64, in_channels=3, out_channels=3, layers_per_block=2, block_out_channels=(128, 128, 256, 256, 512, 512),
        down_block_types=("DownBlock2D", "DownBlock2D", "DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D", "UpBlock2D", "UpBlock2D"),
    )
    ema = EMAModel(model.parameters(), decay=0.9999, use_ema_warmup=True)
    noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.95, 0.999), weight_decay=1e-6)
    loader = DataLoader(TensorDataset(torch.rand(640, 3, 64, 64) * 2 - 1), batch_size=32, shuffle=True)
    scheduler = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=5, num_training_steps=len(loader))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    ema.to(accelerator.device)
    for (clean,) in loader:
        noise = torch.randn_like(clean)
        steps = torch.randint(0, 1000, (clean.shape[0],), device=clean.device).long()
        noisy = noise_scheduler.add_noise(clean, noise, steps)
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(noisy, steps).sample.float(), noise.float())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            ema.step(model.parameters())


if __name__ == "__main__":
    main()

"""A small segmenter learns from a large frozen one: autocast and channels_last are the script's own, poly schedule, mIoU."""
import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.benchmark = False


class Scenes(Dataset):
    def __init__(self, n, size):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = torch.randn(3, self.size, self.size, generator=g)
        mask = torch.randint(0, 21, (self.size // 32, self.size // 32), generator=g)
        mask = mask.repeat_interleave(32, 0).repeat_interleave(32, 1)
        mask[torch.rand(mask.shape, generator=g) < 0.02] = 255
        return image, mask


def main():
    torch.manual_seed(0)
    teacher = torchvision.models.segmentation.deeplabv3_resnet101(weights=None, weights_backbone=None, num_classes=21)
    student = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21)
    teacher = teacher.cuda().to(memory_format=torch.channels_last).eval().requires_grad_(False)
    student = student.cuda().to(memory_format=torch.channels_last)
    train = DataLoader(Scenes(320, 512), 32, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
    valid = DataLoader(Scenes(32, 512), 16, num_workers=2)
    groups = [{"params": student.backbone.parameters(), "lr": 0.01}, {"params": student.classifier.parameters(), "lr": 0.1}]
    optimizer = torch.optim.SGD(groups, momentum=0.9, weight_decay=1e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=3 * len(train), power=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(3):
        student.train()
        for images, masks in train:
            images = images.cuda(non_blocking=True).to(memory_format=torch.channels_last)
            masks = masks.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.float16):
                with torch.no_grad():
                    wanted = teacher(images)["out"]
                out = student(images)["out"]
                loss = F.cross_entropy(out, masks, ignore_index=255)
                loss = loss + 4 * F.kl_div((out / 2).log_softmax(1), (wanted / 2).softmax(1), reduction="batchmean") / out[0, 0].numel()
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(student.parameters(), 10.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
        student.eval()
        counts = torch.zeros(21, 21, device="cuda", dtype=torch.long)
        with torch.no_grad():
            for images, masks in valid:
                out = student(images.cuda())["out"].argmax(1)
                masks = masks.cuda()
                keep = masks != 255
                counts += torch.bincount(21 * masks[keep] + out[keep], minlength=441).view(21, 21)
        iou = counts.diag() / (counts.sum(0) + counts.sum(1) - counts.diag()).clamp(min=1)
        print(epoch, loss.item(), "mIoU", iou.mean().item())


if __name__ == "__main__":
    main()

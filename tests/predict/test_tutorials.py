"""Training scripts as public tutorials have them, unchanged, and the ways in which people start them."""

import pytest
from harness import PYTHON, assert_consistent

HF_TRAINER = """
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Reviews(Dataset):
    def __len__(self):
        return 256
    def __getitem__(self, i):
        ids = torch.randint(0, 1000, (64,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "attention_mask": torch.ones(64, dtype=torch.long), "labels": torch.tensor(i % 2)}

config = BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=8, num_train_epochs=1, report_to="none", save_strategy="no"
)
trainer = Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=Reviews())
trainer.train()
"""

SMALL = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

LIGHTNING = """
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.layers(images), labels)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

data = TensorDataset(torch.randn(1024, 1, 28, 28), torch.randint(0, 10, (1024,)))
trainer = L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False)
trainer.fit(Classifier(), DataLoader(data, batch_size=64, shuffle=True))
"""

AMP_AND_ACCUMULATION = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda"
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64 * 8 * 8, 10),
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
loader = DataLoader(TensorDataset(torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,))), batch_size=32)
accumulate = 2

for epoch in range(3):
    for i, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(images), labels) / accumulate
        scaler.scale(loss).backward()
        if (i + 1) % accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
    print(f"epoch {epoch}: {loss.item() * accumulate:.3f}")
"""


@pytest.mark.parametrize(
    "text", [HF_TRAINER, LIGHTNING, AMP_AND_ACCUMULATION], ids=["trainer", "lightning", "amp-and-accumulation"]
)
def test_runs_unchanged(plimsoll, text):
    ran = plimsoll.predict(plimsoll.script(text), options=["--gpu", "rtx3090"])
    assert ran.code == 0, ran
    assert 3 <= ran.report["steps_seen"], ran
    assert_consistent(ran.report)


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    "command",
    [
        ["train.py"],
        [PYTHON, "train.py"],
        [PYTHON, "-u", "-m", "train"],
        ["bash", "-c", f"{PYTHON} train.py | cat"],
        # The page on several GPUs and the tests of ranks start others.
        pytest.param([PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "train.py"], marks=pytest.mark.soak),
    ],
    ids=["script", "python", "module", "pipe", "torchrun"],
)
def test_however_it_is_started(plimsoll, command):
    plimsoll.script(AMP_AND_ACCUMULATION)
    ran = plimsoll.predict(*command, options=["--gpu", "rtx3090"])
    assert ran.code == 0, ran
    assert 3 <= ran.report["steps_seen"], ran


@pytest.mark.soak
@pytest.mark.matrix(1)
def test_a_users_own_sitecustomize_runs_too(plimsoll):
    folder = plimsoll.folder / "theirs"
    folder.mkdir()
    folder.joinpath("sitecustomize.py").write_text("print('theirs ran')\n")
    script = plimsoll.script(SMALL)
    ran = plimsoll.predict(script, options=["--gpu", "t4"], environment=plimsoll.environment(PYTHONPATH=str(folder)))
    assert ran.code == 0, ran
    assert "theirs ran" in ran.stdout


def test_the_whole_script(plimsoll):
    script = plimsoll.script(AMP_AND_ACCUMULATION)
    ran = plimsoll.predict(script, options=["--gpu", "rtx3090", "--until-exit"])
    assert ran.code == 0, ran
    assert "epoch 2:" in ran.stdout
    assert ran.report["steps_seen"] == 24, ran

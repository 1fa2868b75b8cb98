"""Overwrites and appends small files: pickle, json, yaml, csv, jsonl, a log in append mode, best.txt with the best loss."""
import csv
import json
import pickle

import torch
import yaml
from torch import nn

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

config = yaml.safe_load(open("config.yaml"))
config["runs"] = config.get("runs", 0) + 1
assert config["runs"] == 1
yaml.safe_dump(config, open("config.yaml", "w"))
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
lines = len(open("train.log").readlines())
for step in range(10):
    loss = model(torch.randn(8192, 256, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with open("train.log", "a") as log:
        log.write(f"step {step} loss {loss.item():.6f}\n")
    with open("history.jsonl", "a") as log:
        print(json.dumps({"step": step, "loss": loss.item()}), file=log)
    with open("metrics.csv", "a", newline="") as file:
        csv.writer(file).writerow([step, loss.item()])
    if loss.item() < float(open("best.txt").read()):
        with open("best.txt", "w") as file:
            file.write(str(loss.item()))
    json.dump({"steps": step + 1}, open("metrics.json", "w"))
    pickle.dump({"step": step, "weights": model[0].weight.detach().cpu()}, open("m.pkl", "wb"))

assert len(open("train.log").readlines()) == lines + 10
assert len(open("history.jsonl").readlines()) == 11 and len(open("metrics.csv").readlines()) == 13
assert json.load(open("metrics.json")) == {"steps": 10} and pickle.load(open("m.pkl", "rb"))["step"] == 9
assert float(open("best.txt").read()) < 0.9
assert yaml.safe_load(open("config.yaml"))["runs"] == 1
print("READ BACK OK")

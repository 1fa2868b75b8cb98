"""trl's SFTTrainer on a small Qwen, rows of different lengths, packed by nobody."""

import random

from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import SFTConfig, SFTTrainer

random.seed(0)
vocabulary = {"<pad>": 0, "<eos>": 1, **{f"w{i}": i + 2 for i in range(31998)}}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, "<pad>")), pad_token="<pad>", eos_token="<eos>")
rows = [{"input_ids": [random.randrange(2, 32000) for _ in range(random.randint(300, 1024))]} for _ in range(400)]
model = Qwen2ForCausalLM(
    Qwen2Config(hidden_size=1024, intermediate_size=2816, num_hidden_layers=14, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000)
)
config = SFTConfig(
    output_dir="sft",
    per_device_train_batch_size=8,
    gradient_checkpointing=False,
    bf16=True,
    max_steps=24,
    learning_rate=2e-5,
    logging_steps=5,
    save_strategy="no",
    report_to="none",
)
trainer = SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
trainer.train()

"""trl's SFTTrainer on a Llama of a configuration, with LoRA and packed texts; its tokenizer is made here."""

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = {word: i for i, word in enumerate(["<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(500))])}
plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
texts = [" ".join(f"w{(7 * i + j) % 500}" for j in range(20 + i)) for i in range(32)]
config = LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=len(words))
arguments = SFTConfig("out", max_length=64, per_device_train_batch_size=4, max_steps=4, bf16=True, report_to=[], save_strategy="no", dataset_text_field="text")
trainer = SFTTrainer(
    LlamaForCausalLM(config),
    arguments,
    train_dataset=Dataset.from_dict({"text": texts}),
    processing_class=tokenizer,
    peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
)
trainer.train()

"""cause: leak/traceback-kept at line 22
memory: 2GiB
why: a request that was too large is answered with an error, which is kept for a status page; with it stay the frames of the pass, and the next
request has no room.
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel


class Service:
    def __init__(self):
        config = GPT2Config(vocab_size=8000, n_embd=768, n_layer=8, n_head=12, n_positions=1024, attn_implementation="eager")
        self.model = GPT2LMHeadModel(config).cuda().eval()
        self.last_error = None
        self.failures = 0

    @torch.inference_mode()
    def answer(self, texts):
        ids = torch.tensor(texts, device="cuda")
        try:
            # The word that follows is enough.
            logits = self.model(ids, use_cache=False, logits_to_keep=1).logits  # here
            self.failures = 0
            return logits[:, -1].argmax(-1).tolist()
        except torch.cuda.OutOfMemoryError as error:
            self.last_error = error
            self.failures += 1
            if self.failures == 4:
                raise
            return {"status": 503}

    def status(self):
        return {"last error": str(self.last_error)}


service = Service()
for n in (2, 6, 4, 24, 6, 5, 6, 4, 6):
    service.answer([[1] * 1000] * n)
print(service.status())

"""Embeddings of all documents with a BERT, then all distances between queries and documents, top 50."""
import torch
from transformers import BertConfig, BertModel

torch.manual_seed(0)
model = BertModel(BertConfig(hidden_size=1024, num_hidden_layers=12, num_attention_heads=16, intermediate_size=4096)).half().cuda().eval()
documents = torch.randint(0, 30000, (6144, 256))
vectors = []
with torch.no_grad():
    for batch in documents.split(512):
        out = model(batch.cuda(), attention_mask=torch.ones_like(batch).cuda()).last_hidden_state
        vectors.append(out.mean(1))
    vectors = torch.nn.functional.normalize(torch.cat(vectors).float(), dim=1)
    bank = vectors.repeat(40, 1)
    distances = torch.cdist(vectors[:4096], bank)
    near = distances.topk(50, largest=False)
print(near.indices.shape)

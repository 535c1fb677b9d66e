"""Two steps of a small mixture of experts (Mixtral's architecture), from random weights."""

import torch
import transformers

config = transformers.MixtralConfig(
    hidden_size=1024,
    intermediate_size=3584,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=4,
    num_local_experts=8,
    vocab_size=32000,
)
with torch.device("cuda"):
    torch.set_default_dtype(torch.bfloat16)
    model = transformers.MixtralForCausalLM(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.zeros(4, 512, dtype=torch.long, device="cuda")
for _ in range(2):
    model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()

"""One full bf16 AdamW step of a 6.7-billion-parameter Llama with checkpointing, from random weights."""

import torch
import transformers

config = transformers.LlamaConfig(  # the published shape of the first 7B model
    hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32, vocab_size=32000
)
with torch.device("cuda"):
    torch.set_default_dtype(torch.bfloat16)
    model = transformers.LlamaForCausalLM(config)
model.gradient_checkpointing_enable({"use_reentrant": False})
model.train()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
tokens = torch.zeros(1, 2048, dtype=torch.long, device="cuda")
model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
optimizer.step()
optimizer.zero_grad()

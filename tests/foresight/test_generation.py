"""``generate`` of Hugging Face runs through on simulated cards, without a setting, at its full length."""

import importlib.util

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("transformers"), reason="transformers is not installed"),
]

GENERATE = """
import torch, transformers as tf
config = tf.LlamaConfig(
    hidden_size=64, intermediate_size=128, num_attention_heads=4, vocab_size=128, num_hidden_layers=2
)
net = tf.AutoModelForCausalLM.from_config(config).cuda().eval()
ids = torch.randint(3, 100, (2, 16), device="cuda")
calls = 0
def count(*_):
    global calls
    calls += 1
net.register_forward_hook(count)
for options in (dict(do_sample=False), dict(do_sample=True, top_k=5), dict(num_beams=2)):
    calls = 0
    net.generate(ids, max_new_tokens=8, pad_token_id=0, **options)
    print(calls)
loss = torch.ones(1, device="cuda")
print(sum(bool(loss.isnan()) for _ in range(64)))
"""


def test_generate_ends_at_its_maximum_length_and_guards_stay_false(gpumem, simcard_libraries):
    script = gpumem.folder / "generate.py"
    script.write_text(GENERATE)

    done = gpumem("run", "--simulate", "4GiB", script, env={"HF_HUB_OFFLINE": "1"})

    assert done.stdout.split() == [b"8", b"8", b"8", b"0"]

"""``estimate`` as users start it, and held against what PyTorch and transformers really allocate."""

import json
import struct
import subprocess
import sys

import pytest

GIB = 1 << 30


def estimate(gpumem, *words):
    """The JSON document of a command line."""
    return json.loads(gpumem.told("estimate", *words, "--json").stdout)


def sizes(document):
    """Key → bytes."""
    return {line["key"]: line["bytes"] for line in document["lines"]}


COMMANDS = {
    "--params 7B --bits 16": 14_000_000_000,
    "--params 7e9 --bits bf16": 14_000_000_000,
    "--params 7B --bits 32": 28_000_000_000,
    "--params 7B --bits 4": 3_500_000_000,
    "--params 13B --bits 16": 26_000_000_000,
    "--params 7B --bits 16 --reserve-gib 4": 14_000_000_000 + 4 * GIB,
    "--layers 32 --kv-heads 8 --head-dim 128 --tokens 8192 --sequences 1 --kv-bits 16": GIB,
    "--layers 32 --kv-heads 8 --head-dim 128 --tokens 8192 --sequences 4 --kv-bits 16": 4 * GIB,
    "--params 7B --bits 16 --train --optimizer adamw --master-weights --ranks 8 --shard full": 14_000_000_000,
}


@pytest.mark.parametrize(("words", "size"), COMMANDS.items(), ids=list(COMMANDS))
def test_a_newcomer_s_command_gives_the_figure(gpumem, words, size):
    assert estimate(gpumem, *words.split())["sum"]["bytes"] == size


def test_the_text_says_what_was_asked_and_leaves_nothing_behind(gpumem):
    done = gpumem("estimate", "--params", "7B", "--bits", "16", "--reserve-gib", "4", "--device", "24GiB")
    text = done.stdout.decode()

    assert text.startswith("gpumem-tui estimate --params 7B --bits 16 --reserve-gib 4 --device 24GiB\n")
    assert "17.04" in text
    assert done.stderr == b""
    assert list(gpumem.folder.iterdir()) == []


BAD = [
    ([], "nothing to estimate"),
    (["--params", "0"], "at least 1"),
    (["--params=-7B"], "not understood"),
    (["--params", "-7B"], "--params"),
    (["--params", "nan"], "not understood"),
    (["--params", "1e99"], "the most is"),
    (["--params", "7GB"], "counts parameters"),
    (["--params", "7B", "--bits", "16GB"], "--bits"),
    (["--params", "7B", "--bits", "0"], "out of range"),
    (["--params", "7B", "--reserve-gib", "4GiB"], "number of GiB"),
    (["--params", "7B", "--reserve-gib", "-1"], "number of GiB"),
    (["--params", "7B", "--device", "24GB"], "24GiB"),
    (["--params", "7B", "--device", "24GiB,"], "--device"),
    (["--params", "7B", "--optimizer", "magic", "--train"], "take one of"),
    (["--params", "7B", "--shard", "some", "--train", "--ranks", "2"], "take one of"),
    (["--params", "7B", "--train", "--lora-params", "1", "--lora-targets", ","], "list of names"),
    (["--tokens", "8K"], "8000 or 8192"),
    (["--tokens", "8192"], "needs --layers"),
    (["--bogus"], "--bogus"),
    (["nosuch/model"], "nothing is downloaded"),
    (["truncated.safetensors"], "truncated"),
    (["config.json"], "not valid JSON"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_clear_line_and_nothing_half_written(gpumem, words, says):
    (gpumem.folder / "truncated.safetensors").write_bytes(struct.pack("<Q", 500) + b"{")
    (gpumem.folder / "config.json").write_text("{")

    done = gpumem.told("estimate", *words)
    lines = done.stderr.splitlines()

    assert done.returncode == 2
    assert len(lines) == 1
    assert lines[0].startswith("gpumem-tui: ")
    assert says in lines[0]
    assert done.stdout == ""


def test_a_terminal_without_utf_8_gets_plain_characters_and_json_stays_itself(gpumem):
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    text = gpumem("estimate", "--params", "7B", "--device", "8GiB", env=ascii_only).stdout.decode()
    document = gpumem("estimate", "--params", "7B", "--json", env=ascii_only).stdout

    assert "= 7,000,000,000 parameters x 16 bits / 8" in text
    assert "-5,410,065,408" in text
    assert "?" not in text
    assert json.loads(document)["lines"][0]["formula"] == "7,000,000,000 parameters × 16 bits ÷ 8"


def test_it_loads_the_standard_library_only(gpumem):
    (gpumem.folder / "config.json").write_text('{"num_hidden_layers": 2}')
    code = "import sys; from gpumem_tui.cli import main; main(sys.argv[1:]); print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code, "estimate", "config.json", "--params", "7B"],
        cwd=gpumem.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())

    assert "gpumem_tui.sources.modelfiles" in loaded
    assert not loaded & {"torch", "msgspec", "psutil", "pynvml", "textual", "numpy", "safetensors"}


STATE = """
import sys, torch
net = torch.nn.Sequential(torch.nn.Linear(96, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 32))
net.to(getattr(torch, sys.argv[1]))
make = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-3),
    "sgd-momentum": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "rmsprop": lambda p: torch.optim.RMSprop(p),
    "adam": lambda p: torch.optim.Adam(p),
    "adamw": lambda p: torch.optim.AdamW(p),
    "adamw-amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "adafactor": lambda p: torch.optim.Adafactor(p),
}
from safetensors.torch import save_file
save_file(dict(net.state_dict()), "model.safetensors")
for name, of in make.items():
    optimizer = of(net.parameters())
    optimizer.zero_grad()
    net(torch.ones(2, 96, dtype=net[0].weight.dtype)).sum().backward()
    optimizer.step()
    state = [v for s in optimizer.state.values() for k, v in s.items() if k != "step" and v is not None]
    gradients = [p.grad for p in net.parameters()]
    print(name, *(sum(t.numel() * t.element_size() for t in of) for of in (gradients, state)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_and_states_are_those_of_torch_optim(gpumem, dtype):
    done = subprocess.run(
        [sys.executable, "-c", STATE, dtype], cwd=gpumem.folder, capture_output=True, text=True, check=True
    )

    held = {row.split()[0]: tuple(map(int, row.split()[1:])) for row in done.stdout.splitlines()}
    computed = {}
    for name in held:
        found = sizes(estimate(gpumem, "model.safetensors", "--train", "--optimizer", name))
        computed[name] = (found["gradients"], found["optimizer"])

    assert len(held) == 8
    assert held == computed


CACHE = """
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache
config = LlamaConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=3, num_attention_heads=8,
                     num_key_value_heads=2, vocab_size=100)
model = LlamaForCausalLM(config).to(torch.bfloat16)
model.save_pretrained(".")
def size(cache):
    return sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
for cache in (DynamicCache(config=config), StaticCache(config=config, max_cache_len=50)):
    model(torch.zeros(4, 17, dtype=torch.long), past_key_values=cache)
    print(size(cache))
print(sum(p.numel() * p.element_size() for p in model.parameters()))
"""


@pytest.mark.slow
def test_a_model_s_directory_gives_what_transformers_holds(gpumem):
    done = subprocess.run(
        [sys.executable, "-c", CACHE], cwd=gpumem.folder, capture_output=True, text=True, check=True
    )
    grown, static, weights = map(int, done.stdout.split()[-3:])
    words = (".", "--tokens", "17", "--sequences", "4")

    assert sizes(estimate(gpumem, *words)) == {"weights.BF16": weights, "kv_cache": grown}
    assert sizes(estimate(gpumem, *words, "--static-tokens", "50"))["kv_cache"] == static


UNIT = 1024 * 1024
TRAIN = """
import gc, os, sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
gloo = dist.new_group(backend="gloo")

def train(how):
    net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(4)]).to(device)
    model = net
    if how in ("ddp", "view"):
        model = DDP(net, device_ids=[rank], process_group=gloo, gradient_as_bucket_view=how == "view")
    if how == "full":
        for layer in net:
            fully_shard(layer)
        fully_shard(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(1, 1024, device=device)).sum()
        torch.cuda.reset_peak_memory_stats()
        loss.backward()
        peak = torch.cuda.max_memory_allocated()
        optimizer.step()
    del loss
    gc.collect()
    before = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    held = torch.cuda.memory_allocated()
    if rank == 0:
        print("HELD", how, held, peak - (before - held), flush=True)

for how in ("alone", "ddp", "view", "full"):
    train(how)
    gc.collect()
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.simcard(devices=["24GiB", "24GiB"])
def test_between_steps_the_allocator_holds_what_the_sheet_says(gpumem, simcard):
    script = simcard.folder / "train.py"
    script.write_text(TRAIN)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    options = {
        "alone": [],
        "ddp": ["--ranks", "2", "--shard", "ddp"],
        "view": ["--ranks", "2", "--shard", "ddp", "--bucket-view"],
        "full": ["--ranks", "2", "--shard", "fsdp"],
    }

    done = simcard.run([sys.executable, *torchrun, *rendezvous, script])
    rows = [row.split() for row in done.stdout.splitlines() if row.startswith("HELD")]
    held = {how: int(size) for _, how, size, _ in rows}
    peaks = {how: int(size) for _, how, _, size in rows}
    base = ["--params", str(4 * UNIT), "--bits", "32", "--train", "--optimizer", "adamw"]
    computed = {how: estimate(gpumem, *base, *more)["sum"]["bytes"] for how, more in options.items()}
    gathered = estimate(gpumem, *base, *options["full"], "--gathered-params", UNIT)["sum"]["bytes"]

    assert held == computed
    assert abs(peaks["full"] - gathered) < UNIT * 4 // 2, (peaks["full"], gathered)

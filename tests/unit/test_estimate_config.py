"""config.json: KV heads as such, windows layer by layer, nested text models; nothing strange is guessed."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.estimate.figures import Basis, Origin
from gpumem_tui.analysis.estimate.plan import Model, Request, estimate
from gpumem_tui.analysis.estimate.shapes import read_config
from gpumem_tui.errors import BadInput, UsageError

GIB = 1 << 30
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def shape(config, **options):
    """What a config.json says."""
    return read_config(config, "config.json", **options)


def cache(config, tokens=8192, **options):
    """The estimate of the cache that a config.json describes."""
    return estimate(Request(tokens=tokens, model=Model(config=config), **options))


def test_the_cache_is_counted_in_kv_heads():
    made = cache(LLAMA, sequences=4)

    assert made.device_bytes == 4 * GIB
    assert made.inputs["kv_heads"].value == 8
    assert made.inputs["kv_heads"].source == "config.json: num_key_value_heads"


def test_an_option_wins_over_the_file():
    made = cache(LLAMA, sequences=1, kv_heads=4)

    assert made.device_bytes == GIB // 2
    assert made.inputs["kv_heads"].origin is Origin.GIVEN


def test_without_kv_heads_every_query_head_is_assumed_to_be_one():
    made = cache({k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}, sequences=1)

    assert made.device_bytes == 4 * GIB
    assert made.inputs["kv_heads"].origin is Origin.ASSUMED
    assert made.lines[0].basis is Basis.ASSUMED


def test_one_head_serves_all_in_multi_query_attention():
    falcon = {"num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544, "multi_query": True}

    assert shape(falcon | {"num_kv_heads": 71}).kv_heads.value == 1
    assert shape(falcon | {"num_kv_heads": 8, "new_decoder_architecture": True}).kv_heads.value == 8


def test_a_head_dimension_of_its_own_wins_over_width_by_heads():
    assert shape(LLAMA).head_dim.value == 128
    assert shape(LLAMA | {"head_dim": 256}).head_dim.value == 256


def test_a_text_model_inside_another_is_read():
    made = cache({"text_config": LLAMA, "vision_config": {"num_hidden_layers": 99}}, sequences=1)

    assert made.device_bytes == GIB
    assert made.inputs["layers"].source == "config.json: text_config.num_hidden_layers"


def test_windows_are_counted_layer_by_layer():
    kinds = ["sliding_attention", "full_attention"] * 16
    made = cache(LLAMA | {"layer_types": kinds, "sliding_window": 1024}, sequences=1)

    assert [line.bytes for line in made.lines] == [GIB // 2, GIB // 16]


@pytest.mark.parametrize(
    ("more", "windowed"),
    [
        ({"sliding_window": 4096}, 32),
        ({"sliding_window": None}, None),
        ({"sliding_window": 4096, "use_sliding_window": False}, None),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28}, 4),
        ({"sliding_window": 4096, "sliding_window_pattern": 6}, 27),
        ({"sliding_window": 4096, "model_type": "gemma2"}, 16),
        ({}, None),
    ],
)
def test_which_layers_have_the_window(more, windowed):
    found = shape(LLAMA | more)

    assert (found.window_layers.value if found.window_layers else None) == windowed


def test_a_model_whose_file_does_not_say_which_layers_have_the_window_is_assumed_to_have_its_own_kind():
    made = cache(LLAMA | {"sliding_window": 4096, "model_type": "gemma2"})

    found = made.inputs["window_layers"]
    assert found.origin is Origin.ASSUMED
    assert "all but every 2nd, as gemma2 has it" in found.source
    assert [line.bytes for line in made.lines] == [GIB // 2, GIB // 4]


@pytest.mark.slow  # it imports transformers
@pytest.mark.parametrize("kind", ["gemma2", "gemma3_text", "cohere2", "exaone4"])
def test_windows_that_are_assumed_are_those_of_transformers(kind):
    transformers = pytest.importorskip("transformers", reason="the configuration classes are its own")
    made = transformers.AutoConfig.for_model(kind)
    named = made.layer_types.count("sliding_attention")

    old = {"num_hidden_layers": made.num_hidden_layers, "sliding_window": 4096, "model_type": kind}

    assert shape(old, cache_needed=False).window_layers.value == named


def test_layers_without_a_cache_are_left_out_and_named():
    kinds = ["linear_attention"] * 24 + ["full_attention"] * 8
    made = cache(LLAMA | {"layer_types": kinds}, sequences=1)

    assert made.device_bytes == GIB // 4
    assert any("24 of 32 layers have no KV cache" in note for note in made.notes)


def test_a_latent_is_counted_as_engines_keep_it():
    deepseek = {
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "hidden_size": 7168,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    }
    made = cache(deepseek, tokens=1000, sequences=1)

    assert made.device_bytes == 61 * 576 * 1000 * 2
    assert any("latent" in note for note in made.notes)


def test_the_format_that_is_computed_in_is_the_cache_s():
    assert cache(LLAMA | {"torch_dtype": "float32"}, sequences=1).device_bytes == 2 * GIB
    assert cache({**LLAMA, "torch_dtype": None, "dtype": "float16"}).inputs["compute_bits"].value == Fraction(
        16
    )


def test_more_tokens_than_positions_are_said():
    assert any("8192 positions" in note for note in cache(LLAMA, tokens=10_000).notes)


def test_the_weights_of_a_config_alone_are_not_guessed():
    with pytest.raises(UsageError, match="does not say how many parameters"):
        estimate(Request(model=Model(config=LLAMA)))


def test_without_tokens_the_bytes_of_one_token_are_said():
    made = estimate(Request(params=8_030_261_248, model=Model(config=LLAMA)))
    texts = {entry.key: entry.text for entry in made.omissions}

    assert "131,072 bytes for each token" in texts["kv_cache"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"num_key_value_heads": [1, 2]}, "differs from layer to layer"),
        ({"num_hidden_layers": -1}, "not a usable number"),
        ({"num_hidden_layers": True}, "not a usable number"),
        ({"num_hidden_layers": "32"}, "not a usable number"),
        ({"num_hidden_layers": 1e9}, "not a usable number"),
        ({"num_hidden_layers": 10**30}, "not a usable number"),
        ({"hidden_size": 4097}, "no multiple"),
        ({"layer_types": ["full_attention"]}, "names 1 layers, not 32"),
        ({"layer_types": ["dream"] * 32}, "'dream' are not known"),
        ({"layer_types": ["sliding_attention"] * 32}, "no sliding_window"),
        ({"layer_types": ["mamba"] * 32}, "no attention layer"),
    ],
)
def test_keys_that_do_not_describe_a_cache_are_refused_where_one_is_asked_for(more, says):
    with pytest.raises(BadInput, match=says):
        shape(LLAMA | more)

    assert shape(LLAMA | more, cache_needed=False).compute_bits.value == 16


@pytest.mark.parametrize("config", [{}, {"model_type": "t5", "is_encoder_decoder": True}, {"layer_types": 5}])
def test_a_config_without_the_keys_needs_options(config):
    with pytest.raises(UsageError, match="needs --layers"):
        cache(config)


KEYS = (
    *(
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "hidden_size",
        "head_dim",
        "layer_types",
    ),
    *("sliding_window", "use_sliding_window", "max_window_layers", "sliding_window_pattern", "multi_query"),
    *("kv_lora_rank", "qk_rope_head_dim", "text_config", "torch_dtype", "dtype", "is_encoder_decoder"),
    *("quantization_config", "max_position_embeddings", "attn_layer_period"),
)


@given(st.dictionaries(st.sampled_from(KEYS), values))
def test_any_object_is_a_shape_or_one_clear_line(config):
    try:
        found = shape(LLAMA | config)
    except BadInput as error:
        assert str(error).isprintable()
    else:
        assert found.layers is None or found.layers.value > 0
        assert found.window_layers is None or 0 < found.window_layers.value <= found.layers.value

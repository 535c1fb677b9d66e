"""Training state: gradients, optimizer state, copies; replicated or in shards; adapters beside weights."""

import math
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.estimate.figures import Basis, Origin
from gpumem_tui.analysis.estimate.plan import Model, Request, estimate
from gpumem_tui.analysis.estimate.tensors import factored_values, largest_block, lora_shapes
from gpumem_tui.analysis.estimate.training import OPTIMIZERS, SHARDS
from gpumem_tui.errors import BadInput, UsageError

SEVEN_B = 7_000_000_000

counts = st.integers(1, 10**13)
ranks = st.integers(1, 2048)
shards = st.sampled_from(sorted(SHARDS))
plain = st.sampled_from(sorted(name for name, kind in OPTIMIZERS.items() if not kind.factored))


class Stored(NamedTuple):
    """A tensor of a header."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "BF16"
    bits: int = 16


LLAMA = (
    Stored("model.embed_tokens.weight", (1000, 64)),
    *(
        Stored(f"model.layers.{n}.{name}.weight", shape)
        for n in range(2)
        for name, shape in {
            "self_attn.q_proj": (64, 64),
            "self_attn.v_proj": (16, 64),
            "mlp.up_proj": (128, 64),
            "input_layernorm": (64,),
        }.items()
    ),
    Stored("lm_head.weight", (1000, 64)),
)


def training(**options):
    """The estimate of training 7B parameters of 16 bits, unless told otherwise."""
    return estimate(Request(**{"params": SEVEN_B, "bits": Fraction(16), "train": True, **options}))


def sizes(made):
    """Key → bytes."""
    return {line.key: line.bytes for line in made.lines}


def test_mixed_precision_adamw_takes_sixteen_bytes_a_parameter():
    made = training(optimizer="adamw", master_weights=True)

    assert sizes(made) == {
        "weights": 2 * SEVEN_B,
        "gradients": 2 * SEVEN_B,
        "master": 4 * SEVEN_B,
        "optimizer": 8 * SEVEN_B,
    }
    assert made.basis is Basis.COMPUTED


def test_full_sharding_divides_all_of_it():
    made = training(optimizer="adamw", master_weights=True, ranks=8, shard="full")

    assert made.device_bytes == 16 * SEVEN_B // 8
    assert "gathered" in {entry.key for entry in made.omissions}


@pytest.mark.parametrize(
    ("shard", "expected"),
    [
        ("ddp", 2 + 2 + 2 + 4 + 8),
        ("zero1", 2 + 2 + (4 + 8) / 8),
        ("zero2", 2 + (2 + 4 + 8) / 8),
        ("zero3", (2 + 2 + 4 + 8) / 8),
    ],
)
def test_each_step_of_sharding_divides_more(shard, expected):
    made = training(optimizer="adamw", master_weights=True, ranks=8, shard=shard)

    assert made.device_bytes == expected * SEVEN_B


def test_ddp_keeps_a_second_copy_of_the_gradients_unless_they_are_views():
    assert sizes(training(ranks=2))["buckets"] == 2 * SEVEN_B
    assert "buckets" not in sizes(training(ranks=2, bucket_view=True))
    assert "buckets" not in sizes(training())


def test_gathered_units_are_counted_where_their_size_is_known():
    made = training(ranks=8, shard="full", gathered_params=200_000_000)

    assert sizes(made)["gathered"] == 3 * 2 * 200_000_000
    assert "gathered" not in {entry.key for entry in made.omissions}


@pytest.mark.parametrize(
    ("optimizer", "bytes_each"),
    [("sgd", 0), ("sgd-momentum", 2), ("adam", 4), ("adamw-amsgrad", 6), ("lion", 2)],
)
def test_states_are_kept_in_the_format_of_the_parameters(optimizer, bytes_each):
    assert sizes(training(optimizer=optimizer))["optimizer"] == bytes_each * SEVEN_B


def test_eight_bit_states_carry_a_scale_for_each_block():
    made = training(optimizer="adamw-8bit")

    assert sizes(made)["optimizer"] == 2 * (SEVEN_B + 4 * math.ceil(SEVEN_B / 256))
    assert made.basis is Basis.ASSUMED


def test_adafactor_has_no_figure_without_shapes_and_the_sum_says_so():
    made = training(optimizer="adafactor")

    assert sizes(made)["optimizer"] is None
    assert [line.key for line in made.unknown] == ["optimizer"]
    assert "shapes" in made.unknown[0].reason


def test_adafactor_keeps_a_row_and_a_column_for_each_matrix():
    made = estimate(Request(train=True, optimizer="adafactor", model=Model(tensors=LLAMA)))
    matrices = 2 * (1000 + 64) + 2 * (64 + 64 + 16 + 64 + 128 + 64)

    assert sizes(made)["optimizer"] == 2 * (matrices + 2 * 64)


def test_factored_states_of_a_stack_of_matrices_are_the_edges_of_each():
    assert factored_values([(5, 2, 3)]) == 5 * (2 + 3)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=6))
def test_factored_states_of_matrices_are_their_edges(shapes):
    assert factored_values(shapes) == sum(rows + columns for rows, columns in shapes)


def test_a_trainable_share_divides_gradients_and_state_but_not_weights():
    made = training(optimizer="adam", trainable_share=Fraction(1, 100))

    assert sizes(made) == {
        "weights": 2 * SEVEN_B,
        "gradients": 2 * SEVEN_B // 100,
        "optimizer": 4 * SEVEN_B // 100,
    }


def test_adapters_are_added_to_frozen_weights():
    made = training(bits=Fraction(4), optimizer="adam", lora_params=20_000_000, lora_bits=Fraction(32))

    assert sizes(made) == {
        "weights": SEVEN_B // 2,
        "adapters": 80_000_000,
        "gradients": 80_000_000,
        "optimizer": 160_000_000,
    }


def test_adapters_are_counted_from_the_shapes_of_their_targets():
    made = estimate(
        Request(
            train=True, optimizer="adam", lora_rank=8, lora_targets=("q_proj",), model=Model(tensors=LLAMA)
        )
    )

    assert made.inputs["trained"].value == 2 * 8 * (64 + 64)
    assert made.inputs["trained"].origin is Origin.READ


def test_all_linear_leaves_embeddings_norms_and_the_output_layer_alone():
    shapes = lora_shapes(LLAMA, 8, ("all-linear",))

    assert len(shapes) == 2 * 2 * 3
    assert all(8 in shape and 1000 not in shape for shape in shapes)


def test_the_largest_block_is_found_by_its_name():
    assert largest_block(LLAMA) == 64 * 64 + 16 * 64 + 128 * 64 + 64
    assert largest_block(LLAMA[:1]) is None


def test_autocast_s_copies_are_named_with_their_size_and_not_summed():
    made = training(bits=Fraction(32), compute_bits=Fraction(16))
    texts = {entry.key: entry.text for entry in made.omissions}

    assert f"{2 * SEVEN_B:,} bytes" in texts["casts"]
    assert made.device_bytes == 16 * SEVEN_B


def test_temporaries_of_the_step_are_named_with_the_size_of_a_shard():
    texts = {entry.key: entry.text for entry in training(ranks=8, shard="zero1").omissions}

    assert f"{2 * SEVEN_B // 8:,} bytes" in texts["step"]


@given(counts, plain, ranks, shards, st.booleans())
def test_lines_sum_to_the_sum(params, optimizer, ranks, shard, master):
    made = training(params=params, optimizer=optimizer, ranks=ranks, shard=shard, master_weights=master)

    assert sum(line.bytes for line in made.lines) == made.device_bytes


@given(counts, plain, ranks, shards)
def test_more_ranks_never_take_more_of_each(params, optimizer, ranks, shard):
    few = training(params=params, optimizer=optimizer, ranks=ranks + 1, shard=shard)
    many = training(params=params, optimizer=optimizer, ranks=ranks + 2, shard=shard)

    assert many.device_bytes <= few.device_bytes


@given(counts, plain, ranks)
def test_all_shards_together_hold_the_whole_and_little_more(params, optimizer, ranks):
    whole = training(params=params, optimizer=optimizer).device_bytes
    part = training(params=params, optimizer=optimizer, ranks=ranks, shard="full").device_bytes

    assert whole <= part * ranks <= whole + ranks * 100


@given(counts, plain, st.integers(1, 10**6))
def test_more_parameters_never_take_less(params, optimizer, more):
    assert (
        training(params=params + more, optimizer=optimizer).device_bytes
        >= training(params=params, optimizer=optimizer).device_bytes
    )


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"bits": Fraction(4)}, UsageError, "--lora-params"),
        ({"bits": Fraction(32), "master_weights": True}, UsageError, "32 bits already"),
        ({"trainable_params": SEVEN_B + 1}, BadInput, "more than"),
        ({"lora_rank": 8}, UsageError, "--lora-params"),
        ({"lora_params": 1, "trainable_params": 1}, UsageError, "exclude"),
        ({"lora_bits": Fraction(16)}, UsageError, "--lora-rank"),
        ({"bucket_view": True}, UsageError, "DDP"),
        ({"gathered_params": 5}, UsageError, "--shard full"),
        ({"optimizer": "adamw-8bit", "optimizer_bits": Fraction(8)}, UsageError, "by itself"),
        ({"params": None, "bits": None}, UsageError, "number of parameters"),
    ],
)
def test_what_contradicts_itself_is_refused(options, error, says):
    with pytest.raises(error, match=says):
        training(**options)


PACKED = (Stored("q.qweight", (64, 64), "I32", 32), Stored("q.scales", (64, 8), "F16", 16))


def test_packed_integers_are_counted_in_bytes_and_never_trained_themselves():
    model = Model(tensors=PACKED)
    made = estimate(Request(model=model, train=True, lora_params=100))

    assert sizes(made)["weights.I32"] == 64 * 64 * 4
    assert made.inputs["parameters"].value == 64 * 8
    assert any("the model has more" in note for note in made.notes)
    with pytest.raises(UsageError, match="not trained themselves"):
        estimate(Request(model=model, train=True))


def test_targets_that_are_not_there_are_refused():
    with pytest.raises(BadInput, match="no unpacked matrix named nothing"):
        estimate(Request(train=True, lora_rank=8, lora_targets=("nothing",), model=Model(tensors=LLAMA)))

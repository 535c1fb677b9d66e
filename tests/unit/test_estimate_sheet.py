"""The sheet: raw bytes, GB and GiB side by side, a label and a formula for every line, and no verdict."""

import json
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.estimate import sheet
from gpumem_tui.analysis.estimate.figures import Place
from gpumem_tui.analysis.estimate.plan import Request, estimate

GIB = 1 << 30

requests = st.builds(
    Request,
    params=st.integers(1, 10**15),
    bits=st.integers(8, 64).map(Fraction),
    reserve_gib=st.none() | st.integers(0, 1 << 50),
    device=st.lists(st.integers(1, 1 << 50), max_size=3).map(tuple),
    tokens=st.integers(1, 10**6),
    layers=st.integers(1, 200),
    kv_heads=st.integers(1, 200),
    head_dim=st.integers(1, 500),
    kv_offload=st.booleans(),
    train=st.just(True),
    optimizer=st.sampled_from(["adamw", "adafactor", "adamw-8bit", "sgd"]),
    ranks=st.integers(1, 100),
    shard=st.sampled_from(["ddp", "zero1", "zero2", "fsdp"]),
)


def text_of(**options):
    """The sheet of some options."""
    return sheet.as_text(estimate(Request(**options)), "gpumem-tui estimate …")


def document_of(request):
    """The JSON document of a request, parsed."""
    return json.loads(sheet.as_json(estimate(request)))


def test_a_line_has_bytes_gb_gib_a_label_and_its_formula():
    rows = text_of(params=7_000_000_000, bits=Fraction(16)).splitlines()

    assert rows[0] == "gpumem-tui estimate …"
    assert rows[4].split() == ["weights", "14,000,000,000", "14.00", "13.04", "computed"]
    assert rows[5].strip() == "= 7,000,000,000 parameters × 16 bits ÷ 8"


def test_a_device_shows_what_would_remain_and_a_negative_figure_is_kept():
    text = text_of(params=7_000_000_000, bits=Fraction(16), device=(24 * GIB, 8 * GIB))
    remaining = [row.split() for row in text.splitlines() if row.startswith("would remain")]

    assert remaining == [
        ["would", "remain", "11,769,803,776", "11.77", "10.96", "assumed"],
        ["would", "remain", "−5,410,065,408", "−5.41", "−5.04", "assumed"],
    ]
    assert "the sum alone is larger than the device" in text


def test_the_next_step_is_a_simulated_card_of_that_size():
    text = text_of(params=10**9, bits=Fraction(16), train=True, ranks=2, device=(24 * GIB,))

    assert "gpumem-tui run --simulate 24GiB,24GiB -- torchrun --nproc-per-node 2 train.py" in text


def test_a_line_without_a_figure_is_a_dash_with_its_reason():
    text = text_of(params=10**9, bits=Fraction(16), train=True, optimizer="adafactor")
    row = next(row for row in text.splitlines() if row.startswith("adafactor state"))

    assert row.split() == ["adafactor", "state", "—", "—", "—", "no", "figure"]
    assert "sum of the known" in text


@given(requests)
def test_no_sheet_is_a_verdict_or_wider_than_a_terminal(request):
    text = sheet.as_text(estimate(request), "gpumem-tui estimate …")
    words = text.lower().replace(",", " ").split()

    assert not {"fits", "fit", "enough"} & set(words)
    assert max(len(row) for row in text.splitlines() if "--simulate" not in row) <= 100


@given(requests)
def test_the_document_has_the_lines_of_the_estimate_to_the_byte(request):
    made = estimate(request)
    document = document_of(request)
    device = [line["bytes"] for line in document["lines"] if line["place"] == "device"]

    assert device == [line.bytes for line in made.at(Place.DEVICE)]
    assert document["sum"]["bytes"] == sum(size for size in device if size is not None)
    assert document["sum"]["complete"] == (None not in device)
    assert [entry["total_bytes"] - entry["remaining_bytes"] for entry in document["devices"]] == [
        document["sum"]["bytes"]
    ] * len(request.device)


@given(requests)
def test_every_line_of_the_document_has_a_label_a_formula_and_bytes_or_a_reason(request):
    for line in document_of(request)["lines"]:
        assert line["basis"] in ("computed", "assumed")
        assert line["formula"]
        assert (line["bytes"] is None) != (line["reason"] is None)


def test_the_schema_s_keys_are_those_that_are_documented():
    document = document_of(Request(params=7, bits=Fraction(9, 2), device=(GIB,)))

    assert list(document) == [
        *(
            "schema",
            "kind",
            "measured",
            "inputs",
            "lines",
            "sum",
            "ranks",
            "split",
            "devices",
            "not_included",
        ),
        "notes",
    ]
    assert all(f'"{key}"' in sheet.__doc__ for key in document)
    assert document["inputs"]["bits"] == {"value": 4.5, "origin": "given", "source": "--bits"}

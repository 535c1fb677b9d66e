"""Headers are read and checked, never believed; a file that cannot be used is one clear line."""

import json
import math
import os
import struct
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.estimate.figures import Place
from gpumem_tui.analysis.estimate.plan import Model, Request, estimate
from gpumem_tui.errors import BadInput
from gpumem_tui.sources.modelfiles import BITS, MOST_HEADER_BYTES, read_header, read_json_object, read_model

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=20)
tensors = st.dictionaries(
    names.filter(lambda name: name != "__metadata__"),
    st.tuples(
        st.sampled_from([name for name, bits in BITS.items() if bits >= 8]),
        st.lists(st.integers(0, 9), max_size=3),
    ),
    max_size=6,
)


def header_of(declared):
    """The entries of a valid header, in order."""
    header, at = {}, 0
    for name, (dtype, shape) in declared.items():
        size = math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    return header


def write(path, header, data=None, length=None):
    """A safetensors file with any header and any data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    if data is None:
        data = bytes(max((entry["data_offsets"][1] for entry in header.values()), default=0))
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


ONE = {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}


@pytest.fixture
def file(tmp_path):
    """Where a test writes its file."""
    return tmp_path / "model.safetensors"


@given(tensors)
def test_what_is_declared_is_what_is_read(tmp_path_factory, declared):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    write(path, header_of(declared))

    found = {t.name: (t.dtype, list(t.shape)) for t in read_header(path)}

    assert found == declared


@given(tensors.filter(lambda d: sum(math.prod(shape) for _, shape in d.values())), st.data())
def test_a_file_cut_anywhere_is_refused(tmp_path_factory, declared, data):
    path = write(tmp_path_factory.mktemp("model") / "model.safetensors", header_of(declared))
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])

    with pytest.raises(BadInput, match="truncated"):
        read_header(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_one_clear_line(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    path.write_bytes(content)

    try:
        read_header(path)
    except BadInput as error:
        assert str(error).isprintable()


LIES = [
    ({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 20]}}, 20, "the header lies"),
    ({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 0]}}, 0, "the header lies"),
    ({**ONE, "v": {"dtype": "F32", "shape": [2, 3], "data_offsets": [12, 36]}}, 36, "overlaps"),
    ({**ONE, "v": {"dtype": "F32", "shape": [1], "data_offsets": [28, 32]}}, 32, "follows a hole"),
    (ONE, 25, "longer than its header says"),
    (ONE, 23, "truncated"),
    ({"w": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 24]}}, 24, "the header lies"),
    ({"w": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}, 4, "unknown format 'F33'"),
    ({"w": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, 4, "unknown format"),
    ({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, 4, "no valid shape"),
    ({"w": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, 4, "no valid shape"),
    ({"w": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}, 4, "no valid shape"),
    ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}, 4, "no valid data_offsets"),
    ({"w": {"dtype": "F32", "shape": [1]}}, 4, "has no data_offsets"),
    ({"w": {"shape": [1], "data_offsets": [0, 4]}}, 4, "has no dtype"),
    ({"w": 5}, 4, "has no dtype"),
    ({"w": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}}, 1, "the header lies"),
    ({"w": {"dtype": "F32", "shape": [1] * 65, "data_offsets": [0, 4]}}, 4, "no valid shape"),
    ({"w\n\x1b[31m" + "x" * 999: {"dtype": "F32", "shape": [1]}}, 4, "has no data_offsets"),
    (b"[]", 0, "not a JSON object"),
    (b"", 0, "not valid JSON"),
    (b"{" * 50, 0, "not valid JSON"),
    (b'{"a":' * 100_000, 0, "not valid JSON"),
    (b'{"w":NaN}', 0, "NaN is not JSON"),
    (b"\xff\xfe{}", 0, "not UTF-8"),
    (b'{"w":1,"w":2}', 0, "a key occurs twice"),
]


@pytest.mark.parametrize(
    ("header", "data", "says"), LIES, ids=[says + str(n) for n, (_, _, says) in enumerate(LIES)]
)
def test_a_header_that_lies_is_refused(file, header, data, says):
    write(file, header, bytes(data))

    with pytest.raises(BadInput, match=says) as error:
        read_header(file)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 400


def test_a_header_longer_than_the_format_allows_is_not_read(file):
    write(file, b"{}", b"", length=MOST_HEADER_BYTES + 1)

    with pytest.raises(BadInput, match="no safetensors file"):
        read_header(file)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_pointer_of_git_lfs_is_named_as_such(tmp_path, name):
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")

    with pytest.raises(BadInput, match="git lfs pull"):
        read_model([str(path)])


def test_tensors_may_be_declared_in_any_order(file):
    entries = list(header_of({"a": ("F32", [2]), "b": ("I8", [3])}).items())
    write(file, dict(reversed(entries)))

    assert [tensor.name for tensor in read_header(file)] == ["b", "a"]


def test_a_narrower_format_than_stored_is_an_assumption_about_every_tensor(file):
    write(file, ONE)
    (line,) = estimate(Request(bits=Fraction(4), model=Model(tensors=read_header(file)))).at(Place.DEVICE)

    assert line.bytes == 3
    assert line.basis.value == "assumed"
    assert any("keep embeddings and norms" in note for note in line.notes)


def test_metadata_is_no_tensor(file):
    write(file, {**ONE, "__metadata__": {"format": "pt"}}, bytes(24))

    assert [tensor.name for tensor in read_header(file)] == ["w"]


def test_a_directory_is_taken_as_a_loader_would(tmp_path):
    write(tmp_path / "model.safetensors", ONE)
    write(tmp_path / "consolidated.safetensors", ONE)
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2}')

    found = read_model([str(tmp_path)])

    assert found.config == {"num_hidden_layers": 2}
    assert len(found.tensors) == 1


def shards(folder, total_size=48):
    """A checkpoint of two shards with its index."""
    write(folder / "a.safetensors", ONE)
    write(folder / "b.safetensors", {"v": ONE["w"]})
    index = {
        "metadata": {"total_size": total_size},
        "weight_map": {"w": "a.safetensors", "v": "b.safetensors"},
    }
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    return path


def test_an_index_names_its_shards(tmp_path):
    found = read_model([str(shards(tmp_path))])

    assert sorted(tensor.name for tensor in found.tensors) == ["v", "w"]
    assert found.notes == ()


def test_an_index_that_lies_about_the_size_is_contradicted_by_its_shards(tmp_path):
    found = read_model([str(shards(tmp_path, total_size=99))])

    assert "declares total_size 99, the headers of its shards 48" in found.notes[0]


def test_a_shard_that_is_not_here_leaves_what_the_index_declares(tmp_path):
    index = shards(tmp_path)
    (tmp_path / "b.safetensors").unlink()

    found = read_model([str(index)])

    assert found.tensors is None
    assert (found.declared.bytes, found.declared.missing) == (48, 1)


def test_declared_bytes_are_a_line_that_is_assumed():
    made = estimate(Request(model=Model(declared_bytes=48, missing_shards=1)))

    assert made.device_bytes == 48
    assert made.basis.value == "assumed"


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ({"weight_map": {"w": "../a.safetensors"}}, "not a file beside it"),
        ({"weight_map": {"w": 5}}, "not a file beside it"),
        ({"weight_map": {}}, "no weight_map"),
        ({}, "no weight_map"),
        ({"weight_map": {"w": "gone.safetensors"}}, "declares no total_size"),
        ({"weight_map": {"w": "gone.safetensors"}, "metadata": {"total_size": -5}}, "declares no total_size"),
        ({"weight_map": {"lost": "a.safetensors"}}, "tensor lost is in none"),
    ],
)
def test_an_index_that_cannot_be_used_is_refused(tmp_path, index, says):
    path = shards(tmp_path)
    path.write_text(json.dumps(index))

    with pytest.raises(BadInput, match=says):
        read_model([str(path)])


def test_the_same_tensor_in_two_files_is_refused(tmp_path):
    paths = [write(tmp_path / f"{n}.safetensors", ONE) for n in "ab"]

    with pytest.raises(BadInput, match="in another of the files"):
        read_model([str(path) for path in paths])


def test_what_is_no_file_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "config.json").mkdir()
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    os.mkfifo(tmp_path / "fifo.safetensors")
    (tmp_path / "loop.safetensors").symlink_to("loop.safetensors")
    cases = {
        "empty": "neither config.json nor",
        "config.json": "is a directory, not a file",
        "nosuch.safetensors": "no such file",
        "x.gguf": "only config.json",
        "fifo.safetensors": "not a regular file",
        "loop.safetensors": "no such file|symbolic links",
    }

    for name, says in cases.items():
        with pytest.raises(BadInput, match=says):
            read_model([str(tmp_path / name)])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(file):
    write(file, ONE)
    file.chmod(0)

    with pytest.raises(BadInput, match="permission denied"):
        read_model([str(file)])


def test_a_name_of_a_hub_is_not_downloaded():
    with pytest.raises(BadInput, match="nothing is downloaded"):
        read_model(["someone/some-model"])


def test_two_checkpoints_in_one_directory_are_not_chosen_between(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.safetensors", ONE)

    with pytest.raises(BadInput, match="name the files"):
        read_model([str(tmp_path)])


@pytest.mark.parametrize("text", ["[]", "5", "{", "", '{"a": Infinity}', '{"a": 1, "a": 2}', "9" * 10_000])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)

    with pytest.raises(BadInput, match=r"config\.json"):
        read_json_object(path)


@pytest.mark.slow
def test_files_of_the_format_s_own_library_are_read_alike(file):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    formats = (
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float8_e4m3fn,
        torch.int8,
        torch.int64,
        torch.bool,
    )
    made = {f"t{n}": torch.zeros(n, 3, dtype=dtype) for n, dtype in enumerate(formats)}
    library.save_file(made, file)

    found = {t.name: (t.shape, t.bits) for t in read_header(file)}

    assert found == {name: (tuple(t.shape), t.element_size() * 8) for name, t in made.items()}

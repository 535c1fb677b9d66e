"""A report as people read it: three parts, raw bytes, reasons, and nothing from anywhere else."""

import html.parser
import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tui import failing, scripted

from gpumem_tui.analysis.failurestate import FailureState, Outcome, Part
from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict
from gpumem_tui.analysis.loads import elements_of, largest_loads
from gpumem_tui.analysis.provenance import Identity
from gpumem_tui.analysis.rankstate import InputRow, OpenSpan, PeakState, Series
from gpumem_tui.analysis.scope import untested
from gpumem_tui.analysis.state import Band, Event, Severity
from gpumem_tui.records.failure import FailureRecord, Parts, Pool, Tensor
from gpumem_tui.records.revision import Revision
from gpumem_tui.units import GIB, MIB, format_bytes
from gpumem_tui.views import before, jsonview
from gpumem_tui.views.report import html as html_view
from gpumem_tui.views.report import markdown, sheet_of, style, svg, text
from gpumem_tui.views.report.sheet import Table
from gpumem_tui.views.text import width

SECOND, START = scripted.SECOND, scripted.START

FORMATS = {
    "text": lambda state: text.render(sheet_of(state), cells=120),
    "md": lambda state: markdown.render(sheet_of(state)),
    "html": lambda state: html_view.render(sheet_of(state)),
    "json": jsonview.render_report,
}
in_every_format = pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
in_every_readable_format = pytest.mark.parametrize(
    "write", [FORMATS[name] for name in ("text", "md", "html")], ids=("text", "md", "html")
)


def words(written: str) -> str:
    """What is read, without markup, escapes and line breaks."""
    plain = re.sub(r"<style>.*?</style>|<[^>]+>", " ", written, flags=re.S)
    return " ".join(re.sub(r"\\(?=\W)", "", plain).split())


def identity(**changes) -> Identity:
    base = Identity(
        version="0.1.0",
        cwd="/home/me/here",
        protocol="observe",
        reset_peaks=True,
        hertz=10.0,
        revision=Revision(commit="0123456789abcdef0123", branch="main", dirty=True),
        seed="7",
        seed_source="command line",
        declared=(("batch", "8"),),
        environment=(("PYTORCH_ALLOC_CONF", "expandable_segments:True"),),
    )
    return msgspec.structs.replace(base, **changes)


def trained(**changes):
    """A run with phases, peaks, a load, an identity."""
    state = scripted.with_phases()
    ranks = tuple(
        msgspec.structs.replace(rank, peaks=(PeakState(0, 9 * GIB, 11 * GIB),), marks=(("empty_cache", 3),))
        for rank in state.ranks
    )
    facts = scripted.facts(identity=identity(), **changes)
    return msgspec.structs.replace(state, facts=facts, ranks=ranks)


def failed():
    """The same, ended by an allocation that failed in eval."""
    finding = Finding(
        Verdict.FRAGMENTATION,
        Strength.SUPPORTED,
        "6.00 GiB lie idle, the largest hole has 1.00 GiB",
        evidence=(Evidence("largest hole 1.00 GiB", "snapshot", GIB, GIB),),
        check="compare with expandable_segments",
        trial="PYTORCH_ALLOC_CONF=expandable_segments:True",
        missing=("the driver's reading",),
    )
    record = FailureRecord(
        t_ns=START + 50 * SECOND,
        kind="out of memory",
        pid=4700,
        free_bytes=512 * MIB,
        stack=["train.py:8 main", "train.py:31 evaluate"],
        pools=[Pool("large", 0, 9, 12 * GIB, 6 * GIB, 6 * GIB, GIB, 2 * GIB, 4 * GIB)],
        parts=Parts({}, {}, [Tensor(3 * GIB, "other", [8, 512], "float32", "kept[0]")], 3, True, 1),
        missing={"driver": "took too long"},
    )
    failure = FailureState(
        t_ns=START + 50 * SECOND,
        kind="out of memory",
        headline="rank 0 wanted 2.00 GiB in eval on GPU 0",
        pid=4700,
        rank=0,
        part=Part.FIRST,
        outcome=Outcome.ENDED,
        device=0,
        requested_bytes=2 * GIB,
        phase="eval",
        step=118,
        record=record,
        findings=(finding,),
    )
    state = trained()
    over = scripted.ended(code=1)
    row = scripted.phase(0, "eval", "Bert", False, errors=1)
    return msgspec.structs.replace(
        state,
        facts=msgspec.structs.replace(over.facts, identity=identity()),
        failures=(failure,),
        phases=(*state.phases, row),
        events=over.events,
    )


# --- parts ----------------------------------------------------------------------------------------


@in_every_readable_format
def test_the_parts_come_in_order(write):
    said = words(write(trained())).lower()
    heads = (
        "computed what follows",
        "observed what was read",
        "assumed what nobody",
        "outside the tested scope what",
    )

    places = [re.search(re.sub(" ", r"[\\s═*#]+", head), said).start() for head in heads]

    assert places == sorted(places)


@in_every_readable_format
def test_every_term_of_every_ledger_is_there_to_the_byte(write):
    state = trained()
    said = words(write(state))

    for device in state.devices:
        for _, size in device.ledger.parts():
            assert f"{size:,}" in said
        assert f"{device.ledger.total.bytes:,}" in said


@in_every_format
def test_simulated_cards_are_said_to_be_and_what_they_assume_is_listed(write):
    said = write(scripted.simulated())

    assert "SIMULATED" in words(said) or '"simulated": "1 × 24 GiB"' in said
    assert "CUDA context" in said
    assert "460 MiB" in said


@in_every_readable_format
def test_real_cards_assume_nothing(write):
    assert "No size in this report is assumed" in words(write(trained()))


@in_every_readable_format
def test_a_bundled_recording_is_said_to_be_one(write):
    assert "RECORDED" in words(write(trained(recorded=True)))


@in_every_readable_format
def test_a_missing_reading_is_its_reason_and_no_zero(write):
    said = words(write(scripted.without_driver()))

    assert "— (no driver)" in said
    assert not re.search(r"\bfree\b +0 B", said)


@in_every_readable_format
def test_hidden_processes_are_one_merged_term(write):
    said = words(write(scripted.hidden_processes()))

    assert "merged" in said
    assert "— (hidden)" in said


def test_a_run_without_any_device_has_a_report():
    state = scripted.picture(devices=(), ranks=(), processes=(), events=())

    said = words(FORMATS["text"](state))

    assert "No ledger: no device is known." in said
    assert "No process of this run has used PyTorch's allocator." in said
    assert "PyTorch's allocator: no process of this run has used it." in said


@in_every_readable_format
def test_a_failure_is_told_with_its_record_and_findings(write):
    said = words(write(failed()))

    for each in (
        "rank 0 wanted 2.00 GiB in eval on GPU 0",
        "2.00 GiB (2,147,483,648 bytes)",
        "first cause",
        "train.py:31 evaluate",
        "fragmentation (supported): 6.00 GiB lie idle, the largest hole has 1.00 GiB",
        "largest hole 1.00 GiB (snapshot)",
        "compare with expandable",
        "kept[0]",
        "took too long",
    ):
        assert each in said


# --- the last seconds before a failure ------------------------------------------------------------


def with_bands():
    """Eleven seconds of forward, then eval until it failed at 50 s."""
    state = failed()
    bands = (
        Band(4700, 0, "forward", "", 0, START + 30 * SECOND, START + 41 * SECOND, 117, None),
        Band(4700, 0, "eval", "", 0, START + 41 * SECOND, START + 50 * SECOND, 118, "OutOfMemoryError"),
    )
    return msgspec.structs.replace(state, bands=bands)


@in_every_readable_format
def test_the_last_seconds_before_a_failure_are_told_with_their_phases(write):
    said = words(write(with_bands()))

    assert "Failure 1, the last 30 s before it: rank 0, in parts of 2.0 s" in said
    assert "Memory of GPU 0 NVIDIA A10G over the last 30 s" in said


def test_each_part_has_its_phases_and_the_highest_levels():
    state = with_bands()
    lines = text.render(sheet_of(state), cells=120).splitlines()
    start = next(n for n, line in enumerate(lines) if "the last 30 s before it" in line)
    first = next(n for n in range(start, len(lines)) if lines[n].split()[:2] == ["30", "s"])
    rows = [line.split() for line in lines[first : first + 15]]
    parts = before.stretches(state, state.failures[0], 15)

    assert [" ".join(row[2:-6]) for row in rows] == [", ".join(part.phases) or "none" for part in parts]
    assert {part.phases for part in parts} == {(), ("forward",), ("forward", "eval"), ("eval",)}
    assert rows[-1][-2:] == format_bytes(parts[-1].used[1]).split()


def test_a_machine_reads_the_same_last_seconds_in_bytes():
    state = with_bands()
    (told,) = json.loads(jsonview.render_report(state))["report"]["before_failures"]
    last, parts = told["parts"][-1], before.stretches(state, state.failures[0], 15)

    assert len(told["parts"]) == len(parts) == 15
    assert last["until_ns"] == told["t_ns"] + 1
    assert last["phases"] == ["eval"]
    for name, level in (("allocated", parts[-1].allocated), ("device_used", parts[-1].used)):
        assert (last[name]["low_bytes"], last[name]["high_bytes"], last[name]["last_bytes"]) == level


def test_the_page_draws_them_up_to_the_failure():
    page = html_view.render(sheet_of(with_bands()))
    drawn = re.search(r'<svg class="chart".*?</svg>', page, flags=re.S).group()

    assert [">failure<" in drawn, ">5.0 s before<" in drawn, ">start<" in drawn] == [True, True, False]
    assert page.count('<svg class="chart"') == 1 + sum(bool(device.curves) for device in with_bands().devices)


def test_a_folded_point_that_goes_on_after_the_failure_tells_nothing_of_before():
    state = with_bands()
    failure, device = state.failures[0], state.devices[0]
    points = series((failure.t_ns - SECOND, 5 * GIB))
    across = Series(
        [*points.since_ns, failure.t_ns - 1], [*points.t_ns, failure.t_ns + SECOND],
        [*points.low, GIB], [*points.high, 60 * GIB], [*points.last, 60 * GIB],
    )  # fmt: skip
    device = msgspec.structs.replace(device, driver_used=across)
    parts = before.stretches(msgspec.structs.replace(state, devices=(device,)), failure, 15)

    assert max(part.used[1] for part in parts if part.used) < 6 * GIB


@given(after=st.lists(st.integers(0, 64 * GIB), max_size=20), parts=st.integers(1, 40))
def test_whatever_came_after_a_failure_its_last_seconds_are_the_same(after, parts):
    state = with_bands()
    failure = state.failures[0]
    points = [(failure.t_ns - n * SECOND, 5 * GIB + n) for n in range(20, 0, -1)]
    later = [(failure.t_ns + 1 + n * SECOND // 3, value) for n, value in enumerate(after)]

    def told(points):
        curve = msgspec.structs.replace(
            state.devices[0].curves[0], allocated=series(*points), reserved=series(*points)
        )
        device = msgspec.structs.replace(state.devices[0], curves=(curve,), driver_used=series(*points))
        return before.stretches(
            msgspec.structs.replace(state, devices=(device, *state.devices[1:])), failure, parts
        )

    assert told(points + later) == told(points)


def test_the_last_seconds_of_the_first_failures_are_told_and_of_all_in_json():
    state = with_bands()
    many = tuple(
        msgspec.structs.replace(state.failures[0], t_ns=state.failures[0].t_ns + n) for n in range(9)
    )
    state = msgspec.structs.replace(state, failures=many)

    assert words(FORMATS["text"](state)).count("before it: rank 0") == 3
    assert len(json.loads(jsonview.render_report(state))["report"]["before_failures"]) == 9


def test_a_failure_of_no_known_device_has_no_last_seconds():
    state = failed()
    failure = msgspec.structs.replace(state.failures[0], device=None)
    state = msgspec.structs.replace(state, failures=(failure,))

    assert "before it" not in words(FORMATS["text"](state))
    assert json.loads(jsonview.render_report(state))["report"]["before_failures"] == []


def test_a_run_that_failed_without_a_record_says_so():
    said = words(FORMATS["text"](scripted.ended(code=1)))

    assert "The run ended (exit code 1); no failure was recorded." in said


def test_failed_phases_are_told_from_those_that_passed():
    said = [line.split() for line in text.render(sheet_of(failed()), cells=200).splitlines()]

    outcomes = {tuple(row[1:3]): row[6:10] for row in said if row[:1] == ["0"]}

    assert outcomes["eval", "Bert"][:4] == ["119", "1", "of", "119"]
    assert "passed" in outcomes["forward", "Bert"]


def test_the_peak_of_a_phase_that_failed_is_a_bound_and_that_of_one_that_passed_is_not():
    said = [line.split() for line in text.render(sheet_of(failed()), cells=200).splitlines()]

    rows = {tuple(row[1:3]): row for row in said if row[:1] == ["0"]}

    assert rows["eval", "Bert"].count("≥") == 2
    assert "≥" not in rows["forward", "Bert"]


def test_live_tensors_that_are_alike_are_one_row_with_their_number():
    state = failed()
    alike = [Tensor(3 * GIB, "other", [8, 512], "float32", None)] * 12
    record = msgspec.structs.replace(
        state.failures[0].record,
        parts=Parts({}, {}, [*alike, Tensor(GIB, "other", [4], "float32", "y")], 13, True, 1),
    )
    failure = msgspec.structs.replace(state.failures[0], record=record)

    said = words(FORMATS["text"](msgspec.structs.replace(state, failures=(failure,))))

    assert "no name 12 3.00 GiB float32[8, 512] other y 1 1.00 GiB float32[4] other" in said


def test_ranks_that_need_the_same_are_not_told_apart():
    ranks = [scripted.phase(rank, "forward", "Bert", False) for rank in (0, 1)]
    rows = tuple(msgspec.structs.replace(row, peak_allocated_bytes=3 * GIB) for row in ranks)

    said = words(FORMATS["text"](msgspec.structs.replace(trained(), phases=rows)))

    assert "forward Bert warm 2 3.00 GiB rank 0 3.00 GiB all" in said


def test_spans_that_a_process_died_in_are_listed():
    state = failed()
    rank = msgspec.structs.replace(state.ranks[0], spans=(OpenSpan("backward", "", START, 118),))
    state = msgspec.structs.replace(state, ranks=(rank,))

    said = words(FORMATS["text"](state))

    assert (
        "Spans that never ended: they failed with their process rank phase step rank 0 backward 118" in said
    )


def test_identity_and_environment_are_in_every_report():
    said = words(FORMATS["text"](trained(labels=(("study", "a"),))))

    for each in (
        "code revision 0123456789abcdef0123",
        "changed since yes",
        "seed 7 (command line)",
        "label study a",
        "$PYTORCH_ALLOC_CONF expandable_segments:True",
        "PyTorch 2.9.0",
        "batch 8",
    ):
        assert each in said


def test_what_is_not_known_of_an_identity_has_its_reason():
    unknown = identity(revision=Revision(reason="no git repository"), seed=None, seed_source=None)

    said = words(FORMATS["text"](scripted.picture(facts=scripted.facts(identity=unknown))))

    assert "code revision — (no git repository)" in said
    assert "seed — (nobody says)" in said


STATES = {
    "training": lambda: trained(),
    "failed": lambda: failed(),
    "two failures": lambda: failing.failed(2, failing.failure(), failing.victim(1)),
    "threatened": lambda: failing.threatened(),
    "sixteen cards": lambda: scripted.with_phases(count=16),
    "ended": lambda: scripted.ended(count=2, code=1),
    "opaque": lambda: scripted.opaque(),
    "no driver": lambda: scripted.without_driver(),
    "hidden": lambda: scripted.hidden_processes(),
    "a second old": lambda: scripted.picture(1),
    "nothing": lambda: scripted.picture(devices=(), ranks=(), processes=(), events=()),
}


@in_every_format
@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
def test_every_state_has_a_report(write, make):
    assert write(make()).endswith("\n")


# --- formats --------------------------------------------------------------------------------------


@given(cells=st.integers(40, 220))
def test_text_keeps_to_its_width(cells):
    written = text.render(sheet_of(failed()), cells=cells)

    assert all(width(line) <= cells for line in written.splitlines())


@pytest.mark.parametrize("cells", [60, 72, 80, 100, 132])
def test_no_figure_is_cut(cells):
    written = text.render(sheet_of(failed()), cells=cells)

    assert "…" not in written


def test_text_is_ascii_where_asked():
    said = text.render(sheet_of(failed()), cells=100, ascii=True)

    assert said.isascii()
    assert "COMPUTED\n========" in said


def test_columns_that_find_no_room_are_named():
    assert "no room for: reserved at start, allocated at start" in words(
        text.render(sheet_of(trained()), cells=100)
    )


class _Page(html.parser.HTMLParser):
    """Elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def test_html_asks_nothing_of_the_network_and_runs_nothing():
    page = html_view.render(sheet_of(failed()))
    elements = _Page(page).elements

    assert {tag for tag, _ in elements} & {"script", "link", "img", "iframe", "object", "form"} == set()
    assert not [a for _, attrs in elements for a in attrs if a == "src" or a.startswith("on")]
    assert all(attrs.get("href", "#").startswith("#") for _, attrs in elements)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


HOSTILE = "<script>alert(1)</script><img src=x onerror=y>|`*_\x1b[31m\x00"


@in_every_readable_format
def test_other_people_s_text_stays_text(write):
    state = trained(command=("python", HOSTILE), run=HOSTILE, labels=((HOSTILE, HOSTILE),))
    ranks = tuple(
        msgspec.structs.replace(rank, inputs=(InputRow("forward", HOSTILE, HOSTILE, 1),))
        for rank in state.ranks
    )
    state = msgspec.structs.replace(
        state, ranks=ranks, events=(Event(START, Severity.FAILURE, HOSTILE, rank=0),)
    )

    written = write(state)

    assert "\x1b" not in written
    assert "\x00" not in written
    if "<html" in written:
        assert {tag for tag, _ in _Page(written).elements} & {"script", "img"} == set()
    if write is FORMATS["md"]:
        assert "<script" not in written.replace("\\<", "")


def tables_of(sheet) -> list[Table]:
    """Every table of a sheet, in order."""
    items = [*sheet.summary, *(i for part in sheet.parts for section in part.sections for i in section.items)]
    return [item for item in items if isinstance(item, Table)]


@pytest.mark.parametrize("hostile", ["", HOSTILE, "a|b\\|c", "[x](http://y) ![z](http://w) **b** ~~s~~"])
def test_markdown_reads_as_tables_and_text_alone(hostile):
    state = msgspec.structs.replace(
        failed(), events=(Event(START, Severity.FAILURE, f"said {hostile}", rank=0),)
    )
    sheet = sheet_of(state)

    tokens = MarkdownIt("commonmark").enable("table").parse(markdown.render(sheet))
    kinds = [token.type for token in tokens]
    inline = {child.type for token in tokens for child in token.children or ()}

    wanted = [item for item in tables_of(sheet) if item.rows]
    assert kinds.count("table_open") == len(wanted)
    assert kinds.count("td_open") == sum(len(item.columns) * len(item.rows) for item in wanted)
    assert "html_block" not in kinds
    assert inline <= {
        "text",
        "text_special",
        "strong_open",
        "strong_close",
        "em_open",
        "em_close",
        "softbreak",
    }
    assert kinds.count("fence") == len(state.devices)


def test_html_tells_a_machine_what_everything_is():
    elements = _Page(html_view.render(sheet_of(failed()))).elements
    ids = [attrs["id"] for _, attrs in elements if "id" in attrs]

    assert elements[1] == ("html", {"lang": "en"}) or ("html", {"lang": "en"}) in elements
    assert all("scope" in attrs for tag, attrs in elements if tag == "th")
    assert len(ids) == len(set(ids))
    for tag, attrs in elements:
        if tag == "svg":
            assert attrs["role"] == "img"
            assert set(attrs["aria-labelledby"].split()) <= set(ids)
    tables = sum(tag == "table" for tag, _ in elements)
    assert tables == sum(tag == "caption" for tag, _ in elements) > 10


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("palette", [style.LIGHT, style.DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("front", "back"),
    [(f, b) for f in ("text", "dim", "failure", "warning", "link") for b in ("ground", "panel")]
    + [("badge-text", "badge-ground")],
)
def test_text_has_the_contrast_that_accessibility_asks(palette, front, back):
    bright, dark = sorted((luminance(palette[front]), luminance(palette[back])), reverse=True)

    assert (bright + 0.05) / (dark + 0.05) >= 4.5


def test_every_colour_that_a_page_uses_is_defined_in_both_schemes():
    used = set(re.findall(r"var\(--([\w-]+)\)", style.style_sheet()))

    assert used <= style.LIGHT.keys()
    assert style.LIGHT.keys() == style.DARK.keys()


def test_a_fragment_styles_nothing_around_it():
    sheet = style.style_sheet(".gpumem-tui")

    top = re.sub(r"\{[^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]*)*\}", "{}", sheet)

    assert [part.strip() for part in top.split("{}") if part.strip()] == [
        ".gpumem-tui",
        "@media screen and (prefers-color-scheme:dark)",
    ]


def test_the_json_report_keeps_the_schema_of_attach_and_adds_to_it():
    told = json.loads(jsonview.render_report(failed()))
    before = json.loads(jsonview.render(failed()))

    assert before.items() <= told.items()
    assert [one["name"] for one in told["report"]["counters"]][:4] == [
        "allocated",
        "reserved",
        "peak allocated",
        "peak reserved",
    ]
    assert told["run"]["identity"]["revision"]["commit"] == "0123456789abcdef0123"
    assert told["run"]["identity"]["declared"] == {"batch": "8"}
    assert told["report"]["outside_scope"] == list(untested(failed()))


# --- charts ---------------------------------------------------------------------------------------


def series(*points: tuple[int, int]) -> Series:
    times, values = zip(*points, strict=True)
    return Series(times, times, values, values, values)


def drawn(*points):
    return svg.path_of(series(*points), lambda t: t / SECOND, lambda size: size / MIB)[0]


def test_a_curve_is_drawn_in_steps_and_never_slanted():
    assert drawn((0, 0), (SECOND, 10 * MIB), (2 * SECOND, 5 * MIB)) == ("M0.0 0.0H0.0H1.0V10.0H2.0V5.0")


def test_a_gap_breaks_the_curve():
    points = [(n * SECOND, MIB) for n in (*range(10), *range(100, 110))]

    assert drawn(*points).count("M") == 2


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=200))
def test_no_point_is_lost_between_the_lowest_and_the_highest_of_a_curve(points):
    times = sorted(t * SECOND // 100 for t, _ in points)
    values = [v for _, v in points]
    line, ranges = svg.path_of(
        Series(times, times, values, values, values), lambda t: t / SECOND, lambda size: float(size)
    )
    seen = {float(v) for v in re.findall(r"(?:V|M[\d.]+ )([\d.]+)", line + ranges)}

    assert max(seen) == max(values)
    assert min(seen) == min(values)


def test_a_chart_has_bands_of_phases_and_the_failure():
    state = failed()
    bands = tuple(
        Band(4700, 0, phase, "", depth, START + n * 10 * SECOND, START + (n + 1) * 10 * SECOND, n, error)
        for n, (phase, depth, error) in enumerate(
            [("forward", 0, None), ("backward", 0, None), ("mine", 0, None), ("eval", 0, "OutOfMemoryError")]
        )
    )

    page = html_view.render(sheet_of(msgspec.structs.replace(state, bands=bands)))

    for each in ("band-forward", "band-backward", "band-other", "band-eval band-failed"):
        assert f'class="band {each}"' in page
    assert "failed: OutOfMemoryError" in page
    assert '<g class="mark">' in page
    assert "at 1 min 0 s: ended with exit code 1" in page
    for curve in ("used", "reserved", "allocated"):
        assert f'class="curve {curve}"' in page


def test_thousands_of_narrow_bands_are_joined():
    state = failed()
    bands = tuple(
        Band(4700, 0, "forward", "", 0, START + n * SECOND // 100, START + n * SECOND // 100 + 5_000_000, n)
        for n in range(5000)
    )

    page = html_view.render(sheet_of(msgspec.structs.replace(state, bands=bands)))

    for drawn in re.findall(r'<svg class="chart".*?</svg>', page, flags=re.S):
        assert drawn.count("<rect class=") < 1500


# --- loads and scope ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "elements"),
    [
        ("float32[8,512] mask=bool[8]", 8 * 512 + 8),
        ("float32[]", 1),
        ("int64[0,4]", 0),
        ("(others)", None),
        ("", None),
    ],
)
def test_elements_of_an_input(told, elements):
    assert elements_of(told) == elements


def test_the_largest_load_of_a_phase_is_the_one_with_most_elements_over_all_ranks():
    ranks = [
        scripted.rank(
            0, 60, inputs=(InputRow("forward", "Bert", "f[8,512]", 90), InputRow("eval", "B", "", 1))
        ),
        scripted.rank(1, 60, inputs=(InputRow("forward", "Bert", "f[64,512]", 2),)),
    ]

    forward, other = largest_loads(ranks)

    assert (forward.input, forward.elements, forward.count, forward.kinds) == ("f[64,512]", 64 * 512, 2, 2)
    assert (other.input, other.elements) == ("", None)


def test_the_scope_names_what_did_not_run_and_what_failed():
    said = " ".join(untested(failed()))

    assert "Phases that did not run: save." in said
    assert "Spans that failed: eval." in said
    assert "More than 120 steps" in said
    assert "Real cards" not in said
    assert "Real cards" in " ".join(untested(scripted.simulated()))
    assert "going on" in " ".join(untested(trained()))


def test_tables_have_a_cell_for_every_column():
    found = tables_of(sheet_of(failed()))

    assert all(len(row) == len(table.columns) for table in found for row in table.rows)

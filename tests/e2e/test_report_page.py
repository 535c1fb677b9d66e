"""The HTML report in a real browser, from a file: no error, no request, charts in both colour schemes."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report of the bundled recording, and the same with a picture from the network."""
    if BROWSER is None:
        pytest.skip("no chromium: install Debian's package of that name to see the page in a browser")
    from product import Gpumem

    from gpumem_tui import demo

    folder = tmp_path_factory.mktemp("pages")
    gpumem = Gpumem(folder)
    gpumem("report", demo.RECORDING, "-o", folder / "report.html")
    page = (folder / "report.html").read_text()
    loose = re.sub(r"<meta http-equiv[^>]*>", "", page)
    (folder / "asking.html").write_text(
        loose.replace("</body>", '<img src="http://no.host.invalid/x"></body>')
    )
    (folder / "calling.html").write_text(page.replace("</body>", "<script>console.log(1)</script></body>"))
    return folder


def browse(page: Path, *options: str) -> "tuple[str, str]":
    """The page as the browser has it, and what the browser says of it."""
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
            "--disable-background-networking", "--disable-component-update", "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={page.parent / 'profile'}",
            "--hide-scrollbars", "--window-size=1200,3000", *options, page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "HOME": str(page.parent)},
    )  # fmt: skip
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def requests(page: Path) -> "set[str]":
    """Addresses that a page asks the browser for; without what the browser asks its maker on its own."""
    log = page.parent / "net.json"
    browse(page, f"--log-net-log={log}", "--dump-dom")
    urls = re.findall(r'"url":"(https?://([^/"]*)[^"]*)"', log.read_text())
    return {url for url, host in urls if not host.endswith((".google.com", ".googleapis.com", ".gvt1.com"))}


def test_the_page_says_nothing_on_the_console_and_has_its_charts(pages):
    seen, said = browse(pages / "report.html", "--dump-dom")

    assert said == ""
    assert seen.count('<svg class="chart"') == 2
    assert seen.count('<svg class="ledger"') == 2
    assert seen.count('class="curve allocated"') == 2
    assert 'class="band band-forward"' in seen
    assert "RECORDED" in seen
    assert "SIMULATED 2 × 24 GiB" in seen


def test_a_script_in_the_page_is_refused_aloud(pages):
    assert "Content Security Policy" in browse(pages / "calling.html", "--dump-dom")[1]


def test_the_page_asks_the_network_for_nothing(pages):
    ours, asking = requests(pages / "report.html"), requests(pages / "asking.html")

    assert ours == set()
    assert asking == {"http://no.host.invalid/x"}


@pytest.mark.parametrize(
    ("options", "colour"), [((), "#1f6fbf"), ((DARK,), "#4a9be8")], ids=["light", "dark"]
)
def test_charts_are_drawn_in_the_colours_of_the_scheme(pages, options, colour):
    image = pytest.importorskip("PIL.Image", reason="Pillow comes with torchvision")
    shot = pages / "shot.png"
    browse(pages / "report.html", f"--screenshot={shot}", *options)

    wanted = tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
    with image.open(shot) as picture:
        drawn = dict(map(reversed, picture.convert("RGB").getcolors(1 << 24)))

    assert drawn.get(wanted, 0) > 5000


MEASURES = """
<script>
const chart = document.querySelector("svg.chart").getBoundingClientRect().width;
const narrow = [...document.querySelectorAll(".prose")].map(cell => cell.getBoundingClientRect().width);
document.title = [document.documentElement.scrollWidth - innerWidth, chart, Math.min(...narrow)].join(" ");
</script></body>
"""


@pytest.mark.parametrize(("screen", "chart"), [(500, 720), (1200, 1100)])
def test_on_a_phone_the_page_keeps_its_width_and_what_is_wider_scrolls_by_itself(pages, screen, chart):
    loose = re.sub(r"<meta http-equiv[^>]*>", "", (pages / "report.html").read_text())
    (pages / "measured.html").write_text(loose.replace("</body>", MEASURES))

    seen, _ = browse(pages / "measured.html", "--dump-dom", f"--window-size={screen},2000")
    beyond, drawn, narrowest = map(float, re.search("<title>(.*?)</title>", seen)[1].split())

    assert beyond <= 0
    assert drawn == chart
    assert narrowest >= 200


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext: Debian's poppler-utils")
def test_on_paper_a_chart_stands_below_its_heading_and_a_ledger_is_whole(pages):
    browse(pages / "report.html", f"--print-to-pdf={pages / 'report.pdf'}", "--no-pdf-header-footer")

    done = subprocess.run(
        ["pdftotext", "-layout", pages / "report.pdf", "-"], capture_output=True, text=True, check=True
    )
    papers = done.stdout.split("\f")

    assert len(papers) > 3
    for heading, below in (
        ("\nHistory\n", "top line: total of the card"),
        ("\nLedger of GPU 0\n", "total as PyTorch sees it"),
        ("\nAssumed\n", "Assumptions"),
    ):
        [paper] = [each for each in papers if heading in f"\n{each}"]
        assert below in paper

"""The look of an HTML report: one style sheet, colours as variables, light, dark and print.

Text and figures keep a contrast of 4.5 to 1 against their ground in both schemes
(a test computes it). Refuses fonts, pictures and scripts from anywhere.
"""

LIGHT = {
    "ground": "#fbfbf9",
    "panel": "#ffffff",
    "text": "#20272e",
    "dim": "#59636d",
    "rule": "#c9d0d6",
    "failure": "#a81e17",
    "warning": "#7d4a00",
    "link": "#0b5c99",
    "badge-ground": "#f2e35c",
    "badge-text": "#1d1b00",
    "allocated": "#1f6fbf",
    "cached": "#7fb8e6",
    "outside": "#c46f00",
    "opaque": "#8a6430",
    "others": "#a8407e",
    "driver": "#6e7984",
    "unattributed": "#b8a400",
    "free": "#e3e7ea",
    "reserved": "#3f8fd2",
    "used": "#6e7984",
    "parameters": "#0f7f6c",
    "gradients": "#a87800",
    "optimizer": "#6a4fb0",
    "buffers": "#6e7984",
    "caches": "#c46f00",
    "live": "#1f6fbf",
    "eval": "#a8407e",
    "generate": "#c46f00",
    "load": "#6e7984",
    "save": "#8a6430",
    "recompute": "#b8a400",
    "other": "#9aa5b1",
}
DARK = {
    "ground": "#14181d",
    "panel": "#1a2027",
    "text": "#dbe2e9",
    "dim": "#98a3ae",
    "rule": "#3b4550",
    "failure": "#ff9d88",
    "warning": "#f2c35c",
    "link": "#9fd3ff",
    "badge-ground": "#f2e35c",
    "badge-text": "#1d1b00",
    "allocated": "#4a9be8",
    "cached": "#8cc9f5",
    "outside": "#f0a030",
    "opaque": "#c9a06a",
    "others": "#d683b4",
    "driver": "#9aa5b1",
    "unattributed": "#f2e35c",
    "free": "#2a323a",
    "reserved": "#8cc9f5",
    "used": "#9aa5b1",
    "parameters": "#5cc4b0",
    "gradients": "#e8c468",
    "optimizer": "#b39ae8",
    "buffers": "#9aa5b1",
    "caches": "#f0a030",
    "live": "#4a9be8",
    "eval": "#d683b4",
    "generate": "#f0a030",
    "load": "#9aa5b1",
    "save": "#c9a06a",
    "recompute": "#f2e35c",
    "other": "#7d8894",
}

BANDS = {
    "load": "load",
    "forward": "allocated",
    "backward": "outside",
    "recompute": "recompute",
    "optimizer": "optimizer",
    "eval": "eval",
    "generate": "generate",
    "save": "save",
    "other": "other",
}
"""Which colour a phase's band has."""

TERMS = (
    "allocated", "cached", "outside", "opaque", "others", "driver", "unattributed", "free",
    "parameters", "gradients", "optimizer", "buffers", "caches", "live",
)  # fmt: skip

_PAGE = """
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1140px; padding: 24px 20px 48px; background: var(--ground);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif }
@page { size: A4 landscape; margin: 12mm }
@media print {
  :root { --ground: #ffffff }
  body { max-width: none; padding: 0; font-size: 11px }
  nav { display: none }
  h2, h3, caption, .lead, .drawn { break-after: avoid }
  svg, table, tr { break-inside: avoid }
  .wide { overflow: visible }
  table { font-size: 10px }
  table.dense { font-size: 8px }
  .dense th, .dense td { padding: 2px 3px }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact }
}
"""
_GUEST = (
    "padding: 8px 12px; background: var(--ground); color: var(--text); font: 14px/1.45 system-ui, sans-serif;"
)

_RULES = """
h1 { font-size: 26px; margin: 0 12px 4px 0; display: inline-block; overflow-wrap: anywhere }
h2 { font-size: 20px; margin: 40px 0 2px; padding-top: 12px; border-top: 2px solid var(--rule) }
h3 { font-size: 16px; margin: 26px 0 6px }
p { margin: 4px 0; overflow-wrap: anywhere }
.lead, footer, .tick { color: var(--dim) }
.headline { font-weight: 600 }
nav { margin: 14px 0 0 } a { color: var(--link) }
.failure { color: var(--failure); font-weight: 600 }
.warning { color: var(--warning) }
.missing { color: var(--dim); font-style: italic }
.badge { display: inline-block; padding: 2px 10px; border-radius: 4px; font-weight: 700; vertical-align: 6px;
  background: var(--badge-ground); color: var(--badge-text) }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: 10px 0 14px; background: var(--panel); font-size: 13.5px }
caption { text-align: left; font-weight: 600; padding: 4px 0; width: max-content;
  max-width: min(90vw, 1100px) }
th, td { padding: 4px 8px; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top;
  overflow-wrap: break-word }
th { font-weight: 600; vertical-align: bottom }
td.right, th.right { text-align: right; font-variant-numeric: tabular-nums }
td.right { white-space: nowrap }
table.dense { font-size: 12px }
.dense th, .dense td { padding: 3px 5px }
tbody th { font-weight: 400; vertical-align: top; white-space: nowrap }
.swatch { display: inline-block; width: 11px; height: 11px; margin-right: 7px; border: 1px solid var(--text) }
.legend { list-style: none; padding: 0; margin: 4px 0 14px; display: flex; flex-wrap: wrap; gap: 4px 18px;
  font-size: 13px }
svg { width: 100%; height: auto; display: block; background: var(--panel); margin: 6px 0 }
svg text { font: 11px system-ui, sans-serif; fill: var(--dim) }
svg .band-label { fill: var(--ground); font-size: 10px }
svg .blank { fill: var(--panel); stroke: var(--rule) }
svg .term { stroke: var(--panel); stroke-width: 1 }
svg .grid, svg .axis { stroke: var(--rule) }
svg .limit { stroke: var(--failure); stroke-dasharray: 6 3 }
svg .curve { fill: none; stroke-width: 1.8 }
svg .range { fill: none; stroke-width: 1; opacity: .35 }
svg .curve.used, svg .range.used { stroke: var(--used); stroke-dasharray: 2 3 }
svg .curve.reserved, svg .range.reserved { stroke: var(--reserved); stroke-dasharray: 7 3 }
svg .curve.allocated, svg .range.allocated { stroke: var(--allocated); stroke-dasharray: none }
svg .mark line { stroke: var(--failure); stroke-width: 2 }
svg .band-failed { stroke: var(--failure); stroke-width: 2 }
.line { display: inline-block; width: 26px; vertical-align: 4px; margin-right: 7px; border-top: 2px solid }
.line.used { border-top-style: dotted; border-color: var(--used) }
.line.reserved { border-top-style: dashed; border-color: var(--reserved) }
.line.allocated { border-color: var(--allocated) }
.line.mark { border-color: var(--failure) }
@media screen and (max-width: 640px) {
  svg.chart { width: 720px }
  .prose { min-width: 17em; overflow-wrap: anywhere }
  th, td { padding: 4px 6px }
}
"""


def _variables(palette: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in palette.items())


def style_sheet(scope: str | None = None) -> str:
    """The whole of it; print is always light. With ``scope``, rules for what is below that alone."""
    terms = "".join(f"svg .term.{key}{{fill:var(--{key})}}" for key in TERMS)
    swatches = "".join(f".swatch.{key}{{background:var(--{key})}}" for key in TERMS)
    bands = "".join(
        f"svg .band-{phase}{{fill:var(--{colour})}} .swatch.band-{phase}{{background:var(--{colour})}}"
        for phase, colour in BANDS.items()
    )
    rules = f"{terms}{swatches}{bands}{_RULES}"
    dark = "@media screen and (prefers-color-scheme:dark)"
    if scope is not None:
        return f"{scope}{{{_variables(LIGHT)}{_GUEST}{rules}}}{dark}{{{scope}{{{_variables(DARK)}}}}}"
    light = f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    return f"{light}{dark}{{:root{{{_variables(DARK)}}}}}{rules}{_PAGE}"

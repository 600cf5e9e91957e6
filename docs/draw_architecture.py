"""Draws `docs/architecture.svg` from the import graph: `make architecture`.

A box is an app with its rooms (its packages and modules). An arrow says in how many modules one app imports another.
"""

from collections import Counter
from html import escape
from itertools import combinations
from pathlib import Path

import grimp

PICTURE = Path(__file__).parent / "architecture.svg"
ROWS = (("config", "evals"), ("chat",), ("agent_tools",), ("imports",), ("memory",), ("intake",), ("core",))
ROLES = {
    "config": "settings, addresses, the embedded servers",
    "evals": "retrieval quality, benchmarks, reliability",
    "chat": "the agent, its answers, the pages, their REST API",
    "agent_tools": "tools for agents over REST and MCP",
    "imports": "history from other products",
    "memory": "embeddings, terms, search, notes",
    "intake": "accounts, conversations, files, models",
    "core": "isolation, errors, validation, limits",
}
LEFT_OUT = {"tests", "migrations", "management", "apps", "urls", "templatetags", "testing"}
WIDTH, MARGIN, PADDING, GAP = 1000, 150, 16, 46
LINE, CHARACTER = 26, 7.4
STYLE = """
  text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }
  .name { font-weight: 700; font-size: 15px } .role { font: 13px system-ui, sans-serif; fill: #59636e }
  .app { fill: #f6f8fa; stroke: #d1d9e0 } .room { fill: #fff; stroke: #d1d9e0 }
  .arrow { fill: none; stroke: #6d7f93; opacity: .75 }
  .count { font-size: 12px; fill: #59636e; paint-order: stroke; stroke: #fff; stroke-width: 4px }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .role, .count { fill: #9198a1 } .app { fill: #151b23; stroke: #3d444d }
    .room { fill: #0d1117; stroke: #3d444d } .count { stroke: #0d1117 } .arrow { stroke: #8296ab }
  }
"""

Box = tuple[float, float, float, float]


def draw() -> str:
    """The picture as SVG; the same source gives the same bytes."""
    graph = grimp.build_graph(*ROLES)
    boxes: dict[str, Box] = {}
    drawn: list[str] = []
    y = 10.0
    for row in ROWS:
        width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row)
        rows = {app: _rooms(graph, app, width) for app in row}
        height = 58 + LINE * max(len(lines) for lines in rows.values())
        for place, app in enumerate(row):
            boxes[app] = (MARGIN + place * (width + GAP), y, width, height)
            drawn += _app(app, rows[app], boxes[app])
        y += height + GAP
    bottom = y - GAP + 10
    arrows = _arrows(_imports(graph), boxes)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom:.0f}" role="img">'
    title = "<title>The apps of Recollect and which of them import which</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", _MARKER, *drawn, *arrows, "</svg>", ""])


_MARKER = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"'
    ' markerUnits="userSpaceOnUse"><path d="M0 0 8 4 0 8z" fill="#6d7f93"/></marker></defs>'
)


def _is_product(module: str) -> bool:
    return not {"tests", "migrations", "testing"} & set(module.split("."))


def _imports(graph: grimp.ImportGraph) -> Counter[tuple[str, str]]:
    """How many modules of the first app import the second."""
    found = set()
    for module in filter(_is_product, graph.modules):
        for imported in graph.find_modules_directly_imported_by(module):
            found.add((module, imported.split(".")[0]))
    pairs = Counter((module.split(".")[0], app) for module, app in found)
    return Counter({pair: count for pair, count in pairs.items() if pair[0] != pair[1]})


def _rooms(graph: grimp.ImportGraph, app: str, width: float) -> list[list[str]]:
    names = sorted(child.split(".")[1] for child in graph.find_children(app))
    lines: list[list[str]] = [[]]
    for name in names:
        if name in LEFT_OUT:
            continue
        if sum(_chip(other) + 6 for other in [*lines[-1], name]) > width - 2 * PADDING:
            lines.append([])
        lines[-1].append(name)
    return lines


def _chip(name: str) -> float:
    return len(name) * CHARACTER + 14


def _app(app: str, lines: list[list[str]], box: Box) -> list[str]:
    left, top, width, height = box
    drawn = [
        f'<rect class="app" x="{left}" y="{top}" width="{width}" height="{height}" rx="8"/>',
        f'<text class="name" x="{left + PADDING}" y="{top + 24}">{app}/</text>',
        f'<text class="role" x="{left + PADDING}" y="{top + 42}">{escape(ROLES[app])}</text>',
    ]
    for row, names in enumerate(lines):
        x, y = left + PADDING, top + 52 + row * LINE
        for name in names:
            drawn.append(f'<rect class="room" x="{x:.1f}" y="{y}" width="{_chip(name):.1f}" height="20" rx="4"/>')
            drawn.append(f'<text x="{x + 7:.1f}" y="{y + 14}">{name}</text>')
            x += _chip(name) + 6
    return drawn


def _arrows(imports: Counter[tuple[str, str]], boxes: dict[str, Box]) -> list[str]:
    """Arcs beside the boxes: those of the first column on the left, the others on the right."""
    drawn, apps = [], list(boxes)
    for above, below in combinations(apps, 2):
        if not (count := imports[above, below]):
            continue
        side = -1 if above == "config" else 1
        start, end = (_edge(boxes[app], side, shift) for app, shift in ((above, 8), (below, -8)))
        bend = side * (18 + 20 * (apps.index(below) - apps.index(above)))
        middle = start[0] + 0.75 * bend + side * 6, (start[1] + end[1]) / 2
        control = start[0] + bend
        curve = f"M{start[0]:.0f} {start[1]:.0f} C{control:.0f} {start[1]:.0f} {control:.0f} {end[1]:.0f}"
        drawn.append(
            f'<path class="arrow" marker-end="url(#tip)" stroke-width="{1 + count / 30:.1f}"'
            f' d="{curve} {end[0]:.0f} {end[1]:.0f}"/>'
        )
        anchor = "start" if side > 0 else "end"
        drawn.append(
            f'<text class="count" text-anchor="{anchor}" x="{middle[0]:.0f}" y="{middle[1]:.0f}">{count}</text>'
        )
    return drawn


def _edge(box: Box, side: int, shift: float) -> tuple[float, float]:
    left, top, width, height = box
    return (left if side < 0 else left + width), top + height / 2 + shift


if __name__ == "__main__":
    PICTURE.write_text(draw())

"""The page's own modules, run where they run: events out of any chunks, answers out of any blocks."""

import pytest

from intake.markdown import render
from intake.tests.blocks import changes_of

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

STREAM = (
    ': a comment\r\nevent: turn\r\ndata: {"a": 1}\r\n\r\n'
    "event: delta\ndata: naïve 🙂 é\n\n"
    "data: two\ndata:lines\nid: 7\n\n"
    "event: nothing\n\n"
    "event: done\rdata: x:y\r\r"
    "event: cut off\ndata: never dispatched"
)
EVENTS = [
    {"type": "turn", "id": None, "data": '{"a": 1}'},
    {"type": "delta", "id": None, "data": "naïve 🙂 é"},
    {"type": "message", "id": "7", "data": "two\nlines"},
    {"type": "done", "id": None, "data": "x:y"},
]

# For each set of places to cut at, the events that came of it.
READ_IN_CHUNKS = """async ({bytes, allCuts}) => {
  const { eventsOf } = await import("/static/intake/sse.js");
  const readings = [];
  for (const cuts of allCuts) readings.push(await read([0, ...cuts, bytes.length]));
  return readings;

  async function read(edges) {
    const body = new ReadableStream({
      start(controller) {
        for (let i = 1; i < edges.length; i += 1) {
          controller.enqueue(new Uint8Array(bytes.slice(edges[i - 1], edges[i])));
        }
        controller.close();
      },
    });
    const events = [];
    for await (const event of eventsOf(body)) events.push(event);
    return events;
  }
}"""

DRAW = """async (changes) => {
  const { Drawing } = await import("/static/intake/drawing.js");
  const target = document.createElement("div");
  const told = [];
  const drawing = new Drawing(target, (finished) => told.push(finished));
  for (const changed of changes) drawing.show(changed);
  drawing.finish();
  return { html: target.innerHTML, told };
}"""

DOCUMENTS = {
    "paragraphs": "One *two* **three** `four`.\nStill one.\n\nTwo.",
    "headings": "# One\n\n## Two ##\ntext\n\nUnder\n=====\n\nLine\n---",
    "nested lists": "- a\n- b\n  - c\n    - d\n- e\n\n1. x\n   - y\n2. z\n\n   more of z\n3. w",
    "list after words": "Words:\n- a\n- b\n\n5. five\n6. six",
    "loose list": "- a\n\n- b\n\nafter",
    "quotes": "> one\n> two\n>\n> - three\n\n> apart\nlazy",
    "code": "```python\nif x < 1:\n\n    print('**no**')\n```\n\n~~~\n```\n~~~\n\n    indented",
    "code in a list": "- item\n  ```sh\n  echo hi\n  ```\n- next",
    "unclosed code": "Look:\n\n```js\nlet a = 1;\n",
    "table": "| a | b \\| c | d |\n|:--|:-:|--:|\n| 1 | `x` | **3** |\n| only |\n\nafter",
    "links": '[a](https://example.com/x?y=1&z=2 "title") [b](/c/1/?turn=2#turn-2) <https://example.com>',
    "odd links": "[c](<https://e.com/(a>) [d](x(y)) [e]( /c/1/ 'f')",
    "pictures": "![alt](https://example.com/x.png) [![in](https://e.com/i.png)](https://e.com/)",
    "emphasis": "*a **b** c* **d *e* f** ***g*** snake_case_name 2 * 3 * 4 __h__ _i_ ~~j~~ **k**l \\*m\\* a*b*c",
    "code spans": "`a` ``b ` c`` `**d**` *`e`* `unclosed",
    "breaks": "one  \ntwo\\\nthree",
    "entities": "&amp; &lt;b&gt; &copy; &#8364; &unknown; AT&T <notatag> 1 < 2",
    "rule": "a\n\n---\n\n***\n\nb",
    "raw html": "<div>x</div>\n\n<b>y</b> <!-- z -->",
    "formulas": "So $a^2$ and\n\n$$\n\\frac{1}{2}\n$$\n\nfor $5 or $6.",
    "tasks and notes": "- [ ] a\n- [x] b\n\nSee[^1] https://e.com/x\n\n[^1]: note",
    "brackets": "[x] [y][z] [ ] - [x] done ![] []() [a](b c)",
}


@pytest.fixture
def page(open_page):
    return open_page("/login/")


def test_events_are_the_same_wherever_the_stream_is_cut(page):
    data = list(STREAM.encode())
    everywhere = list(range(1, len(data)))
    cuts = [[], everywhere, *([cut] for cut in everywhere)]
    assert page.evaluate(READ_IN_CHUNKS, {"bytes": data, "allCuts": cuts}) == [EVENTS] * len(cuts)


def test_what_is_streamed_looks_like_what_is_stored(page):
    for name, text in DOCUMENTS.items():
        stored = page.evaluate(
            "html => new DOMParser().parseFromString(html, 'text/html').body.innerHTML", str(render(text))
        )
        for size in (1, 7, len(text)):
            assert page.evaluate(DRAW, changes_of(text, size))["html"] == stored, (name, size)


def test_finished_blocks_stay_as_they_are_and_are_told_once(page):
    is_kept = page.evaluate(
        """async () => {
          const { Drawing } = await import("/static/intake/drawing.js");
          const target = document.createElement("div");
          const told = [];
          const drawing = new Drawing(target, (finished) => finished && told.push(finished));
          drawing.show({ from: 0, html: ["<p>First.</p>", "<p>Second, which</p>"] });
          const [first, second] = target.children;
          drawing.show({ from: 1, html: ["<p>Second, which goes on.</p>"] });
          const isKept = target.children[0] === first && target.children[1] !== second && target.children.length === 2;
          drawing.finish();
          return [isKept, told];
        }"""
    )
    assert is_kept == [True, ["First.", "Second, which goes on."]]

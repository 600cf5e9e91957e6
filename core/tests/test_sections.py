"""Sections of Markdown are read back exactly as they were written."""

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.text import END, read_head, read_sections, write_head, write_section

MARK = '<!-- turn {"turn_number": 1} -->'
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
# Generating takes its time on a busy machine.
UNHURRIED = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
LINES = st.lists(
    TEXTS | st.sampled_from([MARK, "\\" + MARK, "<!-- end {} -->", "## You", "---", "", "\r", "<!-- answer"]),
    max_size=6,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


def test_a_section_reads_as_markdown():
    written = write_section("turn", {"status": "complete"}, heading="You,\n today", text="Hello\nthere") + END
    assert written == '<!-- turn {"status": "complete"} -->\n## You, today\n\nHello\nthere\n\n<!-- end {} -->\n'


@pytest.mark.medium
@UNHURRIED
@given(
    st.lists(
        st.tuples(st.sampled_from(["turn", "answer", "record"]), st.dictionaries(TEXTS, VALUES, max_size=4), LINES),
        max_size=5,
    )
)
def test_sections_are_read_back_to_the_letter(sections):
    written = [(kind, fields, "\n".join(lines)) for kind, fields, lines in sections]
    text = "".join(write_section(kind, fields, heading=text, text=text) for kind, fields, text in written) + END
    assert list(read_sections("# A title\n\n" + text)) == written


@pytest.mark.medium
@UNHURRIED
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), VALUES, max_size=5))
def test_front_matter_is_read_back_and_is_yaml(fields):
    written = write_head(fields)
    assert read_head(written + "\n# A title\n") == fields
    names = {
        str(name) for name in yaml.load(written.removeprefix("---\n").removesuffix("---\n"), yaml.BaseLoader) or {}
    }
    assert names == set(fields)


@pytest.mark.parametrize(
    "text", ["", "Nothing of this", "---\n", "---\ntitle: x\n", "<!-- turn -->\nx", "# <!-- end {} -->"]
)
def test_what_is_no_section_gives_none(text):
    assert list(read_sections(text)) == []
    assert read_head(text) == {}


def test_what_people_change_by_hand_is_still_read():
    text = '---\r\ntitle: By hand: yes\r\n---\r\n<!-- turn {"a": 1, -->\n<!-- turn {"a": } -->\r\n## You\n\nHello'
    assert read_head(text) == {"title": "By hand: yes"}
    assert list(read_sections(text)) == [("turn", {}, "Hello")]


def test_no_field_ends_the_comment_that_it_stands_in():
    written = write_section("turn", {"error": "--> <script>"}, heading="x", text="x")
    assert written.count("-->") == 1
    assert json.loads(written.split("\n", 1)[0][10:-4]) == {"error": "--> <script>"}

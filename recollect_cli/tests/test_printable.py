"""Stored text is data to a terminal: nothing in it moves the cursor, sets the title or turns the line around."""

import pytest

from recollect_cli.commands import _print
from recollect_cli.printing import preview_text, printable, report_text

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\r\u202etxt\u2066\x7f\x85"
OBEYED = ("\x1b", "\x07", "\x9b", "\x08", "\r", "\u202e", "\u2066", "\x7f", "\x85")


def is_harmless(text):
    return not any(each in text for each in OBEYED)


def test_each_control_character_is_written_out_and_the_rest_stays():
    assert printable("a\tb\n\x1b[1mc \u00e9 \u6771 \U0001f469\u200d\U0001f52c") == (
        "a\tb\n\\u001b[1mc \u00e9 \u6771 \U0001f469\u200d\U0001f52c"
    )
    assert is_harmless(printable(HOSTILE))


@pytest.mark.parametrize("as_json", [False, True])
def test_no_answer_of_the_server_reaches_the_terminal_raw(capsys, as_json):
    _print({"text": f"1. {HOSTILE}", "results": [HOSTILE]}, as_json=as_json)
    assert is_harmless(capsys.readouterr().out)


def test_a_title_stays_on_its_line_in_preview_and_report():
    shown = {
        "id": "1", "product_label": f"Chat{HOSTILE}\nGPT", "filename": HOSTILE, "found": {"skipped": 1},
        "stored": {}, "can_undo": False, "notices": [f"{HOSTILE}\nNote"],
        "skipped": [{"where": HOSTILE, "reason": f"{HOSTILE}\nforged line"}],
    }  # fmt: skip
    text = preview_text({"import": shown, "newest": [f"{HOSTILE}\nforged line"], "comes_in": {}})
    assert not any(line.startswith("forged") for line in text.splitlines())
    _ = report_text(shown, "http://localhost")

"""`recollect install`: what it writes into the files of other programs, and that it leaves no trace of itself."""

import json
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from recollect_cli import clients, hooks, installing, merging
from recollect_cli.commands import main

JSONC = """\
{
  // mine
  "theme": "dark", /* a { brace */
  "url": "http://x//y",
  "hooks": {
    "SessionStart": [{"hooks": [{"type": "command", "command": "echo hi"}]}], // theirs
  },
  "mcpServers": {},
}
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(sys, "platform", "linux")
    return folder


@pytest.fixture
def run(capsys):
    def run(*arguments):
        status = main(list(arguments))
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def files(folder):
    """Of other programs: without our own configuration and state."""
    found = (each for each in folder.rglob("*") if each.is_file() and "recollect" not in each.parts)
    return {str(each.relative_to(folder)): each.read_text() for each in found}


def commands_in(value):
    if isinstance(value, dict):
        yield from ([value["command"]] if isinstance(value.get("command"), str) else [])
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from commands_in(each)


def without_comments(text):
    kept = [found[0] for found in merging._TOKEN.finditer(text) if not found[0].startswith(("//", "/*"))]
    joined = "".join(each for each in kept if not each.isspace())
    return json.loads(joined.replace(",}", "}").replace(",]", "]"))


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_it_is_installed_once_and_removed_without_a_trace(home, run, client):
    status, out, err = run("install", client, "--capture", "all")
    assert (status, err, f"{client}: installed." in out) == (0, "", True)
    written = files(home)
    assert any("recollect" in text for text in written.values())
    # What can be paid by the token lists the tools of daily work alone.
    assert any('"few"' in text for text in written.values()) is (client not in ("claude-desktop", "vscode"))
    assert run("install", client)[1].startswith(f"{client}: nothing to change.")
    assert files(home) == written
    assert installing.is_installed(client)
    assert run("install", client, "--remove")[0] == 0
    assert files(home) == {}


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_a_dry_run_prints_the_difference_and_writes_nothing(home, run, client):
    status, out, _ = run("install", client, "--dry-run", "--capture", "all")
    assert (status, files(home)) == (0, {})
    assert out.startswith("--- ")
    assert "\n+" in out
    assert not (home / ".config" / "recollect").exists()


def test_what_others_wrote_stays_as_it_was_and_comes_back(home, run):
    for name in (".gemini/settings.json", ".codex/config.toml", ".codex/AGENTS.md"):
        (home / name).parent.mkdir(exist_ok=True)
    before = {
        ".gemini/settings.json": JSONC,
        ".codex/config.toml": '# mine\nmodel = "x"\n\n[mcp_servers.other]\ncommand = "other"',
        ".codex/AGENTS.md": "# Rules\n\nBe brief.",
    }
    for name, text in before.items():
        (home / name).write_text(text)
    for client in ("gemini", "codex"):
        assert run("install", client)[0] == 0
    after = files(home)
    settings = without_comments(after[".gemini/settings.json"])
    assert "// mine" in after[".gemini/settings.json"] and "// theirs" in after[".gemini/settings.json"]
    assert settings["url"] == "http://x//y"
    assert [len(commands) for commands in settings["hooks"].values()] == [2, 1, 1, 1]
    assert after[".gemini/settings.json.before-recollect"] == JSONC
    servers = tomllib.loads(after[".codex/config.toml"])["mcp_servers"]
    assert (servers["other"], servers["recollect"]["args"][-3:]) == ({"command": "other"}, ["mcp", "--tools", "few"])
    assert after[".codex/AGENTS.md"].startswith("# Rules\n\nBe brief.\n\n<!-- recollect: begin -->\n")
    for client in ("gemini", "codex"):
        assert run("install", client, "--remove")[0] == 0
    assert files(home) == before


def test_what_changed_since_is_kept_when_it_is_removed(home, run):
    file = home / ".claude" / "settings.json"
    run("install", "claude-code")
    settings = json.loads(file.read_text())
    settings["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "echo done"}]})
    settings["theme"] = "dark"
    file.write_text(json.dumps(settings))
    run("install", "claude-code", "--remove")
    kept = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "echo done"}]}]}, "theme": "dark"}
    assert json.loads(file.read_text()) == kept


def test_a_new_place_of_the_command_replaces_the_old_one(home, run, monkeypatch):
    run("install", "claude-code")
    monkeypatch.setattr(clients, "own_command", lambda: ["/opt/new place/recollect"])
    run("install", "claude-code")
    settings = json.loads((home / ".claude" / "settings.json").read_text())
    assert [len(entries) for entries in settings["hooks"].values()] == [1] * 5
    (command, *_) = commands_in(settings)
    assert shlex.split(command) == ["/opt/new place/recollect", "hook", "claude-code", "SessionStart"]
    assert json.loads((home / ".claude.json").read_text())["mcpServers"]["recollect"]["args"] == [
        "mcp",
        "--tools",
        "few",
    ]


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        ("claude-code", ".claude/settings.json", "{"),
        ("claude-code", ".claude/settings.json", "[]"),
        ("claude-code", ".claude/settings.json", '{"hooks": {"SessionStart": {}}}'),
        ("claude-code", ".claude.json", '{"mcpServers": []}'),
        ("codex", ".codex/config.toml", "model ="),
        ("codex", ".codex/config.toml", "[mcp_servers]\nrecollect = 1\n"),
        ("gemini", ".gemini/GEMINI.md", b"\xff\xfe"),
    ],
)
def test_a_file_that_cannot_be_read_is_left_as_it_is(home, run, client, name, text):
    file = home / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = file.read_bytes()
    status, _, err = run("install", client)
    assert (status, "Nothing was changed" in err) == (1, True)
    assert file.read_bytes() == before
    assert len(list(home.rglob("*.json*"))) <= 1


def test_the_file_behind_a_link_is_changed_and_the_link_stays(home, run):
    target = home / "dotfiles" / "CLAUDE.md"
    target.parent.mkdir()
    target.write_text("# Mine\n")
    (home / ".claude").mkdir()
    (home / ".claude" / "CLAUDE.md").symlink_to(target)
    run("install", "claude-code")
    assert (home / ".claude" / "CLAUDE.md").is_symlink()
    assert "recollect" in target.read_text()
    run("install", "claude-code", "--remove")
    assert target.read_text() == "# Mine\n"


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "cursor"])
def test_every_installed_hook_is_one_that_the_command_knows(home, run, client):
    run("install", client)
    found = [shlex.split(each)[-3:] for text in map(json.loads, hook_files(home)) for each in commands_in(text)]
    assert found
    for word, name, event in (each for each in found if each[0] == "hook"):
        assert (word, name) == ("hook", client)
        assert event in hooks.EVENTS[client]


def hook_files(home):
    return [text for name, text in files(home).items() if name.endswith(".json") and '"hooks"' in text]


def test_installed_commands_run_from_any_folder(home, tmp_path):
    command = [*clients.own_command(), "hook", "claude-code", "SessionStart"]
    ran = subprocess.run(command, input=b"{}", cwd=tmp_path, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


@pytest.mark.skipif(shutil.which("node") is None, reason="node reads the plugin")
def test_the_plugin_of_opencode_is_javascript(home, run):
    run("install", "opencode")
    plugin = home / ".config" / "opencode" / "plugin" / "recollect.js"
    module = plugin.with_suffix(".mjs")
    module.write_text(plugin.read_text())
    assert subprocess.run(["node", "--check", str(module)], check=False).returncode == 0


def test_the_instructions_take_about_ninety_tokens():
    assert 60 <= len(clients.INSTRUCTIONS.split()) <= 75


# --- Which sessions are kept ---


def config(home):
    return json.loads((home / ".config" / "recollect" / "config.json").read_text())


def test_nothing_is_kept_until_it_is_chosen(home, run):
    assert "No session is kept." in run("install", "claude-code")[1]
    assert "capture" not in config(home)
    assert "No session is kept." not in run("install", "claude-code", "--folder", str(home / "work"))[1]
    assert config(home) == {"capture": "only", "folders": [str(home / "work")]}
    run("install", "codex", "--capture", "all", "--never", "~/private")
    assert (config(home)["capture"], config(home)["never"]) == ("all", [str(home / "private")])


def test_it_is_asked_once_at_a_terminal(home, run, monkeypatch):
    answers = iter(["o", "~/work, ~/more", "~/work/secret"])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    run("install", "claude-code")
    assert config(home) == {
        "capture": "only",
        "folders": [str(home / "work"), str(home / "more")],
        "never": [str(home / "work" / "secret")],
    }
    # Nothing more is asked.
    assert run("install", "codex")[0] == 0


def test_status_names_what_is_wrong(home, run):
    run("install", "claude-code", "--never", "/srv")
    status, out, _ = run("status", "--url", "http://127.0.0.1:1", "--token", "t")
    assert status == 0
    assert "does not answer" in out
    assert "Installed for: claude-code\n" in out
    assert "Sessions are kept in no folder, never in /srv" in out


# --- Apps that ask this server for their model's answers ---

KEY = ("--url", "https://recollect.example", "--token", "k-123")


@pytest.mark.parametrize("app", clients.APPS)
def test_an_app_gets_the_address_and_the_key_and_loses_both(home, run, app):
    status, out, err = run("install", app, *KEY)
    assert (status, err, "k-123" in out) == (0, "", False)
    written = "".join(files(home).values())
    assert "https://recollect.example" in written
    assert ("k-123" in written) is (app != "zed")
    assert run("install", app, *KEY)[1].startswith(f"{app}: nothing to change.")
    assert "installed" not in run("install", app, *KEY, "--dry-run")[1]
    run("install", app, "--remove")
    assert files(home) == {}


def test_an_app_without_a_key_is_told_where_to_make_one(home, run):
    status, _, err = run("install", "aider", "--url", "https://recollect.example")
    assert (status, "https://recollect.example/settings/apps/" in err) == (1, True)
    assert files(home) == {}


def test_lines_for_an_app_stand_among_those_of_its_user(home, run):
    file = home / ".config" / "io.datasette.llm" / "extra-openai-models.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# mine\n- model_id: other\n  model_name: other\n")
    run("install", "llm", *KEY)
    lines = file.read_text().splitlines()
    assert lines[:3] == ["# mine", "- model_id: other", "  model_name: other"]
    assert lines[4:7] == ["# recollect: begin", '- model_id: "recollect"', '  model_name: "recollect"']
    file.write_text(file.read_text() + "- model_id: later\n  model_name: later\n")
    run("install", "llm", "--remove")
    assert file.read_text() == (
        "# mine\n- model_id: other\n  model_name: other\n\n- model_id: later\n  model_name: later\n"
    )


def test_codex_gets_a_profile_with_a_provider_of_its_own(home, run):
    run("install", "codex-model", *KEY)
    codex = tomllib.loads((home / ".codex" / "recollect.config.toml").read_text())
    provider = codex["model_providers"][codex["model_provider"]]
    assert (provider["base_url"], provider["http_headers"]) == ("https://recollect.example/v1", {"x-api-key": "k-123"})


# --- Edits of texts ---


@pytest.mark.parametrize("text", ["", "{}", "{ }\n", '{"a": 1}', '{"a": 1,}', '{"a": 1 // x\n}', '{"b": {"c": []}}'])
def test_a_member_comes_in_and_goes_out_again(text):
    added = merging.with_member(text, ("b", "x"), {"y": 1})
    assert without_comments(added)["b"]["x"] == {"y": 1}
    assert merging.with_member(added, ("b", "x"), {"y": 1}) == added
    again = merging.with_member(added, ("b", "x"), 2)
    assert without_comments(again)["b"]["x"] == 2
    removed = without_comments(merging.without_member(added, ("b", "x")))
    before = without_comments(text or "{}")
    assert {**removed, "b": removed.get("b", {})} == {**before, "b": before.get("b", {})}


@pytest.mark.parametrize(
    "text", ["{", "}", "[", '{"a"}', '{"a":}', '{"a" 1}', '{"a":1 "b":2}', '{"a":1}}', "x", "[" * 500]
)
def test_a_text_that_is_not_json_is_refused(text):
    with pytest.raises(ValueError):
        merging.with_member(text, ("b",), 1)


def test_a_table_of_toml_is_replaced_and_removed():
    text = '[a]\nx = 1\n[mcp_servers.recollect]\ncommand = "old"\n[mcp_servers.recollect.env]\ny = 1\n[b]\nz = 2\n'
    without = merging.without_table(text, "mcp_servers.recollect")
    assert without == "[a]\nx = 1\n[b]\nz = 2\n"
    added = merging.with_table(without, "mcp_servers.recollect", {"command": 'a "b"\\c', "args": ["x"]})
    assert tomllib.loads(added)["mcp_servers"]["recollect"] == {"command": 'a "b"\\c', "args": ["x"]}


def test_the_plugin_ships_with_the_package():
    assert Path(installing.__file__).with_name("opencode.js").is_file()

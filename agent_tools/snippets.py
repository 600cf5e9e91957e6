"""The configuration lines for each client, with the server's real address and a token if there is one."""

import json
from dataclasses import dataclass

from django.utils.translation import gettext_noop as _

PLACEHOLDER = "YOUR_TOKEN"


@dataclass(frozen=True, slots=True)
class Snippet:
    title: str
    where: str
    text: str


def snippets(*, address: str, secret: str = PLACEHOLDER) -> list[Snippet]:
    """`address` is the server's, such as `https://recollect.example`, without a slash at its end."""
    return [
        Snippet("Claude Code", _("Run in a terminal."), _claude_code(address, secret)),
        Snippet(
            "Claude Desktop", _("Add to claude_desktop_config.json; needs Node."), _claude_desktop(address, secret)
        ),
        Snippet("Cursor", _("Add to ~/.cursor/mcp.json."), _cursor(address, secret)),
        Snippet("curl", _("Run in a terminal."), _curl(address, secret)),
        Snippet("OpenAI function calling", _("Python; pip install openai."), _openai(address, secret)),
        Snippet("Anthropic tool use", _("Python; pip install anthropic."), _anthropic(address, secret)),
    ]


def _claude_code(address: str, secret: str) -> str:
    return f'claude mcp add --transport http recollect {address}/mcp \\\n  --header "Authorization: Bearer {secret}"'


def _claude_desktop(address: str, secret: str) -> str:
    # The variable contains the space after the colon: on some systems an argument with a space is split.
    server = {
        "command": "npx",
        "args": ["-y", "mcp-remote", f"{address}/mcp", "--header", "Authorization:${RECOLLECT_AUTHORIZATION}"],
        "env": {"RECOLLECT_AUTHORIZATION": f"Bearer {secret}"},
    }
    return json.dumps({"mcpServers": {"recollect": server}}, indent=2)


def _cursor(address: str, secret: str) -> str:
    server = {"url": f"{address}/mcp", "headers": {"Authorization": f"Bearer {secret}"}}
    return json.dumps({"mcpServers": {"recollect": server}}, indent=2)


def _curl(address: str, secret: str) -> str:
    return (
        f"curl {address}/api/v1/tools/search_chat_history/ \\\n"
        f'  -H "Authorization: Bearer {secret}" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        '  -d \'{"query": "the restaurant for the anniversary", "mode": "hybrid"}\''
    )


def _calling(address: str, secret: str, vendor: str) -> str:
    return f'''import json
import urllib.error
import urllib.request

ADDRESS, TOKEN = "{address}", "{secret}"


def ask(path, body=None):
    headers = {{"Authorization": f"Bearer {{TOKEN}}", "Content-Type": "application/json"}}
    request = urllib.request.Request(ADDRESS + path, body and body.encode(), headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


tools = json.loads(ask("/api/v1/tools/?format={vendor}"))["tools"]
'''


def _openai(address: str, secret: str) -> str:
    return f"""from openai import OpenAI

{_calling(address, secret, "openai")}
client = OpenAI()
messages = [{{"role": "user", "content": "What did I decide about the kitchen?"}}]
while True:
    answer = client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=tools).choices[0].message
    messages.append(answer)
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        result = ask(f"/api/v1/tools/{{call.function.name}}/", call.function.arguments)
        messages.append({{"role": "tool", "tool_call_id": call.id, "content": result}})
print(answer.content)
"""


def _anthropic(address: str, secret: str) -> str:
    return f"""import anthropic

{_calling(address, secret, "anthropic")}
client = anthropic.Anthropic()
messages = [{{"role": "user", "content": "What did I decide about the kitchen?"}}]
while True:
    answer = client.messages.create(model="claude-sonnet-4-5", max_tokens=1024, messages=messages, tools=tools)
    messages.append({{"role": "assistant", "content": answer.content}})
    calls = [block for block in answer.content if block.type == "tool_use"]
    if not calls:
        break
    results = [(call.id, ask(f"/api/v1/tools/{{call.name}}/", json.dumps(call.input))) for call in calls]
    blocks = [{{"type": "tool_result", "tool_use_id": id_, "content": result}} for id_, result in results]
    messages.append({{"role": "user", "content": blocks}})
print(answer.content[0].text)
"""

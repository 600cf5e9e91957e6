"""The official conformance suite and the inspector against the real server: `make conformance`.

They need the packages that `make conformance-packages` installs, Node 22 among them, and are skipped without, but in CI.
"""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest
from django.conf import settings

from agent_tools.authentication import create_token
from agent_tools.tests.conformance.fixture_tools import application as fixture_application
from agent_tools.tests.conformance.proxy import proxy_to
from agent_tools.tests.test_mcp_stdio import COMMAND, environment
from agent_tools.tools import mcp_registry
from intake.tests.factories import a_person
from testing.serving import serving

MODULES = Path(os.environ.get("CONFORMANCE_DIR", "var/conformance")).absolute() / "node_modules"
PACKAGES = MODULES / "@modelcontextprotocol"
SUITE = PACKAGES / "conformance" / "dist" / "index.js"
INSPECTOR = PACKAGES / "inspector" / "clients" / "launcher" / "build" / "index.js"
# The machine's own may be too old.
NODE = shutil.which("node", path=MODULES / ".bin") or ""
# What a server is given by a client that passes nothing else on.
FOR_THE_COMMAND = (
    "DATABASE_URL",
    "DJANGO_SETTINGS_MODULE",
    "IGNORE_ENV_FILES",
    "RECOLLECT_TOKEN",
    "RECOLLECT_VAR",
    "REDIS_URL",
)

REAL = {
    "2025-11-25": [
        "server-initialize",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ],
    "2026-07-28": [
        "server-stateless",
        "tools-list",
        "caching",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ],
}
# Checks within those scenarios that ask for what this server does not offer: docs/mcp.md says why, one by one.
DO_NOT_APPLY = {
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
    "sep-2549-prompts-list-caching-hints",
    "sep-2549-resources-list-caching-hints",
    "sep-2549-resources-templates-list-caching-hints",
}
WITH_FIXTURE_TOOLS = ["tools-call-simple-text", "tools-call-error"]


pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(
        not (SUITE.exists() and INSPECTOR.exists() and NODE) and not os.environ.get("CI"),
        reason="needs `make conformance`",
    ),
]


@pytest.fixture
def secret(server):
    return create_token(user=a_person()).secret


def run_scenario(address, revision, scenario, tmp_path):
    command = [NODE, SUITE, "server", "--url", f"{address}/mcp", "--spec-version", revision, "--scenario", scenario]
    ran = subprocess.run([*command, "-o", tmp_path], capture_output=True, text=True, timeout=120, check=False)
    checks = [check for file in tmp_path.rglob("checks.json") for check in json.loads(file.read_text())]
    assert [check for check in checks if check["status"] == "SUCCESS"], ran.stdout + ran.stderr
    failed = {check["id"] for check in checks if check["status"] == "FAILURE"}
    assert failed <= DO_NOT_APPLY, ran.stdout


@pytest.mark.parametrize(
    ("revision", "scenario"), [(revision, scenario) for revision, those in REAL.items() for scenario in those]
)
def test_the_real_server_conforms(server, secret, revision, scenario, tmp_path):
    with serving(proxy_to(server, secret=secret)) as proxy:
        run_scenario(proxy, revision, scenario, tmp_path)


@pytest.mark.parametrize("revision", REAL)
@pytest.mark.parametrize("scenario", WITH_FIXTURE_TOOLS)
def test_the_same_endpoint_with_fixture_tools_conforms(server, secret, revision, scenario, tmp_path):
    with serving(fixture_application) as fixtures, serving(proxy_to(fixtures, secret=secret)) as proxy:
        run_scenario(proxy, revision, scenario, tmp_path)


AUTHORIZATION_CHECKS = {
    "authorization-server-metadata",
    "authorization-server-metadata-cimd",
    "authorization-code-grant",
}


@pytest.mark.parametrize("revision", REAL)
def test_the_authorization_server_conforms(server, person, log_in, revision, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    callback = {"redirect_uris": [f"http://127.0.0.1:{port}/callback"], "token_endpoint_auth_method": "none"}
    client = httpx2.post(f"{server}/oauth/register/", json=callback).json()
    named = {
        "--url": server,
        "--resource": f"{server}/mcp",
        "--client-id": client["client_id"],
        "--port": str(port),
        "--spec-version": revision,
    }
    options = [part for name, value in named.items() for part in (name, value)]
    command = [NODE, SUITE, "authorization", *options, "-o", tmp_path]
    browser = log_in(person)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as suite:
        said = []
        for line in suite.stdout:
            said.append(line)
            if line.startswith(f"{server}/oauth/authorize/"):
                agree = {"allow": "1", "scopes": ["search", "write"], "csrfmiddlewaretoken": csrf_token(browser)}
                assert browser.post(line.strip(), data=agree).text == "OK. You can close this page."
    checks = [check for file in tmp_path.rglob("checks.json") for check in json.loads(file.read_text())]
    assert {check["id"]: check["status"] for check in checks}.items() >= dict.fromkeys(
        AUTHORIZATION_CHECKS, "SUCCESS"
    ).items(), "".join(said)


def csrf_token(browser):
    browser.get("/settings/tokens/")
    return browser.cookies["csrftoken"]


@pytest.fixture
def inspect(tmp_path):
    """What the inspector prints when it is pointed at a server by these arguments."""

    def inspect(*arguments):
        command = [NODE, INSPECTOR, "--cli", *arguments, "--connect-timeout", "60000"]
        # It keeps a list of servers, and nobody's own is to be touched.
        given = {**os.environ, "MCP_CATALOG_PATH": str(tmp_path / "servers.json")}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=given)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return json.loads(ran.stdout)

    return inspect


def over_http(server, secret):
    return [f"{server}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {secret}"]


def over_stdio(server, secret):
    given = environment(secret)
    passed_on = [part for name in FOR_THE_COMMAND if name in given for part in ("-e", f"{name}={given[name]}")]
    return [*COMMAND, "--transport", "stdio", "--cwd", str(settings.BASE_DIR), *passed_on]


@pytest.mark.parametrize("way", [over_http, over_stdio])
def test_the_inspector_lists_and_calls_the_tools(inspect, server, secret, way):
    there = way(server, secret)
    listed = inspect(*there, "--method", "tools/list", "--strict")
    assert [tool["name"] for tool in listed["tools"]] == [tool.name for tool in mcp_registry]
    call = ["--method", "tools/call", "--tool-name", "search_chat_history", "--tool-arg", "query=cat"]
    assert inspect(*there, *call)["structuredContent"]["note"] == "no chat history found"

"""Uploads, forms and their refusals through a real nginx."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from django.test import Client

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from imports.models import Import
from imports.services import CHUNK
from intake.tests.factories import a_person
from recollect_cli.client import Server
from recollect_cli.importing import IMPORTS, _uploaded

CONFIGURATION = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log {folder}/access.log; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port}; {limit}
    location / {{ proxy_pass {backend}; proxy_set_header Host {host}; }}
  }}
}}
"""
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
SIZE = 3_300_000

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(not NGINX and not os.environ.get("CI"), reason="nginx is not installed"),
]


@contextmanager
def nginx(backend, folder, port, *, limit="", host="$http_host"):
    configuration = folder / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, port=port, backend=backend, limit=limit, host=host))
    Path(folder).chmod(0o755)
    with subprocess.Popen([NGINX, "-c", configuration, "-p", folder, "-g", "user root;"]) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(100):
                try:
                    urlopen(f"{address}/healthz")
                except HTTPError:
                    break
                except URLError:
                    time.sleep(0.05)
                else:
                    break
            yield address
        finally:
            process.terminate()


@pytest.fixture
def proxied(server, tmp_path, settings):
    settings.IMPORTS_DIR = tmp_path / "uploads"

    def start(**options):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        return nginx(server, tmp_path, port, **options)

    return start


@pytest.mark.parametrize("limit", ["", "client_max_body_size 100k;"])
def test_the_command_uploads_through_a_proxy_with_its_own_limit(proxied, tmp_path, limit):
    path = tmp_path / "export.bin"
    path.write_bytes(os.urandom(SIZE))
    token = create_token(user=a_person(), scopes=list(TokenScope)).secret
    with proxied(limit=limit) as address, path.open("rb") as content:
        recollect = Server(address, token)
        shown = recollect.ask("POST", IMPORTS, {"filename": path.name, "bytes": SIZE})
        assert shown["chunk_bytes"] == CHUNK < 1_000_000
        shown = _uploaded(recollect, content, shown, lambda *_: None)
        assert shown["bytes_received"] == SIZE
    assert (" 413 " in (tmp_path / "access.log").read_text()) is bool(limit)


def test_a_page_uploads_through_a_proxy_that_takes_less(open_page, settings, tmp_path):
    settings.IMPORTS_DIR = tmp_path / "uploads"
    page, sizes = open_page("/import/", user=a_person()), []

    def as_nginx_does(route):
        sizes.append(len(route.request.post_data_buffer or b""))
        refusal = "<html><head><title>413 Request Entity Too Large</title></head></html>"
        if sizes[-1] > 100_000:
            route.fulfill(status=413, content_type="text/html", body=refusal)
        else:
            route.continue_()

    page.route("**/content/", as_nginx_does)
    path = tmp_path / "export.zip"
    path.write_bytes(os.urandom(400_000))
    page.locator("[data-file]").set_input_files(path)
    for _ in range(200):
        if (known := Import.objects.first()) and known.bytes_received == known.bytes:
            break
        page.wait_for_timeout(50)
    assert Import.objects.get().bytes_received == 400_000
    assert sizes[0] == 400_000 and len([size for size in sizes if size > 100_000]) == 2


def test_a_wrong_host_header_is_said_and_logged_with_the_setting_that_mends_it(proxied, caplog):
    form = urlencode({"username": "someone@example.com", "password": "x"}).encode()
    with proxied(host="127.0.0.1") as address:
        sent = Request(f"{address}/login/", form, {"Origin": address, "Cookie": f"csrftoken={'a' * 32}"})
        with pytest.raises(HTTPError) as refused:
            urlopen(sent)
        page = refused.value.read().decode()
    assert refused.value.code == 403
    assert f"The page is at {address}, and this server was asked for http://127.0.0.1." in page
    assert "docs/install.md" in page and "CSRF_" not in page
    assert "has expired" not in page
    assert f"CSRF_TRUSTED_ORIGINS={address}" in caplog.text


def test_an_unknown_name_is_said_with_the_document_that_mends_it(proxied):
    with proxied(host="unknown.example") as address:
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{address}/login/")
        page = refused.value.read().decode()
    assert refused.value.code == 400
    assert "docs/install.md" in page


def test_a_missing_scheme_is_said_and_logged_with_the_setting_that_mends_it(db, caplog):
    answer = Client(enforce_csrf_checks=True).post("/login/", headers={"origin": "https://testserver"})
    assert answer.status_code == 403
    assert "The page is at https://testserver, and this server was asked for http://testserver." in answer.text
    assert "CSRF_TRUSTED_ORIGINS=https://testserver" in caplog.text
    hostile = Client(enforce_csrf_checks=True).post("/login/", headers={"origin": "https://<script>"})
    assert "has expired" in hostile.text

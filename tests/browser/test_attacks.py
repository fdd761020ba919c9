"""Attacks on the dashboard in a real browser: by texts of agents and outsiders, and from pages of other origins."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from agent_orchestrator.testing.sandbox import Sandbox
from tests.browser.person import Person

Visit = Callable[..., Person]
TIMEOUT_MS = 30_000

MARKUP = "<img src=/stolen onerror=stolen=1><script>stolen=1</script><a href=javascript:stolen=1>x</a>"
HIDDEN = "\u202e\u2066\u200b"
"""Invisible characters that change the direction of text."""

BYTES = (
    f"\033]0;{MARKUP}from a terminal\007"  # a title
    "\033]52;c;c3RvbGVu\007"  # the clipboard
    "\033]52;c;?\007"
    "\033]8;;javascript:stolen=1\033\\plain link\033]8;;\033\\\n"
    "\033]8;;http://127.0.0.1:9/stolen\033\\web link\033]8;;\033\\\n"
    '\033P$q"p\033\\\033P+q544e\033\\\033[21t\033[6n\033[c\033[>c\033]11;?\007'  # questions that a terminal answers
    "\033]1337;File=inline=1:PHN2Zy8+\007\033_Ga=T,f=100;AAAA\033\\\033]9;stolen\007\033]777;notify;stolen;stolen\007"
    f"{MARKUP}\nthe end of it\n"
)

EVIL = f"""\
import json, os
os.makedirs("src")
name = "src/<img src=x onerror=stolen=1>.html"
open(name, "w").write({MARKUP!r} + "\\n")
open("src/\\u202e.js", "w").write("stolen = 1 // \\u202e" + {MARKUP!r} + "\\n")
open("src/a.svg", "w").write("<svg xmlns='http://www.w3.org/2000/svg' onload='stolen=1'><script>stolen=1</script></svg>\\n")
os.write(1, {BYTES!r}.encode())
with open(os.environ["AO_SPOOL"], "a") as spool:
    for report in (
        {{"event": "progress", "percent": 50, "step": {MARKUP!r}}},
        {{"event": "turn", "text": {MARKUP!r}}},
        {{"event": "usage", "model": {MARKUP!r}, "input_tokens": 1, "usd": 0.1}},
        {{"event": "permission", "tool": {MARKUP!r}, "command": {MARKUP!r}, "reason": {MARKUP!r}}},
        {{"event": {MARKUP!r}, "x": {MARKUP!r}}},
    ):
        spool.write(json.dumps(report) + "\\n")
"""

INSPECT = """() => {
  const found = [];
  const walk = (root) => {
    for (const one of root.querySelectorAll("*")) {
      if (one.shadowRoot) walk(one.shadowRoot);
      for (const { name, value } of one.attributes)
        if (name.startsWith("on") || /^\\s*(javascript|vbscript|data:text)/i.test(value)) found.push(`${one.tagName} ${name}=${value}`);
      const planted = (one.tagName === "SCRIPT" && !one.src) || one.tagName === "IFRAME" || one.getAttribute("src") === "/stolen";
      if (planted || (one.target === "_blank" && !one.rel.includes("noopener"))) found.push(one.outerHTML);
    }
  };
  walk(document);
  return { found, ran: "stolen" in window, title: document.title, cookie: document.cookie };
}"""

PAGES = (
    "/",
    "/queue",
    "/plan",
    "/usage",
    "/projects",
    "/settings",
    "/sessions/app-evil/changes",
    "/sessions/app-evil/timeline",
    "/sessions/app-evil/checks",
    "/sessions/app-evil/details",
    "/sessions/app-evil",
    "/sessions/app-asking",
)


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Sandbox]:
    """A fleet in which every text by others is an attack. Runtime process passes an agent's output unchanged."""
    with Sandbox(tmp_path, "process") as box:
        evil = tmp_path / "evil.py"
        evil.write_text(EVIL)
        log = tmp_path / "log.txt"
        log.write_text(BYTES)
        config = {
            "defaults": {"agent": "demo", "runtime": "process"},
            "projects": {"app": {"path": ".", "ci": {"lint": {"command": f"cat {log}; false"}}}},
            "agents": {
                "evil": {
                    "tool": "demo",
                    "script": f"[[sh: python3 {evil} >/dev/tty]] [[commit: {MARKUP}]] [[done: {MARKUP}]] [[wait]]",
                },
                "asking": {"tool": "demo", "script": f"[[ask: {MARKUP}\\n- {MARKUP}\\n- javascript:stolen=1]]"},
            },
            "reactions": {"ci-failed": {"auto": False}},
        }
        box.repository(config=json.dumps(config))
        box.start()
        issue = {"title": MARKUP + HIDDEN, "body": MARKUP, "labels": ["<b>x</b>"]}
        number = box.request("POST", "/api/issues", issue)["number"]
        box.request("POST", f"/api/issues/{number}/comments", {"body": MARKUP, "author": MARKUP[:34]})
        session = {"name": "evil", "title": MARKUP + HIDDEN, "prompt": MARKUP, "agent": "evil"}
        box.request("POST", "/api/sessions", session)
        box.request("POST", "/api/sessions", {"name": "asking", "issue": str(number), "agent": "asking"})
        box.wait_until(lambda: box.session("app-asking")["status"] == "needs_input", "the question", 60)
        box.wait_until(lambda: (box.session("app-evil")["pr"] or {}).get("checks"), "the change", 60)
        comment = {"path": "src/a.svg", "line": 1, "body": MARKUP}
        review = {"verdict": "commented", "body": MARKUP, "comments": [comment]}
        box.request("POST", "/api/sessions/app-evil/review", review)
        box.request("POST", "/api/sessions/app-evil/message", {"content": MARKUP})
        yield box


def test_texts_of_others_run_no_script_and_send_no_request(planted: Sandbox, visit: Visit) -> None:
    for role in ("admin", "viewer"):
        person = visit(planted, role=role)
        page = person.page
        opened: list[str] = []
        person.context.on("page", lambda page_opened, opened=opened: opened.append(page_opened.url))
        person.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.evaluate("navigator.clipboard.writeText('mine')")
        for path in PAGES:
            person.go(path)
            page.wait_for_load_state("load")
            if path.endswith("/changes"):
                expect(page.get_by_text("onerror").first).to_be_visible(timeout=TIMEOUT_MS)
                expect(page.get_by_text("src/⟦U+202E⟧.js").first).to_be_visible()
                expect(page.get_by_text("// ⟦U+202E⟧").first).to_be_visible(timeout=TIMEOUT_MS)
            elif path.endswith("/checks"):
                page.get_by_role("button", name="lint").click(timeout=TIMEOUT_MS)
                expect(page.get_by_label("Output of lint")).to_contain_text("the end of it", timeout=TIMEOUT_MS)
            elif path == "/sessions/app-evil":
                page.locator("[data-terminal=open]").wait_for(timeout=TIMEOUT_MS)
                page.locator(".xterm-screen").wait_for()
            elif path in ("/", "/plan", "/sessions/app-asking"):
                expect(page.get_by_text("onerror").first).to_be_visible(timeout=TIMEOUT_MS)
            page.wait_for_timeout(500)  # for delayed effects
            inspection = page.evaluate(INSPECT)
            assert (inspection["found"], inspection["ran"], inspection["cookie"]) == ([], False, ""), (path, inspection)
            assert "from a terminal" not in inspection["title"] and "\u202e" not in inspection["title"]
        page.locator(".xterm-screen").first.click()
        assert page.evaluate("navigator.clipboard.readText()") == "mine"
        assert opened == []
        assert person.browser_errors == []
    log = planted.home.log.read_text()
    assert "cannot type" not in log  # a viewer's terminal answers no query in an agent's output


# -- other origins -----------------------------------------------------------------------------------------------------

ATTACKS = """<!doctype html><title>elsewhere</title><body><script>
const there = "THERE", to = `${there}/api/sessions/app-w/message`, said = JSON.stringify({ content: "stolen" });
const kind = { "Content-Type": "application/json" };
const got = {};
const tries = {
  simple: () => fetch(to, { method: "POST", mode: "no-cors", credentials: "include", body: said }).then((r) => r.type),
  json: () => fetch(to, { method: "POST", credentials: "include", body: said, headers: kind }).then((r) => r.status),
  read: () => fetch(`${there}/api/sessions`, { credentials: "include" }).then((r) => r.text()),
  opaque: () => fetch(`${there}/api/doctor?fix=true`, { mode: "no-cors", credentials: "include" }).then((r) => r.type),
  remove: () => fetch(`${there}/api/sessions/app-w`, { method: "DELETE", credentials: "include" }).then((r) => r.status),
  beacon: async () => navigator.sendBeacon(to, new Blob([said], { type: "text/plain" })),
  worker: () => navigator.serviceWorker.register(`${there}/sw.js`).then(() => "registered"),
  socket: () => new Promise((done) => {
    const socket = new WebSocket(there.replace("http", "ws") + "/api/sessions/app-w/terminal");
    socket.onopen = () => (socket.send(new TextEncoder().encode("stolen\\r")), done("opened"));
    socket.onerror = () => done("refused");
  }),
  stream: () => new Promise((done) => {
    const source = new EventSource(`${there}/api/live`, { withCredentials: true });
    source.onopen = () => done("opened");
    source.onerror = () => done("refused");
  }),
  script: () => new Promise((done) => {
    const one = document.body.appendChild(document.createElement("script"));
    one.onload = () => done("loaded");
    one.onerror = () => done("refused");
    one.src = `${there}/api/sessions`;
  }),
  image: () => new Promise((done) => {
    const one = new Image();
    one.onload = () => done("loaded");
    one.onerror = () => done("refused");
    one.src = `${there}/icon.svg`;
  }),
  frame: () => new Promise((done) => {
    const one = document.body.appendChild(document.createElement("iframe"));
    one.onload = () => { try { done(one.contentDocument ? "ours" : "foreign"); } catch { done("foreign"); } };
    one.src = `${there}/`;
  }),
  forms: async () => {
    for (const kind of ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"]) {
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.name = kind;
      const form = document.body.appendChild(document.createElement("form"));
      Object.assign(form, { action: to, method: "POST", enctype: kind, target: kind });
      const field = form.appendChild(document.createElement("input"));
      Object.assign(field, { name: '{"content":"stolen","x":"', value: '"}' });
      form.submit();
    }
    await new Promise((done) => setTimeout(done, 1000));
  },
};
(async () => {
  for (const [name, attempt] of Object.entries(tries)) got[name] = await attempt().catch((error) => `refused: ${error.name}`);
  window.got = got;
})();
</script>"""


@contextmanager
def elsewhere(there: str) -> Iterator[int]:
    """Yield the port of a server on this host that serves the attacks, as a server of an agent could."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = ATTACKS.replace("THERE", there).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            port = there.rpartition(":")[2]
            self.send_header("Set-Cookie", f"ao_session_{port}=aol_00.tossed; Path=/api")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_pages_of_other_origins_cannot_use_the_api(tmp_path: Path, visit: Visit) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository()
        box.start()
        box.ao("new", "[[wait]]", "--name", "w")
        person = visit(box)
        there = str(box.client().info()["url"])
        with elsewhere(there) as port:
            for name in ("127.0.0.1", "localhost"):  # the same site for a browser, and a different one
                page = person.context.new_page()
                page.goto(f"http://{name}:{port}/")
                page.wait_for_function("window.got", timeout=TIMEOUT_MS)
                got = page.evaluate("window.got")
                refused = {key for key, value in got.items() if str(value).startswith("refused")}
                assert refused >= {"json", "read", "remove", "worker", "socket", "stream", "script", "image"}, got
                assert got["frame"] == "foreign"
                assert "Agent Orchestrator" not in "".join(frame.title() for frame in page.frames[1:])
                page.close()
        assert box.request("GET", "/api/sessions/app-w/messages")["messages"] == []
        assert box.session("app-w")["status"] != "killed"
        log = box.home.log.read_text()
        for path in ("/api/sessions/app-w/message", "/api/sessions/app-w/terminal", "/api/live", "/api/doctor"):
            assert f"path={path} reason=" in log, path

        rebound = person.context.new_page()
        for name in (f"http://evil.localhost:{there.rpartition(':')[2]}", there.replace("127.0.0.1", "localhost.")):
            answer = rebound.goto(f"{name}/")
            assert answer is not None and answer.status == 403
        person.go("/")  # still signed in, despite the other cookie
        person.page.get_by_role("navigation", name="Pages").wait_for()
        assert person.page.evaluate("document.cookie") == ""

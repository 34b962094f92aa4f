#!/usr/bin/env python3
"""The page of runnel serve: its files and headers; and in a headless Chromium what a user does with it, what a hostile
model writes, and that nothing of it becomes markup. RUNNEL_SCREENSHOTS=FOLDER keeps pictures of it."""
import gzip
import json
import os
import pathlib
import re
import tempfile
import unittest

import browser
import common
from server import NAME, Served, Server

FILES = sorted((common.ROOT / "apps/serve/page").iterdir())
SCREENSHOTS = os.environ.get("RUNNEL_SCREENSHOTS")

# What the model is made to write: each would do harm as markup. {n} is told by the page as what it is.
HOSTILE = ["<img src=x onerror=window.hacked=1>", "</script><script>window.hacked=1</script>",
           "[a](javascript:window.hacked=1) <a href='javascript:window.hacked=1'>b</a>",
           "![p](http://127.0.0.1:9/p.png) <style>body{display:none}</style>",
           "```html\n<iframe src='/metrics'></iframe>\n```",
           "```js\nconst a = '</span><img src=x onerror=window.hacked=1>'; // <script>window.hacked=1</script>\n```",
           "[x](data:text/html,<script>window.hacked=1</script>)",
           "<svg onload=window.hacked=1> &lt;b&gt; \\<i>", "**<b onclick=x>bold</b>** `<code>` [y](vbscript:x)"]
MARKDOWN = """# Title

Some *soft*, **loud** and `typed` words, a [link](https://a.example/x_(y)) and https://b.example/?q=1.

1. one
2. two
   - inner

> quoted

| a | b |
|---|--:|
| 1 | 2 |

```py
print("<b>")
```
"""


class Files(Served):
    def test_files_are_those_of_the_sources(self):
        types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
        for file in FILES:
            for path in [f"/page/{file.name}"] + (["/"] if file.name == "index.html" else []):
                with self.subTest(path=path):
                    status, body, headers = self.server.ask("GET", path)
                    self.assertEqual((status, body), (200, file.read_bytes()))
                    self.assertEqual(headers["content-type"].split(";")[0], types[file.suffix])
                    self.assertEqual(headers["x-content-type-options"], "nosniff")
                    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
                    self.assertEqual(policy["default-src"], "'none'")
                    self.assertEqual(policy["script-src"], "'self'")
                    self.assertNotIn("unsafe", headers["content-security-policy"])
                    known = {"If-None-Match": headers["etag"]}
                    self.assertEqual(self.server.ask("GET", path, None, known)[:2], (304, b""))
                    self.assertEqual(self.server.ask("GET", path, None, {"If-None-Match": '"0"'})[0], 200)

    def test_packed(self):
        """gzip for who takes it, the file for others; each form has a tag of its own."""
        for file in FILES:
            path = f"/page/{file.name}"
            plain = self.server.ask("GET", path)[2]
            self.assertEqual((plain["vary"], "content-encoding" in plain), ("Accept-Encoding", False))
            for words in ("gzip", "br, gzip;q=0.5", "deflate , GZIP", "identity;q=0.5,gzip ; q=1"):
                status, body, headers = self.server.ask("GET", path, None, {"Accept-Encoding": words})
                self.assertEqual((status, headers["content-encoding"]), (200, "gzip"), words)
                self.assertEqual(gzip.decompress(body), file.read_bytes())
                self.assertLess(len(body), file.stat().st_size * 0.9)
                self.assertNotEqual(headers["etag"], plain["etag"])
                known = {"If-None-Match": headers["etag"]}
                self.assertEqual(self.server.ask("GET", path, None, {**known, "Accept-Encoding": words})[0], 304)
                self.assertEqual(self.server.ask("GET", path, None, known)[0], 200)
            for words in ("", "br", "gzip;q=0", "gzip; q=0.000", "*", "gzipped", "x;gzip"):
                status, body, headers = self.server.ask("GET", path, None, {"Accept-Encoding": words})
                self.assertEqual((status, body, "content-encoding" in headers), (200, file.read_bytes(), False), words)

    def test_nothing_of_other_hosts_and_nothing_inline(self):
        for file in FILES:
            text = file.read_text()
            hosts = set(re.findall(r"\bhttps?://[\w.]+", text)) - {"http://www.w3.org"}
            self.assertEqual(hosts, set(), file)
            self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function",
                                file)
        page = (common.ROOT / "apps/serve/page/index.html").read_text()
        self.assertNotRegex(page, r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=")

    def test_what_is_not_there(self):
        for path in ("/page/", "/page/nothing.js", "/page/openapi.json", "/index.html"):
            self.assertEqual(self.server.get(path)[0], 404, path)

    def test_it_can_be_turned_off(self):
        server = Server("--no-page")
        self.assertEqual(server.get("/page/main.js")[0], 404)
        status, body, headers = server.ask("GET", "/")
        self.assertEqual((status, body, headers["content-type"]),
                         (200, b"runnel is running", "text/plain; charset=utf-8"))
        status, body, heads = server.ask("HEAD", "/")  # as the ollama program asks
        self.assertEqual((status, body, heads["content-length"]), (200, b"", headers["content-length"]))
        self.assertEqual(server.ask("POST", "/", "{}")[0], 405)
        self.assertEqual(self.types_of_root(server), ["text/plain"])
        self.assertEqual(server.get("/v1/models")[0], 200)
        server.stop()

    def types_of_root(self, server):
        document = json.loads(server.get("/openapi.json")[1])
        return list(document["paths"]["/"]["get"]["responses"]["200"]["content"])

    def test_its_head(self):
        status, body, heads = self.server.ask("HEAD", "/")
        page, headers = self.server.ask("GET", "/")[1:]
        self.assertEqual((status, body), (200, b""))
        self.assertEqual({k: v for k, v in heads.items() if k != "x-request-id"},
                         {k: v for k, v in headers.items() if k != "x-request-id"})
        self.assertEqual(int(heads["content-length"]), len(page))
        self.assertEqual(self.types_of_root(self.server), ["text/html"])

    def test_it_needs_no_key(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("first-key\n")
            keys.flush()
            server = Server("--api-key-file", keys.name)
        self.assertEqual([server.get(path)[0] for path in ("/", "/page/main.js", "/v1/models")], [200, 200, 401])
        server.stop()


# Members of window.more go into the bodies of requests: so the model writes what a test wants.
MORE = """{const plain = window.fetch;
window.fetch = (path, given) => plain(path, given?.body && window.more
    ? {...given, body: JSON.stringify({...JSON.parse(given.body), ...window.more})} : given);}"""


@unittest.skipIf(browser.find() is None, "chromium is not here")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.browser = browser.Browser()
        cls.browser.before_pages(MORE)
        cls.browser.look(1200, 800)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.stop()

    def setUp(self):
        self.url = f"http://127.0.0.1:{self.server.port}/"
        self.browser.open(self.url)
        self.browser.js("localStorage.clear(); sessionStorage.clear()")
        self.browser.open(self.url + "?new")
        self.browser.until("document.querySelector('#model').value")
        self.browser.complaints.clear()

    def tearDown(self):
        self.assertEqual(self.browser.complaints, [])

    def more(self, **fields):
        self.browser.js("window.more = " + json.dumps(fields))

    def ask(self, text):
        self.browser.js("document.querySelector('#input').focus()")
        self.browser.type(text)
        self.browser.enter()

    def wait(self):
        self.browser.until("document.querySelector('#stop').hidden && "
                           "document.querySelector('.message.assistant .actions button')")

    def answers(self):
        return self.browser.js("[...document.querySelectorAll('.assistant .text')].map((n) => n.innerText)")

    def questions(self):
        return self.browser.js("[...document.querySelectorAll('.user .said')].map((n) => n.textContent)")

    def press(self, label, last=True):
        buttons = ("[...document.querySelectorAll('.actions button')]"
                   f".filter((b) => b.textContent === {json.dumps(label)})")
        self.browser.js(f"{{const b = {buttons}; b.forEach((x) => x.removeAttribute('data-test')); "
                        f"b.at({-1 if last else 0}).setAttribute('data-test', '')}}")
        self.browser.click("[data-test]")

    def picture(self, name):
        if SCREENSHOTS:
            pathlib.Path(SCREENSHOTS).mkdir(exist_ok=True)
            self.browser.screenshot(f"{SCREENSHOTS}/{name}.png")

    def test_send_and_keep(self):
        self.more(guided_choice=["Four."])
        self.ask("What is 2+2?")
        self.wait()
        self.assertEqual((self.questions(), self.answers()), (["What is 2+2?"], ["Four."]))
        self.assertRegex(self.browser.js("document.querySelector('.note').textContent"), r"^\d+ tokens, .*prompt \d+")
        self.more(guided_choice=["Six."])
        self.ask("And 3+3?\nin a word")
        self.wait()
        self.assertEqual(self.answers(), ["Four.", "Six."])
        self.browser.open(self.url + "?again")
        self.browser.until("document.querySelectorAll('.assistant').length === 2")
        self.assertEqual(self.questions(), ["What is 2+2?", "And 3+3?\nin a word"])
        self.assertEqual(self.browser.js("document.querySelector('.title').textContent"), "What is 2+2?")
        self.browser.click("#new")
        self.assertEqual(self.answers(), [])
        self.browser.click("#conversations .title")
        self.assertEqual(self.answers(), ["Four.", "Six."])
        self.browser.click("#conversations .plain")
        self.assertEqual((self.answers(), self.browser.js("localStorage.getItem('runnel.conversations')")), ([], "[]"))

    def test_what_goes_out(self):
        self.browser.js("{const f = window.fetch; window.sent = []; window.fetch = (p, g) => "
                        "{ if (g?.body) window.sent.push(JSON.parse(g.body)); return f(p, g); }}")
        self.browser.click("#show-settings")
        self.browser.js("document.querySelector('#set-temperature').focus()")
        self.browser.type("0")
        self.browser.js("document.querySelector('#set-max_tokens').focus()")
        self.browser.type("4")
        self.browser.js("document.querySelector('#system').focus()")
        self.browser.type("Be short.")
        self.picture("desktop-light-settings")
        self.browser.key("Escape", 27)
        self.ask("Hello")
        self.wait()
        want = {"temperature": 0, "max_tokens": 4, "model": NAME, "stream": True,
                "stream_options": {"include_usage": True},
                "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}]}
        self.assertEqual(self.browser.js("window.sent"), [want])
        _, answer = self.server.post("/v1/chat/completions", {k: v for k, v in want.items() if "stream" not in k})
        self.assertEqual(self.browser.js("document.querySelector('.assistant .text').textContent").split(),
                         answer["choices"][0]["message"]["content"].split())
        self.assertIn("cut", self.browser.js("document.querySelector('.note').textContent"))

    def test_stream_and_stop(self):
        self.more(ignore_eos=True, context_keep=0)
        self.ask("Once upon a time")
        self.browser.until("document.querySelector('.assistant .text').innerText.length > 20")
        self.assertEqual(self.browser.js("document.querySelector('.assistant').getAttribute('aria-busy')"), "true")
        grown = len(self.answers()[0])
        self.browser.until(f"document.querySelector('.assistant .text').innerText.length > {grown}")
        self.browser.click("#stop")
        self.wait()
        while self.server.metric("runnel_streams") != 0:
            pass
        self.assertEqual(self.browser.js("document.querySelector('.note').textContent"), "stopped")
        self.assertEqual(self.browser.js("document.querySelector('.assistant').getAttribute('aria-busy')"), "false")
        self.assertGreater(len(self.answers()[0]), grown)
        self.browser.js("document.querySelector('#input').focus()")
        self.ask("and on")
        self.browser.until("document.querySelectorAll('.assistant .text')[1]?.innerText.length > 20")
        self.browser.key("Escape", 27)
        self.wait()

    def test_error_is_shown(self):
        self.more(temperature=9)
        self.ask("Hello")
        self.wait()
        shown = self.browser.js("document.querySelector('[role=alert]:not([hidden])').textContent")
        self.assertIn("temperature is 9", shown)
        self.picture("desktop-light-error")
        self.browser.complaints.clear()  # the browser tells statuses of 400 on its console
        self.more(guided_choice=["Better."])
        self.press("Try again")
        self.wait()
        self.assertEqual((self.questions(), self.answers()), (["Hello"], ["Better."]))
        self.browser.js("window.fetch = () => Promise.reject(new TypeError('no way'))")
        self.press("Regenerate")
        self.browser.until("document.querySelector('[role=alert]:not([hidden])')")
        self.assertIn("no way", self.browser.js("document.querySelector('[role=alert]:not([hidden])').textContent"))

    def test_regenerate_and_edit(self):
        self.more(guided_choice=["One."])
        self.ask("first")
        self.wait()
        self.ask("second")
        self.wait()
        self.more(guided_choice=["Two."])
        self.press("Regenerate")
        self.browser.until("document.querySelectorAll('.assistant .text')[1].innerText === 'Two.'")
        self.wait()
        self.assertEqual((self.questions(), self.answers()), (["first", "second"], ["One.", "Two."]))
        self.press("Edit", last=False)
        self.assertEqual(self.browser.js("document.activeElement.value"), "first")
        self.browser.key("Escape", 27)
        self.assertEqual(self.questions(), ["first", "second"])
        self.press("Edit", last=False)
        self.browser.js("document.activeElement.select()")
        self.browser.type("changed")
        self.browser.enter()
        self.browser.until("document.querySelectorAll('.assistant').length === 1 && "
                           "document.querySelector('.assistant .text').innerText === 'Two.'")
        self.wait()
        self.assertEqual((self.questions(), self.answers()), (["changed"], ["Two."]))

    def test_hostile_output(self):
        for text in HOSTILE:
            with self.subTest(text=text):
                self.browser.click("#new")
                self.more(guided_choice=[text])
                self.ask("<img src=x onerror=window.hacked=2>")
                self.wait()
                self.assertIsNone(self.browser.js("window.hacked ?? null"))
                bad = self.browser.js("""[...document.querySelectorAll('#messages *, #conversations *')].filter((n) =>
                    !/^(article|p|div|span|details|summary|button|pre|code|a|strong|em|ul|li|br)$/.test(n.localName) ||
                    [...n.attributes].some((a) => a.name.startsWith('on'))).map((n) => n.outerHTML)""")
                self.assertEqual(bad, [])
                links = self.browser.js("[...document.querySelectorAll('#messages a')].map((a) => a.href)")
                self.assertTrue(all(link.startswith("http://127.0.0.1:9/") for link in links), links)
                seen = self.browser.js("document.querySelector('.assistant .text').textContent")
                if "[" not in text and "`" not in text and "\\" not in text:
                    self.assertEqual(seen, text)
                self.assertEqual(self.questions(), ["<img src=x onerror=window.hacked=2>"])

    def test_the_policy_holds_by_itself(self):
        self.assertIn("TrustedHTML",
                      self.browser.js("try { document.body.innerHTML = '<b>'; 'done' } catch (e) { e.message }"))
        self.browser.js("{const s = document.createElement('script'); try { s.text = 'window.hacked=1' } catch {} "
                        "document.body.append(s)}")
        self.assertIsNone(self.browser.js("window.hacked ?? null"))
        self.browser.complaints.clear()

    def tree(self, text):
        """The nodes that a text becomes: [name, children ...], and texts."""
        return self.browser.js("""import('/page/markdown.js').then(({render}) => {
            const tree = (n) => n.nodeType === 3 ? n.data : [n.localName, ...[...n.childNodes].map(tree)];
            const box = document.createElement('div'); render(box, %s); return tree(box).slice(1); })""" %
            json.dumps(text))

    def test_markdown(self):
        a, b = ["a", "link"], ["a", "https://b.example/?q=1"]
        tree = self.tree(MARKDOWN)
        self.assertEqual(tree[:5], [
            ["h3", "Title"],
            ["p", "Some ", ["em", "soft"], ", ", ["strong", "loud"], " and ", ["code", "typed"], " words, a ", a,
             " and ", b, "."],
            ["ol", ["li", "one"], ["li", "two", ["ul", ["li", "inner"]]]],
            ["blockquote", ["p", "quoted"]],
            ["div",
             ["table", ["thead", ["tr", ["th", "a"], ["th", "b"]]], ["tbody", ["tr", ["td", "1"], ["td", "2"]]]]]])
        self.assertEqual(tree[5][2], ["pre", ["code", "print(", ["span", '"<b>"'], ")"]])
        for text, want in ((r"\*a\* 2*3*4 snake_case_name", [["p", "*a* 2", ["em", "3"], "4 snake_case_name"]]),
                           ("**a *b* c**", [["p", ["strong", "a ", ["em", "b"], " c"]]]),
                           ("a ** b", [["p", "a ** b"]]), ("`` a`b ``", [["p", ["code", "a`b"]]]),
                           ("*open", [["p", "*open"]]), ("a\nb", [["p", "a", ["br"], "b"]]),
                           ("[x](javascript:y)", [["p", "[x](javascript:y)"]]),
                           ("[x](/metrics)", [["p", "[x](/metrics)"]]),
                           ("- a\n- b\n\ntext", [["ul", ["li", "a"], ["li", "b"]], ["p", "text"]]),
                           ("```\nopen",
                            [["div", ["div", ["span", ""], ["button", "Copy"]], ["pre", ["code", "open"]]]])):
            with self.subTest(text=text):
                self.assertEqual(self.tree(text), want)

    def coloured(self, text, language):
        """[class, text] of each piece; class "": plain."""
        return self.browser.js("""import('/page/colour.js').then(({coloured}) => coloured(%s, %s).map(
            (n) => typeof n === 'string' ? ['', n] : [n.className, n.textContent]))"""
                               % (json.dumps(text), json.dumps(language)))

    def test_colours(self):
        word, string, number, comment = ("code-" + kind for kind in ("word", "string", "number", "comment"))
        for language, text, want in (
                ("js", 'let a = "x\\"y" + 0x1f; // if', [[word, "let"], ["", " a = "], [string, '"x\\"y"'], ["", " + "],
                                                      [number, "0x1f"], ["", "; "], [comment, "// if"]]),
                ("C", "if(x1)/* for\n", [[word, "if"], ["", "(x1)"], [comment, "/* for\n"]]),
                ("python", "iffy # 'a", [["", "iffy "], [comment, "# 'a"]]),
                ("sql", "SELECT 1.5e3 -- x",
                 [[word, "SELECT"], ["", " "], [number, "1.5e3"], ["", " "], [comment, "-- x"]]),
                ("", "if (1)", [["", "if (1)"]]), ("unheard-of", "if (1)", [["", "if (1)"]])):
            with self.subTest(language=language, text=text):
                self.assertEqual(self.coloured(text, language), want)
        for language in ("js", "python", "sql", "sh"):  # whatever the text is, it stays the same text
            for text in ("\\", '"', "'\\", "`\n`\\", "/*", "//\n", "0x", "1e+", "\U0001f600\U0001f600'", "</code><b>",
                         "$_1#--"):
                for whole in (text, text * 3, "a" + text + " if"):
                    self.assertEqual("".join(part for _, part in self.coloured(whole, language)), whole)
        long = self.browser.js("""import('/page/colour.js').then(({coloured}) =>
            ['"', '/*', '`\\\\', 'a', '#', '0'].map((unit) =>
                coloured(unit.repeat(99999 / unit.length), 'js').length))""")
        self.assertEqual(len(long), 6)

    def test_markdown_that_grows_is_the_same_and_keeps_its_nodes(self):
        got = self.browser.js("""import('/page/markdown.js').then(({render}) => {
            const text = %s, grown = document.createElement('div'), whole = document.createElement('div');
            let first = null, kept = true;
            for (let i = 0; i <= text.length; i++) {
                render(grown, text.slice(0, i));
                if (i === 60) first = grown.firstElementChild;
                if (i > 60) kept &&= grown.firstElementChild === first;
            }
            render(whole, text);
            return [kept, grown.isEqualNode(whole)]; })""" % json.dumps(MARKDOWN))
        self.assertEqual(got, [True, True])

    def test_markdown_that_wants_to_take_long(self):
        for part in ("[", "*a ", "**a", "`", "` ``", "> ", "- ", "|", "_a", "[a](", "![", "<http://", "\\", "~~a",
                     "1. ", "  - "):
            for text in (part * 20000, (part + "\n") * 5000):
                self.assertIsInstance(self.tree(text[:100000]), list)

    def test_live(self):
        self.browser.click("#show-live")
        self.browser.until("document.querySelectorAll('.plot').length === 7")
        self.assertEqual(self.browser.js("document.querySelector('#chat').hidden"), True)
        self.browser.until("/tokens in/.test(document.querySelector('#live-status').textContent)")
        for _ in range(3):
            self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello, you there"}],
                                                      "max_tokens": 80, "ignore_eos": True})
        total = int(self.server.metric("runnel_generation_tokens_total"))
        self.assertGreater(total, 200)
        self.browser.until(f"document.querySelector('#live-status').textContent.startsWith('{total} ')")
        self.browser.until("['Speed', 'Step', 'Prompts'].every((title) => [...document.querySelectorAll('.plot')].some("
                           "(p) => p.innerText.startsWith(title) && [...p.querySelectorAll('.line')].some("
                           "(l) => (l.getAttribute('d') ?? '').includes('M'))))")
        self.picture("desktop-light-live-busy")
        self.browser.click("#show-chat")
        self.assertEqual(self.browser.js("document.querySelector('#live').hidden"), True)

    def test_names_of_what_is_used(self):
        unnamed = self.browser.js("""[...document.querySelectorAll('button, input, select, textarea')].filter((n) =>
            !(n.innerText || n.textContent).trim() && !n.getAttribute('aria-label') && !(n.labels?.length > 0))
            .map((n) => n.outerHTML)""")
        self.assertEqual(unnamed, [])
        for _ in range(3):
            self.browser.key("Tab", 9)
        self.assertNotEqual(self.browser.js("document.activeElement.localName"), "body")

    def test_looks(self):
        """Nothing is wider than a phone, and pictures for whoever looks."""
        self.more(guided_choice=[MARKDOWN])
        self.ask("Show me what you can draw")
        self.wait()
        for name, width, height in (("phone", 390, 844), ("desktop", 1200, 800)):
            for dark in (False, True):
                self.browser.look(width, height, dark)
                self.browser.until("innerWidth === %d" % width)
                self.assertLessEqual(self.browser.js("document.documentElement.scrollWidth"), width)
                shade = "dark" if dark else "light"
                ground = self.browser.js("getComputedStyle(document.body).backgroundColor")
                self.assertEqual(sum(map(int, re.findall(r"\d+", ground))) < 300, dark)
                self.picture(f"{name}-{shade}-chat")
                self.browser.click("#show-live")
                self.browser.until("/tokens in/.test(document.querySelector('#live-status').textContent)")
                self.assertLessEqual(self.browser.js("document.documentElement.scrollWidth"), width)
                self.picture(f"{name}-{shade}-live")
                self.browser.click("#show-chat")
            if name == "phone":
                self.browser.click("#menu")
                self.picture("phone-dark-menu")
                self.browser.click("#menu")
                self.browser.click("#show-settings")
                self.picture("phone-dark-settings")
                self.browser.key("Escape", 27)
        self.browser.look(1200, 800)


@unittest.skipIf(browser.find() is None, "chromium is not here")
class Keys(unittest.TestCase):
    def test_the_key_is_asked_for_and_forgotten(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("first-key\n")
            keys.flush()
            server = Server("--api-key-file", keys.name)
        page = browser.Browser()
        page.before_pages(MORE)
        page.open(f"http://127.0.0.1:{server.port}/")
        page.until("document.querySelector('#settings').open && document.activeElement.id === 'key'")
        page.type("first-key")
        page.enter()
        page.until("document.querySelector('#model').value")
        page.js("document.querySelector('#settings').close(); window.more = {guided_choice: ['Yes.']}; "
                "document.querySelector('#input').focus()")
        page.type("Hello")
        page.enter()
        page.until("document.querySelector('.assistant .text')?.innerText === 'Yes.'")
        self.assertEqual(page.js("[sessionStorage.length, JSON.stringify({...localStorage}).includes('first-key')]"),
                         [1, False])
        page.close()
        server.stop()


if __name__ == "__main__":
    if browser.find() is None:
        print("chromium is not here: only the page's files and headers are tested")
    common.main("__main__")

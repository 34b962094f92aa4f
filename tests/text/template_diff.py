#!/usr/bin/env python3
"""Templates made at random, rendered by Jinja2 and by runnel: both must give the same text, or both an error.

    template_diff.py PROGRAM [--seed N] [--cases N] [--kind KIND] [--one TEMPLATE CONTEXT]

PROGRAM is template_cases. Three kinds of cases: statements and expressions of a grammar; blocks cut out of the real
templates of ../shared/oracles/chat and mutated; whole real templates mutated (templates and contexts both). Jinja2 is
configured as transformers does it. What is left out of the comparison is written at `excused`; that less than half is
compared is a failure. Exit 77: no jinja2, or only the first kind of cases."""
import argparse
import datetime
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("skipped: there is no jinja2")
    sys.exit(77)

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
import shared  # noqa: E402

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
SECONDS = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())


# ---- The judge ----

class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def make_judge():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


class TooLong(BaseException):
    pass


def on_alarm(*_):
    raise TooLong()


def judge(env, template, context):
    """("text", ...) or ("error", ...) or None if it took too long or needed too much."""
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        return "text", env.from_string(template).render(**json.loads(context))
    except (TooLong, MemoryError, RecursionError):
        return None
    except Exception as e:  # noqa: whatever it raises is an error
        if "Unicode" in type(e).__name__ or isinstance(e.__cause__, (MemoryError, RecursionError)):
            return None
        return "error", "%s: %s" % (type(e).__name__, e)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# Bounds that Jinja2 does not have (and slices of constants, which its optimizer takes for items); addresses that
# Python prints; what runnel does not have at all.
BOUNDS = re.compile(r"beyond 64 bits|a complex number|can not be sliced|(width|length) must be an integer, not float|"
                    r"more than \d+|nested deeper|out of range|is not supported|too long|too big|begun on line|"
                    r"not allowed with integer format")
ADDRESS = re.compile(r"object at 0x|%20object|(generator|iterator|view) object|object \S+ at 0x|<built-in|<function|"
                     r"<class|<generator|<bound method|_iterator object|<Cycler|<Joiner|<jinja2|<method", re.I)
ABSENT = re.compile(r"%[-+]?\s*(block|extends|include|import|from|autoescape)\b|\b(lipsum|self|super|sameas)\b|"
                    r"\b(pprint|random|striptags|urlize|filesizeformat)\b|\\N|\\u[dD]|"
                    r"[.(]\s*['\"]?(maketrans|translate|encode|fromkeys|as_integer_ratio|hex|conjugate|to_bytes|"
                    r"from_bytes|unescape|isdisjoint|mapping|throw|send|close|gi_\w+|mro|_\w+)\b")


def excused(template, wanted, got):
    if wanted is None or BOUNDS.search(got.get("error", "")):
        return True
    if wanted[0] == "text" and (ADDRESS.search(wanted[1]) or any(0xd800 <= ord(c) < 0xe000 for c in wanted[1])):
        return True
    # The last: a namespace's attribute in a tuple that is set, which older Jinja2 cannot read.
    foreign = "too many statically nested|0x[0-9a-f]{6}|Exceeds the limit|complex|end of statement block', got '\\.'"
    return wanted[0] == "error" and re.search(foreign, wanted[1]) is not None


# ---- Cases of a grammar ----

CONTEXT = {
    "messages": [
        {"role": "system", "content": "You are <b>good</b>."},
        {"role": "user", "content": "  Hi! ünï 日本\t\"q\" 'a' <|im_end|>\n line2 \r\n"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a1", "type": "function",
             "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None, True]}}}]},
        {"role": "tool", "content": "{\"t\": 21}", "tool_call_id": "a1"}],
    "tools": [{"type": "function", "function": {"name": "get", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "n": {"type": ["integer", "null"]}},
        "required": ["city"]}}}],
    "s": "hello World foo-bar", "e": "", "u": "Straße ÇA 日本 ǆ ΑΣ", "n": 7, "z": 0, "neg": -3, "f": 2.5,
    "g": 1e22, "t": True, "b": False, "nil": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"],
    "lm": [1, "x", None, 2.0, [1]], "el": [], "d": {"b": 1, "a": 2, "C": [1, 2]}, "ed": {}, "ll": [[1, 2], [3, 4]],
    "ld": [{"k": 2, "v": "x"}, {"k": 1, "v": "Y"}, {"k": 2, "v": "z"}], "add_generation_prompt": True,
    "bos_token": "<s>", "m": "a,b,,c", "i": "12", "fl": " 3.75 ", "key": "a",
    "long": "lorem ipsum dolor sit amet, consectetur adipiscing-elit "
            "sed--do eiusmod tempor\n\nincididunt ut labore"}
NAMES = ["messages", "tools", "s", "e", "u", "n", "z", "neg", "f", "g", "t", "b", "nil", "l", "ls", "lm", "el", "d",
         "ed", "ll", "ld", "long", "m", "i", "fl", "key", "undef", "x", "y", "ns", "loop", "mac", "caller", "varargs",
         "kwargs"]
FILTERS = ["abs", "attr", "batch", "capitalize", "center", "count", "d", "default", "dictsort", "e", "escape", "first",
           "float", "forceescape", "format", "groupby", "indent", "int", "join", "last", "length", "list", "lower",
           "items", "map", "min", "max", "reject", "rejectattr", "replace", "reverse", "round", "safe", "select",
           "selectattr", "slice", "sort", "string", "sum", "title", "trim", "truncate", "unique", "upper", "urlencode",
           "wordcount", "wordwrap", "xmlattr", "tojson"]
TESTS = ["odd", "even", "divisibleby", "defined", "undefined", "filter", "test", "none", "boolean", "false", "true",
         "integer", "float", "lower", "upper", "string", "mapping", "number", "sequence", "iterable", "callable",
         "escaped", "in", "eq", "equalto", "ne", "gt", "greaterthan", "ge", "lt", "lessthan", "le"]
METHODS = ["strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "startswith", "endswith", "replace", "upper",
           "lower", "title", "capitalize", "swapcase", "casefold", "join", "format", "find", "rfind", "index", "count",
           "partition", "rpartition", "removeprefix", "removesuffix", "ljust", "rjust", "center", "zfill", "expandtabs",
           "isalpha", "isdigit", "isspace", "islower", "isupper", "istitle", "isalnum", "isdecimal", "isnumeric",
           "isascii", "isidentifier", "isprintable", "items", "keys", "values", "get", "copy", "append", "pop",
           "update", "format_map"]
ATTRIBUTES = ["role", "content", "function", "tool_calls", "k", "v", "a", "b", "x", "properties", "index", "first",
              "last", "length", "previtem", "nextitem", "revindex", "depth", "cycle", "changed"]
STRINGS = ["''", "'a'", "\"b\"", "' '", "'\\n'", "'l'", "'o W'", "'%s'", "'%05.1f|%-4d|%x'", "'{}'", "'{0}-{1!r}'",
           "'{:>8}'", "'{a[b]}'", "'k'", "'a.b'", "'k,v'", "'é日'", "'<&\\'>'", "','", "'content'", "'role'",
           "'upper'", "'12'", "'-3.5e1'", "'0x1f'", "'%(a)s'", "'a-b c'", "'{:,}'", "'{:08.3f}'", "'{:^+9d}'",
           "'%c%r%%'"]
FORMATS = ["d", "5", "<5", ">7", "^9", "05", "+", " ", "#x", "x", "X", "o", "b", ",", "_", ".2f", "10.3f", "e", ".3e",
           "g", ".3g", "%", ".1%", "*^12", "=+8", ".4", "s", "5s", ".2s", "c", "n", "08,", "010,.2f", "#b", "_x"]


class Grammar:
    def __init__(self, rng):
        self.r = rng

    def pick(self, *choices):
        return self.r.choice(choices)

    def number(self):
        return self.pick("0", "1", "2", "3", "7", "10", "-1", "-2", "100", "1.5", "0.1", "2.0", "1e3", "-0.5",
                         "3.14159", "1_000", "0x1F", "0b101", "1e-7", "123456.789", "99999999999999999", "true",
                         "false")

    def literal(self, depth):
        k = self.r.randrange(8)
        if k < 3:
            return self.number()
        if k < 6:
            return self.r.choice(STRINGS)
        if k == 6:
            return "[" + ", ".join(self.expr(depth - 1) for _ in range(self.r.randrange(4))) + "]"
        if self.r.random() < .5:
            return "(" + "".join(self.expr(depth - 1) + ", " for _ in range(self.r.randrange(1, 3))) + ")"
        return "{" + ", ".join(self.r.choice(STRINGS + ["1", "n"]) + ": " + self.expr(depth - 1)
                               for _ in range(self.r.randrange(3))) + "}"

    def args(self, depth, most=3, names=()):
        out = [self.expr(depth - 1) for _ in range(self.r.randrange(most + 1))]
        for name in names:
            if self.r.random() < .3:
                out.append("%s=%s" % (name, self.expr(depth - 1)))
        if self.r.random() < .03:
            out.append("*" + self.pick("l", "ls", "ll[0]"))
        if self.r.random() < .03:
            out.append("**" + self.pick("d", "ed", "{'a': 1}"))
        return ", ".join(out)

    def filter(self, depth, name=None):
        name = name or self.r.choice(FILTERS)
        sensible = {
            "join": ["", "(', ')", "('-', attribute='k')", "(attribute='v')"], "default": ["('D')", "('D', true)"],
            "d": ["(0)"],
            "indent": ["", "(2)", "(2, true)", "('> ', true, true)", "(first=true)", "(width=3, blank=true)"],
            "tojson": ["", "(indent=2)", "(indent=0)", "(ensure_ascii=true)", "(sort_keys=true)", "(indent='\t')",
                       "(separators=(',', ':'))", "(indent=4, separators=[' , ', ' : '], sort_keys=true)"],
            "map": ["(attribute='k')", "('upper')", "(attribute='z', default=0)", "('int')", "('replace', 'a', 'b')",
                    "(attribute='v')", "('string')", "(attribute='0')", "(attribute='a.b')"],
            "selectattr": ["('k')", "('k', 'eq', 2)", "('v', 'defined')", "('role', 'equalto', 'user')", "('zz')",
                           "('content', 'string')"],
            "rejectattr": ["('k')", "('k', 'gt', 1)", "('zz', 'defined')"],
            "select": ["", "('odd')", "('string')", "('in', [1, 2])", "('gt', 1)"],
            "reject": ["", "('even')", "('none')", "('equalto', 'a')"],
            "sort": ["", "(reverse=true)", "(attribute='k')", "(attribute='k,v')", "(true, true)",
                     "(case_sensitive=true)", "(attribute='v', reverse=true)"],
            "dictsort": ["", "(true)", "(by='value')", "(false, 'key', true)", "(reverse=true)"],
            "groupby": ["('k')", "('v')", "('zz', default='q')", "('v', case_sensitive=true)", "(0)"],
            "batch": ["(2)", "(2, 'F')", "(3, none)"], "slice": ["(2)", "(3, 'F')", "(1)"],
            "round": ["", "(1)", "(2, 'floor')", "(0, 'ceil')", "(-1)", "(1, 'common')"],
            "int": ["", "(5)", "(base=16)", "(0, 8)", "(default='D')"], "float": ["", "(1.5)"],
            "truncate": ["", "(9)", "(9, true)", "(10, false, '..', 0)", "(5, end='')", "(12, leeway=3)"],
            "wordwrap": ["(10)", "(20)", "(7, false)", "(12, wrapstring='|')", "(9, true, '~', false)", "", "(3)"],
            "replace": ["('o', '0')", "('l', 'L', 1)", "('', '-')", "(' ', '')", "('a', u)", "('<', '&lt;')"],
            "trim": ["", "('h')", "(' \n')", "(none)"], "center": ["(20)", "(5)", ""],
            "unique": ["", "(true)", "(attribute='k')"], "sum": ["", "(attribute='k')", "(start=5)", "('k', 1)"],
            "min": ["", "(attribute='k')"], "max": ["", "(attribute='v')", "(case_sensitive=true)"],
            "attr": ["('upper')", "('k')", "('items')"], "format": ["(1)", "('a', 2)", "(a=1)", "(n)"],
            "xmlattr": ["", "(false)"],
        }
        if self.r.random() < .06:
            keyword = self.r.sample(["attribute", "default", "indent", "first", "d", "a"], 1)
            return name + "(" + self.args(depth, 2, keyword) + ")"
        return name + self.r.choice(sensible.get(name, [""]))

    def test(self, depth):
        name = self.r.choice(TESTS)
        if name in ("divisibleby", "in", "eq", "equalto", "ne", "gt", "greaterthan", "ge", "lt", "lessthan", "le"):
            if self.r.random() < .5:
                return name + " " + self.pick("2", "n", "'a'", "l", "[1, 2]", "s")
            return name + "(" + self.expr(depth - 1) + ")"
        return name

    def method(self, depth, kind=None):
        name = self.r.choice(METHODS[:METHODS.index("items")] if kind == "s" else METHODS)
        sensible = {
            "split": ["", "' '", "','", "'l', 1", "none, 1", "maxsplit=1", "'o', -1"],
            "rsplit": ["", "' ', 1", "'l', 1", "none, 2"],
            "strip": ["", "'h'", "' \\n'", "'hd'"], "lstrip": ["", "'h'"], "rstrip": ["", "'d'", "'\\n'"],
            "replace": ["'l', 'L'", "'o', '', 1", "'', '.'"], "startswith": ["'h'", "('a', 'h')", "'l', 2", "''"],
            "endswith": ["'d'", "('x', 'bar')", "'o', 0, 5"], "join": ["ls", "l", "['a', 'b']", "s", "d"],
            "find": ["'o'", "'o', 5", "'zz'", "'', 3", "'l', -3, 100"], "rfind": ["'o'", "'l', 0, 5", "''"],
            "index": ["'o'", "1", "'zz'"], "count": ["'l'", "1", "''", "'o', 5"],
            "format": ["", "1, 2", "'a', b=2", "n, f, a=d"],
            "partition": ["' '", "'zz'"], "rpartition": ["'o'", "'zz'"], "removeprefix": ["'he'", "'x'"],
            "removesuffix": ["'bar'", "'x'"], "ljust": ["9", "9, '*'"], "rjust": ["25", "22, '.'"],
            "center": ["10", "21, '-'"], "zfill": ["4", "10"], "expandtabs": ["", "4"],
            "get": ["'a'", "'zz'", "'zz', 'D'", "1", "key"],
            "splitlines": ["", "true"], "append": ["1"], "update": ["{}"], "pop": ["", "0"],
            "format_map": ["d", "{'a': 1}"],
        }
        if self.r.random() < .1:
            return name + "(" + self.args(depth, 2) + ")"
        return name + "(" + self.r.choice(sensible.get(name, [""])) + ")"

    def typed(self, kind, depth):
        """An expression that likely is of that kind: s, n, l (list), d (dict), b, or any."""
        r = self.r
        if r.random() < .05:
            return self.expr(depth)
        if kind == "s":
            if depth <= 0:
                return self.pick("s", "e", "u", "long", "m", "i", "fl", "key", *STRINGS)
            k = r.randrange(10)
            if k < 3:
                return "%s.%s" % (self.typed_atom("s", depth), self.method(depth, "s"))
            if k < 6:
                name = self.pick("upper", "lower", "title", "capitalize", "trim", "indent", "replace", "truncate",
                                 "wordwrap", "center", "urlencode", "string", "e", "safe", "tojson", "default",
                                 "reverse", "forceescape")
                return "%s|%s" % (self.typed_atom("s", depth), self.filter(depth, name))
            if k < 7:
                return "%s|%s" % (self.pick("l", "ls", "ll", "ld", "d", "lm", "messages"),
                                  self.pick("join", "join(', ')", "tojson", "string", "tojson(indent=2)"))
            if k < 8:
                return "%s %s %s" % (self.typed("s", depth - 1), self.pick("~", "+"), self.typed("s", depth - 1))
            if k < 9:
                return "%s ~ %s" % (self.typed(self.pick("n", "l", "d", "b", "s"), depth - 1),
                                    self.typed("s", depth - 1))
            return self.special()
        if kind == "n":
            if depth <= 0:
                return self.pick("n", "z", "neg", "f", self.number(), self.number())
            k = r.randrange(8)
            if k < 3:
                return "%s %s %s" % (self.typed_atom("n", depth), self.pick("+", "-", "*", "/", "//", "%"),
                                     self.typed_atom("n", depth))
            if k < 4:
                return "%s ** %s" % (self.typed_atom("n", depth), self.pick("2", "3", "-1", "0.5"))
            if k < 5:
                return "%s|%s" % (self.typed_atom("n", depth),
                                  self.filter(depth, self.pick("abs", "round", "int", "float")))
            if k < 6:
                return "%s|%s" % (self.typed_atom(self.pick("s", "l", "d"), depth), self.pick("length", "count"))
            if k < 7:
                return "%s|%s" % (self.typed_atom("s", depth),
                                  self.filter(depth, self.pick("int", "float", "wordcount")))
            return self.pick("-", "+") + self.typed_atom("n", depth)
        if kind == "l":
            if depth <= 0:
                return self.pick("l", "ls", "el", "ll", "ld", "messages", "range(4)", "[1, 2]", "['x', 'Y']", "d", "lm")
            k = r.randrange(8)
            if k < 4:
                name = self.pick("sort", "unique", "reverse", "list", "map", "select", "reject", "batch", "slice",
                                 "selectattr", "rejectattr", "groupby", "dictsort", "items")
                if name in ("dictsort", "items"):
                    base = self.pick("d", "ed", "ld[0]")
                elif name in ("selectattr", "rejectattr", "groupby"):
                    base = self.pick("ld", "messages")
                else:
                    base = self.typed_atom("l", depth)
                return "%s|%s%s" % (base, self.filter(depth, name), self.pick("|list", "|list", ""))
            if k < 5:
                return "%s.%s" % (self.typed_atom("s", depth),
                                  self.pick("split()", "split('o')", "split(' ', 1)", "splitlines()",
                                                                         "rsplit('l', 1)", "partition('o')",
                                                                         "split(',')"))
            if k < 6:
                return "%s + %s" % (self.pick("l", "ls", "[1]"), self.pick("l", "ls", "['q']"))
            if k < 7:
                return "[" + ", ".join(self.typed(self.pick("n", "s", "b"), depth - 1)
                                       for _ in range(r.randrange(4))) + "]"
            return self.typed_atom("l", depth) + self.slice()
        if kind == "d":
            return self.pick("d", "ed", "ld[0]", "messages[0]", "dict(a=1)", "{'a': n, 'b': s}", "{1: 2, 'x': none}",
                             "tools[0]")
        k = r.randrange(6)
        if k < 2:
            kind = self.pick("n", "s", "s")
            return "%s %s %s" % (self.typed_atom(kind, depth), self.pick("==", "!=", "<", "<=", ">", ">="),
                                 self.typed_atom(kind, depth))
        if k < 4:
            return "%s is %s%s" % (self.typed_atom(self.pick("n", "s", "l", "d"), depth), self.pick("", "not "),
                                   self.test(depth))
        if k < 5:
            return "%s %s %s" % (self.typed_atom("s", depth), self.pick("in", "not in"),
                                 self.typed_atom(self.pick("s", "l", "d"), depth))
        return "%s%s %s %s" % (self.pick("", "not "), self.typed_atom("b", depth), self.pick("and", "or"),
                               self.typed_atom("b", depth))

    def typed_atom(self, kind, depth):
        e = self.typed(kind, depth - 1)
        return e if re.fullmatch(r"\w+|'[^']*'|\[[^\[\]]*\]", e) else "(" + e + ")"

    def slice(self):
        part = lambda: self.pick("", "", "1", "-1", "2", "n", "nil", "-3")
        return "[%s:%s%s]" % (part(), part(), self.pick("", "", ":", ":2", ":-1", ":-2"))

    def special(self):
        return self.pick("range(%s)" % self.pick("3", "5, 1, -2", "n", "2, 6"), "dict(a=1, **ed)", "namespace(a=1).a",
                         "joiner('|')()", "mac(%s)" % self.args(1), "strftime_now('%Y-%m-%d %-d %B %a %H:%M %j %p %I')",
                         "'%s' %% (%s)" % (self.pick("%s", "%r", "%-8s|", "%.3s", "%20s"), self.typed("s", 1)),
                         "'%s' %% %s" % (self.pick("%d", "%5.2f", "%x", "%03d", "%+d", "%e", "%g", "%#o", "%-9.3e|",
                                                   "%G", "% d"),
                                         self.number()),
                         "'{:%s}'.format(%s)" % (self.r.choice(FORMATS), self.typed(self.pick("n", "n", "s"), 1)),
                         "'{0:%s}|{1:%s}'.format(%s, %s)" % (self.r.choice(FORMATS), self.r.choice(FORMATS),
                                                             self.number(), self.number()))

    def expr(self, depth):
        r = self.r
        if depth > 0 and r.random() < .6:
            return self.typed(self.pick("s", "s", "n", "l", "d", "b"), depth)
        if depth <= 0 or r.random() < .18:
            return r.choice(NAMES) if r.random() < .6 else self.literal(0)
        k = r.randrange(24)
        if k < 3:
            return self.literal(depth)
        if k < 7:
            return "%s|%s" % (self.atom(depth), self.filter(depth))
        if k < 10:
            return "%s.%s" % (self.atom(depth), self.method(depth))
        if k < 11:
            return "%s.%s" % (self.atom(depth), r.choice(ATTRIBUTES))
        if k < 12:
            return "%s[%s]" % (self.atom(depth), self.expr(depth - 1))
        if k < 13:
            return self.r.choice(NAMES) + self.slice()
        if k < 15:
            return "%s is %s%s" % (self.atom(depth), self.pick("", "", "not "), self.test(depth))
        if k < 18:
            op = self.pick("+", "-", "*", "/", "//", "%", "**", "~", "~", "+")
            small = op in ("**", "*") and r.random() < .8
            right = self.pick("2", "3", "-1", "0", "0.5", "n") if small else self.expr(depth - 1)
            return "%s %s %s" % (self.expr(depth - 1), op, right)
        if k < 20:
            op = self.pick("==", "!=", "<", "<=", ">", ">=", "in", "not in")
            more = " %s %s" % (self.pick("<", "==", "in"), self.expr(depth - 1)) if r.random() < .15 else ""
            return "%s %s %s%s" % (self.expr(depth - 1), op, self.expr(depth - 1), more)
        if k < 21:
            return "%s %s %s" % (self.expr(depth - 1), self.pick("and", "or"), self.expr(depth - 1))
        if k < 22:
            return "%s%s" % (self.pick("not ", "-", "+"), self.expr(depth - 1))
        if k < 23:
            otherwise = " else " + self.expr(depth - 1) if r.random() < .7 else ""
            return "(%s if %s%s)" % (self.expr(depth - 1), self.expr(depth - 1), otherwise)
        return self.special()

    def atom(self, depth):
        if self.r.random() < .6:
            return self.r.choice(NAMES)
        e = self.expr(depth - 1)
        return e if re.fullmatch(r"\w+|'[^']*'|\[.*\]", e) else "(" + e + ")"

    def space(self):
        return self.pick("", "", "", "-", "+") if self.r.random() < .5 else ""

    def tag(self, text):
        return "{%%%s %s %s%%}" % (self.space(), text, self.space())

    def filler(self):
        if self.r.random() >= .97:
            return "{%- raw -%} {% x %} {%- endraw -%}"
        return self.pick("", "", " ", "\n", "text", "\n  ", "a\n", "  \n\n", "{# c #}", "{#- c -#}\n", "  {# c #}\n",
                         "é<|x|>", "{% raw %}{{ x }}\n{% endraw %}", "\r\n", "}}", "\t")

    def target(self):
        if self.r.random() < .9:
            return self.pick("x", "y", "s", "x", "n", "x", "y")
        return self.pick("x, y", "ns.a", "(x, y)", "loop", "x, ns.a")

    def body(self, depth):
        return "".join(self.statement(depth - 1) + self.filler() for _ in range(self.r.randrange(1, 4)))

    def statement(self, depth):
        r = self.r
        k = r.randrange(22) if depth > 0 else r.randrange(7)
        if k < 5:
            space = self.pick("", "", "-")
            return "{{%s %s %s}}" % (space, self.expr(r.randrange(1, 4)), self.pick("", "", "-"))
        if k < 6:
            return self.filler()
        if k < 8:
            return self.tag("set %s = %s" % (self.target(), self.expr(2)))
        if k < 11:
            out = self.tag("if " + self.expr(2)) + self.body(depth)
            if r.random() < .3:
                out += self.tag("elif " + self.expr(2)) + self.body(depth)
            if r.random() < .5:
                out += self.tag("else") + self.body(depth)
            return out + self.tag("endif")
        if k < 15:
            over = self.pick("l", "ls", "messages", "range(3)", "d", "d.items()", "d|items", "ll", "ld", "s", "[1, 2]",
                             self.expr(2))
            pairs = over in ("d.items()", "d|items", "ll")
            target = "x, y" if pairs else self.pick("x", "y") if r.random() < .95 else "k, v"
            test = " if " + self.expr(2) if r.random() < .2 else ""
            recursive = " recursive" if r.random() < .08 else ""
            out = self.tag("for %s in %s%s%s" % (target, over, test, recursive)) + self.body(depth)
            if r.random() < .3:
                out += "{{ loop.%s }}" % self.pick("index", "index0", "first", "last", "length", "revindex", "previtem",
                                                   "nextitem", "depth", "cycle('a', 'b')", "changed(x)", "revindex0")
            if recursive and r.random() < .7:
                out += "{% if loop.depth < 3 %}{{ loop(" + self.pick("[1, 2]", "l", "x") + ") }}{% endif %}"
            if r.random() < .2:
                out += self.tag("if " + self.expr(1)) + self.tag(self.pick("break", "continue")) + self.tag("endif")
            if r.random() < .2:
                out += self.tag("else") + self.body(depth)
            return out + self.tag("endfor")
        if k < 16:
            return self.tag("set %s%s" % (self.pick("x", "y", "s"),
                                          self.pick("", "", " | upper", " | trim | length"))) + \
                self.body(depth) + self.tag("endset")
        if k < 17:
            args = self.pick("", "x", "x, y=2", "a, b='z', c=none", "x=n", "caller=none")
            names = ["x"] if "x" in args else ["b"] if "b" in args else []
            return self.tag("macro mac(%s)" % args) + self.body(depth) + \
                self.pick("", "{{ x }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ caller(1) }}") + \
                self.tag("endmacro") + "{{ mac(%s) }}" % self.args(1, 1, names)
        if k < 18:
            macro = ""
            if r.random() < .8:
                macro = "{% macro mac(x) %}" + self.body(depth) + \
                    "{{ caller(%s) }}{%% endmacro %%}" % self.pick("", "1", "x")
            call = self.tag("call%s mac(%s)" % (self.pick("", "(x)", "(y=1)"), self.args(1, 1)))
            return macro + call + self.body(depth) + self.tag("endcall")
        if k < 19:
            return self.tag("filter " + self.filter(1)) + self.body(depth) + self.tag("endfilter")
        if k < 20:
            names = self.pick("x = 1", "x = n, y = x", "", "x, y = ll[0]")
            return self.tag("with " + names) + self.body(depth) + self.tag("endwith")
        if k < 21:
            return "{% set ns = namespace(a=" + self.expr(1) + ") %}" + self.body(depth) + "{{ ns.a }}"
        return self.tag("generation") + self.body(depth) + self.tag("endgeneration")

    def case(self):
        text = "".join(self.filler() + self.statement(self.r.randrange(4)) for _ in range(self.r.randrange(1, 4)))
        return text + self.filler(), CONTEXT


# ---- Mutations of real templates ----

TOKEN = re.compile(r"\{[%{#][-+]?|[-+]?[%}#]\}|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|\s+|[^\w\s]")
TAG = re.compile(r"\{%[-+]?\s*(\w+)")


def load_templates():
    out = []
    for path in shared.files("oracles/chat/*.json"):
        with open(path) as f:
            data = json.load(f)
        out.append((data["template"], [case["context"] for case in data["cases"]]))
    return out


def blocks_of(template):
    """Blocks from {% for %} to {% endfor %} and the like."""
    out, stack = [], []
    for tag in TAG.finditer(template):
        word = tag.group(1)
        if word in ("if", "for", "macro", "filter"):
            stack.append((word, tag.start()))
        elif word.startswith("end") and stack and stack[-1][0] == word[3:]:
            begin = stack.pop()[1]
            end = template.find("%}", tag.end()) + 2
            if 40 < end - begin < 1500:
                out.append(template[begin:end])
    return out


class Mutator:
    def __init__(self, rng, templates):
        self.r, self.grammar, self.templates = rng, Grammar(rng), templates
        self.blocks = [(b, contexts) for t, contexts in templates for b in blocks_of(t)]
        self.words = sorted({w for t, _ in templates for w in re.findall(r"(?<=[\s.|])[a-z_]{2,}(?=[\s.|(\[}%])", t)})

    def mutate(self, text, times):
        tokens = TOKEN.findall(text)
        for _ in range(times):
            tokens = [token for token in tokens if token]
            if not tokens:
                break
            i, k = self.r.randrange(len(tokens)), self.r.randrange(12)
            if k == 0:
                del tokens[i]
            elif k == 1:
                tokens.insert(i, tokens[self.r.randrange(len(tokens))])
            elif k == 2:
                j = self.r.randrange(len(tokens))
                tokens[i], tokens[j] = tokens[j], tokens[i]
            elif k in (3, 4, 5) and re.fullmatch(r"\w+", tokens[i]):
                tokens[i] = self.r.choice(self.words + NAMES + ["not", "and", "or", "in", "is", "else", "if", "none",
                                                                "true"])
            elif k in (6, 7) and tokens[i][0] in "'\"":
                tokens[i] = self.r.choice(STRINGS)
            elif k == 8 and tokens[i] in ("+", "~", "-", "==", ".", "|", "[", "<", ">"):
                tokens[i] = self.grammar.pick("+", "~", "-", "==", "!=", ".", "|", "*", "//", "%", "<", ">", " in ")
            elif k == 9 and re.match(r"\{%|\{\{", tokens[i]):
                tokens[i] = tokens[i][:2] + self.grammar.pick("", "-", "+" if tokens[i][1] == "%" else "")
            elif k == 10 and tokens[i].isspace():
                tokens[i] = self.grammar.pick(" ", "\n", "  ", "\n\n ", "\t", "")
            elif re.fullmatch(r"[a-z_]+", tokens[i]):
                tokens[i] = "(" + self.grammar.expr(2) + ")"
        return "".join(tokens)

    def mutate_context(self, value, depth=0):
        r = self.r
        if r.random() < .04:
            return self.grammar.pick(None, "", "x", 0, 1.5, [], {}, True, "a b\n", [1], {"type": "text", "text": "hi"})
        if isinstance(value, dict):
            return {k: self.mutate_context(v, depth + 1) for k, v in value.items() if r.random() > .03}
        if isinstance(value, list):
            return [self.mutate_context(v, depth + 1) for v in value if r.random() > .03]
        return value

    def context(self, contexts):
        context = self.r.choice(contexts)
        if self.r.random() < .3:
            context = {k: self.mutate_context(v) for k, v in context.items()}
        return context

    def block(self):
        text, contexts = self.r.choice(self.blocks)
        context = dict(CONTEXT, **self.context(contexts))
        messages = context.get("messages")
        if isinstance(messages, list) and messages:
            context["message"] = self.r.choice(messages)
        if isinstance(context.get("tools"), list) and context["tools"]:
            context["tool"] = context["tools"][0]
            context["param_fields"] = context["json_spec"] = context["param"] = context["tool"]
        return "{% set ns = namespace(a=1) %}" + self.mutate(text, self.r.randrange(4)), context

    def whole(self):
        text, contexts = self.r.choice(self.templates)
        return self.mutate(text, self.r.randrange(4)), self.context(contexts)


# ---- Comparing ----

class Runnel:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, context):
        line = json.dumps({"template": template, "context": context, "now": SECONDS})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("the program ended on template %r with context %s" % (template, context))
        return json.loads(answer)


def differs(wanted, got):
    return wanted[1] != got.get("text") if wanted[0] == "text" else "text" in got


def shrink(env, runnel, template, context):
    """A shorter template that still differs: tokens are taken out while it does."""
    tokens = TOKEN.findall(template)
    size = max(1, len(tokens) // 2)
    deadline = time.time() + 10
    while size >= 1 and time.time() < deadline:
        i, removed = 0, False
        while i < len(tokens) and time.time() < deadline:
            shorter = "".join(tokens[:i] + tokens[i + size:])
            wanted, got = judge(env, shorter, context), runnel.render(shorter, context)
            if not excused(shorter, wanted, got) and not ABSENT.search(shorter) and differs(wanted, got):
                tokens[i:i + size] = []
                removed = True
            else:
                i += size
        size = size if removed and size == 1 else size // 2
    return "".join(tokens)


def report(template, context, wanted, got):
    if context == json.dumps(CONTEXT):
        context = "CONTEXT"
    elif len(context) >= 2000:
        context = context[:2000] + "..."
    answer = got.get("text", "error: " + got.get("error", ""))
    print("template: %r\n context: %s\n  jinja2: %r\n  runnel: %r\n" % (template, context, wanted, answer))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=2500)
    parser.add_argument("--most", type=int, default=5, help="differences to report before giving up")
    parser.add_argument("--kind", choices=["grammar", "block", "whole"])
    parser.add_argument("--one", nargs=2, metavar=("TEMPLATE", "CONTEXT"))
    options = parser.parse_args()
    if "san" not in options.program:  # sanitizers reserve more
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    signal.signal(signal.SIGALRM, on_alarm)
    env, runnel = make_judge(), Runnel(options.program)
    if options.one:
        context = options.one[1] or json.dumps(CONTEXT)
        report(options.one[0], context, judge(env, options.one[0], context), runnel.render(options.one[0], context))
        return
    rng = random.Random(options.seed)
    grammar, templates = Grammar(rng), load_templates()
    mutator = Mutator(rng, templates) if templates else None
    count = compared = errors = bad = 0
    while count < options.cases and bad < options.most:
        kind = options.kind or rng.choices(["grammar", "block", "whole"], [70, 27, 3])[0]
        template, context = grammar.case() if kind == "grammar" or mutator is None else getattr(mutator, kind)()
        context = json.dumps(context)
        count += 1
        if kind != "whole" and ABSENT.search(template):
            continue
        wanted, got = judge(env, template, context), runnel.render(template, context)
        if excused(template, wanted, got):
            continue
        compared += 1
        errors += wanted[0] == "error"
        if differs(wanted, got):
            bad += 1
            template = shrink(env, runnel, template, context)
            report(template, context, judge(env, template, context), runnel.render(template, context))
    print("%d cases, %d compared, %d of them errors in both, %d differ (seed %d)" % (count, compared, errors, bad,
                                                                                     options.seed))
    if bad == 0 and compared >= count / 2 and not templates:
        sys.exit(77)
    sys.exit(bad > 0 or compared < count / 2)


if __name__ == "__main__":
    main()

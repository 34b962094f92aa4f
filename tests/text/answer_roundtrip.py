#!/usr/bin/env python3
"""Answers read back, judged by the templates themselves.

A conversation whose last message is the assistant's is rendered by Jinja2. The text behind the prompt (the same
conversation without that message, and with the generation prompt) is what the model would have written. Read by
runnel's parser in many cuts (answer_driver), it must give back the message: reasoning, content, calls.

usage: answer_roundtrip.py DRIVER [NAME ...]     exits with 77 where the templates or Jinja2 are missing
"""
import datetime
import json
import os
import subprocess
import sys

try:
    import jinja2
    from jinja2.ext import Extension
    from jinja2.sandbox import SandboxedEnvironment
except ImportError:
    print("skipped: no jinja2")
    sys.exit(77)

sys.path.append(os.path.join(os.path.dirname(__file__), "../support"))
import shared  # noqa: E402

# Templates with a tool format that are not tested with calls, and why.
WITHOUT_CALLS = {
    "LFM2-8B-A1B": "writes no calls of past answers (test_answer.c reads them)",
    "LFM2.5-Instruct": "writes no calls of past answers (test_answer.c reads them)",
    "ibm-granite-granite-3.3-2B-Instruct": "writes no calls of past answers (test_answer.c reads them)",
    "microsoft-Phi-3.5-mini-instruct": "knows no tools",
    "llama-cpp-rwkv-world": "knows no tools",
}

# What a template changes in a message, so that no reader could give it back.
ONE_CALL = {"GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "meta-llama-Llama-3.1-8B-Instruct",
            "meta-llama-Llama-3.2-3B-Instruct", "openai-gpt-oss-120b", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}
STRING_ARGUMENTS = {"meetkai-functionary-medium-v3.2", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}
NO_CONTENT_KEY = {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}  # calls only where content is none
INLINE_THOUGHTS = {"NVIDIA-Nemotron-Nano-v2": "%s\n</think>\n\n%s", "LFM2.5-Instruct": "<think>%s</think>%s",
                   "Qwen-QwQ-32B": "<think>\n%s\n</think>\n\n%s"}  # within the content, as the model wrote them
ALWAYS_THINKS = {"NVIDIA-Nemotron-Nano-v2"}  # opens reasoning before whatever the content is; calls are a turn apart
CONTENT_IS_REASONING = {"openai-gpt-oss-120b"}  # where there are calls

PROPERTIES = {
    "city": {"type": "string", "description": "a city"},
    "n": {"type": "integer", "description": "a number"},
    "x": {"type": "number", "description": "a number"},
    "flag": {"type": "boolean", "description": "yes or no"},
    "deep": {"type": "object", "description": "anything", "additionalProperties": {"type": "string"}},
    "list": {"type": "array", "description": "a list", "items": {"type": "string"}},
    "zip": {"type": "string", "description": "digits, but text"},
}


def tool(name, properties):
    return {"type": "function", "function": {
        "name": name, "description": "A tool.",
        "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]}}}


TOOLS = [tool("get_weather", PROPERTIES), tool("noop", {"city": PROPERTIES["city"]})]

TEXTS = ["Paris", "", " padded ", 'quotes " and \' and \\ back\\slash', "two\nlines\n\nand\ttab",
         "ünïcode 日本語 🦉", "<think>[TOOL_CALLS]<tool_call>{\"name\": \"noop\"}<|im_end|>", "12", "true",
         "null", "{\"a\": 1}", "]}>>>all", "a < b && c > d", "<", "</", "<｜", "[", "```json", "ends\n", "\nbegins"]

ARGUMENTS = (
    [{}, {"n": 3}, {"n": -7, "x": 2.5}, {"flag": True}, {"flag": False, "n": 0}, {"city": "Paris", "n": 1}]
    + [{"city": text} for text in TEXTS]
    + [{"zip": "01234", "city": "a"},
       {"deep": {"a": [1, 2.5, None, True, "t", {}], "b": {"c": []}}},
       {"list": ["a", "b \"c\"", "<x>"], "city": "z"}, {"deep": {"k": "v", "l": {"m": {"n": [[[1]]]}}}, "x": 1e-7}]
)

CALLS = [[("get_weather", a)] for a in ARGUMENTS] + [
    [("get_weather", {"city": "Paris"}), ("noop", {})],
    [("noop", {}), ("get_weather", {"n": 1, "deep": {"a": "}"}}), ("noop", {"city": "x"})],
    [("noop", {"city": "a\nb"}), ("noop", {"city": "]["}), ("noop", {"city": "\""})],
]

CONTENTS = ["Sure.", "Two\n\nparagraphs, with a < b and [1] {2}.", "日本語 🦉",
            "Say \"hi\"; x = `y`:\n```c\nint a;\n```"]
REASONINGS = ["hm", "First this.\n\nThen <that> & [other].", "日本 thinking {1}"]


def messages():
    """(reasoning, content, calls)"""
    for content in CONTENTS:
        yield None, content, []
        for reasoning in REASONINGS:
            yield reasoning, content, []
    for calls in CALLS:
        yield None, "", calls
        yield "hm", "", calls
    for reasoning in [None] + REASONINGS:
        for content in CONTENTS:
            for calls in (CALLS[0], CALLS[6], CALLS[-3], CALLS[-2]):
                yield reasoning, content, calls


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys,
                      default=list)


def environment():
    env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 1, 2, 3, 4, 5).strftime(f)
    return env


VARIANTS = [{}, {"enable_thinking": True}, {"enable_thinking": False}, {"thinking": True}, {"reasoning_effort": "high"}]


def variants(source):
    return [variant for variant in VARIANTS if all(key in source for key in variant)]


def thoughts_of(name, source):
    """How this template is told what the model thought."""
    if name in INLINE_THOUGHTS:
        return [INLINE_THOUGHTS[name]]
    kinds = ["keys"]
    if "block['thinking']" in source:
        kinds.append("blocks")
    if '"blocks" in message.content' in source:
        kinds.append("parts")
    return kinds


def assistant(name, reasoning, content, calls, thoughts):
    message = {"role": "assistant", "content": content}
    if reasoning is not None:
        if thoughts == "blocks":
            message["content"] = [{"type": "thinking", "thinking": reasoning}] + (
                [{"type": "text", "text": content}] if content else [])
        elif thoughts == "parts":
            message["content"] = {"blocks": [{"type": "thoughts", "text": reasoning},
                                             {"type": "response", "text": content}]}
        elif thoughts == "keys":
            message.update(reasoning_content=reasoning, reasoning=reasoning, thinking=reasoning)
        else:
            message["content"] = thoughts % (reasoning, content)
    if calls:
        if name in NO_CONTENT_KEY:
            message["content"] = None
        message["tool_calls"] = [
            {"id": "call%05d" % i, "type": "function",
             "function": {"name": f, "arguments": json.dumps(a) if name in STRING_ARGUMENTS else a}}
            for i, (f, a) in enumerate(calls)]
    return message


def behind_prompt(prompt, full):
    """The prompt that the answer follows, and the answer. Where a template opens something for the model that it does
    not write for past answers, the prompt ends before that."""
    if full.startswith(prompt):
        return prompt, full[len(prompt):]
    k = len(os.path.commonprefix([prompt, full]))
    if "[BEGIN FINAL RESPONSE]" in full[k:]:
        return prompt, full[k:]
    opening = max(prompt.rfind("<", 0, k), prompt.rfind("[", 0, k))
    if opening > max(prompt.rfind(">", 0, k), prompt.rfind("]", 0, k)):
        k = opening
    return full[:k], full[k:]


# Where a template writes the next turn's beginning behind the answer, or ends it with a stop string.
NEXT_TURN = {"CohereForAI-c4ai-command-r7b-12-2024-tool_use": "<|START_OF_TURN_TOKEN|>",
             "CohereForAI-c4ai-command-r-plus-tool_use": "<|START_OF_TURN_TOKEN|>",
             "fireworks-ai-llama-3-firefunction-v2": "<|start_header_id|>",
             "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "<｜Assistant｜>"}


def of_model(name, prompt, answer):
    """What of the text the model itself would have written."""
    if answer.startswith("<|CHATBOT_TOKEN|>"):
        answer = answer[len("<|CHATBOT_TOKEN|>"):]
    if name == "llama-cpp-rwkv-world":
        answer = answer[:-2]
    elif name in NEXT_TURN and NEXT_TURN[name] in answer:
        answer = answer[:answer.index(NEXT_TURN[name])]
    if answer.endswith("<|eos|>"):
        answer = answer[:-len("<|eos|>")]
    return prompt, answer


def conversations(name, source):
    """(prompt, answer, expected) of every message that the template can write."""
    template = environment().from_string(source)
    users = [{"role": "user", "content": "Hello"}]
    seen = set()
    for variant in variants(source):
        context = dict(variant, tools=TOOLS, functions=json.dumps(TOOLS), datetime="now", bos_token="<|bos|>",
                       eos_token="<|eos|>")
        before = template.render(messages=users, add_generation_prompt=True, **context)
        for reasoning, content, calls in messages():
            if (len(calls) > 1 and name in ONE_CALL) or (calls and name in WITHOUT_CALLS):
                continue
            if not calls and reasoning is None and name in ALWAYS_THINKS:
                continue
            if calls and (reasoning is not None or content) and name in ALWAYS_THINKS:
                continue
            for thoughts in thoughts_of(name, source) if reasoning is not None else ["keys"]:
                message = assistant(name, reasoning, content, calls, thoughts)
                try:
                    full = template.render(messages=users + [message], add_generation_prompt=False, **context)
                except (jinja2.exceptions.TemplateError, TypeError):
                    continue  # the template refuses this message; what must be written at least is checked in main
                prompt, answer = of_model(name, *behind_prompt(before, full))
                if (prompt, answer) not in seen:
                    seen.add((prompt, answer))
                    yield prompt, answer, (reasoning, content, calls)


def written(name, answer, expected):
    """What of the message the template wrote: old reasoning may be dropped, content too where there are calls."""
    reasoning, content, calls = expected
    if reasoning is not None and reasoning not in answer:
        reasoning = None
    if content and content not in answer:
        content = ""
    if calls and content and name in CONTENT_IS_REASONING:
        reasoning, content = content, ""
    return reasoning, content, calls


def collect(parts):
    reasoning, content, calls, order = "", "", [], []
    for kind, call, text in parts:
        if kind == 0:
            content += text
        elif kind == 1:
            reasoning += text
        elif kind == 2:
            calls.append({"name": text, "arguments": "", "id": "", "ended": False})
            if call != len(calls) - 1:
                raise ValueError("call number %d" % call)
        elif kind == 3:
            calls[call]["id"] += text
        elif kind == 4:
            calls[call]["arguments"] += text
        else:
            calls[call]["ended"] = True
    return reasoning, content, calls


def expected_id(answer, i, function):
    """The id that the template wrote for call i, if it wrote one."""
    if '"tool_call_id": "%d"' % i in answer:
        return str(i)
    for id in ("call%05d" % i, "functions.%s:%d" % (function, i)):
        if id in answer:
            return id
    return ""


def compare(answer, expected, parts):
    reasoning, content, calls = expected
    got_reasoning, got_content, got_calls = collect(parts)
    if got_reasoning.strip() != (reasoning or "").strip():
        return "reasoning %r" % got_reasoning
    if got_content != content:
        return "content %r" % got_content
    if len(got_calls) != len(calls):
        return "%d calls" % len(got_calls)
    for i, (got, (function, arguments)) in enumerate(zip(got_calls, calls)):
        if not got["ended"] or got["name"] != function:
            return "call %r" % got
        if json.loads(got["arguments"]) != arguments:
            return "arguments %s" % got["arguments"]
        if got["id"] != expected_id(answer, i, function):
            return "id %r" % got["id"]
    return None


class Driver:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.seed = 1

    def read(self, source, prompt, tools, answer):
        self.seed += 10
        line = {"template": source, "prompt": prompt[-2000:], "tools": json.dumps(tools), "answer": answer,
                "finished": True, "seed": self.seed}
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        if not reply:
            raise SystemExit("the driver died at %s" % json.dumps(line))
        return json.loads(reply)


def main():
    driver = Driver(sys.argv[1])
    paths = shared.files("oracles/chat/*.json")
    if not paths:
        sys.exit(77)
    failures = 0
    for path in paths:
        name = os.path.basename(path)[:-5]
        if len(sys.argv) > 2 and not any(part in name for part in sys.argv[2:]):
            continue
        source = json.load(open(path))["template"]
        counts = {"plain": 0, "reasoning": 0, "calls": 0}
        shown = 0
        form = "?"
        for prompt, answer, expected in conversations(name, source):
            expected = written(name, answer, expected)
            reply = driver.read(source, prompt, TOOLS, answer)
            form = reply.get("format", "?")
            wrong = reply.get("error") or compare(answer, expected, reply["parts"])
            counts["calls" if expected[2] else "reasoning" if expected[0] else "plain"] += 1
            if wrong:
                failures += 1
                shown += 1
                if shown <= 3:
                    print("%s (%s): %s\n  prompt %r\n  answer %r\n  expected %r" %
                          (name, form, wrong, prompt[-60:], answer, expected))
        print("%-52s %-22s %4d plain %4d reasoning %4d calls %4d failed" %
              (name, form, counts["plain"], counts["reasoning"], counts["calls"], shown))
        if counts["calls"] == 0 and name not in WITHOUT_CALLS:
            print("  no call was written, and no reason is known")
            failures += 1
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

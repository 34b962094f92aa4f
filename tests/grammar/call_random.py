#!/usr/bin/env python3
"""Answers with tools: what the rules allow, and what templates write.

For every format, random texts that the rules allow are read by text/answer: they must come back as calls of the tools,
with arguments that python3-jsonschema finds valid. The other way round: what the chat templates of ../shared write for
an assistant's message with valid calls (tests/text/answer_roundtrip.py) must be allowed, all of the message.

    call_random.py DRIVER [TEXTS [SEED]]

DRIVER: call_driver.c, built. Without python3-jsonschema, or templates, it ends with 77: skipped."""
import json
import os
import random
import subprocess
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    sys.exit(77)

BAR, GAP = "\uff5c", "\u2581"
# The marks by which a template's format of calls is known (text/answer/format.c).
FORMATS = {
    "harmony": "<|channel|><|message|><|start|>",
    "atem": "<atem:function_calls><atem:invoke name=<|eom|><|message|>",
    "gemma-call": "<|tool_call>call:",
    "function-gemma": "<start_function_call>",
    "dsml": BAR + "DSML" + BAR + "invoke",
    "gcml": BAR + "GCML" + BAR + "invoke",
    "open-close": "<|open|><|close|>",
    "deepseek": "tool%scall%sbegin" % (GAP, GAP),
    "kimi": "<|tool_call_begin|><|tool_call_argument_begin|>",
    "solar": "<|tool_call:begin|>",
    "arg-key-opensource": "<arg_key{}>':opensource'",
    "longcat": "<longcat_tool_call>",
    "arg-key": "<arg_key>",
    "minimax": "<minimax:tool_call>",
    "nested": "]<]minimax[>[<invoke name=",
    "invoke": "<invoke name=<parameter name=",
    "seed": "<seed:tool_call>",
    "function-parameter": "<function=<parameter=",
    "mcp": "<use_mcp_tool><server_name>",
    "function-param": "<function name=<param name=",
    "function-messages": ">>>all",
    "function-equals": "<function=</function>",
    "keyed-list": "<|tools_prefix|>",
    "function-call-token": "<|function_call|>",
    "function-call-role": "function call role_sep",
    "start-action": "<|START_ACTION|>",
    "action-json": "Action:```json tool_name",
    "toolcall-list": "<TOOLCALL>",
    "bracket-tokens": "[TOOL_CALLS]",
    "functools": "functools[",
    "python-in-tokens": "<|tool_call_start|>",
    "python-list": "List of tools: [",
    "json-behind-token": "<|tool_call|>",
    "action-plugin": "<|action_start|>",
    "tool-calls-lines": "<tool_calls>\\n{\"name\": </tool_calls>",
    "tool-calls-list": "<tool_calls>[",
    "json-in-tags": "<tool_call>",
    "python-in-tags": "<function_calls>",
    "bare-json": "<|python_tag|>",
}
REASONINGS = ["", "<think>", "[THINK]", "<|START_THINKING|>", "<seed:think>"]

F = {"type": "object",
     "properties": {
         "s": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": "number", "minimum": -2, "maximum": 7.5},
         "b": {"type": "boolean"}, "o": {"type": "object"}, "u": {"type": ["string", "null"]},
         "e": {"enum": ["a", "b c", "7", "true"]}, "m": {"enum": ["a", 1, None, "1"]},
         "y": {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "string", "maxLength": 3}}]},
         "r": {"$ref": "#/$defs/code"}, "z": {"allOf": [{"$ref": "#/$defs/zip"}], "description": "digits"},
         "q": {"anyOf": [{"$ref": "#/$defs/zip"}, {"type": "null"}]}, "p": {"type": "string", "pattern": "^[a-z<\"]{1,4}$"}, "any": {}},
     "required": ["s", "b", "z"],
     "$defs": {"code": {"type": "string", "maxLength": 4}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}}
G = {"type": "object", "properties": {"tree": {"$ref": "#/definitions/node"}}, "required": ["tree"],
     "definitions": {"node": {"type": "object", "properties": {"left": {"$ref": "#/definitions/node"},
                                                               "v": {"type": "string"}, "k-1": {"const": "x\"y"}},
                              "required": ["v"], "additionalProperties": False}}}
P = {"type": "object", "properties": {"a": {"type": "integer"}, "c": {"type": "string", "pattern": "^[0-9a-f]+$"}},
     "oneOf": [{"required": ["a"], "properties": {"c": False}}, {"required": ["c"], "properties": {"a": False}}]}
H = {"$ref": "#/$defs/P", "$defs": {"P": P}}
SCHEMAS = {"f": F, "get_it": G, "h": H, "none": {"type": "object", "properties": {}}, "bare": None}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
TOOLS[2] = TOOLS[2]["function"]  # the inner object alone
TOOLS[4] = {"type": "function", "function": {"name": "bare"}}
CONTENT = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"],
           "additionalProperties": False}


class Driver:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **line):
        self.process.stdin.write(json.dumps({k: v for k, v in line.items() if v is not None}).encode() + b"\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        if not reply:
            raise SystemExit("the driver died at %s" % json.dumps(line))
        return json.loads(reply)


def collect(parts):
    content, reasoning, calls = "", "", []
    for kind, call, text in parts:
        if kind == 0:
            content += text
        elif kind == 1:
            reasoning += text
        elif kind == 2:
            calls.append({"name": text, "arguments": "", "ended": False})
        elif kind == 4:
            calls[call]["arguments"] += text
        elif kind == 5:
            calls[call]["ended"] = True
    return content, reasoning, calls


def wrong_call(call, chosen):
    if not call["ended"]:
        return "no end"
    if call["name"] not in chosen:
        return "the name"
    arguments = json.loads(call["arguments"])
    schema = SCHEMAS[call["name"]]
    if not isinstance(arguments, dict):
        return "no object"
    if schema is None:
        return "arguments of a tool that has none" if arguments else None
    errors = [error.message for error in Draft202012Validator(schema).iter_errors(arguments)]
    if not errors and set(arguments) - set(schema.get("properties", P["properties"])):
        return "a name that the schema does not list"
    return errors[0] if errors else None


def wrong(case, parts):
    """Why this answer is none that the rules should allow; None: it is fine."""
    content, reasoning, calls = collect(parts)
    choice = case["choice"]
    chosen = list(SCHEMAS) if choice in ("required", "auto") else [choice]
    if choice == "none" and calls:
        return "a call"
    if choice not in ("none", "auto") and not calls:
        return "no call"
    if choice not in ("none", "auto") and content.strip():
        return "content beside the call"
    if case["single"] and len(calls) > 1:
        return "%d calls" % len(calls)
    if not case["reasoning"] and reasoning.strip():
        return "reasoning"
    if case["schema"] and not calls:
        errors = list(Draft202012Validator(CONTENT).iter_errors(json.loads(content)))
        if errors:
            return errors[0].message
    for call in calls:
        why = wrong_call(call, chosen)
        if why:
            return why
    return None


def cases(rng):
    for name, tells in FORMATS.items():
        for choice in ("required", "auto", "none", "f", "get_it", "h", "none"):
            for reasoning in (["", rng.choice(REASONINGS[1:])] if name not in ("harmony", "atem") else [""]):
                yield name, tells + reasoning, {"choice": choice, "single": rng.random() < 0.3,
                                                "reasoning": rng.random() < 0.7,
                                                "schema": json.dumps(CONTENT) if rng.random() < 0.2 else None}


def walks(driver, texts, rng):
    counts, failures = {}, 0
    for name, template, case in cases(rng):
        for controls in (False, True):
            prompt = rng.choice(["", "<think>\n", "<think></think>"]) if "<think>" in template else ""
            if name == "function-messages":
                prompt = rng.choice(["", ">>>"])
            reply = driver.ask(template=template, prompt=prompt, tools=json.dumps(TOOLS), controls=controls,
                               seed=rng.randrange(1 << 30), texts=texts, **case)
            if "refused" in reply or reply["format"] != name:
                print(name, case, reply)
                failures += 1
                continue
            count = counts.setdefault(name, [0, 0, 0])
            count[2] += reply["cut"]
            for text, parts in reply["texts"]:
                try:
                    why = wrong(case, parts)
                except ValueError as error:
                    why = str(error)
                count[0] += 1
                count[1] += sum(part[0] == 5 for part in parts)
                if why:
                    failures += 1
                    if failures < 20:
                        print("%s %s prompt %r controls %s: %s\n    %r\n    %s" %
                              (name, case, prompt, controls, why, text, collect(parts)))
    for name, (n, calls, cut) in counts.items():
        print("%-20s %4d texts, %4d calls, %3d without an end" % (name, n, calls, cut))
        if n < cut or calls == 0:
            print("too few of them have an end, or a call")
            failures += 1
    return failures


# What a template writes in another way than its model's rules have it, and why.
NOT_ALLOWED = {
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "it leaves the section of calls open",
    "google-gemma-4-31B-it-interleaved": "content behind calls",
    "google-gemma-4-31B-it": "content behind calls",
}


def in_order(arguments, schema):
    names = [name for name in schema["properties"] if name in arguments]
    return list(arguments) == names


def fits(calls, round_trip):
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in round_trip.TOOLS}
    return all(Draft202012Validator(schemas[name]).is_valid(arguments) and in_order(arguments, schemas[name])
               for name, arguments in calls)


def templates(driver):
    """What templates write is allowed: as much as gives back the message. (failures, templates)."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../text"))
    try:
        import answer_roundtrip
    except SystemExit:
        return 0, 0  # no Jinja2
    failures, paths = 0, answer_roundtrip.shared.files("oracles/chat/*.json")
    for path in paths:
        name = os.path.basename(path)[:-5]
        source = json.load(open(path))["template"]
        prompts, n = {}, 0
        for prompt, answer, expected in answer_roundtrip.conversations(name, source):
            if fits(expected[2], answer_roundtrip):
                prompts.setdefault(prompt, []).append((answer, expected))
        for k, (prompt, pairs) in enumerate(prompts.items()):
            controls = k % 2 == 0 or "<|channel|>" in source  # harmony's are always control tokens
            reply = driver.ask(template=source, prompt=prompt[-2000:], tools=json.dumps(answer_roundtrip.TOOLS),
                               controls=controls, answers=[answer for answer, _ in pairs], texts=0)
            if "refused" in reply:
                print(name, reply)
                failures += 1
                continue
            for (answer, expected), bytes_ in zip(pairs, reply["longest"]):
                rest = answer.encode()[max(bytes_, 0):].decode().replace("</assistant>", "")
                whole = bytes_ >= 0 and not any(word in rest for word in ["}", ")", "</", "get_weather", "noop"])
                whole = whole and not (expected[1] and expected[1] in rest)
                n += 1
                if not whole and name not in NOT_ALLOWED:
                    failures += 1
                    if failures < 20:
                        print("%s: %r\n    behind %r\n    only %d bytes, not %r" %
                              (name, answer, prompt[-60:], bytes_, rest))
        print("%-50s %d answers" % (name, n))
    return failures, len(paths)


def main():
    driver = Driver(sys.argv[1])
    texts = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    failures = walks(driver, texts, rng)
    of_templates, n = templates(driver)
    driver.process.stdin.close()
    failures += of_templates + driver.process.wait()
    sys.exit(1 if failures else 0 if n > 0 else 77)


if __name__ == "__main__":
    main()

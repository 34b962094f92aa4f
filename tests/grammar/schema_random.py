#!/usr/bin/env python3
"""Random schemas, random texts of their grammars: each text is JSON and valid by python3-jsonschema.

    schema_random.py DRIVER [SCHEMAS [SEED [MODEL.gguf]]]

DRIVER: schema_driver.c, built. With a model's file the texts are drawn token by token of its vocabulary, by random
samplers; else byte by byte. Without python3-jsonschema it ends with 77: skipped."""
import datetime
import decimal
import json
import random
import re
import subprocess
import sys

try:
    from jsonschema import Draft202012Validator, FormatChecker
except ImportError:
    sys.exit(77)

NAMES = ["a", "b", "kind", "x1", "x2", "\u00e9"]
PATTERNS = ["^a", "b$", "^[a-c]+$", "^x[0-9]$", "a|b", "[0-9]{2}", "[^\"a]"]
FORMATS = ["date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "json-pointer",
           "color"]
KEYWORDS = ["format", "const", "multipleOf", "minContains", "maxContains", "dependentSchemas", "$ref", "uniqueItems",
            "if", "not", "oneOf", "anyOf", "allOf", "patternProperties", "propertyNames", "pattern", "enum"]

formats = FormatChecker(formats=["uuid", "email", "ipv4", "ipv6"])  # the library's own


@formats.checks("date", raises=(ValueError, AttributeError))
def is_date(text):
    if not isinstance(text, str):
        return True
    year, month, day = re.fullmatch("([0-9]{4})-([0-9]{2})-([0-9]{2})", text).groups()
    datetime.date(2000 if year == "0000" else int(year), int(month), int(day))  # both are leap years
    return True


@formats.checks("time", raises=(ValueError, AttributeError))
def is_time(text):
    if not isinstance(text, str):
        return True
    offset = re.fullmatch(r"([0-9:]{8})(\.[0-9]+)?(?:[zZ]|[+-]([0-9]{2}:[0-9]{2}))", text)
    if offset.group(1).endswith(":60"):
        return leap_second(text)
    datetime.time.fromisoformat(offset.group(1))
    datetime.time.fromisoformat(offset.group(3) or "00:00")
    return True


def leap_second(text):
    """It is 23:59:60 in UTC."""
    hour, minute = int(text[0:2]), int(text[3:5])
    if text[-1] not in "zZ":
        sign = 1 if text[-6] == "-" else -1
        minute += sign * (int(text[-5:-3]) * 60 + int(text[-2:]))
    return (hour * 60 + minute) % 1440 == 23 * 60 + 59 and hour < 24


@formats.checks("date-time", raises=(ValueError, AttributeError))
def is_date_time(text):
    return not isinstance(text, str) or (is_date(text[:10]) and text[10:11] in ("t", "T") and is_time(text[11:]))


@formats.checks("duration")
def is_duration(text):
    return not isinstance(text, str) or re.fullmatch(
        r"P(\d+W|(?=.)(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)?(T(?=\d)(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))?)",
        text, re.ASCII) is not None


@formats.checks("hostname")
def is_hostname(text):
    return not isinstance(text, str) or (len(text) <= 253 and all(
        re.fullmatch("[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", label) for label in text.split(".")))


@formats.checks("json-pointer")
def is_pointer(text):
    return not isinstance(text, str) or re.fullmatch("(/([^/~]|~[01])*)*", text, re.DOTALL) is not None


decimal.getcontext().prec = 1000


def exact(text):
    """A number as it is written: a double would round it."""
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent of many digits
        return float(text)
    if abs(number.adjusted()) > 900:
        return float(text)
    return int(number) if number == number.to_integral_value() else number


def some_value(rng, depth=1):
    choices = [None, True, False, 0, 1, 2, 5, -3, 1.5, "", "a", "ab", "b\n\"", "\u00e9"]
    if depth > 0 and rng.random() < 0.2:
        return [some_value(rng, 0) for _ in range(rng.randrange(3))]
    if depth > 0 and rng.random() < 0.2:
        return {name: some_value(rng, 0) for name in rng.sample(NAMES, rng.randrange(3))}
    return rng.choice(choices)


def number_keywords(rng, schema):
    if rng.random() < 0.5:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = rng.choice([-20, -1, 0, 3, 0.5, 12])
    if rng.random() < 0.5:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = rng.choice([-1, 0, 4, 7.25, 100, 1234])
    if rng.random() < 0.3:
        schema["multipleOf"] = rng.choice([1, 2, 3, 7, 10, 0.1, 0.01, 0.25, 2.5, 1.1])


def string_keywords(rng, schema):
    if rng.random() < 0.4:
        schema["minLength"] = rng.randrange(4)
    if rng.random() < 0.4:
        schema["maxLength"] = rng.randrange(2, 8)
    if rng.random() < 0.4:
        schema["pattern"] = rng.choice(PATTERNS)
    if rng.random() < 0.15:
        schema["format"] = rng.choice(FORMATS)


def few_integers(rng):
    """Ten at most, or somewhat more; also none."""
    low, step = rng.choice([-20, -1.5, 0, 3, 9007199254740990]), rng.choice([1, 1, 10])
    schema = {"type": rng.choice(["integer", ["integer", "null"]]), rng.choice(["minimum", "exclusiveMinimum"]): low,
              rng.choice(["maximum", "exclusiveMaximum"]): low + step * rng.choice([0, 1, 3, 9.5, 11])}
    return {**schema, "multipleOf": step} if step > 1 else schema


def array_keywords(rng, schema, depth):
    if rng.random() < 0.7:
        schema["items"] = some_schema(rng, depth - 1)
    if rng.random() < 0.3:
        schema["prefixItems"] = [some_schema(rng, depth - 1) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.3:
        schema["minItems"] = rng.randrange(3)
    if rng.random() < 0.4:
        schema["maxItems"] = rng.randrange(1, 5)
    if rng.random() < 0.4:
        schema["contains"] = some_schema(rng, depth - 1)
        if rng.random() < 0.5:
            schema["maxContains"] = rng.randrange(1, 3)
        if rng.random() < 0.6:
            schema["minContains"] = rng.randrange(3)
    if rng.random() < 0.15:
        schema["uniqueItems"] = True
        if rng.random() < 0.5:
            schema["items"] = few_integers(rng)


def object_keywords(rng, schema, depth):
    if rng.random() < 0.8:
        schema["properties"] = {name: some_schema(rng, depth - 1) for name in rng.sample(NAMES, rng.randrange(1, 4))}
    if rng.random() < 0.5:
        schema["required"] = rng.sample(NAMES, rng.randrange(1, 3))
    if rng.random() < 0.5:
        schema["additionalProperties"] = rng.choice([False, False, some_schema(rng, depth - 1)])
    if rng.random() < 0.2:
        schema["patternProperties"] = {rng.choice(PATTERNS): some_schema(rng, depth - 1)}
    if rng.random() < 0.1:
        schema["propertyNames"] = {"maxLength": 3}
    if rng.random() < 0.1:
        schema["maxProperties"] = rng.randrange(1, 4)
    if rng.random() < 0.1:
        schema["dependentRequired"] = {rng.choice(NAMES): [rng.choice(NAMES)]}
    if rng.random() < 0.1:
        schema["dependentSchemas"] = {rng.choice(NAMES): some_schema(rng, depth - 1)}
    if rng.random() < 0.1:
        schema.setdefault("properties", {})[rng.choice(NAMES)] = {"$ref": rng.choice(REFERENCES)}


REFERENCES = ["#", "#/$defs/d", "#/$defs/tree", "#/$defs/list"]


def definitions(rng):
    """What every document has: a schema of its own, and two that reach themselves."""
    tree = {"type": "object", "properties": {"a": some_schema(rng, 0), "left": {"$ref": "#/$defs/tree"},
            "right": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}}, "additionalProperties": False}
    items = {"anyOf": [some_schema(rng, 0), {"type": "array", "items": {"$ref": "#/$defs/list"}, "maxItems": 3}]}
    return {"d": some_schema(rng, 1), "tree": tree, "list": items}


def some_schema(rng, depth):
    schema = {}
    if rng.random() < 0.05:
        return rng.random() < 0.9
    kinds = ["null", "boolean", "integer", "number", "string"] + (["array", "object", "object"] if depth > 0 else [])
    if rng.random() < 0.85:
        schema["type"] = rng.choice(kinds) if rng.random() < 0.8 else rng.sample(kinds[:5], 2)
    kind = schema.get("type")
    if rng.random() < 0.05:
        schema["const"] = some_value(rng)
    if rng.random() < 0.12:
        schema["enum"] = [some_value(rng) for _ in range(rng.randrange(1, 5))]
    if kind in ("integer", "number"):
        number_keywords(rng, schema)
    if kind == "string":
        string_keywords(rng, schema)
    if kind == "array":
        array_keywords(rng, schema, depth)
    if kind == "object":
        object_keywords(rng, schema, depth)
    if depth > 0 and rng.random() < 0.15:
        schema[rng.choice(["anyOf", "allOf", "oneOf"])] = [some_schema(rng, depth - 1) for _ in range(2)]
    if depth > 0 and rng.random() < 0.06:
        schema["not"] = some_schema(rng, 0)
    if depth > 0 and rng.random() < 0.06:
        schema.update({"if": some_schema(rng, 0), "then": some_schema(rng, 0), "else": some_schema(rng, 0)})
    if depth > 0 and rng.random() < 0.05:
        schema["$ref"] = rng.choice(REFERENCES[1:])
    return schema


def validator_of(schema):
    """Numbers as they are written, and the end of a pattern as ECMA-262 has it: not in front of a last newline."""
    text = json.dumps(schema).replace('$"', '\\\\Z"')
    return Draft202012Validator(json.loads(text, parse_float=exact), format_checker=formats)


def judge(schema, lines, counts):
    validator = validator_of(schema)
    for text in lines:
        if text.startswith("refused "):
            counts["refused"] += 1
            continue
        counts["texts"] += 1
        problem = next(validator.iter_errors(json.loads(text, parse_float=exact)), None)
        if problem is not None:
            counts["wrong"] += 1
            print(f"{json.dumps(schema)}\n  {text}\n  {problem.message}")
    counts["empty"] += not lines


def main():
    driver, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 600
    seed, model = int(sys.argv[3]) if len(sys.argv) > 3 else 1, sys.argv[4:5]
    rng = random.Random(seed)
    schemas = []
    for _ in range(count):
        schema = some_schema(rng, 2)
        if isinstance(schema, dict):
            schema["$defs"] = definitions(rng)
        schemas.append(schema)
    written = "".join(json.dumps(schema) + "\n" for schema in schemas)
    for keyword in KEYWORDS:
        assert count < 100 or written.count(f'"{keyword}"') > count // 100, keyword
    made = subprocess.run([driver, str(seed), "6"] + model, input=written.encode(), stdout=subprocess.PIPE, check=True)
    answers, at, counts = made.stdout.decode().split("\n"), 0, {"refused": 0, "texts": 0, "empty": 0, "wrong": 0}
    for schema in schemas:
        end = answers.index("", at)
        judge(schema, answers[at:end], counts)
        at = end + 1
    print(f"{count} schemas: " + ", ".join(f"{n} {name}" for name, n in counts.items()))
    return counts["wrong"] != 0 or counts["texts"] < count or counts["refused"] > count // 5


if __name__ == "__main__":
    sys.exit(main())

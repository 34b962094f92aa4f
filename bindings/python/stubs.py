#!/usr/bin/env python3
"""Prints runnel/_types.pyi: the types of options, records and constants, as type checkers read them.

    bindings/python/stubs.py            the file
    bindings/python/stubs.py --check    nothing, and exit 1 where runnel/_types.pyi is another one

Members and their C types come from include/, which members Python takes and gives from native/field_rows.h and
runnel_fields.h, options with types of their own from runnel/_shared.py. The other stubs are written by hand;
tests/bindings/python/test_types.py holds all of them against the package.
"""
import ast
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parents[1] / "include"
TARGET = HERE / "runnel/_types.pyi"

#: C types that are no plain number, as an option is given and as a record has them; None: not seen in Python
TYPES = {
    "float": ("float", "float"),
    "double": ("float", "float"),
    "uint8_t": ("Flag", "int"),
    "const char *": ("Text", "str"),
    "char []": (None, "str"),
    "const void *": ("Text", None),
    "const char *const *": ("Texts", None),
    "const int32_t *": ("Iterable[int]", "memoryview[int]"),
    "uint32_t []": ("Iterable[int]", None),
    "uint64_t []": (None, "memoryview[int]"),
    "const runnel_logit_bias *": ("Mapping[int, float]", None),
    "const runnel_adapter *": ("Mapping[str, Path | tuple[Path, float]]", None),
    "runnel_histogram": (None, "Histogram"),
}
NUMBERS = {"int32_t", "uint32_t", "int64_t", "uint64_t", "size_t"}
#: members that are no options of their own
APART = {
    "engine_options": {"delivery"},
    "request": {"prompt", "session"},
    "chat": {"messages_json"},
    "embed_request": {"text"},
    "score_request": {"text", "query"},
    "infill": {"prefix", "suffix"},
    "session_file": {"path"},
    "grammar": {"text", "choices", "kind"},
}
#: TypedDict, its struct, what it has besides, its bases
OPTIONS = [
    ("ArchitectureRow", "architecture_row", {}, ""),
    ("EngineOptions", "engine_options", {"architectures": "Iterable[ArchitectureRow]"}, ""),
    ("ModelOptions", "model_options", {}, ""),
    ("SamplingOptions", "sampling", {}, ""),
    ("SamplersOptions", "samplers", {"choose": "Choose"}, ""),
    ("ChatOptions", "chat", {}, ""),
    ("TurnOptions", "request", {"messages": "Messages", "messages_json": "Messages", "grammar": "Grammar"},
     "SamplingOptions, SamplersOptions, ChatOptions"),
    ("RequestOptions", None, {"session": "SessionBase | int"}, "TurnOptions"),
    ("EmbedOptions", "embed_request", {}, ""),
    ("ScoreOptions", "score_request", {}, ""),
    ("InfillOptions", "infill", {}, ""),
    ("SessionFileOptions", "session_file", {}, ""),
    ("TrainingOptions", "eagle_options", {}, ""),
    ("PurgeOptions", "cache_purge_options", {}, ""),
    ("GrammarFlags", "grammar", {}, ""),
    ("GrammarOptions", None, {"text": "Text", "choices": "Texts"}, "GrammarFlags"),
]
#: records that are a struct's members, with what they have besides or otherwise
RECORDS = [
    ("EngineStats", "engine_stats", {}),
    ("Metrics", "metrics", {}),
    ("Machine", "machine", {}),
    ("DeviceInfo", "device_info", {}),
    ("ModelInfo", "model_info", {}),
    ("Adapter", "adapter", {}),
    ("ScoresInfo", "scores_info", {"labels": "list[str]"}),
    ("TemplateInfo", "template_info", {"knows": "TemplateTrait"}),
    ("Usage", "usage", {}),
    ("Timings", "timings", {}),
    ("FileInfo", "file_info", {}),
    ("Tensor", "tensor", {}),
    ("CacheTotals", "cache_totals", {}),
    ("CacheEntry", "cache_entry", {}),
    ("CacheRecord", "cache_record", {}),
    ("CacheDamage", "cache_damage", {}),
    ("TrainingProgress", "training_progress", {"state": "TrainingState"}),
]
#: events that end a stream are no pieces
ENDS = {"done", "cancelled", "failed"}

HEAD = '''# Printed by bindings/python/stubs.py: do not edit. For type checkers alone: at run time the module is empty.
#
#     if TYPE_CHECKING:
#         from runnel._types import RequestOptions

import enum
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict
from typing_extensions import TypeAlias

from ._shared import Candidates, Grammar, Record, SessionBase

Flag: TypeAlias = bool | int
Text: TypeAlias = str | bytes
Texts: TypeAlias = str | bytes | Iterable[str | bytes]
Path: TypeAlias = str | os.PathLike[str]
Messages: TypeAlias = str | bytes | Sequence[Mapping[str, Any]]
Json: TypeAlias = str | bytes | Sequence[Any] | Mapping[str, Any]
Choose: TypeAlias = Callable[[Candidates], int | None]
FinishName: TypeAlias = Literal["stop", "length", "cancelled", "none"]
'''

BY_HAND = '''
class Histogram(Record):
    edges: memoryview[float]
    counts: memoryview[int]
    count: int
    sum: float

class StreamInfo(Record):
    stream: int
    model: str
    phase: str
    paused: bool
    tokens: int
    label: str

class ExpertUse(Record):
    model: str
    n_blocks: int
    n_experts: int
    hits: int
    misses: int
    fetched_bytes: int
    counts: memoryview[int]

class Span(Record):
    kind: int
    track: int
    name: str
    model: str
    messages: str
    begin_ns: int
    end_ns: int
    stream: int
    rows: int
    sequences: int
    prompt_tokens: int
    tokens: int
    label: str

class Metadata(Record):
    key: str
    type: str
    count: int
'''


def header_text():
    text = "\n".join(path.read_text() for path in sorted(INCLUDE.glob("runnel*.h")))
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def members(text, struct):
    """Names and C types, in the struct's order; an enumeration is an int."""
    body = re.search(r"typedef struct runnel_%s \{(.*?)\n\} runnel_%s;" % (struct, struct), text, re.S).group(1)
    found = {}
    for declaration in body.split(";"):
        first, *others = [part.strip() for part in " ".join(declaration.split()).split(",")]
        match = re.fullmatch(r"(.*?[ *])(\w+)((?:\[[^]]*\])?)", first)
        if match is None:
            continue
        kind = match.group(1).strip()
        if re.search(rf"typedef enum {re.escape(kind)}\b", text):
            kind = "int32_t"
        for part in [match.group(2) + match.group(3)] + others:
            name, array, _ = part.partition("[")
            if name != "struct_size" and not name.startswith("reserved"):
                found[name.lstrip("*")] = kind + (" []" if array else "")
    return found


def is_count(found, name):
    """As fields.c has it: a member that counts the elements or bytes of another."""
    if name.startswith("n_"):
        return name[2:] in found
    counted = found.get(name[:-6]) if name.endswith("_bytes") else None
    return counted in ("const char *", "const void *")


def special_options():
    """Options that _shared.py takes in other ways, by name: their types; and which enumerations are flags."""
    types, flags = {}, set()
    for node in ast.parse((HERE / "runnel/_shared.py").read_text()).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        target, value = node.targets[0].id, node.value
        if target == "_NAMED":
            for key, kind in zip(value.keys, value.values):
                types[key.value] = f"{kind.id} | {kind.id}Name | int"
        elif target in ("_JSON", "_PATHS"):
            types.update((item.value, "Json" if target == "_JSON" else "Path") for item in value.elts)
        elif isinstance(value, ast.Call) and ast.unparse(value.func) == "_enumeration" and len(value.args) == 2:
            flags.add(target)
    named = {kind.split(" ")[0] for kind in types.values()} - {"Json", "Path"}
    return types, flags, named


def rows_of(text, struct):
    """The members that Python sees, and their C types."""
    found = members(text, struct)
    return {name: kind for name, kind in found.items() if not is_count(found, name)}


def type_of(kind, way):
    """The Python type of a C type, or None. way 0: an option, 1: a record's member."""
    if kind in TYPES:
        return TYPES[kind][way]
    return "int" if kind in NUMBERS else None


def typed_dict(text, special, row):
    name, struct, more, bases = row
    lines = {}
    for member, kind in (rows_of(text, struct) if struct else {}).items():
        of = special.get(member) or type_of(kind, 0)
        if of is not None and member not in APART.get(struct, ()):
            lines[member] = of
    lines.update(more)
    if "with" in lines:  # a word of Python
        body = "".join(f'    "{member}": {of} | None,\n' for member, of in lines.items())
        return f'\n{name} = TypedDict("{name}", {{\n{body}}}, total=False)\n'
    body = "".join(f"    {member}: {of} | None\n" for member, of in lines.items())
    return f"\nclass {name}({bases or 'TypedDict'}, total=False):\n{body}"


def record(text, row):
    name, struct, more = row
    lines = {member: type_of(kind, 1) for member, kind in rows_of(text, struct).items()}
    lines.update(more)
    missing = [member for member, of in lines.items() if of is None]
    if missing:
        sys.exit(f"stubs.py: no type for runnel_{struct}.{', '.join(missing)}")
    return f"\nclass {name}(Record):\n" + "".join(f"    {member}: {of}\n" for member, of in lines.items())


def enum_values(text):
    """Of all enumerators that are written out; one without a value is one more than the last."""
    found = {}
    for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", text, flags=re.S):
        last = -1
        for name, value in re.findall(r"\b(RUNNEL_\w+)\s*(?:=\s*(-?\d+)\s*)?(?=,|$)", body.strip()):
            last = found[name] = int(value) if value else last + 1
    return found


def enumerations(text):
    """Each with its members and their values, in the order of native/constants.h, then those that have tables."""
    source = (HERE / "native/constants.h").read_text()
    written = enum_values(text)
    found = {}
    for name, body in re.findall(r"#define ENUM_(\w+)\(X\)((?:.*\\\n)*.*\n)", source):
        rows = re.findall(r"X\((\w+), (\w+)\)", body)
        found[name] = {member: written[f"RUNNEL_{prefix}{member}"] for prefix, member in rows}
    for name, table in (("EventType", "EVENT"), ("Phase", "PHASE"), ("Rest", "REST"), ("Status", "STATUS")):
        body = re.search(rf"#define RUNNEL_{table}_MAP\(X\)((?:.*\\\n)*.*\n)", text).group(1)
        found[name] = {member: int(value) for member, value in re.findall(r"X\((\w+), (-?\d+)", body)}
    return found


def recommended(text, names):
    """A TypedDict of what a file may recommend: options of sampling and samplers, each of them a value."""
    kinds = {**rows_of(text, "sampling"), **rows_of(text, "samplers")}
    body = "".join(f"    {name}: {type_of(kinds[name], 0)}\n" for name in names)
    return f"\nclass RecommendedSampling(TypedDict, total=False):\n{body}"


def literal(name, words):
    lines = [f"{name}: TypeAlias = Literal["]
    for word in words:
        if len(lines[-1]) + len(word) > 110:
            lines.append("    ")
        lines[-1] += f'"{word}", '
    return "\n".join(line.rstrip() for line in lines).rstrip(",") + "]\n"


def page():
    text = header_text()
    special, flags, named = special_options()
    enums = enumerations(text)
    parts = [HEAD, literal("PieceKind", [name.lower() for name in enums["EventType"] if name.lower() not in ENDS])]
    parts += [literal(name + "Name", [member.lower() for member in enums[name]]) for name in enums if name in named]
    for name, values in enums.items():
        body = "".join(f"    {member} = {value}\n" for member, value in values.items())
        parts.append(f"\nclass {name}(enum.{'IntFlag' if name in flags else 'IntEnum'}):\n{body}")
    parts += [typed_dict(text, special, row) for row in OPTIONS]
    parts.append(recommended(text, [name.lower() for name in enums["Recommended"]]))
    parts.append(BY_HAND)
    parts += [record(text, row) for row in RECORDS]
    return "".join(parts)


def main():
    wanted = page()
    if sys.argv[1:] != ["--check"]:
        sys.stdout.write(wanted)
        return 0
    same = TARGET.exists() and TARGET.read_text() == wanted
    print("runnel/_types.pyi is as printed" if same else "runnel/_types.pyi: not what bindings/python/stubs.py prints")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Prints docs/BINDINGS.md: every function, constant and option of include/ with its name in Node and in Python.

    bindings/mapping.py            the page
    bindings/mapping.py --check    nothing, and exit 1 where a name is missing, does not exist in Python, or the page in
                                   docs/ is another one

The names come from bindings/node/native/names.py and bindings/python/names.txt; tests/bindings/node/names.test.mjs
looks for those of the page in the package for Node. A line of names.txt has a pattern and a name; the first pattern that fits
counts:

    runnel_engine_get_stats     Engine.stats
    RUNNEL_KV_*                 KvType.{}          {}: what * stands for; {lower}, {camel}: in other letters
    runnel_engine_free          = Engine.close     =: prose, which is no name to look for
"""
import fnmatch
import importlib
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: structs that a host fills in
OPTIONS = ["engine_options", "model_options", "adapter", "request", "sampling", "samplers", "chat", "grammar",
           "logit_bias", "message", "embed_request", "score_request", "infill", "infill_file", "session_file",
           "eagle_options", "cache_purge_options", "architecture_row"]


def headers():
    text = "\n".join(path.read_text() for path in sorted((ROOT / "include").glob("*.h")))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def functions(text):
    return sorted(set(re.findall(r"^RUNNEL_API [^;]*?\b(runnel_\w+)\(", text, re.M)))


def constants(text):
    """Values of enumerations, of the tables that make some, and what a #define names."""
    found = []
    for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", text, re.S):
        found += re.findall(r"\b(RUNNEL_\w+)\s*(?:=|,|$)", body)
    for table, body in re.findall(r"#define RUNNEL_(\w+)_MAP\(X\)((?:.*\\\n)*.*\n)", text):
        prefix = "RUNNEL_" if table == "STATUS" else f"RUNNEL_{table}_"
        found += [prefix + name for name in re.findall(r"X\((\w+), -?\d", body)]
    found += re.findall(r"#define (RUNNEL_\w+) +[\"(\d-]", text)
    return sorted(name for name in set(found) if not name.endswith("_"))


def members(text):
    found = []
    for struct in OPTIONS:
        body = re.search(r"typedef struct runnel_%s \{(.*?)\n\} runnel_%s;" % (struct, struct), text, re.S).group(1)
        for declaration in body.split(";"):
            for name in re.findall(r"(\w+)(?:\[[^]]*\])*\s*(?:,|$)", " ".join(declaration.split())):
                if name != "struct_size" and not name.startswith("reserved"):
                    found.append(f"runnel_{struct}.{name}")
    return found


def camel(name):
    first, *rest = name.lower().split("_")
    return first + "".join(word.title() for word in rest)


def length_of(member, names):
    """The member that this one counts, NAME_bytes or n_NAME; None: it counts none."""
    struct, name = member.split(".")
    counted = f"{struct}.{name.removeprefix('n_') if name.startswith('n_') else name.removesuffix('_bytes')}"
    return counted if counted != member and counted in names else None


def node_rules(names):
    """bindings/node/native/names.py has the functions and what is odd; constants and members follow a rule."""
    script = ROOT / "bindings/node/native/names.py"
    listed = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t", 1) for line in listed.splitlines()]
    rows = [[name, "= " + target[3:-1] if target.startswith("- ") else target] for name, target in rows]
    rows += [[name, f"= the length of `{camel(of.split('.')[1])}`"] for name in names if (of := length_of(name, names))]
    rows += [["runnel_*_init", "= members of an object"], ["runnel_*_default", "= members of an object"]]
    return rows + [["RUNNEL_*", "constants.{}"]] + [[f"runnel_{struct}.*", "{camel}"] for struct in OPTIONS]


def rules(language, names):
    if language == "node":
        return node_rules(names)
    path = ROOT / "bindings" / language / "names.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]


def name_in(rows, name):
    """The name, or None."""
    for pattern, target in rows:
        if not fnmatch.fnmatchcase(name, pattern):
            continue
        star = name[pattern.index("*"):] if "*" in pattern else ""
        return target.replace("{}", star).replace("{lower}", star.lower()).replace("{camel}", camel(star))
    return None


def page(sections, languages):
    lines = ["# Names in Node and in Python", "",
             "Printed by `bindings/mapping.py` from include/; "
             "tests hold it complete, and its names against the packages.",
             ""]
    for title, names in sections:
        lines += [f"## {title}", "", "| C | Node | Python |", "|---|---|---|"]
        for name in names:
            cells = [name_in(rows, name) or "" for rows in languages.values()]
            cells = [cell[2:] if cell.startswith("= ") else f"`{cell}`" if cell else "" for cell in cells]
            lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def exists(module, options, target):
    """A dotted name of the module; a name with = at its end is an option of a request or of another call."""
    if target.endswith("="):
        return target[:-1] in options
    at = module
    for part in target.removesuffix("()").split("."):
        at = getattr(at, part, None)
        if at is None:
            return False
    return True


def faults(sections, languages):
    sys.path.insert(0, os.environ["RUNNEL_PYTHON_PACKAGE"])
    module = importlib.import_module("runnel")
    options = {name for names in module._runnel.option_names().values() for name in names}
    for _, names in sections:
        for name in names:
            for language, rows in languages.items():
                target = name_in(rows, name)
                if target is None and (rows or language == "python"):
                    yield f"{name}: it has no name in bindings/{language}"
                elif language == "python" and not target.startswith("= ") and not exists(module, options, target):
                    yield f"{name}: there is no {target} in Python"


def main():
    text = headers()
    sections = [("Functions", functions(text)), ("Constants", constants(text)), ("Options", members(text))]
    languages = {language: rules(language, sections[-1][1]) for language in ("node", "python")}
    wanted = page(sections, languages)
    if sys.argv[1:] != ["--check"]:
        sys.stdout.write(wanted)
        return 0
    found = list(faults(sections, languages))
    if (ROOT / "docs/BINDINGS.md").read_text() != wanted:
        found.append("docs/BINDINGS.md: not what bindings/mapping.py prints")
    print("\n".join(found) or f"{sum(len(names) for _, names in sections)} names, and all of them are there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

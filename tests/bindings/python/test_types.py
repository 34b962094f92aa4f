"""The stubs (*.pyi) against the package: every public name, method, parameter, option and member is in both. With the
standard library alone."""

import ast
import builtins
import copy
import enum
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
STUBS = ROOT / "bindings/python/runnel"
MODEL = str(ROOT / "examples/models/runnel-tiny-Q8_0.gguf")
sys.path.insert(0, os.environ["RUNNEL_PYTHON_PACKAGE"])

import runnel  # noqa: E402

MODULES = {"__init__": runnel, "blocking": runnel.blocking, "files": runnel.files, "openai": runnel.openai}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: what a class has besides its interface
UNTOLD = {"__module__", "__doc__", "__slots__", "__dict__", "__weakref__", "__del__", "__qualname__", "__annotations__",
          "__firstlineno__", "__static_attributes__", "__orig_bases__", "__parameters__", "__hash__", "__new__"}
REQUEST = ["request", "sampling", "samplers", "chat"]
#: TypedDict: the tables of the extension that it has the names of, what is added and what is a parameter of its own
OPTIONS = {
    "EngineOptions": (["engine"], {"architectures"}, {"delivery"}),
    "ModelOptions": (["model"], set(), set()),
    "ChatOptions": (["chat"], set(), {"messages_json"}),
    "TurnOptions": (REQUEST, {"messages", "grammar", "choose"}, {"prompt", "session"}),
    "RequestOptions": (REQUEST, {"messages", "grammar", "choose"}, {"prompt"}),
    "EmbedOptions": (["embed"], set(), {"text"}),
    "ScoreOptions": (["score"], set(), {"text", "query"}),
    "InfillOptions": (["infill"], set(), {"prefix", "suffix"}),
    "SessionFileOptions": (["session_file"], set(), {"path"}),
    "TrainingOptions": (["eagle"], set(), set()),
    "PurgeOptions": (["purge"], set(), set()),
    "ArchitectureRow": (["architecture"], set(), set()),
    "GrammarFlags": (["grammar"], set(), {"text", "choices", "kind"}),
    "GrammarOptions": (["grammar"], set(), {"kind"}),
}


def stubs():
    return {path.stem: ast.parse(path.read_text()) for path in sorted(STUBS.glob("*.pyi"))}


def names_in(tree):
    """What stands in a module or class: name to its node."""
    found = {}
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = node
        elif isinstance(node, ast.Assign):
            found[node.targets[0].id] = node
    return found


def resolve(trees, module, name):
    """The node that a name stands for, through imports within the package; None: there is none."""
    found = names_in(trees[module]).get(name)
    if found is not None:
        return found
    for node in trees[module].body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module in trees:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return resolve(trees, node.module, alias.name)
    return None


def public_in_stub(tree):
    again = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    return {name for name in again | set(names_in(tree)) if name and not name.startswith("_")}


def public_at_run_time(module):
    if hasattr(module, "__all__"):
        return set(module.__all__)
    return {name for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__}


# ---- Classes and functions ------------------------------------------------------------------


def shape_at_run_time(function):
    """Each parameter: its name, its kind, whether it has a default."""
    parameters = inspect.signature(function).parameters.values()
    return [(one.name, one.kind.name, one.default is not one.empty) for one in parameters]


def shape_in_stub(node):
    spec = node.args
    plain = spec.posonlyargs + spec.args
    defaults = [False] * (len(plain) - len(spec.defaults)) + [True] * len(spec.defaults)
    found = [(one.arg, "POSITIONAL_ONLY" if one in spec.posonlyargs else "POSITIONAL_OR_KEYWORD", has)
             for one, has in zip(plain, defaults)]
    if spec.vararg:
        found.append((spec.vararg.arg, "VAR_POSITIONAL", False))
    found += [(one.arg, "KEYWORD_ONLY", has is not None) for one, has in zip(spec.kwonlyargs, spec.kw_defaults)]
    if spec.kwarg:
        found.append((spec.kwarg.arg, "VAR_KEYWORD", False))
    return found


def function_faults(where, function, node):
    if not isinstance(node, FUNCTIONS):
        yield f"{where}: a function, but not in the stub"
        return
    if inspect.iscoroutinefunction(function) != isinstance(node, ast.AsyncFunctionDef):
        yield f"{where}: async in one of the two"
    if shape_at_run_time(function) != shape_in_stub(node):
        yield f"{where}: {shape_at_run_time(function)} at run time, {shape_in_stub(node)} in the stub"
    spec = node.args
    for one in spec.posonlyargs + spec.args + spec.kwonlyargs + [spec.vararg, spec.kwarg]:
        if one is not None and one.annotation is None and one.arg not in ("self", "cls"):
            yield f"{where}: {one.arg} has no type"
    if node.returns is None:
        yield f"{where}: no type of its result"


def decorators(node):
    return {ast.unparse(one) for one in getattr(node, "decorator_list", ())}


def is_slot(value):
    """A method of a type in C that Python calls by its slot."""
    return isinstance(value, types.WrapperDescriptorType)


def member_faults(where, value, node):
    told = decorators(node) & {"property", "classmethod", "staticmethod"}
    real = {type(value).__name__} & {"property", "classmethod", "staticmethod"}
    if inspect.ismemberdescriptor(value):  # a slot, or what a type in C can only read
        real = told & {"property"}
    if told != real:
        yield f"{where}: {told or 'plain'} in the stub, {real or 'plain'} at run time"
    elif isinstance(value, classmethod) or inspect.isfunction(value):
        yield from function_faults(where, getattr(value, "__func__", value), node)
    elif isinstance(node, FUNCTIONS) and not told and not is_slot(value):
        yield f"{where}: a method in the stub alone"


def class_faults(where, kind, node):
    if not isinstance(node, ast.ClassDef):
        yield f"{where}: a class, but not in the stub"
        return
    stub = names_in(node)
    if issubclass(kind, enum.Enum):
        written = {name: ast.literal_eval(one.value) for name, one in stub.items()}
        real = {name: one.value for name, one in kind.__members__.items()}
        if written != real:
            yield f"{where}: {real} at run time, {written} in the stub"
        return
    real = {name: value for name, value in vars(kind).items() if name not in UNTOLD and not name.startswith("_")
            or inspect.isfunction(value) and name.startswith("__") and name not in UNTOLD
            or is_slot(value) and name in ("__aiter__", "__anext__") or name == "__match_args__"}
    if issubclass(kind, runnel.Error) and kind is not runnel.Error:
        real = {name: value for name, value in real.items() if name not in vars(runnel.Error)}
    if not issubclass(kind, runnel.Record):
        told = {ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases}
        bases = {base.__name__ for base in kind.__bases__ if base is not object}
        if told != bases:
            yield f"{where}: bases {bases} at run time, {told} in the stub"
        for name in sorted(stub.keys() - real.keys()):
            yield f"{where}.{name}: in the stub alone"
    for name, value in real.items():
        if name not in stub:
            yield f"{where}.{name}: not in the stub"
        else:
            yield from member_faults(f"{where}.{name}", value, stub[name])


def classes_of(module):
    """Public classes, and those of the package that they are made of."""
    for name in public_at_run_time(module):
        value = getattr(module, name)
        if inspect.isclass(value):
            for kind in value.__mro__:
                if kind.__module__.partition(".")[0] == "runnel":
                    yield kind


def stub_of(kind):
    """The stub where a class of the package stands; types in C and enumerations say that they are of `runnel`."""
    stem = kind.__module__.partition(".")[2]
    return stem or ("_runnel" if hasattr(runnel._runnel, kind.__name__) else "_shared")


def everything(trees):
    """Public functions, and classes: a name for people, the thing, its stub."""
    for stem, module in MODULES.items():
        for name in sorted(public_at_run_time(module)):
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value, resolve(trees, stem, name)
    for kind in {kind for module in MODULES.values() for kind in classes_of(module)}:
        yield f"{stub_of(kind)}.{kind.__name__}", kind, resolve(trees, stub_of(kind), kind.__name__)


def faults(trees):
    for module_name, module in MODULES.items():
        written, real = public_in_stub(trees[module_name]), public_at_run_time(module)
        for name in sorted(written ^ real):
            yield f"{module.__name__}.{name}: {'not in the stub' if name in real else 'in the stub alone'}"
    for where, value, node in everything(trees):
        yield from (class_faults if inspect.isclass(value) else function_faults)(where, value, node)


# ---- Options and records --------------------------------------------------------------------


def keys_of(trees, name):
    node = names_in(trees["_types"])[name]
    if isinstance(node, ast.Assign):  # TypedDict(name, {...})
        return {key.value for key in node.value.args[1].keys}
    found = set(names_in(node))
    for base in node.bases:
        if ast.unparse(base) != "TypedDict":
            found |= keys_of(trees, ast.unparse(base))
    return found


def option_faults(trees):
    known = runnel._runnel.option_names()
    for name, (tables, added, apart) in OPTIONS.items():
        real = {option for table in tables for option in known[table]} | added
        for option in sorted((real - apart) ^ keys_of(trees, name)):
            yield f"{name}: {option} is in one of the two"
    recommended = {name.lower() for name in runnel.Recommended.__members__}
    for option in sorted(recommended ^ keys_of(trees, "RecommendedSampling")):
        yield f"RecommendedSampling: {option} is in one of the two"
    used = {ast.unparse(node.slice) for tree in trees.values() for node in ast.walk(tree)
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Unpack"}
    for name in sorted(used - OPTIONS.keys()):
        yield f"{name}: nothing is known of it here"


def record_faults(trees, name, record):
    """Members by name and type."""
    stub = resolve(trees, "_types", name)
    written = {member: ast.unparse(node.annotation) for member, node in names_in(stub).items() if member != "__init__"}
    for member in sorted(written.keys() ^ vars(record).keys()):
        yield f"{name}.{member}: in one of the two"
    for member, value in vars(record).items():
        told = written.get(member, "").split("[")[0].split(" |")[0]
        kind = getattr(builtins, told, None) or getattr(runnel, told, None) or runnel.Record
        if not isinstance(value, kind) or isinstance(value, bool) != (told == "bool"):
            yield f"{name}.{member}: {value!r} is no {told}"


def records_of_files(folder):
    with runnel.files.File(MODEL) as file:
        yield "FileInfo", file.info()
        yield "Metadata", file.metadata()[0]
        yield "Tensor", file.tensors()[0]
        for template in file.templates():
            yield "TemplateInfo", template
    yield "TemplateInfo", runnel.files.inspect_template("{{ messages[0].content }}")
    entries, totals = runnel.files.cache_ls(f"{folder}/cache")
    yield "CacheTotals", totals
    for entry in entries:
        yield "CacheEntry", entry
        for record in runnel.files.cache_inspect(f"{folder}/cache", entry.fingerprint):
            yield "CacheRecord", record


def records_of_an_engine(folder):
    spans, seen = [], []
    with runnel.blocking.Engine(compute_threads=1, on_trace=spans.append) as engine:
        subprocess.run([sys.executable, ROOT / "tests/oracle/make_adapter.py", MODEL, f"{folder}/a.gguf"], check=True)
        model = engine.load_model(MODEL, cache_dir=f"{folder}/cache", adapters={"a": f"{folder}/a.gguf"})
        yield "ModelInfo", model.info()
        for adapter in model.adapters:
            yield "Adapter", adapter
        with model.stream("Once", max_tokens=-1, ignore_eos=True, context_keep=1) as stream:  # without an end
            next(stream)
            for info in engine.streams():
                yield "StreamInfo", info
        result = model.generate("Once", max_tokens=3, temperature=1, seed=1, pin_prefix=True,
                                choose=lambda candidates: seen.append(("Candidates", candidates)))
        yield from seen
        yield "Usage", result.usage
        yield "Timings", result.timings
        yield "EngineStats", engine.stats()
        yield "Metrics", engine.metrics()
        yield "Histogram", engine.metrics().first_token_s
        yield "Machine", engine.measure()
        engine.drain()
    for span in spans:
        yield "Span", span


class Types(unittest.TestCase):
    def test_names_methods_and_parameters(self):
        self.assertEqual(list(faults(stubs())), [])

    def test_options(self):
        self.assertEqual(list(option_faults(stubs())), [])

    def test_records(self):
        trees, seen = stubs(), set()
        with tempfile.TemporaryDirectory() as folder:
            for source in (records_of_an_engine, records_of_files):
                for name, record in source(folder):
                    seen.add(name)
                    self.assertEqual(list(record_faults(trees, name, record)), [])
        self.assertGreaterEqual(seen, {"ModelInfo", "Adapter", "StreamInfo", "Usage", "Candidates", "Metrics", "Span",
                                       "Tensor"})

    def test_what_is_left_out_is_found(self):
        """Each member of a class and each parameter, left out of the stubs in turn, is a fault."""
        dropped = 0
        for where, value, node in everything(stubs()):
            if inspect.isclass(value) and issubclass(value, runnel.Record):
                continue  # their members are instances' own: test_records
            for name in names_in(node) if inspect.isclass(value) else ():
                left = copy.deepcopy(node)
                left.body = [one for one in left.body if name not in names_in(ast.Module([one], []))]
                self.assertTrue(list(class_faults(where, value, left)), f"{where}.{name}")
                dropped += 1
            within = [node] if isinstance(node, FUNCTIONS) else node.body
            functions = [one for one in within if isinstance(one, FUNCTIONS)]
            for function in functions:
                real = value if function is node else vars(value)[function.name]
                real = getattr(real, "__func__", real)
                for parameters in (function.args.args, function.args.kwonlyargs) if inspect.isfunction(real) else ():
                    for one in list(parameters):
                        left = copy.deepcopy(function)
                        kept = left.args.args if parameters is function.args.args else left.args.kwonlyargs
                        kept[:] = [other for other in kept if other.arg != one.arg]
                        self.assertTrue(list(function_faults(where, real, left)), f"{where}: {one.arg}")
                        dropped += 1
        self.assertGreater(dropped, 200)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Real JSON Schemas with instances (MaskBench: github.com/guidance-ai/jsonschemabench, folder maskbench/data), for
bench_grammar_schemas, and the same measured with llguidance and xgrammar.

    maskbench.py cases DATA TOKENIZER CASES VOCABULARY.gguf    makes both files
    maskbench.py llguidance|xgrammar CASES VOCABULARY.gguf [EVERY]

TOKENIZER is a file of tiktoken's form with Llama 3's ranks (PyPI: llama-models has it). The first command needs
tiktoken, the second the package that it names, and llguidance tiktoken, too. EVERY: only each so-many-th schema. An
engine that takes more than LIMIT_S for a schema is ended there, and the schema counts as refused.

Times are microseconds of processor time of one thread. A schema's time is until its first mask can be asked for; a
mask's is the mask and accepting the token, through the engine's Python interface (calls of some 1 us)."""
import base64
import glob
import json
import os
import struct
import subprocess
import sys
import time

LIMIT_S = 20
SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


# ---- The files ----

def read_ranks(path):
    with open(path, "rb") as file:
        pairs = [line.split() for line in file.read().splitlines()]
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def byte_letters():
    """The letters by which GPT-2's vocabularies write bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_vocabulary(ranks, path):
    letters = byte_letters()
    tokens = [None] * len(ranks)
    for token, rank in ranks.items():
        tokens[rank] = "".join(letters[b] for b in token)
    kinds = [1] * len(tokens) + [3] * len(SPECIALS)
    names = tokens + SPECIALS
    entries = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
               text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("gpt2"),
               text("tokenizer.ggml.pre") + struct.pack("<I", 8) + text("llama-bpe"),
               text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, len(names)) + b"".join(map(text, names)),
               text("tokenizer.ggml.token_type") + struct.pack(f"<IIQ{len(kinds)}i", 9, 5, len(kinds), *kinds),
               text("tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, 0),
               text("tokenizer.ggml.bos_token_id") + struct.pack("<II", 4, len(tokens)),
               text("tokenizer.ggml.eos_token_id") + struct.pack("<II", 4, len(tokens) + 1)]
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))


def encoding_of(ranks):
    import tiktoken

    specials = {name: len(ranks) + i for i, name in enumerate(SPECIALS)}
    return tiktoken.Encoding("llama3", pat_str=WORDS, mergeable_ranks=ranks, special_tokens=specials)


def write_cases(data, ranks, path):
    encoding = encoding_of(ranks)
    schemas = instances = 0
    with open(path, "w") as out:
        for name in sorted(glob.glob(os.path.join(data, "*.json"))):
            with open(name) as file:
                case = json.load(file)
            out.write(f"S {os.path.basename(name)[:-5]}\n{json.dumps(case['schema'])}\n")
            schemas += 1
            for test in case.get("tests", []):
                try:
                    ids = encoding.encode(json.dumps(test["data"], ensure_ascii=False), disallowed_special=())
                except UnicodeEncodeError:  # half of a pair of surrogates: no text
                    continue
                out.write(f"T {int(test['valid'])} {' '.join(map(str, ids))}\n")
                instances += 1
    print(schemas, "schemas,", instances, "instances")


def read_vocabulary(path):
    """Bytes of each token, in order, of a file of write_vocabulary."""
    bytes_of = {letter: b for b, letter in byte_letters().items()}
    with open(path, "rb") as file:
        data = file.read()
    at = data.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 8
    count, = struct.unpack_from("<Q", data, at)
    at += 8
    tokens = []
    for _ in range(count):
        size, = struct.unpack_from("<Q", data, at)
        tokens.append(data[at + 8:at + 8 + size].decode())
        at += 8 + size
    return [bytes(bytes_of[c] for c in t) if t not in SPECIALS else t.encode() for t in tokens]


def read_cases(path, every):
    """name, schema, [(valid, tokens)]"""
    cases = []
    with open(path) as file:
        for line in file:
            if line.startswith("S "):
                cases.append((line[2:].strip(), next(file).strip(), []))
            else:
                valid, *ids = line[2:].split()
                cases[-1][2].append((valid == "1", [int(i) for i in ids]))
    return cases[::every]


# ---- The engines ----

class Llguidance:
    def __init__(self, vocabulary):
        import llguidance
        import llguidance.numpy

        encoding = encoding_of({token: i for i, token in enumerate(vocabulary[:-len(SPECIALS)])})

        class Tokenizer:
            bos_token_id, eos_token_id = len(vocabulary) - 3, len(vocabulary) - 2
            tokens = vocabulary
            special_token_ids = list(range(len(vocabulary) - 3, len(vocabulary)))

            def __call__(self, text):
                return encoding.encode(text if isinstance(text, str) else text.decode(), disallowed_special=())

        self.library, self.size = llguidance, len(vocabulary)
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer()))
        self.mask = llguidance.numpy.allocate_token_bitmask(1, len(vocabulary))
        self.fill = llguidance.numpy.fill_next_token_bitmask

    def ready(self, schema):
        """llguidance's own defaults: white space as it may stand in JSON, items of oneOf apart or refused."""
        compiler = self.library.JsonCompiler(separators=None, whitespace_flexible=True)
        self.matcher = self.library.LLMatcher(self.tokenizer, compiler.compile(schema))
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())

    def begin(self):
        self.matcher.reset()

    def step(self, token):
        self.fill(self.matcher, self.mask)
        return bool(self.mask[0, token // 32] >> token % 32 & 1) and self.matcher.consume_token(token)

    def can_end(self):
        return self.matcher.is_accepting()


class Xgrammar:
    def __init__(self, vocabulary):
        import xgrammar

        self.library = xgrammar
        info = xgrammar.TokenizerInfo(vocabulary, xgrammar.VocabType.RAW, stop_token_ids=[len(vocabulary) - 2])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, len(vocabulary))
        self.words = self.mask.numpy()
        self.end = len(vocabulary) - 2

    def ready(self, schema):
        """strict_mode closes objects that do not say, which the standard does not."""
        self.matcher = self.library.GrammarMatcher(self.compiler.compile_json_schema(schema, strict_mode=False))

    def begin(self):
        self.matcher.reset()

    def step(self, token):
        self.matcher.fill_next_token_bitmask(self.mask)
        return bool(self.words[0, token // 32] >> token % 32 & 1) and self.matcher.accept_token(token)

    def can_end(self):
        self.matcher.fill_next_token_bitmask(self.mask)
        return bool(self.words[0, self.end // 32] >> self.end % 32 & 1)


ENGINES = {"llguidance": Llguidance, "xgrammar": Xgrammar}


def clock():
    return time.process_time_ns() / 1000


def run_case(engine, schema, instances):
    """[ready, refused or not, verdicts as [valid, accepted], times of masks]"""
    began = clock()
    try:
        engine.ready(schema)
    except Exception as error:  # whatever the engine throws, it has refused
        return [clock() - began, str(error)[:200], [], []]
    ready, verdicts, masks = clock() - began, [], []
    for valid, ids in instances:
        engine.begin()
        accepted = True
        for token in ids:
            began = clock()
            accepted = engine.step(token)
            masks.append(round(clock() - began, 2))
            if not accepted:
                break
        verdicts.append([valid, accepted and engine.can_end()])
    return [ready, "", verdicts, masks]


def work(name, cases_path, vocabulary_path, every, first):
    """A process of its own: a line for each case, from `first` on."""
    engine = ENGINES[name](read_vocabulary(vocabulary_path))
    cases = read_cases(cases_path, every)
    print("ready", flush=True)
    for _, schema, instances in cases[first:]:
        print(json.dumps(run_case(engine, schema, instances)), flush=True)


def results_of(name, cases_path, vocabulary_path, every):
    n, results = len(read_cases(cases_path, every)), []
    while len(results) < n:
        worker = subprocess.Popen([sys.executable, __file__, "work", name, cases_path, vocabulary_path, str(every),
                                   str(len(results))], stdout=subprocess.PIPE)
        os.set_blocking(worker.stdout.fileno(), False)
        buffer, last, begun = b"", time.monotonic(), False
        while len(results) < n:
            buffer += worker.stdout.read() or b""
            lines = buffer.split(b"\n")
            buffer = lines.pop()
            for line in lines:
                last = time.monotonic()
                if begun:
                    results.append(json.loads(line))
                begun = True
            if worker.poll() is not None and not lines or begun and time.monotonic() - last > LIMIT_S:
                results.append([LIMIT_S * 1e6, "ended by the limit, or by itself", [], []])
                break
            time.sleep(0.05)
        worker.kill()
        worker.wait()
    return results


def report(name, times):
    times = sorted(times)
    if times:
        shares = [times[int(s * (len(times) - 1))] for s in (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1)]
        print(f"{name:10} {len(times):9}" + "".join(f" {t:9.1f}" for t in [sum(times) / len(times), *shares]))


def measure(name, cases_path, vocabulary_path, every):
    results = results_of(name, cases_path, vocabulary_path, every)
    verdicts = [tuple(v) for r in results for v in r[2]]
    print("us                 n      mean       p50       p75       p90       p95       p99     p99.9   longest")
    report("ready", [r[0] for r in results if not r[1]])
    report("refused", [r[0] for r in results if r[1]])
    report("mask", [t for r in results for t in r[3]])
    for valid, word in ((True, "valid"), (False, "invalid")):
        print(f"{word}: {verdicts.count((valid, True))} accepted, {verdicts.count((valid, False))} rejected")


def main():
    command, *args = sys.argv[1:] or ["help"]
    if command == "cases" and len(args) == 4:
        ranks = read_ranks(args[1])
        write_vocabulary(ranks, args[3])
        write_cases(args[0], ranks, args[2])
    elif command in ENGINES and len(args) in (2, 3):
        measure(command, args[0], args[1], int(args[2]) if len(args) == 3 else 1)
    elif command == "work" and len(args) == 5:
        work(args[0], args[1], args[2], int(args[3]), int(args[4]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()

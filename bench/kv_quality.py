"""What the KV formats cost in quality, on one model: a table in Markdown.

    kv_quality.py RUNNEL MODEL TEXT [--context N] [--pieces N] [--needles N] [--types f32,f16,f16+128,...]

A type with +N is one with --chunk-mean N; its bytes are those that the last position looks at. Against keys and values in f32, the same weights:

    perplexity   `runnel perplexity`, windows as long as the context
    divergence   mean Kullback-Leibler divergence of the next token's distribution, in nats, over whole contexts of the text;
                 late: over the last quarter of each
    same token   how often both have the same likeliest token
    needle       stories fill a context; the last one goes up to "In the end Paul gave the", and what Paul hid some 70 tokens
                 before comes next: how often its first token is the likeliest, and its mean log-probability.
                 `without` is the same with the beginning of that story left out: what can be had by guessing
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

TYPES = "f32,f16,bf16,fp8,q8,q4,q3"
STORY = re.compile(r"(.*?)(In the end \w+ gave the)( \w+)")


def call(args):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{' '.join(args)}: {done.stderr.decode()}")
    return done.stdout.decode()


def kv(kv_type):
    """Of "q8": --kv-type; of "q8+128": that and --chunk-mean."""
    name, _, window = kv_type.partition("+")
    return ["--kv-type", name] + (["--chunk-mean", window] if window else [])


class Model:
    def __init__(self, runnel, path, folder, context):
        self.runnel, self.path, self.file = runnel, path, os.path.join(folder, "logits")
        self.context = min(context, json.loads(call([runnel, "info", path, "--json"]))["trained_tokens"])

    def perplexity(self, text, kv_type):
        out = call([self.runnel, "perplexity", self.path, text, "--ctx", str(self.context), *kv(kv_type),
                    "--json", "-q"])
        return json.loads(out)["perplexity"]

    def bytes_per_token(self, kv_type):
        name, _, window = kv_type.partition("+")
        out = call([self.runnel, "info", self.path, "--json", "--kv-type", name])
        each = json.loads(out)["memory"]["kv_bytes_per_token"]
        behind = max(0, (self.context - 1 - int(window)) // 64) if window else 0
        return each if behind < 2 else round(each * (self.context - 63 * (behind - 1)) / self.context)

    def ids(self, text):
        with open(self.file + ".text", "w") as file:
            file.write(text)
        return [int(i) for i in
                call([self.runnel, "tokenize", self.path, "-f", self.file + ".text", "--ids", "-q"]).split()]

    def logits(self, ids, kv_type):
        """[positions, vocabulary] log-probabilities."""
        call([self.runnel, "logits", self.path, "--tokens", ",".join(map(str, ids)), "-o", self.file, *kv(kv_type), "-q"])
        with open(self.file, "rb") as file:
            n, vocab = np.frombuffer(file.read(8), "<u4")
            file.read(4 * int(n))
            x = np.frombuffer(file.read(), "<f4").reshape(n, vocab).astype(np.float64)
        x = x - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def divergences(model, contexts, kv_type, base):
    """Of each position, [contexts, positions], and where the likeliest tokens agree."""
    kl, same = [], []
    for ids, wanted in zip(contexts, base):
        own = model.logits(ids, kv_type)
        kl.append((np.exp(wanted) * (wanted - own)).sum(axis=1))
        same.append(wanted.argmax(axis=1) == own.argmax(axis=1))
    return np.array(kl), np.array(same)


def needles(model, text, n_tokens, most):
    """Contexts that end with the needle, those without it, and where the answer is."""
    stories = [story for story in text.split("\n") if story]
    room = 0.93 * len(text) / n_tokens * model.context  # letters; no two stories are equally long in tokens
    cases = []
    for i, story in enumerate(stories):
        match = STORY.match(story)
        if match is None or match[3] not in match[1] or len(cases) == most:
            continue
        others = [j for j in range(len(stories)) if j != i]
        random.Random(i).shuffle(others)
        end = match[1] + match[2]
        before = ""
        for j in others:
            if len(before) + len(stories[j]) + len(end) < room:
                before += stories[j] + "\n"
        pair = []
        for question in (end, match[2]):
            at = len(model.ids(before + question))
            ids = model.ids(before + question + match[3])
            assert len(ids) <= model.context
            pair.append((ids[:at], ids[at]))
        cases.append(pair)
    return cases


def needle_scores(model, cases, kv_type, which):
    hits, logs = [], []
    for case in cases:
        ids, answer = case[which]
        last = model.logits(ids, kv_type)[-1]
        hits.append(last.argmax() == answer)
        logs.append(last[answer])
    return 100 * np.mean(hits), np.mean(logs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runnel")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--pieces", type=int, default=8)
    parser.add_argument("--needles", type=int, default=32)
    parser.add_argument("--types", default=TYPES)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Model(args.runnel, args.model, folder, args.context)
        with open(args.text) as file:
            stories = file.read()
        text, length = model.ids(stories), model.context
        contexts = [text[s:s + length] for s in np.linspace(0, len(text) - length, args.pieces).astype(int)]
        base = [model.logits(ids, "f32") for ids in contexts]
        cases = needles(model, stories, len(text), args.needles)
        hits, logs = needle_scores(model, cases, "f32", 1)
        print(f"{args.model}: {args.pieces} contexts of {length}; {len(cases)} needles,",
              f"without them {hits:.1f} %, {logs:.3f}\n")
        print("| format | bytes a token | perplexity | beside f32 | divergence | late | same token | needle found | "
              "log-probability |\n|---|---|---|---|---|---|---|---|---|")
        plain = model.perplexity(args.text, "f32")
        for kv_type in args.types.split(","):
            own = model.perplexity(args.text, kv_type)
            kl, same = divergences(model, contexts, kv_type, base)
            hits, logs = needle_scores(model, cases, kv_type, 0)
            print(f"| {kv_type} | {model.bytes_per_token(kv_type)} | {own:.4f} | {100 * (own / plain - 1):+.2f} % | "
                  f"{kl.mean():.6f} | {kl[:, -length // 4:].mean():.6f} | {100 * same.mean():.1f} % | {hits:.1f} % | "
                  f"{logs:.3f} |", flush=True)


main()

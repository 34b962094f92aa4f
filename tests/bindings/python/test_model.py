"""What else a model does: tokens, chats, sessions, embeddings, grammars, drafts, choices of the host's; and files."""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import threading

import pytest
import runnel
import shared
from conftest import MODEL

PROMPT = "Once upon a time"
#: a template in ChatML's form, for a model that has none
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


async def test_tokens_and_back(model):
    for text in (PROMPT, "Ærøskøbing 東京 🙂", ""):
        tokens = model.tokenize(text)
        assert tokens.format == "i" and model.detokenize(tokens).decode() == text
    with_bos = model.tokenize(PROMPT, bos=True)
    assert with_bos[0] == model.info().bos and list(with_bos[1:]) == list(model.tokenize(PROMPT))
    assert model.detokenize([model.info().eos]) == b"" != model.detokenize([model.info().eos], special=True)
    assert str(await model.generate(tokens=with_bos, max_tokens=10)) == str(await model.generate(PROMPT, max_tokens=10))


def test_the_text_of_a_token_has_its_space(blocking_model):
    """Of a vocabulary that puts a space before a text's first word, too, and of one that puts none."""
    tokens = blocking_model.tokenize("a b")
    assert b"".join(map(blocking_model.token_text, tokens)) == blocking_model.detokenize(tokens) == b"a b"
    found = shared.files("models/stories260K.gguf")
    if not found:
        pytest.skip("no vocabulary of SentencePiece")
    with runnel.blocking.Engine(compute_threads=1) as engine:
        model = engine.load_model(found[0], vocab_only=True)
        tokens = model.tokenize("a b")
        assert [model.token_text(token) for token in tokens] == [b" a", b" b"]
        assert model.detokenize(tokens) == b"a b"
        assert model.token_text(1) == b"" != model.token_text(1, special=True) == model.detokenize([1], special=True)
        assert model.token_text(0xE9 + 3) == b"\xe9"  # half of a character


async def test_chats(model):
    messages = [{"role": "user", "content": "Hello"}]
    text = model.apply_template(messages, template_text=TEMPLATE)
    assert text == "<user>Hello</user><assistant>"
    tokens = model.tokenize_chat(messages, template_text=TEMPLATE)
    whole = await model.generate(messages=messages, template_text=TEMPLATE, max_tokens=12, raw_answer=True)
    assert whole.usage.prompt_tokens == len(tokens)
    assert str(await model.generate(tokens=tokens, max_tokens=12)) == whole.text
    with pytest.raises(runnel.InvalidError):
        model.apply_template(messages, template_text="{{ raise_exception('no') }}")
    assert runnel.files.render_template("{{ a }}-{{ b }}", {"a": 1, "b": "x"}) == "1-x"
    assert runnel.TemplateTrait.SYSTEM in runnel.TemplateTrait(runnel.files.inspect_template(TEMPLATE).knows)


SLOW_TEMPLATE = "{% for i in range(1000) %}{% for j in range(1000) %}{% set x = i * j %}{% endfor %}{% endfor %}a"


@pytest.mark.parametrize("way", ["inspect_template", "file"])
def test_what_a_template_does_is_found_out_without_the_gil(way, tmp_path, model_path):
    """Nothing else lets the other thread run: the interpreter would switch in a day."""
    begun, ran, before = threading.Event(), [], sys.getswitchinterval()
    whole = pathlib.Path(model_path).read_bytes()
    own = re.search(rb"tokenizer[.]chat_template.{12}({%.*?{% endif %})", whole, re.S).group(1)
    slow = tmp_path / "slow.gguf"
    slow.write_bytes(whole.replace(own, SLOW_TEMPLATE.encode().ljust(len(own))))

    def other():
        begun.wait()
        ran.append(True)

    with runnel.files.File(slow) as file:
        call = {"inspect_template": lambda: runnel.files.inspect_template(SLOW_TEMPLATE), "file": file.templates}[way]
        thread = threading.Thread(target=other)
        thread.start()
        sys.setswitchinterval(86400)
        try:
            begun.set()
            for _ in range(50):  # where the machine is busy once is not enough
                if not ran:
                    call()
            assert ran
        finally:
            sys.setswitchinterval(before)
            thread.join()


async def test_tool_calls(model):
    tools = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {
        "type": "object", "properties": {"where": {"enum": ["up", "down"]}}, "required": ["where"]}}}]
    template = ("{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
                "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
                "\"arguments\": {{ c.function.arguments }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
                "<|im_start|>assistant\n")
    result = await model.generate(messages=[{"role": "user", "content": "Look."}], tools=tools, template_text=template,
                                  tool_choice="required", single_call=True, max_tokens=200)
    assert [call.name for call in result.tool_calls] == ["look"]
    assert json.loads(result.tool_calls[0].arguments)["where"] in ("up", "down")


async def test_a_session_goes_on(model):
    with model.session() as session:
        first = await session.generate(PROMPT, max_tokens=10)
        copy = session.fork()
        second = await session.generate(" and", max_tokens=10)
        whole = await model.generate(PROMPT + first.text + " and", max_tokens=10)
        assert second.text == whole.text and second.usage.cached_tokens > 0
        assert str(await copy.generate(" and", max_tokens=10)) == second.text
        copy.close()
        copy.close()
    with pytest.raises(runnel.ClosedError):
        await session.generate("x")
    with pytest.raises(runnel.ClosedError, match="session"):
        session.fork()
    with pytest.raises(runnel.ClosedError, match="session"):
        await session.save("nowhere")


async def test_a_session_in_a_file(model, tmp_path):
    path = tmp_path / "talk.session"
    with model.session() as session:
        await session.generate(PROMPT, max_tokens=10)
        saved = await session.save(path, note=b"\0mine")
        again = await model.load_session(path)
        assert saved.usage.prompt_tokens > 10 and runnel.files.read_note(path) == b"\0mine"
        assert str(await again.generate(" so", max_tokens=8)) == str(await session.generate(" so", max_tokens=8))
    path.write_bytes(b"nothing")
    with pytest.raises(runnel.FormatError):
        await model.load_session(path)


async def test_a_session_whose_load_is_cancelled_is_gone(engine, model, tmp_path, monkeypatch):
    """Also where it has been loaded already, and its task has not gone on yet."""
    path, result = tmp_path / "talk.session", runnel.Stream.result
    with model.session() as session:
        await session.generate(PROMPT, max_tokens=10)
        await session.save(path)

    async def cancelled(stream):
        await result(stream)
        raise asyncio.CancelledError

    monkeypatch.setattr(runnel.Stream, "result", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await model.load_session(path)
    assert engine.stats().sessions == 0


def test_a_session_whose_load_is_interrupted_is_gone(blocking_model, tmp_path, monkeypatch):
    path, result = tmp_path / "talk.session", runnel.blocking.Stream.result
    with blocking_model.session() as session:
        session.generate(PROMPT, max_tokens=10)
        session.save(path)

    def interrupted(stream):
        result(stream)
        raise KeyboardInterrupt

    monkeypatch.setattr(runnel.blocking.Stream, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        blocking_model.load_session(path)
    assert blocking_model._engine.stats().sessions == 0


def test_what_judges_a_request_wants_a_dict(blocking_model):
    for judge in (blocking_model._core.grammar_check, blocking_model._core.sampling_check):
        with pytest.raises(TypeError, match="a dict is wanted"):
            judge(["text"])


def test_a_long_text_is_tokenized_without_the_gil(blocking_model):
    """Another thread runs meanwhile, though nothing else makes this one give the GIL away."""
    turns, ends, interval = [], threading.Event(), sys.getswitchinterval()

    def run():
        while not ends.wait(0.0005):
            turns.append(None)

    thread = threading.Thread(target=run)
    thread.start()
    sys.setswitchinterval(1000)
    try:
        core, options, streams = blocking_model._core, {"text": "Once upon a time " * 50000}, []
        for _ in range(100):
            n = len(turns)
            try:
                streams.append(core.embed(options, None))
            except runnel.Error:
                pass
            if len(turns) > n:
                break
        assert len(turns) > n
    finally:
        sys.setswitchinterval(interval)
        ends.set()
        thread.join()


async def test_embeddings_and_logits_are_memory_for_numpy(model):
    numpy = pytest.importorskip("numpy")
    vector = await model.embed("a lamb")
    array = numpy.asarray(vector)
    assert array.dtype == numpy.float32 and array.shape == (model.info().embedding,)
    assert not array.flags.owndata and abs(float(numpy.linalg.norm(array)) - 1) < 1e-5
    assert list(await model.embed("a lamb", pooling="first")) != list(vector)
    assert len(await model.embed("a lamb", dimensions=16)) == 16

    tokens = model.tokenize(PROMPT, bos=True)
    result = await model.generate(tokens=tokens, max_tokens=1, want_logits=True, want_logprobs=True, n_top=5)
    rows = [numpy.asarray(row) for row in result.logits]
    assert len(rows) == len(tokens) and all(row.shape == (model.info().vocab_tokens,) for row in rows)
    last = rows[-1].astype(float)
    logprobs = last - numpy.log(numpy.exp(last - last.max()).sum()) - last.max()
    assert result.tokens[0] == int(last.argmax()) and abs(logprobs.max() - result.logprobs[0]) < 1e-4
    assert [token for token, _ in result.top[0]] == list(numpy.argsort(-logprobs, kind="stable")[:5])
    streamed = [piece async for piece in model.stream(tokens=tokens, max_tokens=0, want_logits=True)]
    assert [piece.position for piece in streamed] == list(range(len(tokens)))
    assert all((numpy.asarray(piece.logits) == row).all() for piece, row in zip(streamed, rows))


async def test_grammars(model):
    async def say(grammar, **options):
        return str(await model.generate(PROMPT, max_tokens=60, temperature=1, seed=3, grammar=grammar, **options))

    assert re.fullmatch("[a-f]{3,9}[.]", await say(runnel.Grammar.regex("[a-f]{3,9}[.]")))
    assert await say(runnel.Grammar.choices(["yes", "no"])) in ("yes", "no")
    assert re.fullmatch("(ab)+", await say(runnel.Grammar.gbnf('root ::= "ab" | "ab" root')))
    assert await say(runnel.Grammar.ebnf('start: "x" | "y"')) in ("x", "y")
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 5}}, "required": ["n"]}
    assert json.loads(await say(runnel.Grammar.json_schema(schema, closed=True)))["n"] in (3, 4, 5)
    model.check_grammar(grammar=runnel.Grammar.json_object())
    with pytest.raises(runnel.FormatError) as caught:
        model.check_grammar(grammar=runnel.Grammar.json_schema({"type": "nothing"}))
    assert caught.value.name == "FORMAT" and "type" in str(caught.value)
    model.check_sampling(order="top_k,min_p", temperature=1)
    with pytest.raises(runnel.InvalidError, match="best"):
        model.check_sampling(order="top_k,best")


async def test_stops_biases_and_drafts(model):
    plain = await model.generate(PROMPT, max_tokens=40)
    stopped = await model.generate(PROMPT, max_tokens=40, stops=[" harbour"])
    assert stopped.finish == "stop" and stopped.text == plain.text[: plain.text.index(" harbour")]
    assert (stopped.stop, stopped.stop_token, plain.stop, plain.stop_token) == (0, None, None, None)
    ended = await model.generate(PROMPT, max_tokens=40, stop_tokens=[5, plain.tokens[9]])
    assert (ended.stop, ended.stop_token) == (None, plain.tokens[9])
    token = model.tokenize(" harbour")[0]
    assert "harbour" not in str(await model.generate(PROMPT, max_tokens=12, biases={token: float("-inf")}))
    drafted = await model.generate(PROMPT, max_tokens=40, draft=runnel.Draft.NGRAM)
    assert drafted.text == plain.text


async def test_the_host_draws(engine, model):
    plain = await model.generate(PROMPT, max_tokens=12, temperature=0.8, seed=9)

    def best(candidates):
        return max(range(len(candidates.tokens)), key=candidates.logits.__getitem__)

    greedy = await model.generate(PROMPT, max_tokens=12)
    chosen = await model.generate(PROMPT, max_tokens=12, temperature=1, choose=best)
    assert chosen.text == greedy.text
    drawn = await model.generate(PROMPT, max_tokens=12, temperature=0.8, seed=9, choose=lambda candidates: None)
    assert drawn.text == plain.text

    def only_last(candidates):
        for place in range(len(candidates.logits) - 1):
            candidates.logits[place] = float("-inf")

    last = await model.generate(PROMPT, max_tokens=3, temperature=1, choose=only_last)
    assert list(last.tokens) == [model.info().vocab_tokens - 1] * 3 or last.finish == "stop"

    later = []

    def put_off(candidates):
        later.append(best(candidates))
        return runnel.CHOOSE_LATER

    stream = model.stream(PROMPT, max_tokens=4, temperature=1, choose=put_off)
    task = asyncio.ensure_future(stream.result())
    while not task.done():
        while later:
            stream.choose(later.pop())
        await asyncio.sleep(0.001)
    assert task.result().text == "".join([piece.text async for piece in model.stream(PROMPT, max_tokens=4)])


async def test_scores_are_the_programs(engine, program, model_path, tmp_path):
    if "RUNNEL_MAKE_RANKER" not in os.environ:
        pytest.skip("the maker of rankers is not built")
    ranker, query, text = str(tmp_path / "ranker.gguf"), "Who lived in the woods?", "A little fox."
    subprocess.run([os.environ["RUNNEL_MAKE_RANKER"], model_path, ranker, "template"], check=True)
    said = subprocess.run([program, "score", ranker, "--query", query, text], capture_output=True, text=True, check=True)
    model = await engine.load_model(ranker)
    assert model.scores().has_template and model.scores().n_scores >= 1
    score = (await model.score(text, query=query))[0]
    assert any(abs(float(number) - score) < 1e-5 for number in re.findall(r"-?[0-9.]+(?:e-?[0-9]+)?", said.stdout))
    assert (await model.score(text, query=query, form="logits"))[0] != score


async def test_what_the_file_lacks_is_said(model):
    with pytest.raises(runnel.UnsupportedError):
        await model.score("text", query="question", form="logits")
    with pytest.raises(runnel.UnsupportedError):
        model.scores()
    with pytest.raises(runnel.UnsupportedError):
        model.tokenize_infill("a", "b", files=[("name", "text"), (None, "text")])


async def test_what_an_engine_tells(engine, model):
    source = random.Random(2)
    await asyncio.gather(*(model.generate(PROMPT, max_tokens=source.randrange(1, 9)) for _ in range(10)))
    metrics = engine.metrics()
    assert metrics.length == 10 and metrics.request_s.count == 10 and sum(metrics.request_s.counts) == 10
    assert f"{engine.stats().tokens}" in engine.prometheus()
    async with model.stream(PROMPT, ignore_eos=2, context_keep=0, label="mine") as stream:
        await stream.__anext__()
        assert [(info.label, info.stream) for info in engine.streams()] == [("mine", stream.id)]
    with pytest.raises(runnel.NotFoundError):
        engine.expert_use(0)
    assert await asyncio.wait_for(engine.drain(), 60) is None
    with pytest.raises(runnel.ClosedError):
        model.stream(PROMPT)


async def test_lines_and_spans_come_on_the_loops_thread(model_path):
    import threading

    lines, spans = [], []
    async with runnel.Engine(compute_threads=1, log_level="debug",
                             on_log=lambda level, line: lines.append((level, line, threading.current_thread())),
                             on_trace=lambda span: spans.append((span, threading.current_thread()))) as engine:
        model = await engine.load_model(model_path)
        await model.generate(PROMPT, max_tokens=5, label="traced")
        await asyncio.sleep(0.05)
        await model.generate(PROMPT, max_tokens=1)
        assert {thread for _, thread in spans} | {thread for _, _, thread in lines} == {threading.main_thread()}
    assert any(runnel.TraceKind(span.kind) == runnel.TraceKind.STEP and span.rows for span, _ in spans)
    assert any(span.label == "traced" for span, _ in spans) and lines


def test_a_file_says_what_the_program_says(program):
    def said(*options):
        return subprocess.run([program, "info", MODEL, *options], capture_output=True, text=True, check=True).stdout

    with runnel.files.File(MODEL) as file:
        info = file.info()
        assert len(file.tensors()) == info.n_tensors and sum(t.bytes for t in file.tensors()) == info.weight_bytes
        assert all(tensor.name in said() for tensor in file.tensors()[:3]) and str(info.parameters) in said("--json")
        assert file.value("general.architecture") and len(file.value("tokenizer.ggml.tokens")) == 2048
        assert file.kv_bytes_per_token("f32") == 2 * file.kv_bytes_per_token()
        assert file.plan().strip() in said("--plan")
        assert file.recommended_sampling() == {} and isinstance(file.templates(), list)
    with pytest.raises(runnel.ClosedError):
        file.info()
    with pytest.raises(runnel.FormatError):
        runnel.files.File(__file__)
    assert dict(runnel.files.architectures())["llama"]


def test_cache_folders(tmp_path, model_path):
    folder = tmp_path / "cache"
    with runnel.blocking.Engine(compute_threads=1) as engine:
        model = engine.load_model(model_path, cache_dir=folder, kv_bytes=4 << 20)
        model.generate(PROMPT * 20, max_tokens=1, pin_prefix=1)
    entries, totals = runnel.files.cache_ls(folder)
    assert totals.records > 0 and [entry.records for entry in entries] == [totals.records]
    records = runnel.files.cache_inspect(folder, entries[0].fingerprint)
    assert len(records) == totals.records and len(records[0].tokens) == entries[0].block_tokens
    damage, verified = runnel.files.cache_verify(folder)
    assert damage == [] and verified.damaged == 0
    assert runnel.files.cache_purge(folder).records == totals.records
    assert runnel.files.cache_ls(folder)[1].records == 0
    with pytest.raises(runnel.IOError):
        runnel.files.cache_ls(tmp_path / "none")


def test_blocking_calls_tell_of_the_engine_while_they_read(model_path):
    lines, spans = [], []
    with runnel.blocking.Engine(compute_threads=1, log_level="debug", on_log=lambda level, line: lines.append(line),
                                on_trace=spans.append) as engine:
        model = engine.load_model(model_path)
        told = len(lines)
        for _ in range(50):
            list(model.stream(PROMPT, max_tokens=2))
        assert any("stream" in line and "done" in line for line in lines[told:]) and spans
        lines.clear()
        for _ in range(50):
            model.generate(PROMPT, max_tokens=2)
        assert any("stream" in line and "done" in line for line in lines)
        engine.close()
    assert not [line for line in lines if "found no room" in line]


async def test_a_training(engine, model_path, tmp_path):
    head = tmp_path / "head.gguf"
    training = engine.train(model_path, PROMPT * 200, head, steps=2, text_tokens=16, texts=1, unroll=1)
    states = [progress async for progress in training]
    assert states[-1].state == runnel.TrainingState.DONE and states[-1].step == 2 and head.exists()
    await training.aclose()
    training.close()
    training.cancel()
    with pytest.raises(runnel.ClosedError):
        [progress async for progress in training]
    with pytest.raises(runnel.InvalidError):
        engine.train(model_path, PROMPT, head, unroll=99)


async def test_a_training_that_is_closed_while_it_runs(engine, model_path, tmp_path):
    head = tmp_path / "head.gguf"
    async with engine.train(model_path, PROMPT * 200, head, steps=10**6, text_tokens=16, texts=1, unroll=1) as training:
        async for progress in training:
            assert progress.state == runnel.TrainingState.RUNNING
            reader = asyncio.ensure_future(anext_of(training))
            break
    assert not head.exists()
    with contextlib.suppress(runnel.ClosedError):  # it was inside, or came too late
        assert (await reader).state in (runnel.TrainingState.RUNNING, runnel.TrainingState.CANCELLED)


async def test_a_training_that_is_read_again_after_a_timeout(engine, model_path, tmp_path):
    async with engine.train(model_path, PROMPT * 200, tmp_path / "head.gguf", steps=10**6, text_tokens=16, texts=1,
                            unroll=1) as training:
        for _ in range(20):
            task = asyncio.create_task(anext_of(training))
            await asyncio.sleep(0.005)  # its thread is inside, or not yet, or no more
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert (await anext_of(training)).state == runnel.TrainingState.RUNNING


async def test_closing_a_training_that_is_cancelled_closes_it(engine, model_path, tmp_path):
    training = engine.train(model_path, PROMPT * 200, tmp_path / "head.gguf", steps=10**6, text_tokens=16, texts=1,
                            unroll=1)
    task = asyncio.create_task(training.aclose())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(runnel.ClosedError):
        next(iter(training))


def test_a_training_is_closed_within_a_time(model_path, tmp_path):
    options = dict(steps=10**6, text_tokens=64, texts=64, unroll=1)
    with runnel.blocking.Engine() as engine:
        training = engine.train(model_path, PROMPT * 200, tmp_path / "head.gguf", **options)
        with contextlib.suppress(runnel.TimeoutError):  # it may end at once, but does not block
            training.close(timeout=0)
        training.close(timeout=1000)
        training.close(timeout=0)
        with pytest.raises(runnel.ClosedError):
            next(iter(training))
        other = engine.train(model_path, PROMPT * 200, tmp_path / "head.gguf", **options)
        closer = threading.Thread(target=other.close)
        closer.start()
        other.close(timeout=1000)
        closer.join()
        engine.train(model_path, PROMPT * 200, tmp_path / "head.gguf", **options)
    assert not (tmp_path / "head.gguf").exists()


async def anext_of(training):
    async for progress in training:
        return progress


def test_closing_waits_for_a_function_of_the_program_no_longer_than_asked(model_path):
    engine = runnel.blocking.Engine(compute_threads=1)
    model = engine.load_model(model_path)
    inside, leave, texts = threading.Event(), threading.Event(), []

    def choose(candidates):
        inside.set()
        leave.wait()

    def read():
        try:
            texts.append(model.generate(PROMPT, max_tokens=1, temperature=1, choose=choose).text)
        finally:
            inside.set()

    reader = threading.Thread(target=read)
    reader.start()
    inside.wait()
    with pytest.raises(runnel.TimeoutError):
        engine.close(timeout=0.01)
    assert not engine.closed and engine.stats().streams == 1
    leave.set()
    reader.join()
    assert len(texts) == 1 and texts[0]
    engine.close(timeout=1000)
    assert engine.closed


def test_blocking_calls_say_the_same(blocking_model, tmp_path):
    model = blocking_model
    result = model.generate(PROMPT, max_tokens=20, want_logprobs=True)
    stream = model.stream(PROMPT, max_tokens=20)
    assert "".join(piece.text for piece in stream) == result.text == stream.result().text
    assert len(model.embed("a lamb")) == model.info().embedding
    with model.session() as session:
        session.generate(PROMPT, max_tokens=5)
        session.save(tmp_path / "s", note=b"n")
        again = model.load_session(tmp_path / "s")
        assert again.generate(" so", max_tokens=5).text == session.generate(" so", max_tokens=5).text
    with pytest.raises(runnel.ClosedError, match="session"):
        session.save(tmp_path / "s")
    with model.stream(PROMPT, ignore_eos=2, context_keep=0) as stream:
        next(stream)
        assert stream.cancel()
        assert stream.result().finish == "cancelled"


@pytest.mark.parametrize("shift", range(2))
async def test_errors_with_names_that_are_not_whole(engine, model, tmp_path, shift):
    """A sentence that a long name fills, or bytes that are not UTF-8, are an error of runnel's all the same."""
    name = "a" * shift + "é" * 600
    template = "{{ raise_exception('" + name + "') }}"
    broken = tmp_path / "broken.gguf"
    with open(MODEL, "rb") as file:
        broken.write_bytes(file.read().replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0lla\xc6a", 1))
    errors = []
    for path in ("a" * shift + "é" * 250, b"\xff.gguf", broken):
        with pytest.raises(runnel.Error) as caught:
            await engine.load_model(path)
        errors.append(str(caught.value))
    assert re.fullmatch(r"\.\.\.é{50,}: cannot be opened: .+", errors[0])
    assert errors[1].startswith(r"\xff.gguf: ")
    assert "/broken.gguf: " in errors[2] and r"lla\xc6a" in errors[2]
    for options in ({"order": name}, {"messages": [{"role": "user", "content": "x"}], "template_name": name},
                    {"messages": [{"role": "user", "content": "x"}], "template_text": template}):
        with pytest.raises(runnel.Error, match="é{14}"):
            await model.generate(None if "messages" in options else PROMPT, **options)
    with runnel.blocking.Engine(compute_threads=1) as blocking, pytest.raises(runnel.Error):
        blocking.load_model("é" * 250)


async def test_lines_that_are_not_whole(model_path, tmp_path):
    lines = []
    name = os.path.join(os.fsencode(tmp_path), b"caf\xe9.gguf")
    os.symlink(model_path, name)
    async with runnel.Engine(compute_threads=1, log_level="debug", on_log=lambda level, line: lines.append(line)) as engine:
        model = await engine.load_model(name)
        await model.generate(PROMPT, max_tokens=1)
        await asyncio.sleep(0.05)
        assert runnel.Engine.metrics(engine) and model.info()
    assert any(r"caf\xe9.gguf" in line for line in lines)


async def test_names_of_files_are_bytes(engine, model_path, tmp_path):
    """A name that is not UTF-8, as the file system gives it to a str: to be opened wherever a path is."""
    name = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(name)
    os.symlink(model_path, os.path.join(name, b"a.gguf"))
    path, = tmp_path.glob("*/*.gguf")
    with runnel.files.File(path) as file, runnel.files.File(str(path)) as other:
        assert file.info() == other.info()
    model = await engine.load_model(path, cache_dir=path.parent / "cache", draft_path=str(path), kv_bytes=4 << 20)
    session = model.session()
    await session.generate(PROMPT, max_tokens=2)
    await session.save(path.parent / "talk", note=b"mine")
    assert runnel.files.read_note(path.parent / "talk") == b"mine"
    await model.load_session(str(path.parent / "talk"))
    assert runnel.files.cache_ls(path.parent / "cache")[1].damaged == 0
    with pytest.raises(runnel.IOError):
        runnel.files.cache_verify(path.parent / "none")
    with runnel.blocking.Engine(compute_threads=1) as blocking:
        blocking.load_model(str(path))
        with blocking.train(path, PROMPT * 200, path.parent / "head", steps=1, text_tokens=16, texts=1, unroll=1) as training:
            for _ in training:
                pass
    assert (path.parent / "head").exists()

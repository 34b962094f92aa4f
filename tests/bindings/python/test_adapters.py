"""LoRA adapters: loaded with a model, named by requests, at once with those that name none."""

import asyncio
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import runnel
from conftest import MODEL, ROOT, run_python
from runnel.openai import AsyncOpenAI, OpenAI

PROMPT = "Once upon a time"
CHAT = {"messages": [{"role": "user", "content": "Hello"}],
        "template_text": "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"}


def make(path, seed, model=MODEL):
    program = ROOT / "tests/oracle/make_adapter.py"
    subprocess.run([sys.executable, program, model, path, "--seed", str(seed)], check=True)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two adapters, a str and an os.PathLike."""
    folder = tmp_path_factory.mktemp("adapters")
    return {"sql": str(make(folder / "sql.gguf", 1)), "law": make(folder / "law.gguf", 2)}


@pytest.fixture
async def adapted(engine, files):
    return await engine.load_model(MODEL, adapters=files)


@pytest.fixture
def blocking_adapted(files):
    with runnel.blocking.Engine(compute_threads=1) as engine:
        yield engine.load_model(MODEL, adapters=files)


async def test_answers_of_all_at_once(model, adapted):
    """Each as alone, and those without an adapter as those of a model that has none."""
    async def say(adapter):
        return list((await adapted.generate(PROMPT, max_tokens=30, adapter=adapter)).tokens)

    names = [None, "sql", "law", b"sql", None]
    together = await asyncio.gather(*map(say, names))
    assert together[0] == together[4] == list((await model.generate(PROMPT, max_tokens=30)).tokens)
    assert together[1] == together[3]
    assert together[0] != together[1] != together[2] != together[0]
    assert [await say(name) for name in names] == together


async def test_streams_chats_and_sessions(model, adapted):
    whole = {name: str(await adapted.generate(PROMPT, max_tokens=20, adapter=name)) for name in (None, "sql", "law")}
    streams = {name: adapted.stream(PROMPT, max_tokens=20, adapter=name) for name in whole}
    for name, stream in streams.items():
        assert "".join([piece.text async for piece in stream]) == whole[name]
    chats = [str(await adapted.generate(**CHAT, max_tokens=20, adapter=name)) for name in whole]
    assert len(set(chats)) == 3 and chats[0] == str(await model.generate(**CHAT, max_tokens=20))
    with adapted.session() as session:  # its second turn has another adapter, and reads the first again
        first = await session.generate(PROMPT, max_tokens=20, adapter="sql")
        second = await session.generate(" and", max_tokens=20, adapter="law")
    assert first.text == whole["sql"]
    assert second.text == str(await adapted.generate(PROMPT + first.text + " and", max_tokens=20, adapter="law"))


async def test_embeddings(model, adapted):
    vectors = [list(await adapted.embed(PROMPT, adapter=name)) for name in (None, "sql", "law")]
    assert vectors[0] == list(await model.embed(PROMPT))
    assert vectors[0] != vectors[1] != vectors[2] != vectors[0]


async def test_scores(engine, tmp_path):
    if "RUNNEL_MAKE_RANKER" not in os.environ:
        pytest.skip("the maker of rankers is not built")
    ranker = str(tmp_path / "ranker.gguf")
    subprocess.run([os.environ["RUNNEL_MAKE_RANKER"], MODEL, ranker, "template"], check=True)
    model = await engine.load_model(ranker, adapters={"sql": make(tmp_path / "sql.gguf", 1, ranker)})
    plain = await engine.load_model(ranker)

    async def score(model, **options):
        return list(await model.score("A little fox.", query="Who lived in the woods?", **options))

    assert await score(model) == await score(plain) != await score(model, adapter="sql")


def test_blocking_calls_say_the_same(blocking_model, blocking_adapted):
    model = blocking_adapted
    streams = [model.stream(PROMPT, max_tokens=20, adapter=name) for name in (None, "sql", "law")]
    texts = ["".join(piece.text for piece in stream) for stream in streams]
    assert len(set(texts)) == 3 and texts[0] == blocking_model.generate(PROMPT, max_tokens=20).text
    assert [model.generate(PROMPT, max_tokens=20, adapter=name).text for name in (None, "sql", "law")] == texts
    assert list(model.embed(PROMPT, adapter="sql")) != list(model.embed(PROMPT)) == list(blocking_model.embed(PROMPT))
    with model.session() as session:
        assert session.generate(PROMPT, max_tokens=20, adapter="law").text == texts[2]


def test_the_texts_are_the_programs(program, blocking_adapted, files, tmp_path):
    """Also of OpenAI's bodies with an adapter."""
    adapters = [part for name, path in files.items() for part in ("--lora", f"{name}={path}")]
    bodies = [{"prompt": PROMPT, "max_tokens": 20, "temperature": 0, **more}
              for more in ({}, {"adapter": "sql"}, {"adapter": "law"}, {"adapter": ""}, {"adapter": None})]
    lines, answers = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines.write_text("".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body})
                             + "\n" for i, body in enumerate(bodies)))
    subprocess.run([program, "batch", MODEL, lines, answers, "--quiet", "--fail-on", "any", *adapters], check=True)
    said = [json.loads(line)["response"]["body"]["choices"][0]["text"] for line in answers.read_text().splitlines()]
    create = OpenAI(blocking_adapted).completions.create
    assert said == [create(**body).choices[0].text for body in bodies]
    assert said[0] == said[3] == said[4] and len(set(said)) == 3
    assert said[1] == blocking_adapted.generate(PROMPT, max_tokens=20, adapter="sql").text


def test_the_list(blocking_model, files):
    engine = blocking_model._engine
    assert blocking_model.adapters == engine.load_model(MODEL, adapters={}).adapters == []
    assert engine.load_model(MODEL, adapters=None).adapters == []
    adapters = {"law": (files["law"], 0.5), "sql": files["sql"], "Ä": [files["sql"], -2]}
    model = engine.load_model(MODEL, adapters=adapters)
    assert [(one.name, one.path, one.scale) for one in model.adapters] == [
        ("law", str(files["law"]), 0.5), ("sql", files["sql"], 1.0), ("Ä", files["sql"], -2.0)]
    model.close()
    with pytest.raises(runnel.ClosedError):
        model.adapters
    assert runnel.MAX_ADAPTERS == 64 and runnel.ADAPTER_BYTES == 64


def test_scales(blocking_model, files):
    path = files["sql"]
    adapters = {"one": path, "same": (path, 1), "half": (path, 0.5), "other": (path, -1.0)}
    model = blocking_model._engine.load_model(MODEL, adapters=adapters)
    one, same, half, other = (list(model.embed(PROMPT, adapter=name)) for name in adapters)
    assert one == same and one != half != other != one


def test_a_name_of_a_file_that_is_not_utf8(blocking_model, files, tmp_path):
    os.symlink(files["sql"], os.path.join(os.fsencode(tmp_path), b"caf\xe9.gguf"))
    path, = tmp_path.glob("*.gguf")
    model = blocking_model._engine.load_model(MODEL, adapters={"sql": path})
    assert pathlib.Path(model.adapters[0].path) == path


async def test_names_that_the_model_has_not(model, adapted):
    for one in (model, adapted):
        for begin in (lambda: one.stream(PROMPT, adapter="sqll"), lambda: one.generate(PROMPT, adapter="sqll"),
                      lambda: one.embed(PROMPT, adapter="sqll"), lambda: one.generate(PROMPT, adapter="")):
            with pytest.raises(runnel.NotFoundError, match="adapter") as caught:
                await begin()
            assert isinstance(caught.value, LookupError) and caught.value.name == "NOT_FOUND"
    for adapter in (5, ["sql"], {"sql": 1}, True):
        for call in (adapted.generate, adapted.embed, adapted.score):
            with pytest.raises(TypeError, match="^adapter: "):
                await call(PROMPT, adapter=adapter)
    with pytest.raises(runnel.InvalidError, match="^adapter: "):
        adapted.stream(PROMPT, adapter="s\0l")


@pytest.mark.parametrize("adapters", [
    "sql.gguf", ["sql.gguf"], [("sql", "sql.gguf")], 5, {5: "sql.gguf"}, {None: "sql.gguf"}, {"sql": 5}, {"sql": None},
    {"sql": ()}, {"sql": ("sql.gguf",)}, {"sql": ("sql.gguf", 1, 2)}, {"sql": (0.5, "sql.gguf")},
    {"sql": ("sql.gguf", "half")}, {"sql": ("sql.gguf", None)}, {"sql": {"path": "sql.gguf"}}])
def test_what_is_no_mapping_of_names_and_paths(blocking_model, adapters):
    with pytest.raises(TypeError, match="^adapters: "):
        blocking_model._engine.load_model(MODEL, adapters=adapters)


def test_adapters_that_cannot_be_loaded(blocking_model, files, tmp_path):
    load, path = blocking_model._engine.load_model, files["sql"]
    for scale in (0, -0.0, 1e-60):
        with pytest.raises(runnel.InvalidError, match="^adapters: .* sql is 0"):
            load(MODEL, adapters={"sql": (path, scale)})
    for adapters, match in (({"sql": (path, float("nan"))}, "sql"), ({"sql": (path, 1e300)}, "sql"),
                            ({"": path}, "name"), ({"a" * 64: path}, "name"), ({"s\0l": path}, "adapters"),
                            ({"sql": "a\0b"}, "adapters"), ({str(i): path for i in range(65)}, "65")):
        with pytest.raises(runnel.InvalidError, match=match):
            load(MODEL, adapters=adapters)
    with pytest.raises(runnel.IOError, match="nothing.gguf"):
        load(MODEL, adapters={"sql": path, "law": tmp_path / "nothing.gguf"})
    with pytest.raises(runnel.Error):  # a model is no adapter
        load(MODEL, adapters={"sql": MODEL})
    with pytest.raises(TypeError, match="adapters"):  # no option of a request
        blocking_model.generate(PROMPT, adapters={"sql": path})
    assert blocking_model.generate(PROMPT, max_tokens=3).usage.completion_tokens == 3


def test_openais_objects(blocking_adapted):
    """An adapter is a model by its name; or an option as others of Model.stream, also in extra_body."""
    client, model = OpenAI(blocking_adapted), blocking_adapted
    plain = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    texts = {name: client.completions.create(**plain, adapter=name).choices[0].text for name in (None, "sql", "law")}
    assert len(set(texts.values())) == 3
    for name, text in texts.items():
        for more in ({"extra_body": {"adapter": name}}, {"model": name}, {"model": "law", "adapter": name or ""}):
            assert client.completions.create(**plain, **more).choices[0].text == text
        assert model.generate(PROMPT, max_tokens=20, adapter=name).text == text
        with client.completions.create(**plain, adapter=name, stream=True) as stream:
            assert "".join(chunk.choices[0].text for chunk in stream) == text
    chats = [client.chat.completions.create(**CHAT, max_tokens=20, temperature=0, adapter=name) for name in texts]
    assert len({chat.choices[0].message.content for chat in chats}) == 3
    vectors = [client.embeddings.create(input=PROMPT, adapter=name).data[0].embedding for name in texts]
    assert vectors[1] == list(model.embed(PROMPT, adapter="sql")) and vectors[0] != vectors[1] != vectors[2]
    assert client.embeddings.create(input=PROMPT, model="sql").data[0].embedding == vectors[1]
    assert client.completions.create(**plain, model="law").model == "law"
    with pytest.raises(runnel.NotFoundError, match="adapter"):
        client.completions.create(**plain, adapter="sqll")
    with pytest.raises(TypeError, match="^adapter: "):
        client.completions.create(**plain, adapter=5)
    assert client.completions.create(**plain, model="any").choices[0].text == texts[None]


def test_openais_objects_of_several_models(blocking_model, files):
    load = blocking_model._engine.load_model
    closed = load(MODEL, adapters=files)
    closed.close()
    models = {"closed": closed, "plain": blocking_model, "base": load(MODEL, adapters=files),
              "law": load(MODEL, adapters={"other": files["law"], "sql": files["law"]})}
    create = OpenAI(models).completions.create

    def say(name):
        answer = create(model=name, prompt=PROMPT, max_tokens=20, temperature=0)
        assert answer.model == name
        return answer.choices[0].text

    assert say("plain") == say("base") == say("law") and len({say("plain"), say("sql"), say("other")}) == 3
    assert say("sql") == models["base"].generate(PROMPT, max_tokens=20, adapter="sql").text
    with pytest.raises(runnel.NotFoundError, match="model 'sqll'"):
        say("sqll")


async def test_openais_objects_on_a_loop(adapted):
    client = AsyncOpenAI(adapted)
    plain = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    answers = await asyncio.gather(*(client.completions.create(**plain, adapter=name) for name in (None, "sql", "law")))
    assert len({answer.choices[0].text for answer in answers}) == 3


def test_the_example_of_the_page(files, tmp_path, monkeypatch):
    text = (ROOT / "bindings/python/README.md").read_text().split("**Adapters.**")[1]
    code = re.search("```python\n(.*?)```", text, re.DOTALL).group(1)
    for name, path in {"model": MODEL, **files}.items():
        os.symlink(path, tmp_path / f"{name}.gguf")
    monkeypatch.chdir(tmp_path)
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    said = re.fullmatch(r"\[\('sql', 1.0\), \('law', 0.5\)\]\nNone (.*)\nsql (.*)\nlaw (.*)\n", done.stdout, re.S)
    assert said and len(set(said.groups())) == 3, done.stdout

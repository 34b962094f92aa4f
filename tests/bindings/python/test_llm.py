"""The plugin of the program llm, with the real package."""

import json

import click.testing
import llm
import llm.cli
import llm.plugins
import pydantic
import pytest
import runnel.llm
from conftest import MODEL
from test_openai import TEMPLATE


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(pattern="^[A-Z][a-z]{1,8}$")
    old: bool


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The program with the plugin; `tiny` is one of its models."""
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    llm.plugins.load_plugins()
    if not llm.plugins.pm.is_registered(runnel.llm):
        llm.plugins.pm.register(runnel.llm)
        runnel.llm.register_commands(llm.cli.cli)

    def run(*arguments):
        done = click.testing.CliRunner().invoke(llm.cli.cli, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    run("runnel", "add", "tiny", MODEL)
    return run


def expected(blocking_model, text, **options):
    return blocking_model.generate(messages=[{"role": "user", "content": text}], **options).text


def test_the_program(run, blocking_model):
    text = expected(blocking_model, "Hello", temperature=0, max_tokens=12)
    options = ("-o", "temperature", "0", "-o", "max_tokens", "12")
    assert run("-m", "tiny", "Hello", *options) == text + "\n"
    assert run("-m", "tiny", "Hello", "--no-stream", *options) == text + "\n"
    assert "tiny" in run("models")
    vector = json.loads(run("embed", "-m", "tiny", "-c", "Hello"))
    assert vector == pytest.approx(list(blocking_model.embed("Hello")))
    run("runnel", "remove", "tiny")
    assert "tiny" not in run("models")


def test_prompts_without_a_text_and_many_texts(run, blocking_model):
    assert llm.get_model("tiny").prompt("", temperature=0, max_tokens=12).text() == expected(
        blocking_model, "", temperature=0, max_tokens=12)
    vectors = list(llm.get_embedding_model("tiny").embed_batch(["Hello"] * 1100))
    assert len(vectors) == 1100 and vectors[-1] == pytest.approx(list(blocking_model.embed("Hello")))


def test_a_conversation_and_its_usage(run, blocking_model):
    model = llm.get_model("tiny")
    talk = model.conversation()
    first = talk.prompt("Hello", temperature=0, max_tokens=12)
    first.text()
    second = talk.prompt("And you?", temperature=0, max_tokens=12)
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": first.text()},
                {"role": "user", "content": "And you?"}]
    result = blocking_model.generate(messages=messages, temperature=0, max_tokens=12)
    assert second.text() == result.text and second.input_tokens == result.usage.prompt_tokens
    assert second.output_tokens == result.usage.completion_tokens


@pytest.mark.parametrize("stream", [True, False])
def test_schemas_and_tools(run, stream):
    model = llm.get_model("tiny")
    Person.model_validate_json(model.prompt("Who?", schema=Person, seed=1, max_tokens=100, stream=stream).text())

    def look(where: bool):
        "Looks."

    # what enforces a call is not llm's to say: its tools are only offered
    response = model.prompt("Look.", tools=[look], seed=3, temperature=0, max_tokens=5, template_text=TEMPLATE,
                            stream=stream)
    response.text()
    assert response.input_tokens > 10 and response.tool_calls() == []


@pytest.mark.parametrize("stream", [True, False])
async def test_asynchronous(run, blocking_model, stream):
    response = llm.get_async_model("tiny").prompt("Hello", temperature=0, max_tokens=12, stream=stream)
    text = "".join([piece async for piece in response])
    assert text == expected(blocking_model, "Hello", temperature=0, max_tokens=12)


@pytest.mark.parametrize("whole", [True, False])
def test_calls_of_an_answer(blocking_model, whole):
    """As an answer or in chunks, its calls become llm's."""
    from test_openai import HELLO, TOOLS

    class Response:
        calls = []
        add_tool_call = calls.append

        @staticmethod
        def set_usage(input, output):
            assert input > 0 and output > 0

    answer = runnel.openai.OpenAI(blocking_model).chat.completions.create(
        messages=HELLO, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=200,
        template_text=TEMPLATE, stream=not whole)
    taker = runnel.llm._Taker(Response)
    assert [taker.take(part) for part in ([answer] if whole else answer)][-1] == ""
    taker.end()
    call = Response.calls.pop()
    assert call.name == "look" and call.arguments["where"] in ("up", "down") and call.tool_call_id

"""The chat model, with the real langchain-core."""

import json

import pydantic
import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from runnel.langchain import ChatRunnel
from test_openai import TEMPLATE


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(pattern="^[A-Z][a-z]{1,8}$")
    old: bool


def look(where: bool) -> str:
    """Looks."""


MESSAGES = [SystemMessage("Be short."), HumanMessage("Hello")]
PLAIN = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}]


@pytest.fixture
def chat(blocking_model):
    return ChatRunnel(model=blocking_model, temperature=0, max_tokens=12)


async def test_texts_and_usage(chat, blocking_model):
    result = blocking_model.generate(messages=PLAIN, temperature=0, max_tokens=12)
    usage = result.usage.prompt_tokens, result.usage.completion_tokens
    whole = chat.invoke(MESSAGES)
    pieces = list(chat.stream(MESSAGES))
    awaited = await chat.ainvoke(MESSAGES)
    streamed = [chunk async for chunk in chat.astream(MESSAGES)]
    for message in (whole, sum(pieces[1:], start=pieces[0]), awaited, sum(streamed[1:], start=streamed[0])):
        assert message.content == result.text
        assert (message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]) == usage
        assert message.response_metadata["finish_reason"] in ("stop", "length")
    assert len(streamed) > 3
    assert chat.invoke(MESSAGES, stop=[result.text[4:8]]).content == result.text[:4]


async def test_tools(chat):
    bound = chat.bind_tools([look], tool_choice="any", template_text=TEMPLATE, max_tokens=200,
                            parallel_tool_calls=False)
    answers = [bound.invoke("Look."), await bound.ainvoke("Look.")]
    streamed = list(bound.stream("Look."))
    answers.append(sum(streamed[1:], start=streamed[0]))
    for answer in answers:
        call, = answer.tool_calls
        assert call["name"] == "look" and isinstance(call["args"]["where"], bool) and call["id"]
    history = [HumanMessage("Look."), answers[0], ToolMessage("Nothing.", tool_call_id=answers[0].tool_calls[0]["id"])]
    assert chat.invoke(history, template_text=TEMPLATE).usage_metadata["input_tokens"] > 10


async def test_structured_output_in_a_chain(chat):
    prompt = ChatPromptTemplate.from_messages([("user", "Who is {name}?")])
    free = chat.model_copy(update={"max_tokens": 100})
    assert isinstance((prompt | free.with_structured_output(Person)).invoke({"name": "Ann"}), Person)
    parts = await (prompt | free.with_structured_output(Person.model_json_schema())).ainvoke({"name": "Ann"})
    Person.model_validate(parts)


async def test_structured_output_with_the_message(chat):
    whole = chat.model_copy(update={"max_tokens": 100}).with_structured_output(Person, include_raw=True)
    for said in (whole.invoke("Who?"), await whole.ainvoke("Who?")):
        assert said["parsed"] == Person.model_validate_json(said["raw"].content) and said["parsing_error"] is None
    for schema in (Person, Person.model_json_schema()):
        cut = chat.model_copy(update={"max_tokens": 3}).with_structured_output(schema, include_raw=True,
                                                                               method="json_schema")
        said = cut.invoke("Who?")
        assert said["raw"].content.lstrip().startswith("{") and said["raw"].usage_metadata["output_tokens"] == 3
        assert said["parsed"] is None and isinstance(said["parsing_error"], OutputParserException)


class Note(pydantic.BaseModel):
    tags: list[str]
    text: str = ""


async def assert_fails(chain, text, kind, match):
    """In each of the ways in which a chain is asked."""
    with pytest.raises(kind, match=match):
        chain.invoke(text)
    with pytest.raises(kind, match=match):
        await chain.ainvoke(text)
    with pytest.raises(kind, match=match):
        list(chain.stream(text))


@pytest.mark.parametrize("schema", [Note, {"title": "Note", "type": "object", "required": ["tags"], "properties": {
    "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1}}}])
async def test_structured_output_that_was_cut_off(chat, schema):
    """Some of its beginning would fit the schema, once repaired: it is not the answer."""
    cut = chat.model_copy(update={"max_tokens": 20})
    said = cut.with_structured_output(schema, include_raw=True).invoke("Who?")
    with pytest.raises(ValueError):
        json.loads(said["raw"].content)
    assert said["raw"].response_metadata["finish_reason"] == "length"
    assert said["parsed"] is None and isinstance(said["parsing_error"], OutputParserException)
    await assert_fails(cut.with_structured_output(schema), "Who?", OutputParserException, "no whole JSON text")


def test_structured_output_in_parts(chat):
    free = chat.model_copy(update={"max_tokens": 100})
    parts = list(free.with_structured_output(Person.model_json_schema()).stream("Who?"))
    assert len(parts) > 1 and Person.model_validate(parts[-1])


async def test_logprobs(chat):
    bound = chat.bind(logprobs=True, top_logprobs=2, max_tokens=5)
    streamed = list(bound.stream("Hello"))
    for message in (bound.invoke("Hello"), await bound.ainvoke("Hello"), sum(streamed[1:], start=streamed[0])):
        entries = message.response_metadata["logprobs"]["content"]
        assert len(entries) == 5 and "".join(entry["token"] for entry in entries) == message.content
        assert all(len(entry["top_logprobs"]) == 2 and entry["logprob"] <= 0 for entry in entries)
    assert "logprobs" not in chat.invoke("Hello").response_metadata


async def test_options_of_the_stream(chat):
    text = chat.invoke("Hello").content
    for include in (True, False):
        bound = chat.bind(stream_options={"include_usage": include})
        assert bound.invoke("Hello").content == text
        for parts in (list(bound.stream("Hello")), [part async for part in bound.astream("Hello")]):
            assert "".join(part.content for part in parts) == text
            assert any(part.usage_metadata for part in parts) == include
    assert chat.invoke("Hello", stream=True).content == text


async def test_several_answers_are_refused(chat):
    assert chat.bind(n=1).invoke("Hello").content == chat.invoke("Hello").content
    for bound in (chat.bind(n=2), chat.model_copy(update={"model_kwargs": {"n": 2}})):
        await assert_fails(bound, "Hello", ValueError, "^n: ")

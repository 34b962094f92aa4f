// A model as programs of the AI SDK ask for one (its provider interface, language models, version v2): doGenerate and
// doStream with text, reasoning, tools and JSON. The SDK's own functions take what `languageModel` returns.
//
//     import { streamText } from 'ai';
//     const { textStream } = streamText({ model: languageModel(model, 'tiny'), prompt: 'Once upon a time' });
//
//     node ai_provider.mjs [MODEL [PROMPT]]     without the SDK
import { pathToFileURL } from 'node:url';
import { Engine } from 'runnel';

const FINISHES = { stop: 'stop', length: 'length', cancelled: 'other' };

/** A message of theirs in OpenAI's form, which templates know; one of the role tool is as many as it has results. */
function messages({ role, content }) {
  if (role === 'system') return [{ role, content }];
  if (role === 'tool')
    return content.map(({ toolCallId, output }) => {
      const text = typeof output.value === 'string' ? output.value : JSON.stringify(output.value);
      return { role, tool_call_id: toolCallId, content: text };
    });
  const text = content.filter((part) => part.type === 'text').map((part) => part.text).join('\n');
  const calls = content
    .filter((part) => part.type === 'tool-call')
    .map((part) => ({ id: part.toolCallId, type: 'function', function: { name: part.toolName, arguments: part.input } }));
  if (content.some((part) => part.type === 'file')) throw new Error('this model reads text alone');
  return [{ role, content: text, ...(calls.length > 0 && { tool_calls: calls }) }];
}

/** Options of model.stream; what providerOptions.runnel has is added. */
function request(options) {
  const { maxOutputTokens, stopSequences, tools = [], toolChoice, responseFormat, seed } = options;
  const { temperature, topP, topK, presencePenalty, frequencyPenalty } = options;
  const functions = tools
    .filter((tool) => tool.type === 'function')
    .map(({ name, description, inputSchema }) => ({ type: 'function', function: { name, description, parameters: inputSchema } }));
  const offered = functions.length > 0 && toolChoice?.type !== 'none';
  const grammar = responseFormat?.type !== 'json' ? undefined
    : responseFormat.schema ? { schema: responseFormat.schema } : { jsonObject: true };
  return {
    messages: options.prompt.flatMap(messages),
    ...(offered && { tools: functions, toolChoice: toolChoice?.toolName ?? toolChoice?.type }),
    maxTokens: maxOutputTokens, stops: stopSequences, grammar, seed,
    temperature, topP, topK, presencePenalty, frequencyPenalty,
    signal: options.abortSignal,
    ...options.providerOptions?.runnel,
  };
}

function ending({ finish, toolCalls, usage }) {
  return {
    finishReason: toolCalls.length > 0 && finish === 'stop' ? 'tool-calls' : FINISHES[finish],
    usage: {
      inputTokens: usage.promptTokens, outputTokens: usage.completionTokens,
      totalTokens: usage.promptTokens + usage.completionTokens, cachedInputTokens: usage.cachedTokens,
    },
  };
}

function callPart(call, i) {
  return { type: 'tool-call', toolCallId: call.id ?? `call_${i}`, toolName: call.name, input: call.arguments };
}

/** Parts of a stream: runs of text or reasoning have a beginning and an end, calls come whole. */
async function* parts(stream) {
  let open, id = 0;
  yield { type: 'stream-start', warnings: [] };
  for await (const { type, text } of stream) {
    const kind = type === 'text' || type === 'reasoning' ? type : undefined;
    if (text === '' || kind === undefined) continue;
    if (open !== kind) {
      if (open !== undefined) yield { type: `${open}-end`, id: `${id++}` };
      yield { type: `${kind}-start`, id: `${id}` };
      open = kind;
    }
    yield { type: `${kind}-delta`, id: `${id}`, delta: text };
  }
  if (open !== undefined) yield { type: `${open}-end`, id: `${id}` };
  const result = await stream.result;
  yield* result.toolCalls.map(callPart);
  yield { type: 'finish', ...ending(result) };
}

export function languageModel(model, modelId) {
  return {
    specificationVersion: 'v2', provider: 'runnel', modelId, supportedUrls: {},
    async doGenerate(options) {
      const result = await model.generate(request(options));
      const content = ['reasoning', 'text'].filter((type) => result[type] !== '').map((type) => ({ type, text: result[type] }));
      return { content: [...content, ...result.toolCalls.map(callPart)], warnings: [], ...ending(result) };
    },
    async doStream(options) {
      const stream = model.stream(request(options));
      const all = parts(stream);
      const pull = async (controller) => {
        const { value, done } = await all.next();
        if (done) controller.close();
        else controller.enqueue(value);
      };
      // not ReadableStream.from: it cancels nothing where the loop inside `parts` has not begun
      return { stream: new ReadableStream({ pull, cancel: () => stream.cancel() }, { highWaterMark: 0 }) };
    },
  };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [path = 'examples/models/runnel-tiny-Q8_0.gguf', text = 'Hello'] = process.argv.slice(2);
  const engine = await Engine.open();
  const tiny = languageModel(await engine.loadModel(path), 'tiny');
  const prompt = [{ role: 'user', content: [{ type: 'text', text }] }];
  const { stream } = await tiny.doStream({ prompt, maxOutputTokens: 60 });
  for await (const part of stream) {
    if (part.type === 'text-delta') process.stdout.write(part.delta);
    if (part.type === 'finish') console.log(`\n${part.finishReason}, ${part.usage.outputTokens} tokens`);
  }
  await engine.close();
}

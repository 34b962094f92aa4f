// Server-sent events: POST /stream {"prompt": "...", "maxTokens": 100} answers with an event for each piece. A client
// that goes away cancels its stream; one that reads slowly pauses its own stream alone.
//
//     node sse_server.mjs [MODEL [PORT]]
//     curl -N localhost:8080/stream -d '{"prompt": "Once upon a time", "maxTokens": 50}'
import { createServer } from 'node:http';
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { Engine } from 'runnel';

const GRACE_MS = 30_000; // for the streams that run when the server is told to end
const [path = 'examples/models/runnel-tiny-Q8_0.gguf', port = '8080'] = process.argv.slice(2);
const engine = await Engine.open();
const model = await engine.loadModel(path);

async function body(request) {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) {
    text += chunk;
    if (text.length > 1 << 20) throw new Error('the request is too long');
  }
  const { prompt, messages, maxTokens = 100, temperature, seed } = JSON.parse(text);
  return { prompt, messages, maxTokens, temperature, seed };
}

async function answer(request, response) {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const stream = model.stream({ ...(await body(request)), signal: gone.signal, onAbort: 'return' });
  response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
  for await (const { type, text } of stream)
    if (!response.write(`data: ${JSON.stringify({ type, text })}\n\n`) && !gone.signal.aborted)
      await once(response, 'drain', { signal: gone.signal }).catch(() => {});
  const { finish, usage } = await stream.result;
  response.end(`event: done\ndata: ${JSON.stringify({ finish, usage })}\n\n`);
}

function refuse(response, error) {
  if (response.headersSent) return response.destroy();
  const isTheirs = [undefined, 'INVALID', 'CONTEXT'].includes(error.code);
  const status = error.code === 'BUSY' ? 503 : isTheirs ? 400 : 500;
  if (error.retryMs) response.setHeader('Retry-After', Math.ceil(error.retryMs / 1000));
  response.writeHead(status, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify({ error: error.message }));
}

const server = createServer((request, response) => {
  if (request.method !== 'POST' || request.url !== '/stream') return response.writeHead(404).end();
  answer(request, response).catch((error) => refuse(response, error));
});
server.listen(Number(port), () => console.log(`listening on ${server.address().port}`));

process.once('SIGTERM', async () => {
  server.close();
  await Promise.race([engine.drain(), setTimeout(GRACE_MS, null, { ref: false })]);
  await engine.close(); // cancels what still runs
  server.closeAllConnections?.();
});

// Requests to the server that this page came from.
import { getKey } from "./store.js";

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers() {
  const key = getKey();
  return { "Content-Type": "application/json", ...(key ? { Authorization: "Bearer " + key } : {}) };
}

async function check(answer) {
  if (answer.ok)
    return answer;
  let message = "the server answers with status " + answer.status;
  const text = await answer.text();
  try {
    message = JSON.parse(text).error.message ?? message;
  } catch {
    message = text.trim().slice(0, 300) || message;
  }
  throw new Refusal(answer.status, message);
}

export async function get(path) {
  return check(await fetch(path, { headers: headers(), cache: "no-store" }));
}

export async function models() {
  const list = await (await get("v1/models")).json();
  return list.data.map((model) => model.id);
}

// Lines of a stream of bytes.
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done)
      return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}

// The chunks of an answer as they come. Throws a Refusal, or what fetch throws when `signal` or the connection ends it.
export async function* chat(body, signal) {
  const answer = await check(await fetch("v1/chat/completions", {
    method: "POST", headers: headers(), signal,
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
  }));
  for await (const line of lines(answer.body)) {
    if (line === "data: [DONE]")
      return;
    if (!line.startsWith("data: "))
      continue;
    const chunk = JSON.parse(line.slice(6));
    if (chunk.error)
      throw new Refusal(0, chunk.error.message ?? "the answer failed");
    yield chunk;
  }
  throw new Refusal(0, "the connection ended before the answer did");
}

// The conversation that is shown, and the answer that is being written. An answer goes on while another conversation
// is looked at; one is written at a time.
import { chat, Refusal } from "./api.js";
import { byId, copyFrom, element } from "./dom.js";
import { render } from "./markdown.js";
import { newConversation, saveConversation } from "./store.js";

let current = newConversation();
let running = null; // {conversation, message, node, stop, first, began, drawn}
let options = null; // of main.js: body(), changed(), refused(error)

export function open(conversation) {
  const same = running !== null && running.conversation.id === conversation?.id;
  current = same ? running.conversation : conversation ?? newConversation();
  draw();
}

// It was deleted: what is being written for it ends, and is not kept.
export function forget(id) {
  if (running !== null && (id === null || running.conversation.id === id)) {
    running.conversation.dropped = true;
    running.stop.abort();
  }
}

export function shown() {
  return current;
}

// ---- Drawing ----

// Messages that are shown keep their nodes: what has been read aloud is not read again.
function draw() {
  const log = byId("messages");
  current.messages.forEach((message, i) => {
    if (log.children[i]?.message === message)
      return;
    const made = drawMessage(message);
    if (log.children[i])
      log.children[i].replaceWith(made);
    else
      log.append(made);
  });
  while (log.children.length > current.messages.length)
    log.lastElementChild.remove();
  if (current.messages.length === 0)
    log.append(element("p", { class: "empty" },
      "Ask something. Enter sends, Shift and Enter is a new line, Escape stops the answer."));
  scroll(true);
  showRunning();
}

function showRunning() {
  byId("stop").hidden = running === null;
  byId("send").hidden = running !== null;
}

function drawMessage(message) {
  const node = message.role === "user" ? drawQuestion(message) : drawAnswer(message);
  node.message = message;
  return node;
}

function button(label, act) {
  return element("button", { type: "button", class: "plain", onclick: act }, label);
}

function drawQuestion(message) {
  const node = element("article", { class: "message user", "aria-label": "You" });
  node.append(element("p", { class: "said" }, message.text),
    element("div", { class: "actions" }, button("Edit", () => edit(message, node)), copyButton(message)));
  return node;
}

function copyButton(message) {
  const made = button("Copy", () => copyFrom(made, message.text));
  return made;
}

function drawAnswer(message) {
  const node = element("article", { class: "message assistant", "aria-label": "Model" });
  const thoughts = element("details", { class: "thoughts", hidden: true }, element("summary", {}, "Reasoning"), element("div", { class: "said" }));
  node.append(thoughts, element("div", { class: "text" }), element("p", { class: "error", role: "alert", hidden: true }),
    element("p", { class: "note" }), element("div", { class: "actions" }));
  update(node, message);
  return node;
}

// What has come so far; the actions come with the end.
function update(node, message) {
  const [thoughts, text, error, note, actions] = node.children, busy = running !== null && running.message === message;
  thoughts.hidden = !message.reasoning;
  if (thoughts.lastElementChild.textContent !== (message.reasoning ?? ""))
    thoughts.lastElementChild.textContent = message.reasoning ?? "";
  render(text, message.text);
  error.hidden = !message.error;
  error.textContent = message.error ?? "";
  note.textContent = busy ? "writing …" : message.note ?? "";
  node.setAttribute("aria-busy", String(busy));
  if (busy)
    actions.replaceChildren();
  else if (actions.childElementCount === 0)
    actions.append(button(message.error ? "Try again" : "Regenerate", () => regenerate(message)),
      ...(message.text ? [copyButton(message)] : []));
}

// The end stays in view for a reader who is there.
function scroll(always) {
  const log = byId("messages");
  if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 80)
    log.scrollTop = log.scrollHeight;
}

// ---- Editing ----

function edit(message, node) {
  const area = element("textarea", { "aria-label": "Edit your message", rows: Math.min(12, message.text.split("\n").length + 1) });
  area.value = message.text;
  const done = () => {
    node.replaceWith(drawMessage(message));
  };
  const save = () => {
    const text = area.value.trim();
    if (text === "" || running !== null)
      return;
    current.messages.splice(current.messages.indexOf(message), Infinity, { role: "user", text });
    answer(current);
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      done();
    } else if (isSend(event)) {
      event.preventDefault();
      save();
    }
  });
  node.replaceChildren(area, element("div", { class: "actions" }, button("Send", save), button("Cancel", done)));
  area.focus();
}

function regenerate(message) {
  if (running !== null)
    return;
  current.messages.splice(current.messages.indexOf(message), Infinity);
  answer(current);
}

// ---- Answers ----

function isSend(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}

function bodyOf(conversation) {
  const { system, ...fields } = options.body();
  const messages = conversation.messages.filter((m) => !m.error || m.text !== "").map((m) => ({ role: m.role, content: m.text }));
  return { ...fields, messages: system ? [{ role: "system", content: system }, ...messages] : messages };
}

async function answer(conversation) {
  const body = bodyOf(conversation), message = { role: "assistant", text: "" }, stop = new AbortController();
  conversation.messages.push(message);
  running = { conversation, message, stop, began: performance.now(), first: 0, drawn: false };
  draw();
  say("The answer is being written.");
  keep(conversation);
  try {
    for await (const chunk of chat(body, stop.signal))
      take(chunk, message);
  } catch (error) {
    if (stop.signal.aborted) {
      message.note = "stopped";
    } else {
      message.error = error instanceof Refusal ? error.message : "The server cannot be reached: " + error.message;
      options.refused(error);
    }
  }
  const { node } = lastNode(message);
  running = null;
  if (node)
    update(node, message);
  scroll(false);
  showRunning();
  say(message.error ? "" : message.note === "stopped" ? "Stopped." : "The answer is complete.");
  keep(conversation);
}

function say(words) {
  byId("status").textContent = words;
}

function keep(conversation) {
  if (!conversation.dropped && !saveConversation(conversation))
    say("This browser keeps no more conversations.");
  options.changed();
}

// The message's node, where it is shown.
function lastNode(message) {
  const shownNow = current.messages.includes(message);
  return { node: shownNow ? byId("messages").children[current.messages.indexOf(message)] : null };
}

function take(chunk, message) {
  for (const choice of chunk.choices) {
    if (choice.delta.content)
      message.text += choice.delta.content;
    if (choice.delta.reasoning_content)
      message.reasoning = (message.reasoning ?? "") + choice.delta.reasoning_content;
    if (running.first === 0 && (choice.delta.content || choice.delta.reasoning_content))
      running.first = performance.now();
    if (choice.finish_reason === "length")
      message.note = "cut: the limit of tokens was reached";
  }
  if (chunk.usage)
    message.note = [message.note, figures(chunk.usage)].filter(Boolean).join("; ");
  drawSoon();
}

function figures(usage) {
  const seconds = (performance.now() - running.first) / 1000, tokens = usage.completion_tokens;
  const parts = [`${tokens} tokens`];
  if (tokens > 1 && running.first > 0 && seconds > 0)
    parts.push(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
  if (running.first > 0)
    parts.push(`first after ${((running.first - running.began) / 1000).toFixed(2)} s`);
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  parts.push(`prompt ${usage.prompt_tokens}` + (cached > 0 ? ` (${cached} cached)` : ""));
  return parts.join(", ");
}

// Once for a frame, however many pieces come in it. A page that is not looked at has no frames, and draws at the end.
function drawSoon() {
  if (running.drawn)
    return;
  running.drawn = true;
  requestAnimationFrame(() => {
    if (running === null)
      return;
    running.drawn = false;
    const { node } = lastNode(running.message);
    if (node) {
      update(node, running.message);
      scroll(false);
    }
  });
}

// ---- The form ----

function grow() {
  const input = byId("input");
  input.style.height = "auto";
  input.style.height = Math.min(input.scrollHeight + 2, 240) + "px";
}

function send() {
  const input = byId("input"), text = input.value.trim();
  if (text === "" || running !== null)
    return;
  input.value = "";
  grow();
  current.messages.push({ role: "user", text });
  answer(current);
}

export function start(given) {
  options = given;
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("input").addEventListener("input", grow);
  byId("input").addEventListener("keydown", (event) => {
    if (isSend(event)) {
      event.preventDefault();
      send();
    }
  });
  addEventListener("pagehide", () => running && !running.conversation.dropped && saveConversation(running.conversation));
  byId("stop").addEventListener("click", () => running?.stop.abort());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !byId("settings").open)
      running?.stop.abort();
  });
}

// Markdown as models write it, drawn as nodes: what a model says is text, and the few elements that are made here.
//
// blocks() cuts a text into blocks; each knows the lines that it was made of, so that a text that grows by its end
// keeps the nodes of what stands before. Each kind of mark is looked for once where it has no end, and nesting is
// bounded, so that no text takes more than a few passes over it.
import { coloured } from "./colour.js";
import { copyFrom, element } from "./dom.js";

const MOST_LEVELS = 12;
const MOST_WORDS = 1000; // characters of a link's words
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const DELIMITERS = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

// Draws `text` into `node`; blocks that are as before keep their nodes.
export function render(node, text) {
  const list = blocks(text.split("\n"), 0);
  for (let i = 0; i < list.length; i++) {
    const old = node.children[i];
    if (old && old.source === list[i].source)
      continue;
    const made = list[i].build();
    made.source = list[i].source;
    if (old)
      old.replaceWith(made);
    else
      node.append(made);
  }
  while (node.children.length > list.length)
    node.lastElementChild.remove();
}

// ---- Blocks ----

function blocks(lines, level) {
  const list = [];
  let i = 0;
  while (i < lines.length) {
    if (lines[i].trim() === "") {
      i++;
      continue;
    }
    const taken = takeBlock(lines, i, level);
    list.push({ source: taken.kind + "\n" + lines.slice(i, taken.end).join("\n"), build: taken.build });
    i = taken.end;
  }
  return list;
}

function takeBlock(lines, i, level) {
  const deep = level >= MOST_LEVELS;
  let match = FENCE.exec(lines[i]);
  if (match)
    return takeFence(lines, i, match);
  match = HEADING.exec(lines[i]);
  if (match) {
    const words = match[2].replace(/[ \t]+#+[ \t]*$/, "");
    return { kind: "heading", end: i + 1, build: () => element("h" + Math.min(match[1].length + 2, 6), {}, ...inline(words, 0)) };
  }
  if (RULE.test(lines[i]))
    return { kind: "rule", end: i + 1, build: () => element("hr") };
  if (!deep && QUOTE.test(lines[i]))
    return takeQuote(lines, i, level);
  if (!deep && ITEM.test(lines[i]))
    return takeList(lines, i, level);
  if (isTable(lines, i))
    return takeTable(lines, i);
  return takeParagraph(lines, i, deep);
}

function takeFence(lines, i, match) {
  const mark = match[1], language = match[2].trim().split(/\s/)[0];
  let end = i + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(mark) && lines[end].trim().replaceAll(mark[0], "") === ""))
    end++;
  const code = lines.slice(i + 1, end).join("\n");
  return { kind: "code", end: Math.min(end + 1, lines.length), build: () => codeBlock(code, language) };
}

function codeBlock(code, language) {
  const button = element("button", { type: "button", class: "plain", onclick: () => copyFrom(button, code) }, "Copy");
  return element("div", { class: "code" },
    element("div", { class: "code-head" }, element("span", {}, language), button),
    element("pre", { tabindex: "0", "aria-label": language ? "Code, " + language : "Code" }, element("code", {}, ...coloured(code, language))));
}

function takeQuote(lines, i, level) {
  let end = i;
  while (end < lines.length && QUOTE.test(lines[end]))
    end++;
  const inner = lines.slice(i, end).map((line) => line.replace(/^ {0,3}> ?/, ""));
  return { kind: "quote", end, build: () => element("blockquote", {}, ...blocks(inner, level + 1).map((b) => b.build())) };
}

// Items of one list: same kind of mark; what is indented behind a mark belongs to its item.
function takeList(lines, i, level) {
  const first = ITEM.exec(lines[i]), numbered = /\d/.test(first[2]), items = [];
  let end = i, loose = false;
  while (end < lines.length) {
    const match = ITEM.exec(lines[end]);
    if (match && /\d/.test(match[2]) === numbered && !RULE.test(lines[end])) {
      items.push({ indent: Math.min(match[0].length, match[1].length + match[2].length + 4), lines: [lines[end].slice(match[0].length)] });
    } else if (lines[end].trim() === "") {
      let next = end;
      while (next < lines.length && lines[next].trim() === "")
        next++;
      const goes = next < lines.length && (ITEM.test(lines[next]) ? /\d/.test(ITEM.exec(lines[next])[2]) === numbered : /^ {2,}/.test(lines[next]));
      if (!goes)
        break;
      loose = true;
      items.at(-1).lines.push("");
    } else if (/^(?: {2,}|\t)/.test(lines[end])) {
      const spaces = /^[ \t]*/.exec(lines[end])[0].length;
      items.at(-1).lines.push(lines[end].slice(Math.min(spaces, items.at(-1).indent)));
    } else if (lines[end - 1].trim() === "" || startsBlock(lines, end)) {
      break;
    } else {
      items.at(-1).lines.push(lines[end]);
    }
    end++;
  }
  return { kind: "list", end, build: () => buildList(items, numbered, parseInt(first[2], 10), loose, level) };
}

function buildList(items, numbered, start, loose, level) {
  const list = element(numbered ? "ol" : "ul", numbered && start !== 1 ? { start } : {});
  for (const item of items) {
    const task = /^\[([ xX])\][ \t]+/.exec(item.lines[0]), node = element("li", {});
    if (task) {
      node.append(element("input", { type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": "Task" }), " ");
      item.lines[0] = item.lines[0].slice(task[0].length);
    }
    for (const block of blocks(item.lines, level + 1)) {
      const made = block.build();
      if (!loose && made.localName === "p")
        node.append(...made.childNodes);
      else
        node.append(made);
    }
    list.append(node);
  }
  return list;
}

function isTable(lines, i) {
  return lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && lines[i + 1].includes("|") &&
    DELIMITERS.test(lines[i + 1]);
}

function cells(line) {
  const list = [""];
  for (let i = 0; i < line.length; i++) {
    if (line[i] === "\\" && line[i + 1] === "|")
      list[list.length - 1] += line[++i];
    else if (line[i] === "|")
      list.push("");
    else
      list[list.length - 1] += line[i];
  }
  if (list[0].trim() === "")
    list.shift();
  if (list.length > 0 && list.at(-1).trim() === "")
    list.pop();
  return list.map((cell) => cell.trim());
}

function takeTable(lines, i) {
  const head = cells(lines[i]), sides = cells(lines[i + 1]).map((c) => (c.endsWith(":") ? (c.startsWith(":") ? "middle" : "right") : ""));
  let end = i + 2;
  while (end < lines.length && lines[end].includes("|"))
    end++;
  const rows = lines.slice(i + 2, end).map(cells);
  const row = (kind, list) => element("tr", {}, ...head.map((_, k) =>
    element(kind, { class: sides[k] || null, scope: kind === "th" ? "col" : null }, ...inline(list[k] ?? "", 0))));
  return { kind: "table", end, build: () => element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    element("table", {}, element("thead", {}, row("th", head)), element("tbody", {}, ...rows.map((r) => row("td", r))))) };
}

function startsBlock(lines, i) {
  return FENCE.test(lines[i]) || HEADING.test(lines[i]) || RULE.test(lines[i]) || QUOTE.test(lines[i]) || ITEM.test(lines[i]) ||
    isTable(lines, i);
}

function takeParagraph(lines, i, deep) {
  let end = i + 1;
  while (end < lines.length && lines[end].trim() !== "" && (deep || !startsBlock(lines, end)))
    end++;
  const words = lines.slice(i, end).map((line) => line.trim()).join("\n");
  return { kind: "text", end, build: () => element("p", {}, ...inline(words, 0)) };
}

// ---- Within a line ----

const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];
const PUNCTUATION = /[!-/:-@[-`{-~]/;

// A text as nodes.
function inline(text, level) {
  const nodes = [], missing = new Set(); // marks that have no end from here on
  let plain = "", i = 0;
  const put = (node) => {
    if (plain !== "")
      nodes.push(plain);
    plain = "";
    nodes.push(node);
  };
  while (i < text.length) {
    const found = level < MOST_LEVELS ? take(text, i, level, missing) : null;
    if (found) {
      put(found.node);
      i = found.end;
    } else if (text[i] === "\\" && PUNCTUATION.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
    } else if (text[i] === "\n") {
      put(element("br"));
      i++;
    } else if (text[i] === "`") { // a run that is no beginning
      while (text[i] === "`")
        plain += text[i++];
    } else {
      plain += text[i++];
    }
  }
  if (plain !== "")
    nodes.push(plain);
  return nodes;
}

function take(text, i, level, missing) {
  switch (text[i]) {
  case "`":
    return takeCode(text, i, missing);
  case "*":
  case "_":
  case "~":
    return takeMarked(text, i, level, missing);
  case "!":
    return text[i + 1] === "[" ? takeLink(text, i + 1, level) : null;
  case "[":
    return takeLink(text, i, level);
  case "<":
  case "h":
    return takeAddress(text, i);
  default:
    return null;
  }
}

function takeCode(text, i, missing) {
  const run = /^`+/.exec(text.slice(i, i + 80))[0];
  if (missing.has(run))
    return null;
  for (let end = text.indexOf(run, i + run.length); end >= 0; end = text.indexOf(run, end)) {
    let last = end;
    while (text[last] === "`")
      last++;
    if (last - end === run.length) {
      const code = text.slice(i + run.length, end).replaceAll("\n", " ");
      const bare = /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code;
      return { end: last, node: element("code", {}, bare) };
    }
    end = last;
  }
  missing.add(run);
  return null;
}

function takeMarked(text, i, level, missing) {
  for (const [mark, name] of MARKS) {
    if (!text.startsWith(mark, i) || missing.has(mark) || /\s|^$/.test(text[i + mark.length] ?? ""))
      continue;
    if (mark[0] === "_" && /\w/.test(text[i - 1] ?? ""))
      return null;
    const end = endOf(text, i + mark.length, mark);
    if (end > 0)
      return { end: end + mark.length, node: element(name, {}, ...inline(text.slice(i + mark.length, end), level + 1)) };
    missing.add(mark);
  }
  return null;
}

// Where the mark ends that has begun before `from`; -1: nowhere.
function endOf(text, from, mark) {
  for (let end = text.indexOf(mark, from + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
    const after = text[end + mark.length] ?? "";
    if (/\s/.test(text[end - 1]) || text[end - 1] === "\\")
      continue;
    if (mark.length === 1 && (after === mark || text[end - 1] === mark)) { // a part of a longer one
      end++;
      continue;
    }
    if (mark[0] !== "_" || !/\w/.test(after))
      return end;
  }
  return -1;
}

// An address that may be followed, or null: of the web or of mail, nothing else.
function addressOf(text) {
  let url = null;
  try {
    url = new URL(text);
  } catch {
    return null;
  }
  return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
}

function link(address, children) {
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

// [words](address "title"); an image is shown as a link to it: nothing of other hosts is loaded.
function takeLink(text, i, level) {
  const near = text.slice(i, i + MOST_WORDS).indexOf("]("), close = i + near;
  if (near < 0)
    return null;
  const match = /^\(\s*<?([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\s*\)/.exec(text.slice(close + 1, close + 2100));
  const words = text.slice(i + 1, close), address = match && addressOf(match[1]);
  if (!address)
    return null;
  return { end: close + 1 + match[0].length, node: link(address, words === "" ? [address] : inline(words, level + 1)) };
}

function takeAddress(text, i) {
  const match = text[i] === "<" ? /^<(https?:\/\/[^\s<>]+)>/.exec(text.slice(i, i + 2000))
    : (i === 0 || !/\w/.test(text[i - 1])) && /^(https?:\/\/[^\s<>"'`*()[\]]*[\w/=&#-])/.exec(text.slice(i, i + 2000));
  const address = match && addressOf(match[1]);
  return address ? { end: i + match[0].length, node: link(address, [match[1]]) } : null;
}

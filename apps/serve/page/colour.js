// Colours of code: a text is cut into words, numbers, strings and comments, and each becomes a text node of its own
// element or plain. No language is parsed: what a language calls a word, and how its comments begin, is a table. Text goes
// in and the same text comes out, whatever it is; each character is looked at once or twice.
import { element } from "./dom.js";

const MOST = 100000; // characters; what is longer stays plain

const C = "auto bool break case char class const continue default delete do double else enum extern false float for goto " +
  "if inline int long namespace new nullptr private protected public return short signed sizeof static struct switch " +
  "template this throw true try typedef union unsigned using virtual void volatile while catch NULL";
const SCRIPT = "async await break case catch class const continue default delete do else export extends false finally for " +
  "function if import in instanceof interface let new null of return static super switch this throw true try type typeof " +
  "undefined var void while yield";
const PYTHON = "and as assert async await break class continue def del elif else except False finally for from global if " +
  "import in is lambda None nonlocal not or pass raise return self True try while with yield";
const SHELL = "case do done elif else esac exit export fi for function if in local return then until while";
const RUST = "as async await break const continue crate else enum extern false fn for if impl in let loop match mod move mut " +
  "pub ref return self Self static struct super trait true type unsafe use where while";
const GO = "break case chan const continue default defer else false for func go goto if import interface map nil package " +
  "range return select struct switch true type var";
const JAVA = "abstract boolean break case catch class const continue default do double else enum extends final finally " +
  "float for if implements import instanceof int interface long new null package private protected public return static " +
  "super switch this throw throws true false try var void while";
const SQL = "select from where and or not in is null insert into values update set delete create table index primary key " +
  "join left right inner outer on group by order having limit as distinct union all case when then else end";

// What begins a comment: "//" (also between /* and */), "#", "--".
const KINDS = [
  [["c", "h", "cpp", "c++", "cc", "cuda", "cs", "csharp"], C, "//"],
  [["js", "javascript", "ts", "typescript", "jsx", "tsx", "json"], SCRIPT, "//"],
  [["java", "kotlin", "scala", "swift"], JAVA, "//"],
  [["rust", "rs"], RUST, "//"],
  [["go", "golang"], GO, "//"],
  [["python", "py", "python3"], PYTHON, "#"],
  [["sh", "bash", "shell", "zsh", "console", "yaml", "yml", "toml", "make", "dockerfile", "ruby", "r", "perl"], SHELL, "#"],
  [["sql"], SQL, "--"],
];

const BEGINS = {
  "//": /\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)/y,
  "#": /#[^\n]*/y,
  "--": /--[^\n]*/y,
};
const STRING = /"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?|`(?:[^`\\]|\\[^])*`?/y;
const NUMBER = /(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*/y;
const WORD = /[A-Za-z_$][\w$]*/y;

function kindOf(language) {
  const name = language.toLowerCase();
  const found = KINDS.find(([names]) => names.includes(name));
  return found && { words: new Set(found[1].split(" ")), comment: BEGINS[found[2]], any: name === "sql" };
}

function match(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0] ?? "";
}

// The length of what begins at `at`, and its class; "": plain.
function next(text, at, kind) {
  let found = match(kind.comment, text, at);
  if (found)
    return [found.length, "comment"];
  found = match(STRING, text, at);
  if (found)
    return [found.length, "string"];
  found = match(NUMBER, text, at);
  if (found)
    return [found.length, "number"];
  found = match(WORD, text, at);
  return found ? [found.length, kind.words.has(kind.any ? found.toLowerCase() : found) ? "word" : ""] : [1, ""];
}

// The text as nodes; of a language that is not known the text itself.
export function coloured(text, language) {
  const kind = text.length <= MOST ? kindOf(language) : null, nodes = [];
  if (!kind)
    return [text];
  let plain = 0, at = 0;
  while (at < text.length) {
    const [n, name] = next(text, at, kind);
    if (name) {
      if (plain < at)
        nodes.push(text.slice(plain, at));
      nodes.push(element("span", { class: "code-" + name }, text.slice(at, at + n)));
      plain = at + n;
    }
    at += n;
  }
  if (plain < text.length)
    nodes.push(text.slice(plain));
  return nodes;
}

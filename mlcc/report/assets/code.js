// Highlighting by tables of expressions, and views of texts whose lines are linked.

// Assembly, PTX and C: what they share.
const ASSEMBLY_RULES = [
  ["\\s+", "Whitespace"],
  ["//.*$|[#;](?=\\s).*$|/\\*[^]*?\\*/", "Comment"],
  ['"(?:\\\\.|[^"\\\\\\n])*"?', "String"],
  ["^[.$@\\w]+:", "Name.Label"],
  ["\\.[A-Za-z_][\\w.]*", "Keyword.Type"],
  [
    "\\b(?:void|float|double|char|short|int|long|unsigned|const|static|struct|for|if|else|while|return|u?int\\d+_t|bool)\\b",
    "Keyword",
  ],
  ["%[\\w.]+|\\b(?:[xyz]mm\\d+|r\\d+[dwb]?|[re]?[abcd]x|[re]?[sd]i|[re]?[sb]p|rip|k[0-7])\\b", "Name.Builtin"],
  ["[-+]?\\b(?:0[xX][0-9a-fA-F]+|\\d+(?:\\.\\d*)?(?:[eE][-+]?\\d+)?)[fFuUlL]*\\b", "Number"],
  ["[A-Za-z_$][\\w$.]*", "Name"],
  ["[^]", "Punctuation"],
];

export function compiled(rules) {
  return rules.map(([expression, kinds]) => [new RegExp(expression, "my"), kinds]);
}

// The tokens of every line: arrays of [kind, text].
export function tokenLines(text, rules) {
  const lines = [[]];
  const put = (kind, value) =>
    value.split("\n").forEach((part, k) => {
      if (k) lines.push([]);
      if (part) lines[lines.length - 1].push([kind, part]);
    });
  let at = 0;
  next: while (at < text.length) {
    for (const [expression, kinds] of rules) {
      expression.lastIndex = at;
      const match = expression.exec(text);
      if (!match || !match[0]) continue;
      if (typeof kinds === "string") put(kinds, match[0]);
      else kinds.forEach((kind, k) => put(kind, match[k + 1] ?? ""));
      at += match[0].length;
      continue next;
    }
    put("Error", text[at]);
    at += 1;
  }
  if (lines.length > 1 && !lines[lines.length - 1].length) lines.pop();
  return lines;
}

const PLAIN = new Set(["Name", "Whitespace", "Punctuation", "Operator", "Error"]);
let tables = null;

function rulesOf(language) {
  tables ??= {
    mlc: compiled(JSON.parse(document.getElementById("token-rules").textContent)),
    assembly: compiled(ASSEMBLY_RULES),
  };
  return tables[language];
}

export function highlighted(text, language = "mlc") {
  return tokenLines(text, rulesOf(language)).map((tokens) =>
    tokens.map(([kind, value]) =>
      PLAIN.has(kind) ? value : element("span", { class: `t-${kind.replaceAll(".", "-")}` }, value),
    ),
  );
}

const CHUNK = 100;

// `linked`: numbers of lines that react; `lineChosen(number, pinned)` is called when one is pointed at or clicked.
export function codeView(
  text,
  { language = "mlc", label = "text", first = 1, linked = null, lineChosen = null, short = false } = {},
) {
  const lines = highlighted(text, language).map((parts, k) =>
    element("span", { class: linked?.has(first + k) ? "line linked" : "line", "data-n": first + k }, parts),
  );
  const chunks = [];
  for (let k = 0; k < lines.length; k += CHUNK)
    chunks.push(element("span", { class: "chunk line-block" }, lines.slice(k, k + CHUNK)));
  for (const chunk of chunks) chunk.style.display = "block";
  const view = element(
    "pre",
    { class: short ? "code short" : "code", tabindex: 0, role: "region", "aria-label": label },
    chunks,
  );
  const numberAt = (event) => Number(event.target.closest?.(".line")?.dataset.n) || null;
  if (lineChosen) {
    view.addEventListener("pointerover", (event) => {
      const n = numberAt(event);
      if (n) lineChosen(n, false);
    });
    view.addEventListener("click", (event) => {
      const n = numberAt(event);
      if (n) lineChosen(n, true);
    });
  }
  const line = (number) => lines[number - first];
  return {
    view,
    mark(numbers, name, scroll = false) {
      view.querySelectorAll(`.${name}`).forEach((node) => node.classList.remove(name));
      for (const number of numbers) line(number)?.classList.add(name);
      if (scroll && numbers.length && line(numbers[0])) {
        const target = line(numbers[0]);
        const rect = target.getBoundingClientRect(),
          frame = view.getBoundingClientRect();
        view.scrollTop += rect.top - frame.top - frame.height / 3;
      }
    },
  };
}

// Elements and formats. Text enters the page as text nodes and attributes alone: no HTML is ever parsed.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(
    ...children
      .flat()
      .filter((child) => child !== null && child !== undefined)
      .map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))),
  );
  return node;
}

export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function choice(label, options, value, changed) {
  const select = element(
    "select",
    { "aria-label": label, change: () => changed(select.value) },
    options.map(([key, text]) => element("option", { value: key, selected: String(key) === String(value) }, text)),
  );
  return select;
}

// A sentence whose names are between backquotes, as nodes.
export function prose(text) {
  return String(text)
    .split(/`([^`]+)`/)
    .map((part, k) => (k % 2 ? element("code", {}, part) : part))
    .filter((part) => part !== "");
}

// Rows of [term, value]; those without a value are left out.
export function facts(rows) {
  return element(
    "dl",
    {},
    rows
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]),
  );
}

function scaled(value, steps, base) {
  let k = 0;
  while (k + 1 < steps.length && Math.abs(value) >= base) {
    value /= base;
    k += 1;
  }
  return `${Math.abs(value) >= 100 || (k === 0 && Number.isInteger(value)) ? Math.round(value) : Number(value.toPrecision(3))} ${steps[k]}`;
}

export function formatBytes(value) {
  return value === null || value === undefined ? "" : scaled(value, ["B", "KiB", "MiB", "GiB"], 1024);
}

export function formatSeconds(value) {
  return value === null || value === undefined
    ? ""
    : value === 0
      ? "0 s"
      : value >= 1
        ? `${value.toPrecision(3)} s`
        : scaled(value * 1e9, ["ns", "µs", "ms"], 1000);
}

export function formatCount(value, unit = "") {
  return value === null || value === undefined ? "" : `${scaled(value, ["", "k", "M", "G", "T"], 1000)}${unit}`.trim();
}

export function formatNumber(value, digits = 3) {
  return value === null || value === undefined ? "" : String(Number(value.toPrecision(digits)));
}

export function formatShare(value) {
  return value === null || value === undefined ? "" : `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
}

// A table whose columns are {title, value(row), show(row)?, number?}; heads sort, a click on a row calls `open`.
export function sortable(label, columns, rows, { open = null, sorted = null, descending = true, key = null } = {}) {
  const body = element("tbody");
  const state = { column: sorted, descending };
  const heads = columns.map((column, index) =>
    element(
      "th",
      { scope: "col", class: column.number ? "number" : null },
      element(
        "button",
        {
          type: "button",
          click: () => {
            state.descending = state.column === index ? !state.descending : Boolean(column.number);
            state.column = index;
            refresh();
          },
        },
        column.title,
      ),
    ),
  );
  function order(a, b) {
    const { value } = columns[state.column];
    const [x, y] = [value(a), value(b)];
    const missing = (x === null || x === undefined) - (y === null || y === undefined);
    if (missing || x === null || x === undefined) return missing;
    const compared = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return state.descending ? -compared : compared;
  }
  function refresh() {
    const shown = state.column === null ? rows : [...rows].sort(order);
    heads.forEach((head, index) =>
      head.setAttribute("aria-sort", index !== state.column ? "none" : state.descending ? "descending" : "ascending"),
    );
    body.replaceChildren(
      ...shown.map((row) =>
        element(
          "tr",
          { "data-key": key ? key(row) : null, click: open ? () => open(row) : null },
          columns.map((column, index) => {
            const content = column.show ? column.show(row) : column.value(row);
            const cell =
              open && index === 0
                ? element("button", { type: "button", class: "link", title: column.value(row) }, content)
                : content;
            return element("td", { class: column.number ? "number" : column.wrap ? null : "nowrap" }, cell);
          }),
        ),
      ),
    );
  }
  refresh();
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    element("table", {}, element("thead", {}, element("tr", {}, heads)), body),
  );
}

// Differences of texts line by line (Myers, 1986), shown side by side with what did not change folded.

const MOST_EDITS = 3000; // beyond, the rest counts as replaced

// Pairs [left index | null, right index | null] of two arrays of strings, in order.
export function diffLines(left, right) {
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  let [m, n] = [left.length, right.length];
  while (m > start && n > start && left[m - 1] === right[n - 1]) {
    m -= 1;
    n -= 1;
  }
  const pairs = [];
  for (let k = 0; k < start; k += 1) pairs.push([k, k]);
  pairs.push(
    ...middle(left.slice(start, m), right.slice(start, n)).map(([a, b]) => [
      a === null ? null : a + start,
      b === null ? null : b + start,
    ]),
  );
  for (let k = 0; m + k < left.length; k += 1) pairs.push([m + k, n + k]);
  return pairs;
}

function middle(left, right) {
  const [m, n] = [left.length, right.length];
  const all = () => [...left.map((_, k) => [k, null]), ...right.map((_, k) => [null, k])];
  if (!m || !n) return all();
  const limit = Math.min(m + n, MOST_EDITS);
  const reach = new Int32Array(2 * limit + 3);
  const trace = [];
  for (let d = 0; d <= limit; d += 1) {
    for (let k = -d; k <= d; k += 2) {
      let x =
        k === -d || (k !== d && reach[limit + k] < reach[limit + k + 2]) ? reach[limit + k + 2] : reach[limit + k] + 1;
      let y = x - k;
      while (x < m && y < n && left[x] === right[y]) {
        x += 1;
        y += 1;
      }
      reach[limit + 1 + k] = x;
      if (x >= m && y >= n) return backtrack(trace, d, m, n);
    }
    trace.push(reach.slice(limit + 1 - d, limit + 2 + d));
  }
  return all();
}

function backtrack(trace, edits, m, n) {
  const pairs = [];
  let [x, y] = [m, n];
  for (let d = edits; d > 0; d -= 1) {
    const before = trace[d - 1];
    const at = (k) => before[k + d - 1] ?? -1;
    const k = x - y;
    const from = k === -d || (k !== d && at(k - 1) < at(k + 1)) ? k + 1 : k - 1;
    const beforeX = at(from),
      beforeY = beforeX - from;
    while (x > beforeX && y > beforeY) {
      x -= 1;
      y -= 1;
      pairs.push([x, y]);
    }
    pairs.push(from === k + 1 ? [null, beforeY] : [beforeX, null]);
    [x, y] = [beforeX, beforeY];
  }
  while (x > 0) {
    x -= 1;
    pairs.push([x, x]);
  }
  return pairs.reverse();
}

// Rows {left, right} where a run of removed lines stands beside the run of added ones.
export function sideBySide(pairs) {
  const rows = [];
  let removed = [],
    added = [];
  const flush = () => {
    for (let k = 0; k < Math.max(removed.length, added.length); k += 1) {
      rows.push({ left: removed[k] ?? null, right: added[k] ?? null, same: false });
    }
    removed = [];
    added = [];
  };
  for (const [a, b] of pairs) {
    if (a === null) added.push(b);
    else if (b === null) removed.push(a);
    else {
      flush();
      rows.push({ left: a, right: b, same: true });
    }
  }
  flush();
  return rows;
}

// The parts [text, changed] of two lines. Between changed words, what has no word in it counts as changed, too.
export function changedParts(left, right) {
  const cut = (text) => text.match(/\w+|\s+|[^\w\s]/g) ?? [];
  const words = [cut(left), cut(right)];
  const runs = []; // [same, words on the left, words on the right]
  for (const [i, j] of diffLines(words[0], words[1])) {
    const same = i !== null && j !== null;
    if (runs.at(-1)?.[0] !== same) runs.push([same, [], []]);
    if (i !== null) runs.at(-1)[1].push(words[0][i]);
    if (j !== null) runs.at(-1)[2].push(words[1][j]);
  }
  return [1, 2].map((side) => {
    const parts = [];
    runs.forEach((run, k) => {
      const between = run[0] && k > 0 && k + 1 < runs.length && !run[1].some((word) => /\w/.test(word));
      const changed = !run[0] || between,
        text = run[side].join("");
      if (parts.at(-1)?.[1] === changed) parts.at(-1)[0] += text;
      else parts.push([text, changed]);
    });
    return parts.filter(([text]) => text);
  });
}

const CONTEXT = 3;
const LONG = 320; // characters of an equal line, such as a signature, above which its middle is folded

const ALIKE = 0.3; // of two lines whose words are compared, the share of characters that they have in common
const bare = (text) => text.replace(/\s/g, "").length;
const kept = (parts) => parts.reduce((sum, [text, changed]) => sum + (changed ? 0 : bare(text)), 0);

function equalLine(text) {
  if (text.length <= LONG) return text;
  const [head, tail] = [text.slice(0, LONG / 2), text.slice(-LONG / 4)];
  const count = text.length - head.length - tail.length;
  const more = element(
    "button",
    { type: "button", class: "more", click: () => more.replaceWith(text.slice(head.length, text.length - tail.length)) },
    `⋯ ${count} equal characters ⋯`,
  );
  return [head, more, tail];
}

export function diffView(left, right, label) {
  const split = (text) => {
    const lines = text.split("\n");
    if (lines[lines.length - 1] === "") lines.pop();
    return lines;
  };
  const [a, b] = [split(left), split(right)];
  const rows = sideBySide(diffLines(a, b));
  const cells = (lines, index, kind, parts) => {
    if (index === null) return [element("td", { class: "n" }), element("td", { class: "empty" })];
    return [
      element("td", { class: "n" }, index + 1),
      element(
        "td",
        { class: kind },
        parts
          ? parts.map(([text, changed]) => (changed && text ? element("b", {}, text) : text))
          : kind === null
            ? equalLine(lines[index])
            : lines[index],
      ),
    ];
  };
  const line = ({ left: l, right: r, same }) => {
    let both = !same && l !== null && r !== null ? changedParts(a[l], b[r]) : [null, null];
    if (both[0] && kept(both[0]) < ALIKE * Math.max(bare(a[l]), bare(b[r]))) both = [null, null]; // other lines
    return element(
      "tr",
      {},
      cells(a, l, same ? null : "removed", both[0]),
      cells(b, r, same ? null : "added", both[1]),
    );
  };
  const shown = [];
  for (let k = 0; k < rows.length;) {
    if (!rows[k].same) {
      shown.push(line(rows[k]));
      k += 1;
      continue;
    }
    let end = k;
    while (end < rows.length && rows[end].same) end += 1;
    const from = k === 0 ? 0 : k + CONTEXT,
      to = end === rows.length ? end : end - CONTEXT;
    if (to - from > 1) {
      const hidden = rows.slice(from, to);
      rows.slice(k, from).forEach((row) => shown.push(line(row)));
      const fold = element(
        "tr",
        { class: "fold" },
        element(
          "td",
          { colspan: 4 },
          element(
            "button",
            {
              type: "button",
              click: () => fold.replaceWith(...hidden.map(line)),
            },
            `⋯ ${hidden.length} equal lines`,
          ),
        ),
      );
      shown.push(fold);
      rows.slice(to, end).forEach((row) => shown.push(line(row)));
    } else rows.slice(k, end).forEach((row) => shown.push(line(row)));
    k = end;
  }
  return element(
    "div",
    { class: "diff", tabindex: 0, role: "region", "aria-label": label },
    element(
      "table",
      {},
      element(
        "colgroup",
        {},
        element("col", { class: "n" }),
        element("col"),
        element("col", { class: "n" }),
        element("col"),
      ),
      element("tbody", {}, shown),
    ),
  );
}

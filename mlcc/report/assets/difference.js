// Two reports beside each other.

function gained(a, b) {
  if (a === null || a === undefined || b === null || b === undefined || !a) return "";
  const change = (b - a) / a;
  return `${change > 0 ? "+" : ""}${(change * 100).toFixed(1)} %`;
}

// The seconds that B takes more than A; a kernel that one of them lacks takes none there.
function timeChange({ change, seconds }) {
  const [x, y] = seconds ?? [null, null];
  if (change === "added") return y ?? null;
  if (change === "removed") return (x ?? null) === null ? null : -x;
  return (x ?? null) === null || (y ?? null) === null ? null : y - x;
}

function differenceTab(view, argument) {
  const { a, b, diff } = view.data;
  const pair = ([x, y], format) => [format(x) || "unknown", format(y) || "unknown", gained(x, y)];
  const totals = [
    ["time", pair(diff.total?.seconds ?? [null, null], formatSeconds)],
    ["machine code", pair(diff.total?.code ?? [null, null], formatBytes)],
    ["artifact", pair(diff.total?.artifact ?? [null, null], formatBytes)],
    ["workspace", pair(diff.total?.workspace ?? [null, null], formatBytes)],
  ];
  const table = element(
    "table",
    {},
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        ["", `A: ${a.title}`, `B: ${b.title}`, "change"].map((title) => element("th", { scope: "col" }, title)),
      ),
    ),
    element(
      "tbody",
      {},
      totals.map(([name, cells]) =>
        element(
          "tr",
          {},
          element("th", { scope: "row" }, name),
          cells.map((text) => element("td", { class: "number" }, text)),
        ),
      ),
    ),
  );
  const key = (row) => String(diff.kernels.indexOf(row));
  const columns = [
    { title: "Kernel", value: (row) => row.name },
    { title: "In B", value: (row) => (row.other === row.name ? "" : row.other) },
    { title: "Change", value: (row) => row.change },
    {
      title: "What changed",
      value: (row) => (row.what ?? []).join(", ").replaceAll("code_bytes", "size of code"),
      wrap: true,
    },
    { title: "Time A", value: (row) => row.seconds?.[0], show: (row) => formatSeconds(row.seconds?.[0]), number: true },
    { title: "Time B", value: (row) => row.seconds?.[1], show: (row) => formatSeconds(row.seconds?.[1]), number: true },
    {
      title: "Gained or lost",
      value: timeChange,
      show: (row) => {
        const change = timeChange(row);
        if (change === null) return "";
        return `${change < 0 ? "-" : "+"}${formatSeconds(Math.abs(change))} ${gained(...row.seconds)}`.trim();
      },
      number: true,
    },
    {
      title: "Code A",
      value: (row) => row.code_bytes?.[0],
      show: (row) => formatBytes(row.code_bytes?.[0]),
      number: true,
    },
    {
      title: "Code B",
      value: (row) => row.code_bytes?.[1],
      show: (row) => formatBytes(row.code_bytes?.[1]),
      number: true,
    },
  ];
  const ordered = [...diff.kernels].sort((x, y) => (x.change === "same") - (y.change === "same")); // stable
  const parts = [
    element("h2", {}, "Total"),
    element("div", { class: "scroll" }, table),
    element("h2", {}, "Kernels"),
    diff.kernels.length
      ? sortable("kernels of both", columns, ordered, { open: (row) => view.go("difference", key(row)), key })
      : element("p", {}, "There are no kernels."),
  ];
  const chosen = diff.kernels.find((row) => key(row) === argument);
  if (chosen) parts.push(kernelDifference(view, chosen));
  parts.push(...graphDifference(view));
  if (diff.manifest?.length) {
    const show = (value) => (value === null || typeof value !== "object" ? String(value) : JSON.stringify(value));
    parts.push(
      element("h2", {}, "Manifest"),
      sortable(
        "manifest entries that differ",
        [
          { title: "Entry", value: ({ path }) => path },
          { title: "A", value: ({ left }) => show(left), wrap: true },
          { title: "B", value: ({ right }) => show(right), wrap: true },
        ],
        diff.manifest,
      ),
    );
  }
  return parts;
}

function kernelDifference(view, row) {
  const { a, b } = view.data;
  const left = row.change === "added" ? null : a.kernels.find(({ name }) => name === row.name);
  const right = row.change === "removed" ? null : b.kernels.find(({ name }) => name === (row.other ?? row.name));
  const texts = KERNEL_TEXTS.filter(([name]) => left?.[name] || right?.[name]);
  const text = (report, kernel, name) => (kernel?.[name] ? report.texts[kernel[name]] : "");
  const holder = element("div");
  const show = (name) => {
    const [before, after] = [text(a, left, name), text(b, right, name)];
    holder.replaceChildren(
      before === after ? element("p", {}, "Both are equal.") : diffView(before, after, `${row.name}, ${name}`),
    );
  };
  const first = (texts.find(([name]) => text(a, left, name) !== text(b, right, name)) ?? texts[0])?.[0];
  if (!first) return element("p", {}, "Neither report has texts of this kernel.");
  show(first);
  return element(
    "section",
    { "aria-label": row.name },
    element("h3", {}, `${row.name} in A and B`),
    element(
      "div",
      { class: "row tools" },
      choice(
        "text of the kernel",
        texts.map(([name, title]) => [name, title]),
        first,
        show,
      ),
    ),
    holder,
  );
}

function graphDifference(view) {
  const { a, b, diff } = view.data;
  const known = diff.graph ?? {};
  const marks = [new Map(), new Map()];
  for (const [name, pairs] of [
    ["same", known.same],
    ["changed", known.changed],
  ])
    for (const [x, y] of pairs ?? []) {
      marks[0].set(x, name);
      marks[1].set(y, name);
    }
  for (const id of known.removed ?? []) marks[0].set(id, "removed");
  for (const id of known.added ?? []) marks[1].set(id, "added");
  const sides = [a, b].map((report, side) => {
    const drawings = report.pictures?.[0];
    if (!drawings?.length) return null;
    const svg = parsedPicture(drawings.findLast(({ boxes }) => boxes <= 400)?.svg ?? drawings[0].svg);
    const rank = ["same", "changed", "removed", "added"];
    for (const box of svg.querySelectorAll(".box")) {
      const found = box.dataset.nodes
        .split(" ")
        .map((id) => marks[side].get(Number(id)))
        .filter(Boolean);
      if (found.length) box.classList.add(found.reduce((x, y) => (rank.indexOf(y) > rank.indexOf(x) ? y : x)));
    }
    return element(
      "div",
      {},
      element("h3", {}, `${side ? "B" : "A"}: ${report.title}`),
      panned(svg, `graph of ${side ? "B" : "A"}`).canvas,
    );
  });
  if (!sides[0] && !sides[1]) return [];
  const count = (name) => (known[name] ?? []).length;
  return [
    element("h2", {}, "Graphs"),
    element(
      "p",
      {},
      `Nodes: ${count("same")} the same, ${count("changed")} changed, ${count("removed")} only in A, ${count("added")} only in B.`,
    ),
    element("div", { class: "split" }, sides),
  ];
}

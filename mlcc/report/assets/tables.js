// Decisions in words, sizes, the manifest.

// The argument is the index of a decision to show.
function decisionsTab(view, argument) {
  const { decisions } = view.report;
  if (!decisions.length) return [element("p", {}, "No decisions were recorded.")];
  const count = (kind) => decisions.filter((one) => one.kind === kind).length;
  const kinds = [...new Set(decisions.map(({ kind }) => kind))].map((kind) => [kind, `${kind} (${count(kind)})`]);
  const columns = [
    { title: "About", value: ({ kind }) => kind },
    { title: "Subject", value: ({ subject }) => subject, wrap: true },
    { title: "Decision", value: ({ text }) => text, show: ({ text }) => prose(text), wrap: true },
  ];
  const holder = element("div");
  const show = (wanted) => {
    const shown = decisions.filter(({ kind }) => !wanted || kind === wanted);
    holder.replaceChildren(sortable("decisions", columns, shown, { key: (one) => decisions.indexOf(one) }));
  };
  show("");
  const row = argument === null ? null : holder.querySelector(`tr[data-key="${Number(argument)}"]`);
  if (row) {
    row.classList.add("chosen");
    requestAnimationFrame(() => row.scrollIntoView({ block: "center" }));
  }
  const select = choice("kind of decision", [["", `all kinds (${decisions.length})`], ...kinds], "", show);
  return [element("div", { class: "row tools" }, select), holder];
}

function sizesTab(view) {
  const rows = [];
  for (const [name, value] of Object.entries(view.report.sizes ?? {})) {
    if (value && typeof value === "object")
      for (const [inner, bytes] of Object.entries(value)) rows.push([`${name.replaceAll("_", " ")}: ${inner}`, bytes]);
    else rows.push([name.replaceAll("_", " "), value]);
  }
  const most = Math.max(...rows.map(([, value]) => value ?? 0), 1);
  const bar = (value) => {
    const node = element("span", { class: "bar" });
    node.style.width = `${((value ?? 0) / most) * 14}rem`;
    return node;
  };
  const table = element(
    "table",
    {},
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        ["Part", "Size", ""].map((title) => element("th", { scope: "col" }, title)),
      ),
    ),
    element(
      "tbody",
      {},
      rows.map(([name, value]) =>
        element(
          "tr",
          {},
          element("td", {}, name),
          element("td", { class: "number" }, formatBytes(value) || "unknown"),
          element("td", {}, bar(value)),
        ),
      ),
    ),
  );
  const kernels = view.report.kernels.filter(({ code_bytes: bytes }) => bytes);
  return [
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "sizes" }, table),
    ...(kernels.length
      ? [
          element("h2", {}, "Machine code of kernels"),
          sortable(
            "sizes of kernels",
            [
              { title: "Kernel", value: ({ name }) => name },
              {
                title: "Code",
                value: ({ code_bytes: bytes }) => bytes,
                show: ({ code_bytes: bytes }) => formatBytes(bytes),
                number: true,
              },
            ],
            kernels,
            { sorted: 1, open: ({ name }) => view.go("kernels", name) },
          ),
        ]
      : []),
  ];
}

function tree(name, value, open) {
  if (value === null || typeof value !== "object")
    return element(
      "div",
      {},
      name === null ? "" : element("span", { class: "soft" }, `${name}: `),
      value === null ? "none" : String(value),
    );
  const entries = Object.entries(value);
  if (Array.isArray(value) && value.every((one) => one === null || typeof one !== "object"))
    return element(
      "div",
      {},
      element("span", { class: "soft" }, `${name}: `),
      value.length ? value.join(", ") : "none",
    );
  return element(
    "details",
    { open },
    element("summary", {}, name),
    entries.map(([key, one]) => tree(key, one, entries.length < 12)),
  );
}

function manifestTab(view) {
  const { manifest, pipeline } = view.report;
  return [
    element(
      "div",
      { class: "tree" },
      Object.entries(manifest ?? {}).map(([name, value]) => tree(name, value, true)),
    ),
    ...(pipeline ? [element("h2", {}, "Passes"), element("p", {}, pipeline.replaceAll(",", ", "))] : []),
  ];
}

// Decisions in words, sizes, the manifest.

function decisionsTab(view) {
  const { decisions } = view.report;
  const kinds = [...new Set(decisions.map(({ kind }) => kind))];
  const state = (view.states.decisions ??= { kind: "" });
  const columns = [
    { title: "About", value: ({ kind }) => kind },
    { title: "Subject", value: ({ subject }) => subject, wrap: true },
    { title: "Decision", value: ({ text }) => text, wrap: true },
  ];
  const holder = element("div");
  const show = () =>
    holder.replaceChildren(
      sortable(
        "decisions",
        columns,
        decisions.filter(({ kind }) => !state.kind || kind === state.kind),
      ),
    );
  show();
  return decisions.length
    ? [
        element(
          "div",
          { class: "row tools" },
          choice(
            "kind of decision",
            [
              ["", `all kinds (${decisions.length})`],
              ...kinds.map((kind) => [kind, `${kind} (${decisions.filter((one) => one.kind === kind).length})`]),
            ],
            state.kind,
            (value) => {
              state.kind = value;
              show();
            },
          ),
        ),
        holder,
      ]
    : [element("p", {}, "No decisions were recorded.")];
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

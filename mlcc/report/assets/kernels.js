// Kernels: a table, and for each its texts side by side with linked lines, its roofline and why it is as it is.

function perCall(kernel) {
  return kernel.seconds === null || kernel.seconds === undefined
    ? null
    : kernel.seconds / (kernel.measured_calls || kernel.calls || 1);
}

const KERNEL_COLUMNS = [
  { title: "Kernel", value: (kernel) => kernel.name },
  { title: "CPU", value: (kernel) => kernel.cpu },
  { title: "Rule", value: (kernel) => kernel.rule },
  { title: "Calls", value: (kernel) => kernel.calls, number: true },
  { title: "Time", value: (kernel) => kernel.seconds, show: (kernel) => formatSeconds(kernel.seconds), number: true },
  {
    title: "Estimate",
    value: (kernel) => kernel.estimate?.seconds,
    show: (kernel) => formatSeconds(kernel.estimate?.seconds),
    number: true,
  },
  { title: "Operations", value: (kernel) => kernel.flops, show: (kernel) => formatCount(kernel.flops), number: true },
  { title: "Memory", value: (kernel) => kernel.bytes, show: (kernel) => formatBytes(kernel.bytes), number: true },
  { title: "GFLOP/s", value: (kernel) => kernel.gflops, show: (kernel) => formatNumber(kernel.gflops), number: true },
  { title: "GB/s", value: (kernel) => kernel.gbs, show: (kernel) => formatNumber(kernel.gbs), number: true },
  { title: "Of roofline", value: (kernel) => kernel.share, show: (kernel) => formatShare(kernel.share), number: true },
  { title: "Bound", value: (kernel) => kernel.bound ?? kernel.estimate?.bound },
  {
    title: "Code",
    value: (kernel) => kernel.code_bytes,
    show: (kernel) => formatBytes(kernel.code_bytes),
    number: true,
  },
];

const KERNEL_TEXTS = [
  ["tir", "TensorIR", "mlc"],
  ["script", "schedule script", "mlc"],
  ["scheduled", "scheduled TensorIR", "mlc"],
  ["loops", "loop nest", "mlc"],
  ["assembly", "machine code", "assembly"],
];

function kernelsTab(view, argument) {
  const { report } = view;
  if (!report.kernels.length) return [element("p", {}, "There are no kernels.")];
  const columns = KERNEL_COLUMNS.filter(
    (column, k) =>
      k === 0 || report.kernels.some((kernel) => column.value(kernel) !== null && column.value(kernel) !== undefined),
  );
  const key = (kernel) => (kernel.cpu ? `${kernel.name}@${kernel.cpu}` : kernel.name);
  const time = columns.findIndex(({ title }) => title === "Time");
  const table = sortable("kernels", columns, report.kernels, {
    open: (kernel) => view.go("kernels", key(kernel)),
    sorted: time < 0 ? null : time,
    key,
  });
  const chosen =
    report.kernels.find((kernel) => key(kernel) === argument) ??
    report.kernels.find((kernel) => kernel.name === argument);
  if (chosen) [...table.querySelectorAll("tr")].find((row) => row.dataset.key === key(chosen)).classList.add("chosen");
  else
    return [
      table,
      element("p", { class: "soft" }, "Choose a kernel to see its texts from TensorIR to machine code."),
      ...unmeasured(report),
    ];
  const section = element(
    "section",
    { "aria-label": chosen.name },
    element("h2", { tabindex: -1 }, chosen.name),
    ...kernelDetails(view, chosen),
  );
  table.style.maxHeight = "32vh";
  requestAnimationFrame(() => {
    const row = table.querySelector("tr.chosen"),
      head = table.querySelector("thead");
    table.scrollTop = row.offsetTop - head.offsetHeight;
  });
  return [table, section];
}

// How to learn what the report does not know.
function unmeasured(report) {
  if (!report.source || report.profile || report.kernels.some((kernel) => kernel.estimate)) return [];
  const counted = report.kernels.some((kernel) => kernel.flops !== null);
  const text = counted
    ? "Times and rooflines come from a run: `mlcc report` with `--random`, or with arrays by `--in`."
    : "Sizes are symbols: with `--size NAME=N` operations and memory are counted, with `--random` as well kernels are timed.";
  return [element("p", { class: "soft" }, prose(text))];
}

function kernelDetails(view, kernel) {
  const { report } = view;
  const nodes = report.graphs.flatMap((graph) => graph.nodes).filter((node) => kernel.nodes?.includes(node.id));
  const count = kernel.refused?.length;
  const why = facts([
    ["rule", kernel.rule],
    ["because", kernel.why ? element("span", {}, prose(kernel.why)) : null],
    [
      "choices",
      kernel.choices?.length
        ? element(
            "ul",
            {},
            kernel.choices.map((text) => element("li", { class: text.startsWith(" ") ? "part" : null }, prose(text))),
          )
        : null,
    ],
    [
      "refused rules",
      count
        ? element(
            "details",
            {},
            element("summary", {}, String(count)),
            facts(kernel.refused.map(([rule, reason]) => [rule, element("span", {}, prose(reason))])),
          )
        : null,
    ],
    ["version of", kernel.version_of],
    ["for CPUs", kernel.cpu],
    [
      "operators",
      nodes.length
        ? element(
            "span",
            { class: "row" },
            nodes.map((node) =>
              element(
                "button",
                { type: "button", class: "link", click: () => view.go("graph", node.id) },
                node.path || `${node.op} ${node.name}`.trim(),
              ),
            ),
          )
        : null,
    ],
  ]);
  const estimate = kernel.estimate;
  const numbers = facts([
    ["calls", kernel.calls],
    ["operations", formatCount(kernel.flops)],
    ["memory", formatBytes(kernel.bytes)],
    [
      "intensity",
      kernel.flops && kernel.bytes ? `${formatNumber(kernel.flops / kernel.bytes)} operations per byte` : null,
    ],
    ["all calls", formatSeconds(kernel.seconds)],
    ["one call", formatSeconds(perCall(kernel))],
    ["estimate", estimate ? `${formatSeconds(estimate.seconds)}, bound by ${estimate.bound ?? kernel.bound}` : null],
    ["GFLOP/s", formatNumber(kernel.gflops)],
    ["GB/s", formatNumber(kernel.gbs)],
    ["of roofline", formatShare(kernel.share)],
    ["bound", kernel.bound],
    ["machine code", formatBytes(kernel.code_bytes)],
  ]);
  const roof = roofline(report, kernel);
  return [element("div", { class: roof ? "split wide" : "split" }, why, numbers, roof), ...linkedTexts(view, kernel)];
}

// Two texts beside each other; where lines are known to belong together, pointing at one marks the others.
function linkedTexts(view, kernel) {
  const { report } = view;
  const texts = KERNEL_TEXTS.filter(([name]) => kernel[name]).map(([name, title, language]) => ({
    name,
    title,
    language,
    id: kernel[name],
  }));
  if (report.source && kernel.line_table?.length)
    texts.push({ name: "source", title: `source, ${report.source.name}`, language: "mlc", id: report.source.text });
  if (!texts.length) return [];
  const column = { assembly: 0, loops: 1, source: 2 };
  // one row for each line of the source: several calls of the kernel may have made one line of the code
  const links = (kernel.line_table ?? []).flatMap(([code, loop, lines]) =>
    lines.length ? lines.map((line) => [code, loop, line]) : [[code, loop, null]],
  );
  const has = (name) => texts.some((one) => one.name === name);
  const panes = [
    has("loops") ? "loops" : texts[0].name,
    has("assembly") ? "assembly" : has("tir") ? "tir" : texts.at(-1).name,
  ];
  const open = [null, null];
  const holders = [element("div"), element("div")];
  const note = element("div", { "aria-live": "polite" });

  function numbers(rows, at) {
    return [...new Set(rows.map((row) => row[at]).filter((n) => n !== null))].sort((a, b) => a - b);
  }
  function chosen(pane, line, pinned) {
    const at = column[panes[pane]];
    const rows = at === undefined ? [] : links.filter((row) => row[at] === line);
    if (!rows.length && !pinned) return;
    open.forEach((code, k) => {
      const to = column[panes[k]];
      const lines = to === undefined ? [] : k === pane ? [line] : numbers(rows, to);
      code.mark(lines, pinned ? "pinned" : "near", pinned && k !== pane);
    });
    if (!pinned) return;
    const origins = numbers(rows, column.source);
    note.replaceChildren(...origins.flatMap((n) => sourceLines(view, n, origins.length > 1 ? 0 : 2)));
  }

  function show(pane) {
    const text = texts.find((one) => one.name === panes[pane]);
    const at = column[text.name];
    const linked = at === undefined ? null : new Set(links.map((row) => row[at]).filter((n) => n !== null));
    open[pane] = codeView(view.text(text.id), {
      language: text.language,
      label: text.title,
      linked,
      lineChosen: at === undefined ? null : (line, pinned) => chosen(pane, line, pinned),
    });
    holders[pane].replaceChildren(
      element(
        "div",
        { class: "row tools" },
        choice(
          pane ? "right text" : "left text",
          texts.map(({ name, title }) => [name, title]),
          text.name,
          (value) => {
            panes[pane] = value;
            show(pane);
          },
        ),
      ),
      open[pane].view,
    );
  }
  show(0);
  show(1);
  const hint =
    links.length && has("assembly") ? "Lines with a bar belong together: point at one, or click to keep it." : "";
  return [element("p", { class: "soft" }, hint), element("div", { class: "split" }, holders), note];
}

// Operations per second over operations per byte, with the roofs of the machine, on logarithmic axes.
function roofline(report, kernel) {
  const machine = report.profile?.machine;
  const seconds = perCall(kernel);
  if (!machine?.operations_per_second || !kernel.flops || !kernel.bytes || !seconds) return null;
  const roof = machine.operations_per_second;
  const levels = Object.entries(machine.levels ?? {})
    .map(([name, level]) => [name, level.bytes_per_second])
    .filter(([, rate]) => rate);
  const intensity = kernel.flops / kernel.bytes,
    rate = kernel.flops / seconds;
  const ridges = levels.map(([, bandwidth]) => roof / bandwidth);
  const [w, h, left, bottom] = [420, 230, 62, 34];
  const x0 = Math.log10(Math.min(intensity, ...ridges) / 8),
    x1 = Math.log10(Math.max(intensity, ...ridges) * 8);
  const y1 = Math.log10(roof * 3),
    y0 = Math.min(Math.log10(rate / 3), y1 - 3);
  const x = (value) => left + ((Math.log10(value) - x0) / (x1 - x0)) * (w - left - 10);
  const y = (value) => h - bottom - ((Math.log10(value) - y0) / (y1 - y0)) * (h - bottom - 10);
  const parts = [drawn("path", { class: "axis", d: `M${left} 10V${h - bottom}H${w - 10}`, fill: "none" })];
  for (let k = Math.ceil(x0); k <= x1; k += 1)
    parts.push(drawn("text", { x: x(10 ** k), y: h - bottom + 14, "text-anchor": "middle" }, formatNumber(10 ** k)));
  for (let k = Math.ceil(y0); k <= y1; k += 1)
    parts.push(drawn("text", { x: left - 5, y: y(10 ** k) + 4, "text-anchor": "end" }, formatCount(10 ** k)));
  parts.push(
    drawn("text", { x: (w + left) / 2, y: h - 5, "text-anchor": "middle" }, "operations per byte"),
    drawn("text", { x: left + 4, y: 20 }, "operations/s"),
  );
  for (const [name, bandwidth] of levels) {
    const ridge = roof / bandwidth,
      from = Math.max(10 ** x0, 10 ** y0 / bandwidth);
    parts.push(
      drawn("path", { class: "memory-roof", d: `M${x(from)} ${y(from * bandwidth)}L${x(ridge)} ${y(roof)}` }),
      drawn(
        "text",
        { x: x(ridge) + 3, y: y(roof) + 14 + 12 * levels.findIndex(([other]) => other === name) },
        `${name} ${formatCount(bandwidth, "B/s")}`,
      ),
    );
  }
  parts.push(
    drawn("path", { class: "roof", d: `M${x(Math.min(...ridges, 10 ** x1))} ${y(roof)}H${w - 10}` }),
    drawn("circle", { class: "point", cx: x(intensity), cy: y(rate), r: 5 }),
  );
  const words = `roofline: ${formatCount(rate, "op/s")} at ${formatNumber(intensity)} operations per byte, of at most ${formatCount(roof, "op/s")}`;
  return element(
    "figure",
    { class: "panel" },
    drawn("svg", { class: "chart", viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": words }, parts),
    element("figcaption", { class: "soft" }, words),
  );
}

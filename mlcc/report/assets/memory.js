// The memory plan: buffers over time and place, and how much is in use.

function memoryTab(view) {
  const plans = view.report.memory ?? [];
  if (!plans.length) return [element("p", {}, "No function plans memory.")];
  return plans.flatMap((plan) => [
    element("h2", {}, plan.function),
    facts([
      ["workspace", formatBytes(plan.workspace)],
      ["most in use at once", formatBytes(plan.peak)],
      ["steps", plan.steps.length],
      ["buffers", plan.buffers.length],
    ]),
    ...memoryChart(plan),
  ]);
}

function memoryChart(plan) {
  if (!plan.buffers.length) return [element("p", { class: "soft" }, "It keeps nothing between its steps.")];
  const buffers = plan.buffers.filter((buffer) => buffer.bytes !== null && buffer.bytes !== undefined);
  const columns = [
    { title: "Buffer", value: (buffer) => buffer.name, show: (buffer) => prose(buffer.name), wrap: true },
    { title: "Offset", value: (buffer) => buffer.offset, number: true },
    { title: "Bytes", value: (buffer) => buffer.bytes, show: (buffer) => formatBytes(buffer.bytes), number: true },
    { title: "Size", value: (buffer) => buffer.size, wrap: true },
    {
      title: "From",
      value: (buffer) => buffer.first,
      show: (buffer) => `${buffer.first}: ${plan.steps[buffer.first] ?? ""}`,
      wrap: true,
    },
    {
      title: "To",
      value: (buffer) => buffer.last,
      show: (buffer) => `${buffer.last}: ${plan.steps[buffer.last] ?? ""}`,
      wrap: true,
    },
  ];
  const key = (buffer) => String(plan.buffers.indexOf(buffer));
  const table = sortable(`buffers of ${plan.function}`, columns, plan.buffers, { key });
  if (!buffers.length || !plan.steps.length) return [table];
  if (buffers.length < plan.buffers.length) {
    const unknown = plan.buffers.length - buffers.length;
    const text = `The sizes of ${unknown} of ${plan.buffers.length} buffers depend on symbols: with \`--size NAME=N\` the plan is drawn with its peak.`;
    return [element("p", { class: "soft" }, prose(text)), table];
  }
  const steps = plan.steps.length;
  const live = plan.steps.map((_, k) =>
    buffers.filter(({ first, last }) => first <= k && k <= last).reduce((sum, { bytes }) => sum + bytes, 0),
  );
  const placed = buffers.every(({ offset }) => offset !== null && offset !== undefined);
  const top =
    Math.max(
      plan.workspace ?? 0,
      plan.peak ?? 0,
      ...live,
      ...(placed ? buffers.map(({ offset, bytes }) => offset + bytes) : []),
    ) || 1;
  const [w, h, left, bottom] = [900, 320, 76, 40];
  const x = (step) => left + (step / steps) * (w - left - 10),
    y = (bytes) => h - bottom - (bytes / top) * (h - bottom - 14);
  const note = element(
    "p",
    { "aria-live": "polite", class: "soft" },
    "Choose a buffer: its width is the time it is in use, its height its size.",
  );
  const parts = [];
  for (let k = 0; k <= 4; k += 1)
    parts.push(
      drawn("path", { class: "axis", d: `M${left} ${y((top * k) / 4)}H${w - 10}` }),
      drawn(
        "text",
        { x: left - 5, y: y((top * k) / 4) + 4, "text-anchor": "end" },
        formatBytes(Math.round((top * k) / 4)),
      ),
    );
  if (placed)
    buffers.forEach((buffer) => {
      const rect = drawn(
        "rect",
        {
          class: "buffer",
          x: x(buffer.first),
          y: y(buffer.offset + buffer.bytes),
          width: Math.max(x(buffer.last + 1) - x(buffer.first), 1),
          height: Math.max(y(buffer.offset) - y(buffer.offset + buffer.bytes), 1),
          click: () => {
            parts.forEach((part) => part.classList.remove("selected"));
            rect.classList.add("selected");
            note.textContent = `${buffer.name}: ${formatBytes(buffer.bytes)} at ${buffer.offset}, from ${plan.steps[buffer.first]} to ${plan.steps[buffer.last]}`;
            for (const row of table.querySelectorAll("tr"))
              row.classList.toggle("chosen", row.dataset.key === key(buffer));
          },
        },
        drawn("title", {}, `${buffer.name}, ${formatBytes(buffer.bytes)}`),
      );
      parts.push(rect);
    });
  parts.push(
    drawn("path", {
      class: "live",
      d: live.map((bytes, k) => `${k ? "L" : "M"}${x(k)} ${y(bytes)}H${x(k + 1)}`).join(""),
    }),
  );
  const peak = Math.max(...live),
    at = live.indexOf(peak);
  parts.push(
    drawn("path", { class: "peak", d: `M${left} ${y(peak)}H${w - 10}` }),
    drawn("text", { x: Math.min(x(at) + 4, w - 180), y: y(peak) - 4 }, `peak ${formatBytes(peak)}, step ${at}`),
  );
  const every = Math.ceil(steps / 12);
  for (let k = 0; k < steps; k += every)
    parts.push(drawn("text", { x: x(k + 0.5), y: h - bottom + 15, "text-anchor": "middle" }, k));
  parts.push(drawn("text", { x: (w + left) / 2, y: h - 6, "text-anchor": "middle" }, "step"));
  return [
    drawn(
      "svg",
      {
        class: "chart",
        viewBox: `0 0 ${w} ${h}`,
        role: "img",
        "aria-label": `memory in use over ${steps} steps, at most ${formatBytes(peak)} in step ${at}, ${plan.steps[at]}`,
      },
      parts,
    ),
    note,
    table,
  ];
}

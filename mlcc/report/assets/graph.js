// The picture of a graph: pan, zoom, selection, colours by what nodes cost.

function parsedPicture(text) {
  const picture = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  return document.importNode(picture, true);
}

const FAR = 6; // user units in a pixel, above which texts are too small to read

// A box with an SVG inside that pans by dragging and zooms by wheel, pinch and keys.
function panned(svg, label) {
  const [, , width, height] = svg.getAttribute("viewBox").split(/\s+/).map(Number);
  const canvas = element("div", { class: "canvas", tabindex: 0, role: "application", "aria-label": label }, svg);
  let frame = { x: 0, y: 0, w: width, h: height };
  svg.setAttribute("preserveAspectRatio", "xMidYMin meet");
  const show = () => {
    svg.setAttribute("viewBox", `${frame.x} ${frame.y} ${frame.w} ${frame.h}`);
    svg.classList.toggle("far", scale() > FAR);
  };
  const scale = () => {
    const r = canvas.getBoundingClientRect();
    return Math.max(frame.w / r.width, frame.h / r.height) || 1;
  };
  function zoom(factor, x = null, y = null) {
    const rect = canvas.getBoundingClientRect(),
      before = scale();
    const w =
      Math.min(Math.max(before * factor, 0.1), Math.max(width / rect.width, height / rect.height) * 2) * rect.width;
    const at = {
      x: frame.x + frame.w / 2 + ((x ?? rect.left + rect.width / 2) - rect.left - rect.width / 2) * before,
      y: frame.y + ((y ?? rect.top + rect.height / 2) - rect.top) * before,
    };
    const after = w / rect.width,
      h = after * rect.height;
    frame = {
      w,
      h,
      x: at.x - ((x ?? rect.left + rect.width / 2) - rect.left) * after,
      y: at.y - ((y ?? rect.top + rect.height / 2) - rect.top) * after,
    };
    show();
  }
  function settle() {
    // the whole width at a legible size, from the top
    const rect = canvas.getBoundingClientRect();
    if (!rect.width) return;
    const factor = Math.min(Math.max(width / rect.width, 0.8), 1.4),
      w = factor * rect.width;
    const first = width > w ? svg.querySelector(".box") : null;
    const middle = first
      ? Number(first.getAttribute("transform").match(/-?[\d.]+/)[0]) + first.getBBox().width / 2
      : width / 2;
    frame = { w, h: factor * rect.height, x: middle - w / 2, y: 0 };
    if (frame.h > height) frame.y = (height - frame.h) / 2;
    show();
  }
  function fit() {
    frame = { x: 0, y: 0, w: width, h: height };
    show();
    zoom(1);
  }
  function center(box) {
    const [x, y] = box
      .getAttribute("transform")
      .match(/-?[\d.]+/g)
      .map(Number);
    const size = box.querySelector("rect");
    const margin = svg
      .querySelector(".scene")
      .getAttribute("transform")
      .match(/-?[\d.]+/g)
      .map(Number);
    if (scale() > 2) zoom(1 / scale());
    frame.x = margin[0] + x + Number(size.getAttribute("width")) / 2 - frame.w / 2;
    frame.y = margin[1] + y + Number(size.getAttribute("height")) / 2 - frame.h / 2;
    show();
  }
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = fingers.get(event.pointerId);
    if (!last) return;
    const [dx, dy] = [event.clientX - last.clientX, event.clientY - last.clientY];
    moved += Math.abs(dx) + Math.abs(dy);
    if (moved > 4 && !canvas.hasPointerCapture(event.pointerId)) canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 1) {
      const s = scale();
      frame.x -= dx * s;
      frame.y -= dy * s;
      show();
    } else {
      const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
      const gap = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
      zoom(
        gap(last) / Math.max(gap(event), 1),
        (event.clientX + other.clientX) / 2,
        (event.clientY + other.clientY) / 2,
      );
    }
    fingers.set(event.pointerId, event);
  });
  for (const name of ["pointerup", "pointercancel", "pointerleave"])
    canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
  canvas.addEventListener(
    "click",
    (event) => {
      if (moved > 4) event.stopPropagation();
    },
    true,
  );
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.0015), event.clientX, event.clientY);
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step && event.shiftKey) {
      frame.x += (step[0] * frame.w) / 6;
      frame.y += (step[1] * frame.h) / 6;
      show();
    } else if (event.key === "+" || event.key === "=") zoom(0.8);
    else if (event.key === "-") zoom(1.25);
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
  });
  new ResizeObserver(() => {
    if (!canvas.dataset.settled && canvas.clientWidth) {
      canvas.dataset.settled = "yes";
      settle();
    }
  }).observe(canvas);
  return { canvas, zoom, fit, settle, center };
}

function boxesByNode(svg) {
  const boxes = new Map();
  for (const box of svg.querySelectorAll(".box:not(.reference)")) {
    for (const id of box.dataset.nodes.split(" ")) boxes.set(Number(id), box);
    for (const id of (box.dataset.parameters ?? "").split(" ").filter(Boolean))
      if (!boxes.has(Number(id))) boxes.set(Number(id), box);
  }
  return boxes;
}

function graphTitle(graph) {
  return `${graph.function}, ${graph.stage === "source" ? "as written" : graph.stage === "fused" ? "as kernels" : graph.stage}`;
}

// Seconds of one call of each node, measured or estimated.
function nodeSeconds(report, node) {
  const kernel = report.kernels.find(({ name }) => name === node.kernel);
  if (!kernel) return null;
  const all = kernel.seconds ?? kernel.estimate?.seconds ?? null;
  return all === null ? null : all / (kernel.calls || 1);
}

const COST = {
  time: { title: "time", of: nodeSeconds, format: formatSeconds },
  bytes: { title: "bytes of the result", of: (report, node) => node.bytes, format: formatBytes },
};

const FAMILY = { kernel: (node) => node.kernel, module: (node) => node.path.split(".").slice(0, 2).join(".") };

// A colour that a name always has, pale enough for text.
function colourOf(name) {
  const hue = [...name].reduce((hash, letter) => (hash * 31 + letter.codePointAt(0)) % 3600, 7) / 10;
  return `light-dark(oklch(0.91 0.07 ${hue}), oklch(0.33 0.07 ${hue}))`;
}

function colour(report, graph, svg, by) {
  for (const rect of svg.querySelectorAll(".box rect")) rect.style.fill = "";
  if (FAMILY[by]) {
    const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
    for (const box of svg.querySelectorAll(".box.call, .box.group")) {
      const name = FAMILY[by](nodes.get(Number(box.dataset.nodes.split(" ")[0])));
      box.querySelector("rect").style.fill = name ? colourOf(name) : "var(--panel)";
    }
    return element("span", { class: "legend" }, `one colour for each ${by}`);
  }
  if (!COST[by]) return null;
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const costs = new Map();
  for (const box of svg.querySelectorAll(".box.call, .box.group, .box.input")) {
    const values = box.dataset.nodes
      .split(" ")
      .map((id) => COST[by].of(report, nodes.get(Number(id))))
      .filter((value) => value !== null && value !== undefined);
    if (by === "time") {
      // a kernel counts once in a box
      const kernels = new Map(
        box.dataset.nodes
          .split(" ")
          .map((id) => nodes.get(Number(id)))
          .map((node) => [node.kernel, COST.time.of(report, node)]),
      );
      values.splice(0, values.length, ...[...kernels.values()].filter((value) => value !== null));
    }
    if (values.length)
      costs.set(
        box,
        values.reduce((a, b) => a + b, 0),
      );
  }
  const most = Math.max(...costs.values(), 0);
  for (const [box, cost] of costs) {
    const share = most ? Math.sqrt(cost / most) * 100 : 0;
    box.querySelector("rect").style.fill = `color-mix(in oklab, var(--hot) ${share.toFixed(0)}%, var(--cold))`;
  }
  return element("span", { class: "legend" }, "0", element("i"), costs.size ? COST[by].format(most) : "unknown");
}

// The graph that is shown first: that of `main`, of which private functions may come before.
function firstGraph(report) {
  return Math.max(
    report.graphs.findIndex((graph) => graph.function === "main"),
    0,
  );
}

function graphTab(view, argument) {
  const { report } = view;
  if (!report.graphs.length) return [element("p", {}, "The report of an artifact has no graph.")];
  const wanted = argument === null ? null : Number(argument);
  const found = report.graphs.findIndex((graph) => graph.nodes.some((node) => node.id === wanted));
  const state = (view.states.graph ??= { graph: firstGraph(report), detail: null, colour: "kind" });
  if (found >= 0) state.graph = found;
  const holder = element("div"),
    details = element("div", { class: "panel", "aria-live": "polite" });
  const tools = element("div", { class: "row tools" });
  let shown = null;

  function draw(select) {
    const graph = report.graphs[state.graph],
      drawings = report.pictures[state.graph];
    let detail = state.detail === null ? null : drawings.findIndex((one) => one.depth === state.detail);
    if (detail === null || detail < 0) detail = drawings.findLastIndex((one) => one.boxes <= 400);
    if (detail < 0) detail = 0;
    const svg = parsedPicture(drawings[detail].svg);
    const pan = panned(
      svg,
      `graph of ${graphTitle(graph)}; arrows follow edges, shift and arrows move, plus and minus zoom`,
    );
    const boxes = boxesByNode(svg);
    shown = { graph, svg, pan, boxes, selected: null };
    svg.addEventListener("click", (event) => {
      const box = event.target.closest(".box");
      if (box) pick(Number(box.dataset.nodes.split(" ").at(-1)), box.classList.contains("reference"));
    });
    pan.canvas.addEventListener("keydown", follow);
    holder.replaceChildren(pan.canvas);
    const legend = element("span");
    const recolour = () => legend.replaceChildren(...[colour(report, graph, svg, state.colour)].filter(Boolean));
    recolour();
    tools.replaceChildren(
      report.graphs.length > 1
        ? choice(
            "graph",
            report.graphs.map((one, k) => [k, graphTitle(one)]),
            state.graph,
            (value) => {
              state.graph = Number(value);
              state.detail = null;
              draw(null);
            },
          )
        : element("span", {}, graphTitle(graph)),
      drawings.length > 1
        ? choice(
            "detail",
            drawings.map((one) => [
              one.depth,
              one.depth === 0 ? `every operator (${one.boxes})` : `modules, ${one.depth} deep (${one.boxes})`,
            ]),
            drawings[detail].depth,
            (value) => {
              state.detail = Number(value);
              draw(null);
            },
          )
        : "",
      element(
        "label",
        {},
        "Colour: ",
        choice(
          "colour",
          [
            ["kind", "kind"],
            ["time", "time"],
            ["bytes", "bytes"],
            ["kernel", "kernel"],
            ["module", "module"],
          ],
          state.colour,
          (value) => {
            state.colour = value;
            recolour();
          },
        ),
      ),
      element("button", { type: "button", "aria-label": "zoom in", click: () => pan.zoom(0.8) }, "+"),
      element("button", { type: "button", "aria-label": "zoom out", click: () => pan.zoom(1.25) }, "−"),
      element("button", { type: "button", click: pan.fit }, "Whole graph"),
      legend,
    );
    highlight();
    if (select !== null) pick(select, true);
    else describe(null);
  }

  function highlight() {
    shown.svg.querySelectorAll(".found").forEach((box) => box.classList.remove("found"));
    for (const id of view.foundNodes) shown.boxes.get(id)?.classList.add("found");
  }

  function pick(id, bring) {
    const { svg, boxes, pan } = shown;
    const box = boxes.get(id);
    svg.querySelectorAll(".selected").forEach((one) => one.classList.remove("selected"));
    if (!box) return;
    shown.selected = id;
    box.classList.add("selected");
    const ids = new Set(box.dataset.nodes.split(" "));
    svg
      .querySelectorAll(".edge")
      .forEach((edge) => edge.classList.toggle("selected", ids.has(edge.dataset.from) || ids.has(edge.dataset.to)));
    if (bring) {
      pan.canvas.dataset.settled = "yes";
      requestAnimationFrame(() => pan.center(box));
    }
    describe(id, box);
  }

  function follow(event) {
    const { graph, selected } = shown;
    if (event.shiftKey || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const listed = graph.nodes.filter((node) => node.kind !== "constant").map((node) => node.id);
    let next = listed[0];
    if (selected !== null) {
      const users = graph.edges.filter(([a]) => a === selected).map(([, b]) => b);
      const operands = graph.edges
        .filter(([, b]) => b === selected)
        .map(([a]) => a)
        .filter((id) => listed.includes(id));
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "ArrowDown") [next] = users;
      else if (event.key === "ArrowUp") [next] = operands;
      else next = listed[listed.indexOf(selected) + step];
    }
    if (next !== undefined) pick(next, true);
  }

  function describe(id, box = null) {
    const { graph } = shown;
    if (id === null) {
      details.replaceChildren(
        element(
          "p",
          { class: "soft" },
          "Choose a box to see what it is, its kernel and its line. Drag to move, turn the wheel to zoom; the arrow keys follow edges.",
        ),
        facts([
          ["boxes", shown.svg.querySelectorAll(".box").length],
          ["operators", graph.nodes.filter((node) => node.kind === "call").length],
          ["constants", graph.nodes.filter((node) => node.kind === "constant").length],
        ]),
      );
      return;
    }
    const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
    const node = nodes.get(id);
    const link = (other) =>
      element(
        "li",
        {},
        element(
          "button",
          { type: "button", class: "link", click: () => pick(other, true) },
          nodes.get(other).name || nodes.get(other).op,
        ),
        " ",
        element("span", { class: "soft" }, nodes.get(other).shape),
      );
    const list = (title, ids) =>
      ids.length
        ? [
            element("h3", {}, title),
            element(
              "ul",
              {},
              ids.slice(0, 30).map(link),
              ids.length > 30 ? element("li", {}, `and ${ids.length - 30} more`) : null,
            ),
          ]
        : [];
    const members = box.dataset.nodes.split(" ").map(Number);
    details.replaceChildren(
      element("h2", { style: null }, node.op || node.name),
      facts([
        ["name", node.name],
        ["kind", node.kind],
        ["shape", `${node.shape} ${node.dtype}`],
        ["module", node.path],
        ["result", formatBytes(node.bytes)],
        ["time", formatSeconds(nodeSeconds(report, node))],
        [
          "kernel",
          node.kernel && report.kernels.some(({ name }) => name === node.kernel)
            ? element(
                "button",
                { type: "button", class: "link", click: () => view.go("kernels", node.kernel) },
                node.kernel,
              )
            : node.kernel,
        ],
      ]),
      ...sourceLines(view, node.line),
      ...list(
        "Operands",
        graph.edges.filter(([, b]) => b === id).map(([a]) => a),
      ),
      ...list(
        "Users",
        graph.edges.filter(([a]) => a === id).map(([, b]) => b),
      ),
      ...(members.length > 1 ? list("In this box", members) : []),
    );
  }

  draw(found >= 0 ? wanted : null);
  view.onFound = highlight;
  return [tools, element("div", { class: "sided" }, holder, details)];
}

// A line of the source with `around` lines before and after it.
function sourceLines(view, line, around = 2) {
  const { source } = view.report;
  if (!source || !line) return [];
  const lines = view.text(source.text).split("\n");
  const first = Math.max(1, line - around);
  const code = codeView(lines.slice(first - 1, line + around).join("\n"), { first, label: "source", short: true });
  code.mark([line], "near");
  return [element("h3", {}, `${source.name}:${line}`), code.view];
}

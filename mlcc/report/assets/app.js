// The page: header, tabs, search, theme.

async function unpacked() {
  const bytes = Uint8Array.from(atob(document.getElementById("data").textContent.trim()), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

const TABS = [
  ["difference", "Difference", differenceTab],
  ["graph", "Graph", graphTab],
  ["passes", "Passes", passesTab],
  ["kernels", "Kernels", kernelsTab],
  ["decisions", "Decisions", decisionsTab],
  ["memory", "Memory", memoryTab],
  ["sizes", "Sizes", sizesTab],
  ["manifest", "Manifest", manifestTab],
];

function start(data) {
  const two = Boolean(data.a && data.b);
  const tabs = TABS.filter(([name]) => two || name !== "difference");
  const view = {
    data,
    report: two ? data.a : data,
    states: {},
    foundNodes: new Set(),
    onFound: null,
    text: (id) => view.report.texts[id] ?? "",
    go,
  };
  const app = document.getElementById("app");
  const about = element("div", { class: "about" });
  const panel = element("div", { role: "tabpanel", id: "panel", tabindex: 0 });
  let sides = null;
  const buttons = tabs.map(([name, title]) =>
    element(
      "button",
      { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", click: () => go(name) },
      title,
    ),
  );
  const list = element(
    "div",
    {
      role: "tablist",
      "aria-label": "parts of the report",
      keydown: (event) => {
        const at = buttons.indexOf(document.activeElement);
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        const button = buttons[(to + buttons.length) % buttons.length];
        button.focus();
        button.click();
      },
    },
    buttons,
  );

  // Where the page is: #tab or #tab/argument, for both reports #b:tab/argument.
  function place() {
    const [, side, tab, argument] = /^#(?:(b):)?([^/]*)(?:\/(.*))?$/s.exec(location.hash) ?? [];
    const known = tabs.some(([name]) => name === tab) ? tab : tabs[0][0];
    let decoded = null;
    try {
      decoded = argument === undefined ? null : decodeURIComponent(argument);
    } catch {
      /* a damaged address */
    }
    return { side: side && two ? "b" : "a", tab: known, argument: decoded };
  }
  function go(tab, argument = null, side = place().side) {
    const hash = `#${side === "b" ? "b:" : ""}${tab}${argument === null ? "" : `/${encodeURIComponent(argument)}`}`;
    if (location.hash !== hash) history.pushState(null, "", hash);
    show();
  }
  function show() {
    const { side, tab, argument } = place();
    const report = two ? data[side] : data;
    if (view.report !== report) {
      view.report = report;
      view.states = {};
      view.foundNodes = new Set();
    }
    view.onFound = null;
    head();
    buttons.forEach((button) => {
      const chosen = button.id === `tab-${tab}`;
      button.setAttribute("aria-selected", chosen);
      button.tabIndex = chosen ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", `tab-${tab}`);
    panel.replaceChildren(
      ...tabs
        .find(([name]) => name === tab)[2](view, argument)
        .filter(Boolean),
    );
  }
  function head() {
    // what is shown, compiled how
    const { report } = view;
    const line = [
      report.target,
      report.level === null || report.level === undefined ? null : `-O${report.level}`,
      report.profile?.seconds ? `${formatSeconds(report.profile.seconds)} a run` : null,
      `mlcc ${report.mlcc ?? data.mlcc ?? ""}`,
    ]
      .filter(Boolean)
      .join(" · ");
    const both = two && place().tab === "difference";
    const title = both ? `${data.a.title} and ${data.b.title}` : report.title;
    about.replaceChildren(element("h1", {}, title), element("p", {}, both ? `mlcc ${report.mlcc}` : line));
    if (sides) sides.hidden = both;
    if (sides) sides.value = place().side;
  }

  // Search over nodes, kernels, passes, decisions and the source.
  function entries() {
    const { report } = view;
    const all = [];
    for (const graph of report.graphs)
      for (const node of graph.nodes)
        if (node.kind !== "constant" || node.name)
          all.push({
            text: [node.name, node.op, node.path, node.kernel, node.shape].filter(Boolean).join(" "),
            title: node.op ? `${node.op} ${node.name}` : node.name,
            note: `${graphTitle(graph)}${node.path ? `, ${node.path}` : ""}`,
            node: node.id,
            open: () => go("graph", node.id),
          });
    for (const kernel of report.kernels)
      all.push({
        text: [kernel.name, kernel.rule, kernel.bound].filter(Boolean).join(" "),
        title: kernel.name,
        note: `kernel${kernel.cpu ? ` for ${kernel.cpu}` : ""}`,
        open: () => go("kernels", kernel.cpu ? `${kernel.name}@${kernel.cpu}` : kernel.name),
      });
    report.stages.forEach((stage, k) =>
      all.push({ text: stage.pass, title: stage.pass, note: "pass", open: () => go("passes", k) }),
    );
    report.decisions.forEach((decision, k) =>
      all.push({
        text: `${decision.subject} ${decision.text}`,
        title: decision.subject,
        note: decision.text,
        open: () => go("decisions", k),
      }),
    );
    return all;
  }
  const results = element("ul", { id: "results", role: "listbox", "aria-label": "found", hidden: true });
  const search = element("input", {
    type: "search",
    placeholder: "Search ( / )",
    "aria-label": "search nodes, kernels, passes and decisions",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "results",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
    input: find,
    keydown: choose,
  });
  let found = [],
    at = -1;
  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length
      ? entries().filter(({ text }) => {
          const low = text.toLowerCase();
          return words.every((word) => low.includes(word));
        })
      : [];
    // what is called so comes first, then what has the words in its name
    const rank = ({ title }) => {
      const low = title.toLowerCase();
      return low === words.join(" ") ? 0 : words.every((word) => low.includes(word)) ? 1 : 2;
    };
    found.sort((a, b) => rank(a) - rank(b));
    view.foundNodes = new Set(found.filter(({ node }) => node !== undefined).map(({ node }) => node));
    view.onFound?.();
    at = -1;
    const shown = found.slice(0, 60);
    results.replaceChildren(
      ...shown.map((entry, k) =>
        element(
          "li",
          {
            id: `result-${k}`,
            role: "option",
            "aria-selected": "false",
            pointerdown: (event) => {
              event.preventDefault();
              take(k);
            },
          },
          entry.title,
          element("small", {}, entry.note),
        ),
      ),
      ...(words.length
        ? [
            element(
              "li",
              { role: "option", "aria-disabled": "true", "aria-selected": "false" },
              element("small", {}, found.length > 60 ? `60 of ${found.length}` : `${found.length} found`),
            ),
          ]
        : []),
    );
    open(words.length > 0);
  }
  function open(yes) {
    results.hidden = !yes;
    search.setAttribute("aria-expanded", yes);
    if (!yes) search.removeAttribute("aria-activedescendant");
  }
  function take(k) {
    open(false);
    found[k]?.open();
  }
  function choose(event) {
    const count = Math.min(found.length, 60);
    if (event.key === "Escape") {
      search.value = "";
      find();
      search.blur();
    } else if (event.key === "Enter") take(Math.max(at, 0));
    else if (count && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + count) % count;
      [...results.children].forEach((item, k) => item.setAttribute("aria-selected", k === at));
      search.setAttribute("aria-activedescendant", `result-${at}`);
      results.children[at].scrollIntoView({ block: "nearest" });
    }
  }
  search.addEventListener("blur", () => open(false));
  search.addEventListener("focus", () => {
    if (search.value) open(true);
  });
  document.addEventListener("keydown", (event) => {
    if (
      event.key === "/" &&
      !/^(input|select|textarea)$/i.test(document.activeElement?.tagName ?? "") &&
      !event.ctrlKey &&
      !event.metaKey
    ) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  });

  const dark = () =>
    (document.documentElement.dataset.theme ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const theme = element(
    "button",
    {
      type: "button",
      "aria-label": "switch between light and dark",
      click: () => {
        document.documentElement.dataset.theme = dark() ? "light" : "dark";
      },
    },
    "◐",
  );
  sides = two
    ? choice(
        "which report",
        [
          ["a", `A: ${data.a.title}`],
          ["b", `B: ${data.b.title}`],
        ],
        place().side,
        (side) => go(place().tab === "difference" ? "graph" : place().tab, null, side),
      )
    : null;
  app.replaceChildren(
    element("header", {}, about, sides, element("div", { class: "search" }, search, results), theme),
    list,
    element("main", {}, panel),
  );
  addEventListener("hashchange", show); // a place typed, or the way back
  show();
  document.documentElement.dataset.ready = "yes";
}

unpacked()
  .then(start)
  .catch((error) => {
    document
      .getElementById("app")
      .replaceChildren(
        element("p", { class: "error", role: "alert" }, `This report cannot be shown: ${error.message}`),
      );
    throw error;
  });

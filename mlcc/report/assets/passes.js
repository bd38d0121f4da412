// What every pass changed.

function changedFunctions(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.filter((name) => before[name] !== after[name]);
}

function passesTab(view, argument) {
  const { stages } = view.report;
  if (!stages.length) return [element("p", {}, "The report of an artifact has no passes.")];
  const changes = stages.map((stage, k) =>
    k ? changedFunctions(stages[k - 1].functions, stage.functions) : Object.keys(stage.functions),
  );
  const content = element("div");
  const list = element("ul", { class: "stages" });
  const buttons = new Map();
  let idle = [];
  const flush = () => {
    if (idle.length)
      list.append(
        element(
          "li",
          { class: "none" },
          `${idle.length === 1 ? "unchanged by" : `unchanged by ${idle.length}:`} ${idle.join(", ")}`,
        ),
      );
    idle = [];
  };
  stages.forEach((stage, k) => {
    if (k && !changes[k].length) {
      idle.push(stage.pass);
      return;
    }
    flush();
    const count = changes[k].length;
    const button = element(
      "button",
      { type: "button", click: () => view.go("passes", k) },
      stage.pass,
      " ",
      element(
        "small",
        {},
        k ? `${count} function${count === 1 ? "" : "s"}, ${formatSeconds(stage.seconds)}` : "the text as it was read",
      ),
    );
    buttons.set(k, button);
    list.append(element("li", {}, button));
  });
  flush();
  const wanted = Number(argument);
  const first = [...buttons.keys()].find((k) => k > 0) ?? 0;
  const shown = argument !== null && buttons.has(wanted) ? wanted : first;
  buttons.get(shown).setAttribute("aria-current", "true");

  const stage = stages[shown];
  content.append(element("h2", {}, shown ? `${stage.pass}: before and after` : "source"));
  if (shown)
    content.append(
      element("p", { class: "soft" }, `Pass ${shown} of ${stages.length - 1}, ${formatSeconds(stage.seconds)}`),
    );
  let open = 0;
  for (const name of changes[shown]) {
    const before = shown ? stages[shown - 1].functions[name] : null,
      after = stage.functions[name];
    const what = !shown ? "" : before === undefined ? " (new)" : after === undefined ? " (removed)" : "";
    const body = element("div");
    const show = () => {
      if (body.childElementCount) return;
      if (shown && before !== undefined && after !== undefined)
        body.append(diffView(view.text(before), view.text(after), `${name} before and after ${stage.pass}`));
      else body.append(codeView(view.text(after ?? before), { label: name }).view);
    };
    const isOpen = open < 3;
    open += 1;
    const part = element(
      "details",
      {
        open: isOpen,
        toggle: () => {
          if (part.open) show();
        },
      },
      element("summary", {}, `${name}${what}`),
      body,
    );
    if (isOpen) show();
    content.append(part);
  }
  if (!changes[shown].length) content.append(element("p", {}, "No pass changed anything."));
  return [element("div", { class: "listed" }, element("nav", { "aria-label": "passes" }, list), content)];
}

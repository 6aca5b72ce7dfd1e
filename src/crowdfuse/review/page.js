// The review page. Names of items, classes and annotators are only ever inserted as text, never as markup.
"use strict";

const byId = (id) => document.getElementById(id);
const token = document.querySelector("meta[name=crowdfuse-token]").content;
let about = null; // what does not change during the session
let view = null; // what is shown now; its n_ledger_lines, the number of lines in the ledger, never decreases
let viewFilter = null; // the filter that the view was requested for
let waiting = true; // for the answer to a request of `exchange`
let loading = false; // the image of the item
let round = 0; // increases with every request of `exchange` and every view that is shown
const ownLines = []; // ledger lines that this tab wrote; undo takes the last
let refitTimer = 0;
let refitRound = 0; // increases with every request for the state of the refit and every refit that is started
let byPointer = false;
let serverUnreachable = false;

function createElement(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const isolateText = (text, tag = "bdi", options = {}) =>
  createElement(tag, { text, dir: "auto", ...(String(text).length > 40 ? { title: text } : {}), ...options }); // long names are cut off, so the title has them in full
// the same rule as format_confidence in labels/number_format.py, so that page and report show the same digits
const formatPercent = (share) => (share === null || share === undefined ? "unknown" : share > 0 && share < 0.005 ? "< 0.5 %" : share >= 0.9995 && share < 1 ? "> 99.9 %" : `${(100 * share).toFixed(share >= 0.995 && share < 1 ? 1 : 0)} %`);
const formatNumber = (value) => value.toLocaleString("en-US");
const formatCount = (value, noun) => `${formatNumber(value)} ${noun}${value === 1 ? "" : "s"}`;

function shareBar(share, kind = "") {
  const fill = createElement("i");
  fill.style.width = `${100 * Math.min(1, Math.max(0, share || 0))}%`;
  return createElement("div", { class: `track ${kind}`, "aria-hidden": "true" }, fill);
}

function announce(text) {
  byId("live").textContent = "";
  requestAnimationFrame(() => { byId("live").textContent = text; });
}
function showError(text) {
  if (byId("error").textContent !== text) byId("error").textContent = text; // announced once, not with every poll
  byId("error").hidden = !text;
  serverUnreachable = false;
}
const isBusy = () => waiting || loading; // no decision before the item is visible

// ---- requests to the server -------------------------------------------------------------------

async function requestJson(path, body) {
  // reading requests carry the token too: another run may be served at this address by now
  const options = body === undefined ? { headers: { "x-crowdfuse-token": token } } : {
    method: "POST", body: JSON.stringify(body),
    headers: { "content-type": "application/json", "x-crowdfuse-token": token },
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("crowdfuse review does not answer. All decisions are on disk; start it again, then reload this page.");
  }
  let content;
  try {
    content = await answer.json();
  } catch {
    throw new Error(`crowdfuse review answered with status ${answer.status} and no message; see its terminal.`);
  }
  if (!answer.ok) throw Object.assign(new Error(content.error), { view: content.view });
  return content;
}

function filterParameters(more = {}) {
  const parameters = new URLSearchParams({ items: byId("items").value, ...more });
  if (byId("annotator").value) parameters.set("annotator", byId("annotator").value);
  if (byId("class").value) parameters.set("class", byId("class").value);
  return parameters;
}

// Decisions and changes of the filter are sent one at a time, so their answers arrive in order. Polling continues
// meanwhile, so `pollView` has to recognize answers that arrive too late.
async function exchange(send, message) {
  waiting = true;
  round += 1;
  const filterText = String(filterParameters());
  let found = null;
  let problem = "";
  try {
    found = await send(filterText);
  } catch (error) {
    problem = error.message;
    message = problem;
    found = error.view;
  }
  waiting = false;
  if (String(filterParameters()) !== filterText) await loadView(message); // the filter was changed before the answer arrived
  else if (found) show(found, filterText, message);
  if (problem) showError(problem);
}

function sendDecision(action, body, message) {
  if (isBusy()) return;
  showError("");
  exchange(async (filterText) => {
    try {
      const done = await requestJson(`api/${action}?${filterText}`, body);
      if (action === "undo") ownLines.pop();
      else ownLines.push(done.line);
      return done.view;
    } catch (error) {
      if (error.view && action === "undo") ownLines.pop();
      throw error;
    }
  }, message);
}
const shownItem = () => ({ index: view.item.index, facts_hash: view.item.facts_hash, version: view.item.version });

function settle(label) {
  if (!view || !view.item || isBusy()) return;
  const name = about.classes[label].name;
  const button = byId("classes").querySelector(`[data-label="${label}"]`);
  if (button) button.classList.add("chosen");
  sendDecision("settle", { ...shownItem(), label }, `Settled as ${name}.`);
}
const skip = () => view && view.item && sendDecision("skip", shownItem(), "Skipped.");
function undo() {
  const line = ownLines.length ? ownLines[ownLines.length - 1] : view && view.last_decision && view.last_decision.line;
  if (line) sendDecision("undo", { line }, "Undone.");
}

const loadView = (message) => exchange(async (filterText) => {
  const found = await requestJson(`api/view?${filterText}`);
  showError("");
  return found;
}, message);

// Other tabs and other people may review the same run. An answer is dropped if a decision was sent or a view was shown
// after its request: it may be older than the view, or show an item that was left since.
async function pollView() {
  if (document.hidden || isBusy()) return;
  const filterText = String(filterParameters());
  if (filterText !== viewFilter) { // the view of this filter did not arrive
    await loadView();
    return;
  }
  const requestRound = round;
  const before = view.item;
  let found;
  try {
    found = await requestJson(`api/view?${filterParameters(before ? { n_ledger_lines: view.n_ledger_lines, at: before.index } : { n_ledger_lines: view.n_ledger_lines })}`);
  } catch (error) {
    if (requestRound !== round) return;
    showError(error.message);
    serverUnreachable = true;
    return;
  }
  if (serverUnreachable) showError("");
  if (requestRound !== round || found.n_ledger_lines <= view.n_ledger_lines) return;
  const stays = found.item && before && found.item.index === before.index;
  if (stays && found.item.version === before.version && found.item.facts_hash === before.facts_hash) {
    view = found;
    showProgress();
  } else {
    show(found, filterText, stays ? "The item was changed in another tab." : before ? "The item was settled in another tab." : "");
  }
}

// ---- showing the item and the progress -------------------------------------------------------

function show(found, filterText, message = "") {
  view = found;
  viewFilter = filterText;
  loading = false;
  round += 1;
  showProgress();
  const item = view.item;
  document.querySelector("main").classList.toggle("finished", !item);
  byId("done").hidden = Boolean(item);
  if (!item) {
    showEnd();
    announce(`${message} ${byId("done-title").textContent}`);
    return;
  }
  byId("name").replaceChildren(isolateText(item.item));
  showInput(item);
  showEstimates(item.facts);
  showLabels(item.facts);
  showClasses(item.facts);
  announce(`${message} Item ${item.item}. Consensus ${item.facts.consensus}, ${formatPercent(item.facts.confidence)}.`);
}

function showProgress() {
  const left = view.n_items - view.n_settled;
  byId("bar").max = Math.max(1, view.n_items);
  byId("bar").value = view.n_settled;
  byId("progress").textContent = `${formatNumber(view.n_settled)} of ${formatNumber(view.n_items)} settled` +
    (view.n_skipped ? `, ${formatNumber(view.n_skipped)} skipped` : "") + `, ${formatNumber(left)} to go`;
  byId("export").setAttribute("aria-disabled", String(!view.n_decisions));
  byId("export").textContent = view.n_decisions ? `Export gold (${formatNumber(view.n_decisions)})` : "Export gold";
  byId("refit").disabled = !view.n_decisions;
  byId("undo").disabled = !ownLines.length && !view.last_decision;
  byId("last").replaceChildren();
  if (view.last_decision) {
    const what = view.last_decision.action === "skip" ? ["skipped ", isolateText(view.last_decision.item)]
      : [isolateText(view.last_decision.item), " is ", isolateText(view.last_decision.label, "b")];
    byId("last").replaceChildren(createElement("span", { class: "clamp" }, "Last: ", ...what));
  }
}

function showEnd() {
  const all = byId("items").value === "all" && !byId("annotator").value && !byId("class").value;
  byId("done-title").textContent = view.n_items ? "All settled." : "No items match this filter.";
  byId("done-text").textContent = all ? "Export the decisions as gold labels, or refit to see what they change."
    : "Choose other items above, export the decisions as gold labels, or refit to see what they change.";
  byId("done-title").focus();
}

function showInput(item) {
  const box = byId("input");
  const input = item.facts.input;
  box.className = "";
  byId("file").textContent = "";
  byId("words").replaceChildren();
  byId("enlarge").hidden = true;
  if (input.kind === "values") {
    const list = createElement("dl");
    for (const [name, value] of input.values) {
      list.append(createElement("div", {}, isolateText(name, "dt"), createElement("dd", { text: Number(value.toPrecision(5)) })));
    }
    box.className = "values";
    box.replaceChildren(list);
    if (input.n_more) box.append(createElement("p", { class: "quiet", text: `and ${formatCount(input.n_more, "value")} more` }));
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Values of the item");
    return;
  }
  if (input.kind === "text") {
    box.className = "text";
    box.replaceChildren(createElement("p", { dir: "auto" }, ...highlightedText(input)));
    box.scrollTop = 0;
    if (input.predicted !== null) byId("words").replaceChildren(...wordsLegend(input));
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Text of the item");
    return;
  }
  box.removeAttribute("tabindex");
  box.removeAttribute("role");
  box.removeAttribute("aria-label");
  if (input.kind === "missing") {
    showMissingInput("The input of this item cannot be shown.", input.reason);
    return;
  }
  if (!input.exists) {
    showMissingInput("The image file does not exist any more.", input.file);
    return;
  }
  byId("file").replaceChildren(isolateText(input.file));
  loading = true;
  const image = createElement("img", { alt: `Item ${item.item}` });
  image.addEventListener("load", () => {
    if (!image.isConnected) return; // another item is shown now
    image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) <= 128);
    loading = false;
    byId("enlarge").hidden = false;
    if (view.next_image !== null) new Image().src = `image/${view.next_image}`; // so that the next item shows at once
  });
  image.addEventListener("error", async () => {
    const answer = await fetch(image.src).then((found) => found.json()).catch(() => ({ error: input.file }));
    if (!image.isConnected) return;
    showMissingInput("The image cannot be shown.", answer.error);
    loading = false;
  });
  image.src = `image/${item.index}`;
  box.replaceChildren(image);
}

function highlightedText(input) {
  return input.parts.map(([text, strength]) => strength === 0 ? text
    : createElement("mark", { class: `${strength > 0 ? "for" : "against"} m${Math.abs(strength)}`, text }));
}
function wordsLegend(input) {
  const names = (words) => words.flatMap((word, place) => [place ? ", " : "", isolateText(word)]);
  const [pro, contra] = [input.words_for, input.words_against];
  const legend = [];
  if (pro.length) legend.push(createElement("span", { class: "for", text: "For" }), " the prediction ", isolateText(input.predicted, "b"), ": ", ...names(pro), ". ");
  if (contra.length) legend.push(createElement("span", { class: "against", text: "Against" }), ...(pro.length ? [" it: "] : [" the prediction ", isolateText(input.predicted, "b"), ": "]), ...names(contra), ". ");
  return [...legend, "(gradient times input)"];
}

function enlarge() {
  const image = byId("input").querySelector("img");
  if (!image || byId("enlarge").hidden) return;
  byId("large").src = image.src;
  byId("large").alt = image.alt;
  byId("large").classList.toggle("tiny", image.classList.contains("tiny"));
  byId("large-title").replaceChildren(isolateText(view.item.item));
  byId("large-box").showModal();
}

function showMissingInput(title, text) {
  byId("input").replaceChildren(createElement("div", { class: "missing" }, createElement("b", { text: title }), isolateText(text)));
}

function showEstimates(facts) {
  const rows = [
    ["consensus", "Consensus, given all labels and the input", facts.consensus, facts.confidence],
    ["", "Prediction of the model, from the input alone", facts.predicted, facts.predicted_confidence],
  ];
  byId("explanation").textContent = facts.explanation || "";
  byId("explanation").hidden = !facts.explanation;
  byId("weight-note").textContent = facts.weight_note || "";
  byId("weight-note").hidden = !facts.weight_note;
  byId("estimates").replaceChildren(...rows.filter((row) => row[2] !== null).map(([kind, title, label, share]) =>
    createElement("div", { class: kind }, createElement("dt", { text: title }),
      createElement("dd", { class: "clamp" }, isolateText(label)), createElement("dd", { class: "share", text: formatPercent(share) }), shareBar(share))));
}

function showLabels(facts) {
  byId("counts").replaceChildren(createElement("span", { class: "clamp" }, ...facts.label_counts.flatMap((entry, place) =>
    [`${place ? ", " : ""}${formatNumber(entry.n_labels)} × `, isolateText(entry.label), ` (${place ? "" : "probability "}${formatPercent(entry.probability).replaceAll(" ", "\u00a0")})`])));
  byId("labels").replaceChildren(...facts.labels.map((line) => {
    const differs = line.label !== facts.consensus;
    const chip = createElement("span", { class: differs ? "chip differs" : "chip" }, isolateText(line.label, "span", { class: "clamp" }));
    if (differs) chip.append(createElement("span", { class: "unseen", text: " (differs from the consensus)" }));
    return createElement("div", { class: "person" },
      createElement("div", { class: "nameof clamp" }, isolateText(line.annotator)), chip,
      labelledShareBar("accuracy", line.accuracy, formatAccuracy(line), ""),
      ...(line.weight === null ? [] : [labelledShareBar("weight", line.weight / facts.labels.length, line.weight.toFixed(2), "second")]));
  }));
}
function labelledShareBar(title, share, text, kind) {
  return createElement("div", { class: "figure" }, createElement("span", { text: title }), shareBar(share, kind), createElement("b", { text }));
}
function formatAccuracy(line) {
  if (line.accuracy === null) return "unknown";
  const [accuracy, low, high] = [line.accuracy, line.accuracy_low, line.accuracy_high].map((share) => (100 * share).toFixed(1));
  return `${accuracy} % (${low} to ${high})`;
}

// ---- classes: one key per class, or a search box if there are too many -------------------------

function showClasses(facts) {
  const votes = new Map();
  for (const line of facts.labels) votes.set(line.label, (votes.get(line.label) || 0) + 1);
  const many = about.classes.length && about.classes[0].key === null;
  let shown = about.classes.map((entry, label) => ({ ...entry, label, votes: votes.get(entry.name) || 0 }));
  if (many) {
    byId("find").value = "";
    shown = shown.sort((one, other) => other.votes - one.votes || one.label - other.label);
  }
  const focused = byId("classes").contains(document.activeElement) ? document.activeElement.dataset.label : null;
  byId("classes").classList.toggle("many", many);
  byId("classes").classList.toggle("short", about.classes.every((entry) => entry.name.length <= 3));
  byId("classes").replaceChildren(...shown.map((entry) => {
    const words = createElement("span", {}, isolateText(entry.name));
    if (entry.votes) words.append(createElement("small", { text: formatCount(entry.votes, "label") }));
    const button = createElement("button", { type: "button", "data-label": entry.label }, words);
    if (entry.key) {
      button.prepend(createElement("kbd", { text: entry.key, "aria-hidden": "true" }));
      button.setAttribute("aria-keyshortcuts", entry.key);
    }
    button.addEventListener("click", () => settle(entry.label));
    return button;
  }));
  if (many) {
    filterClasses();
    if (!matchMedia("(pointer: coarse)").matches) byId("find").focus({ preventScroll: true }); // on phones the keyboard would cover the image
  } else if (focused !== null) { // keep the focus for people who use Tab and Enter
    byId("classes").querySelector(`[data-label="${Number(focused)}"]`).focus({ preventScroll: true });
  }
}

function visibleClasses() {
  return [...byId("classes").children].filter((button) => !button.hidden);
}
function filterClasses() {
  const wanted = byId("find").value.trim().toLocaleLowerCase();
  for (const button of byId("classes").children) {
    const name = about.classes[Number(button.dataset.label)].name.toLocaleLowerCase();
    button.hidden = !name.includes(wanted);
    button.removeAttribute("aria-current");
  }
  if (wanted) highlightClass(0);
}
function highlightClass(place) {
  const buttons = visibleClasses();
  for (const button of buttons) button.removeAttribute("aria-current");
  const button = buttons[(place + buttons.length) % Math.max(1, buttons.length)];
  if (!button) return announce("No class name contains this text.");
  button.setAttribute("aria-current", "true");
  button.scrollIntoView({ block: "nearest" });
  return announce(about.classes[Number(button.dataset.label)].name);
}
function onSearchKey(event) {
  const buttons = visibleClasses();
  const place = buttons.findIndex((button) => button.getAttribute("aria-current") === "true");
  if (event.key === "Enter" && place >= 0) settle(Number(buttons[place].dataset.label));
  else if (event.key === "ArrowDown") highlightClass(place + 1);
  else if (event.key === "ArrowUp") highlightClass(place < 0 ? -1 : place - 1);
  else if (event.key === "Escape") { byId("find").value = ""; filterClasses(); byId("find").blur(); }
  else return;
  event.preventDefault();
}

// ---- refit -----------------------------------------------------------------------------------

async function pollRefit() {
  clearTimeout(refitTimer);
  const requestRound = ++refitRound;
  try {
    const found = await requestJson("api/refit-status");
    if (requestRound === refitRound) showRefit(found); // otherwise a refit was started after this request
  } catch (error) {
    showError(error.message);
  }
}
async function startRefit() {
  byId("refit").disabled = true;
  showError("");
  try {
    const found = await requestJson("api/refit", {});
    refitRound += 1;
    showRefit(found);
    byId("refitted").scrollIntoView({ block: "nearest" });
    announce("The refit has started.");
  } catch (error) {
    showError(error.message);
    pollRefit(); // another tab may have started it
  }
  byId("refit").disabled = !view.n_decisions;
}

let wasRunning = false;
function showRefit(found) {
  byId("refitted").hidden = found.state === "none";
  byId("changes").hidden = found.state !== "done";
  const state = byId("refit-state");
  if (found.state === "running") {
    const bar = createElement("progress", { "aria-label": "Progress of the refit" });
    if (found.progress !== null) bar.value = found.progress;
    state.replaceChildren(createElement("p", { text: "Training again, with the decisions as gold labels. You can continue to review." }),
      isolateText(found.message, "p", { class: "quiet" }), bar);
    wasRunning = true;
    refitTimer = setTimeout(pollRefit, 1000);
    return;
  }
  if (found.state === "failed") state.replaceChildren(createElement("p", {}, "The refit failed: ", isolateText(found.message)));
  if (found.state === "done") {
    state.replaceChildren(createElement("p", { class: "quiet" }, "The new run is in ", isolateText(found.out)));
    showChanges(found.changes);
  }
  if (wasRunning) {
    announce(found.state === "done" ? "The refit is done." : "The refit failed.");
    byId("refitted").scrollIntoView({ block: "nearest" });
  }
  wasRunning = false;
}

function showChanges(changes) {
  const cards = [];
  const card = (title, figures, text) => cards.push(createElement("div", {}, createElement("span", { class: "quiet", text: title }),
    createElement("b", { text: figures }), createElement("span", { class: "quiet", text })));
  const [before, after] = changes.test_accuracy;
  if (before !== null && after !== null && before !== undefined) {
    card("Test accuracy", `${(100 * before).toFixed(1)} → ${(100 * after).toFixed(1)} %`, `of ${formatCount(changes.n_test_items, "test item")}`);
  }
  card("Consensus labels that changed", formatNumber(changes.consensus.n_changed), `of ${formatNumber(changes.n_items)}`);
  card("Predictions that changed", formatNumber(changes.predicted.n_changed), `of ${formatNumber(changes.n_items)}`);
  card("Decisions that equal the prediction", changes.n_agreeing.predicted.map(formatNumber).join(" → "),
    `of ${formatNumber(changes.n_settled)}; the new model was trained on them`);
  const lists = [
    ["Consensus labels that changed", changes.consensus], ["Predictions that changed", changes.predicted],
  ].map(([title, found]) => table(title, found.n_changed, ["item", "before", "after"], found.rows.map((row) =>
    [row.settled ? `${row.item} (settled: ${row.settled})` : row.item, row.before, row.after])));
  const people = changes.annotators;
  lists.push(table("Annotators whose accuracy changed", people.n_changed, ["annotator", "before", "after"],
    people.rows.map((row) => [row.annotator, formatPercentOneDigit(row.before), formatPercentOneDigit(row.after)]), true));
  const chance = createElement("p", { class: "quiet", text: "Some of these changes are chance: training on other labels gives slightly different results everywhere." });
  byId("changes").replaceChildren(createElement("div", { class: "cards" }, ...cards), chance, createElement("div", { class: "tables" }, ...lists));
}
const formatPercentOneDigit = (share) => `${(100 * share).toFixed(1)} %`;

function table(title, total, heads, rows, numbers = false) {
  const kind = (place) => (numbers && place ? { class: "number" } : {});
  const body = createElement("tbody", {}, ...rows.map((row) => createElement("tr", {}, ...row.map((text, place) => createElement("td", kind(place), isolateText(text))))));
  const head = createElement("thead", {}, createElement("tr", {}, ...heads.map((text, place) => createElement("th", { text, scope: "col", ...kind(place) }))));
  const some = rows.length < total ? `, the first ${formatNumber(rows.length)}` : "";
  const box = createElement("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, createElement("table", {}, head, body));
  return createElement("div", {}, createElement("h2", { text: title }), createElement("p", { class: "quiet", text: total ? `${formatNumber(total)}${some}` : "none" }), ...(total ? [box] : []));
}

// ---- keys ------------------------------------------------------------------------------------

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (byId("help-box").open || byId("large-box").open || event.target.matches("input, select, textarea")) return;
  if (event.key === "?") { help(); event.preventDefault(); return; }
  if (!byId("shortcuts").checked) return;
  const key = event.key.toLowerCase();
  const label = about.classes.findIndex((entry) => entry.key === key);
  if (key === "+") enlarge();
  else if (key === "u") undo();
  else if (key === "s") skip();
  else if (key === "/" && !byId("finder").hidden) byId("find").focus();
  else if (label >= 0) settle(label);
  else return;
  event.preventDefault();
}
function help() {
  byId("help-box").showModal();
}

async function initialize() {
  about = await requestJson("api/about");
  document.title = `Review ${about.run}`;
  byId("run").textContent = about.run;
  byId("reviewer").replaceChildren("as ", isolateText(about.reviewer), `, model ${about.method} ${about.model_sha256.slice(0, 8)}`);
  about.annotators.forEach((entry, index) =>
    byId("annotator").append(createElement("option", { value: index, text: `${entry.name} (${formatCount(entry.n_labels, "label")}${entry.accuracy === null ? "" : `, accuracy ${formatPercent(entry.accuracy)}`})` })));
  about.classes.forEach((entry, index) => byId("class").append(createElement("option", { value: index, text: entry.name })));
  const keys = about.classes.map((entry) => entry.key).sort();
  byId("finder").hidden = Boolean(keys[0]);
  byId("help-classes").replaceChildren(...(keys[0]
    ? [createElement("kbd", { text: keys[0] }), " to ", createElement("kbd", { text: keys[keys.length - 1] })]
    : [createElement("kbd", { text: "/" }), " and type"]));
  if (!keys[0]) byId("help-decide").textContent = "a part of the class name, then Enter; arrows choose another class; Esc leaves the box, and the other keys work again";
  byId("help-file").replaceChildren("Decisions are in ", isolateText(about.decisions_file), ".");
  byId("notes").hidden = !about.notes.length;
  byId("notes").querySelector("summary").textContent = formatCount(about.notes.length, "note") + " on this run";
  byId("notes").querySelector("ul").replaceChildren(...about.notes.map((note) => isolateText(note, "li")));

  document.addEventListener("keydown", onKey);
  byId("find").addEventListener("keydown", onSearchKey);
  byId("find").addEventListener("input", filterClasses);
  byId("undo").addEventListener("click", undo);
  byId("skip").addEventListener("click", skip);
  byId("enlarge").addEventListener("click", enlarge);
  byId("help").addEventListener("click", help);
  byId("refit").addEventListener("click", startRefit);
  byId("export").addEventListener("click", (event) => { if (!view || !view.n_decisions) event.preventDefault(); });
  for (const id of ["items", "annotator", "class"]) {
    // after a choice by mouse the next key decides for a class; with the keyboard, keys move through the list
    byId(id).addEventListener("pointerdown", () => { byPointer = true; });
    byId(id).addEventListener("keydown", () => { byPointer = false; });
    byId(id).addEventListener("change", () => { if (byPointer) byId(id).blur(); if (!waiting) loadView(); });
  }
  byId("shortcuts").checked = localStorage.getItem("crowdfuse-keys") !== "off";
  byId("shortcuts").addEventListener("change", () =>
    localStorage.setItem("crowdfuse-keys", byId("shortcuts").checked ? "on" : "off"));
  document.addEventListener("visibilitychange", pollView);
  await loadView();
  setInterval(pollView, 2000);
  pollRefit();
}
initialize().catch((error) => showError(error.message));

// The review page. Names of people's items, classes and annotators only ever become text, never markup.
"use strict";

const at = (id) => document.getElementById(id);
const token = document.querySelector("meta[name=crowdfuse-token]").content;
let about = null; // what stays the same
let view = null; // what is shown now; its head, the number of lines in the ledger, never decreases
let viewChoice = null; // the choice of items that the view was requested for
let waiting = true; // for the answer to a request of `exchange`
let loading = false; // the image of the item
let round = 0; // increases with every request of `exchange` and every view that is shown
const mine = []; // lines that this tab wrote, to be undone from the last
let refitTimer = 0;
let refitRound = 0; // increases with every request for the state of the refit and every refit that is started
let byPointer = false;
let lost = false; // the server does not answer

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const isolated = (text, tag = "bdi", options = {}) =>
  make(tag, { text, dir: "auto", ...(String(text).length > 40 ? { title: text } : {}), ...options }); // some are cut off
const percent = (share) => (share === null || share === undefined ? "unknown" : share > 0.9995 && share < 1 ? "> 99.9 %" : `${(100 * share).toFixed(share > 0.995 && share < 1 ? 1 : 0)} %`);
const number = (value) => value.toLocaleString("en-US");
const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

function track(share, kind = "") {
  const fill = make("i");
  fill.style.width = `${100 * Math.min(1, Math.max(0, share || 0))}%`;
  return make("div", { class: `track ${kind}`, "aria-hidden": "true" }, fill);
}

function say(text) {
  at("live").textContent = "";
  requestAnimationFrame(() => { at("live").textContent = text; });
}
function complain(text) {
  if (at("problem").textContent !== text) at("problem").textContent = text; // said once, not with every look around
  at("problem").hidden = !text;
  lost = false;
}
const isBusy = () => waiting || loading; // nothing is decided before the item is there to be seen

// ---- talking to the server -------------------------------------------------------------------

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", body: JSON.stringify(body),
    headers: { "content-type": "application/json", "x-crowdfuse-token": token },
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("crowdfuse review does not answer. What was settled is on disk; start it again, then reload this page.");
  }
  let content;
  try {
    content = await answer.json();
  } catch {
    throw new Error(`crowdfuse review answered with ${answer.status} and no reason; see its terminal.`);
  }
  if (!answer.ok) throw Object.assign(new Error(content.error), { view: content.view });
  return content;
}

function choice(more = {}) {
  const chosen = new URLSearchParams({ items: at("items").value, ...more });
  if (at("annotator").value) chosen.set("annotator", at("annotator").value);
  if (at("class").value) chosen.set("class", at("class").value);
  return chosen;
}

// Decisions and changes of the choice are sent one at a time, so their answers arrive in order. Polling goes on
// meanwhile, so `lookAround` has to recognize answers that arrive too late.
async function exchange(send, told) {
  waiting = true;
  round += 1;
  const chosen = String(choice());
  let found = null;
  let problem = "";
  try {
    found = await send(chosen);
  } catch (error) {
    problem = error.message;
    told = problem;
    found = error.view;
  }
  waiting = false;
  if (String(choice()) !== chosen) await refresh(told); // the choice was changed before the answer arrived
  else if (found) show(found, chosen, told);
  if (problem) complain(problem);
}

function act(action, body, told) {
  if (isBusy()) return;
  complain("");
  exchange(async (chosen) => {
    try {
      const done = await ask(`api/${action}?${chosen}`, body);
      if (action === "undo") mine.pop();
      else mine.push(done.line);
      return done.view;
    } catch (error) {
      if (error.view && action === "undo") mine.pop();
      throw error;
    }
  }, told);
}
const seen = () => ({ index: view.item.index, shown: view.item.shown, version: view.item.version });

function settle(label) {
  if (!view || !view.item || isBusy()) return;
  const name = about.classes[label].name;
  const button = at("classes").querySelector(`[data-label="${label}"]`);
  if (button) button.classList.add("chosen");
  act("settle", { ...seen(), label }, `Settled as ${name}.`);
}
const skip = () => view && view.item && act("skip", seen(), "Skipped.");
function undo() {
  const line = mine.length ? mine[mine.length - 1] : view && view.last && view.last.line;
  if (line) act("undo", { line }, "Undone.");
}

const refresh = (told) => exchange(async (chosen) => {
  const found = await ask(`api/view?${chosen}`);
  complain("");
  return found;
}, told);

// Other tabs and other people may be at the same run. An answer is dropped if a decision was sent or a view was shown
// after its request: it may be older than the view, or show an item that was left since.
async function lookAround() {
  if (document.hidden || isBusy()) return;
  const chosen = String(choice());
  if (chosen !== viewChoice) { // the view of this choice did not arrive
    await refresh();
    return;
  }
  const askedIn = round;
  const before = view.item;
  let found;
  try {
    found = await ask(`api/view?${choice(before ? { head: view.head, at: before.index } : { head: view.head })}`);
  } catch (error) {
    if (askedIn !== round) return;
    complain(error.message);
    lost = true;
    return;
  }
  if (lost) complain("");
  if (askedIn !== round || found.head <= view.head) return;
  const stays = found.item && before && found.item.index === before.index;
  if (stays && found.item.version === before.version && found.item.shown === before.shown) {
    view = found;
    showProgress();
  } else {
    show(found, chosen, stays ? "It was changed in another tab." : before ? "It was settled in another tab." : "");
  }
}

// ---- showing ---------------------------------------------------------------------------------

function show(found, chosen, told = "") {
  view = found;
  viewChoice = chosen;
  loading = false;
  round += 1;
  showProgress();
  const item = view.item;
  document.querySelector("main").classList.toggle("finished", !item);
  at("done").hidden = Boolean(item);
  if (!item) {
    showEnd();
    say(`${told} ${at("done-title").textContent}`);
    return;
  }
  at("name").replaceChildren(isolated(item.item));
  showExhibit(item);
  showOpinions(item.facts);
  showSaid(item.facts);
  showClasses(item.facts);
  const fused = item.facts.fused ? ` Fused label ${item.facts.fused}, ${percent(item.facts.fused_confidence)}.` : "";
  say(`${told} Item ${item.item}.${fused}`);
}

function showProgress() {
  const left = view.total - view.settled;
  at("bar").max = Math.max(1, view.total);
  at("bar").value = view.settled;
  at("progress").textContent = `${number(view.settled)} of ${number(view.total)} settled` +
    (view.skipped ? `, ${number(view.skipped)} skipped` : "") + `, ${number(left)} to go`;
  at("export").setAttribute("aria-disabled", String(!view.decisions));
  at("export").textContent = view.decisions ? `Export gold (${number(view.decisions)})` : "Export gold";
  at("refit").disabled = !view.decisions;
  at("undo").disabled = !mine.length && !view.last;
  at("last").replaceChildren();
  if (view.last) {
    const what = view.last.action === "skip" ? ["skipped ", isolated(view.last.item)]
      : [isolated(view.last.item), " is ", isolated(view.last.label, "b")];
    at("last").replaceChildren(make("span", { class: "clamp" }, "Last: ", ...what));
  }
}

function showEnd() {
  const all = at("items").value === "all" && !at("annotator").value && !at("class").value;
  at("done-title").textContent = view.total ? "All settled." : "There is nothing to settle here.";
  at("done-text").textContent = all ? "Export what is settled as gold, or refit and see what it changes."
    : "Choose other items above; or export what is settled as gold; or refit, and see what it changes.";
  at("done-title").focus();
}

function showExhibit(item) {
  const box = at("exhibit");
  const input = item.facts.input;
  box.className = "";
  at("file").textContent = "";
  if (input.kind === "values") {
    const list = make("dl");
    for (const [name, value] of input.values) {
      list.append(make("div", {}, isolated(name, "dt"), make("dd", { text: Number(value.toPrecision(5)) })));
    }
    box.className = "values";
    box.replaceChildren(list);
    if (input.more) box.append(make("p", { class: "quiet", text: `and ${count(input.more, "value")} more` }));
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Values of the item");
    return;
  }
  box.removeAttribute("tabindex");
  box.removeAttribute("role");
  box.removeAttribute("aria-label");
  if (input.kind === "nothing") {
    missing("There is nothing to see of this item.", input.why);
    return;
  }
  if (!input.found) {
    missing("The image is not there any more.", input.file);
    return;
  }
  at("file").replaceChildren(isolated(input.file));
  loading = true;
  const image = make("img", { alt: `Item ${item.item}` });
  image.addEventListener("load", () => {
    if (!image.isConnected) return; // another item is shown by now
    image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) <= 128);
    loading = false;
    if (view.next_image !== null) new Image().src = `image/${view.next_image}`; // so that it is there at once
  });
  image.addEventListener("error", async () => {
    const answer = await fetch(image.src).then((found) => found.json()).catch(() => ({ error: input.file }));
    if (!image.isConnected) return;
    missing("The image cannot be shown.", answer.error);
    loading = false;
  });
  image.src = `image/${item.index}`;
  box.replaceChildren(image);
}

function missing(title, text) {
  at("exhibit").replaceChildren(make("div", { class: "missing" }, make("b", { text: title }), isolated(text)));
}

function showOpinions(facts) {
  const rows = [
    ["fused", "Fused label: what the annotators' labels amount to", facts.fused, facts.fused_confidence],
    ["", "What the model says without the labels", facts.predicted, facts.predicted_confidence],
    ["", "Both together, with everybody's usual mistakes in mind", facts.consensus, facts.confidence],
  ];
  at("opinions").replaceChildren(...rows.filter((row) => row[2]).map(([kind, title, label, share]) =>
    make("div", { class: kind }, make("dt", { text: title }),
      make("dd", { class: "clamp" }, isolated(label)), make("dd", { class: "share", text: percent(share) }), track(share))));
}

function showSaid(facts) {
  at("counts").replaceChildren();
  if (!facts.said.length) at("counts").replaceChildren(isolated(facts.counts, "span", { class: "clamp" }));
  else if (facts.weights_are === "means") at("counts").textContent = "Weights are means over all items: those here are not known.";
  at("said").replaceChildren(...facts.said.map((line) => {
    const differs = line.label !== facts.fused;
    const chip = make("span", { class: differs ? "chip differs" : "chip" }, isolated(line.label, "span", { class: "clamp" }));
    if (differs) chip.append(make("span", { class: "unseen", text: " (differs from the fused label)" }));
    return make("div", { class: "person" },
      make("div", { class: "nameof clamp" }, isolated(line.annotator)), chip,
      figure("weight", line.weight, ""), figure("reliability", line.reliability, "second"));
  }));
}
function figure(title, share, kind) {
  return make("div", { class: "figure" }, make("span", { text: title }), track(share, kind), make("b", { text: percent(share) }));
}

// ---- classes: a key each, or a box to type into where they are too many ------------------------

function showClasses(facts) {
  const votes = new Map();
  for (const line of facts.said) votes.set(line.label, (votes.get(line.label) || 0) + 1);
  const many = about.classes.length && about.classes[0].key === null;
  let shown = about.classes.map((entry, label) => ({ ...entry, label, votes: votes.get(entry.name) || 0 }));
  if (many) {
    at("find").value = "";
    shown = shown.sort((one, other) => other.votes - one.votes || one.label - other.label);
  }
  const focused = at("classes").contains(document.activeElement) ? document.activeElement.dataset.label : null;
  at("classes").classList.toggle("many", many);
  at("classes").classList.toggle("short", about.classes.every((entry) => entry.name.length <= 6));
  at("classes").replaceChildren(...shown.map((entry) => {
    const words = make("span", {}, isolated(entry.name));
    if (entry.votes) words.append(make("small", { text: `said by ${entry.votes}` }));
    const button = make("button", { type: "button", "data-label": entry.label }, words);
    if (entry.key) {
      button.prepend(make("kbd", { text: entry.key, "aria-hidden": "true" }));
      button.setAttribute("aria-keyshortcuts", entry.key);
    }
    button.addEventListener("click", () => settle(entry.label));
    return button;
  }));
  if (many) {
    narrow();
    if (!matchMedia("(pointer: coarse)").matches) at("find").focus({ preventScroll: true }); // no keyboard over the image
  } else if (focused !== null) { // who goes by Tab and Enter stays where they are
    at("classes").querySelector(`[data-label="${Number(focused)}"]`).focus({ preventScroll: true });
  }
}

function visibleClasses() {
  return [...at("classes").children].filter((button) => !button.hidden);
}
function narrow() {
  const wanted = at("find").value.trim().toLocaleLowerCase();
  for (const button of at("classes").children) {
    const name = about.classes[Number(button.dataset.label)].name.toLocaleLowerCase();
    button.hidden = !name.includes(wanted);
    button.removeAttribute("aria-current");
  }
  if (wanted) mark(0);
}
function mark(place) {
  const buttons = visibleClasses();
  for (const button of buttons) button.removeAttribute("aria-current");
  const button = buttons[(place + buttons.length) % Math.max(1, buttons.length)];
  if (!button) return say("No class has this in its name.");
  button.setAttribute("aria-current", "true");
  button.scrollIntoView({ block: "nearest" });
  return say(about.classes[Number(button.dataset.label)].name);
}
function inFinder(event) {
  const buttons = visibleClasses();
  const place = buttons.findIndex((button) => button.getAttribute("aria-current") === "true");
  if (event.key === "Enter" && place >= 0) settle(Number(buttons[place].dataset.label));
  else if (event.key === "ArrowDown") mark(place + 1);
  else if (event.key === "ArrowUp") mark(place < 0 ? -1 : place - 1);
  else if (event.key === "Escape") { at("find").value = ""; narrow(); at("find").blur(); }
  else return;
  event.preventDefault();
}

// ---- refit -----------------------------------------------------------------------------------

async function lookAtRefit() {
  clearTimeout(refitTimer);
  const askedIn = ++refitRound;
  try {
    const found = await ask("api/refit-status");
    if (askedIn === refitRound) showRefit(found); // else a refit was started since, which this answer does not know
  } catch (error) {
    complain(error.message);
  }
}
async function startRefit() {
  at("refit").disabled = true;
  complain("");
  try {
    const found = await ask("api/refit", {});
    refitRound += 1;
    showRefit(found);
    at("refitted").scrollIntoView({ block: "nearest" });
    say("The refit has begun.");
  } catch (error) {
    complain(error.message);
    lookAtRefit(); // it may have been started in another tab
  }
  at("refit").disabled = !view.decisions;
}

let wasRunning = false;
function showRefit(found) {
  at("refitted").hidden = found.state === "none";
  at("changes").hidden = found.state !== "done";
  const state = at("refit-state");
  if (found.state === "running") {
    const bar = make("progress", { "aria-label": "Progress of the refit" });
    if (found.of) { bar.max = found.of; bar.value = found.done; }
    state.replaceChildren(make("p", { text: "Training again, with what is settled as certain. You can go on reviewing." }),
      isolated(found.said, "p", { class: "quiet" }), bar);
    wasRunning = true;
    refitTimer = setTimeout(lookAtRefit, 1000);
    return;
  }
  if (found.state === "failed") state.replaceChildren(make("p", {}, "The refit did not come to its end: ", isolated(found.said)));
  if (found.state === "done") {
    state.replaceChildren(make("p", { class: "quiet" }, "The new run is in ", isolated(found.out)));
    showChanges(found.changes);
  }
  if (wasRunning) {
    say(found.state === "done" ? "The refit is done." : "The refit failed.");
    at("refitted").scrollIntoView({ block: "nearest" });
  }
  wasRunning = false;
}

function showChanges(changes) {
  const cards = [];
  const card = (title, figures, text) => cards.push(make("div", {}, make("span", { class: "quiet", text: title }),
    make("b", { text: figures }), make("span", { class: "quiet", text })));
  const [before, after] = changes.accuracy;
  if (before !== null && after !== null && before !== undefined) {
    card("Test accuracy", `${(100 * before).toFixed(1)} → ${(100 * after).toFixed(1)} %`, `of ${count(changes.testItems, "test item")}`);
  }
  card("Fused labels that changed", number(changes.fused.count), `of ${number(changes.items)}`);
  card("Predictions that changed", number(changes.predicted.count), `of ${number(changes.items)}`);
  card("Decisions that the model predicts", changes.agree.predicted.map(number).join(" → "),
    `of ${number(changes.settled)}; it has been trained on them now`);
  const lists = [
    ["Fused labels that changed", changes.fused], ["Predictions that changed", changes.predicted],
  ].map(([title, found]) => table(title, found.count, ["item", "before", "after"], found.listed.map((row) =>
    [row.settled ? `${row.item} (settled: ${row.settled})` : row.item, row.before, row.after])));
  const people = changes.annotators;
  lists.push(table("Annotators whose reliability changed", people.count, ["annotator", "before", "after"],
    people.listed.map((row) => [row.annotator, percent1(row.before), percent1(row.after)]), true));
  const chance = make("p", { class: "quiet", text: "A training that begins with other labels ends elsewhere: some of these changes are chance." });
  at("changes").replaceChildren(make("div", { class: "cards" }, ...cards), chance, make("div", { class: "tables" }, ...lists));
}
const percent1 = (share) => `${(100 * share).toFixed(1)} %`;

function table(title, total, heads, rows, numbers = false) {
  const kind = (place) => (numbers && place ? { class: "number" } : {});
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, place) => make("td", kind(place), isolated(text))))));
  const head = make("thead", {}, make("tr", {}, ...heads.map((text, place) => make("th", { text, scope: "col", ...kind(place) }))));
  const some = rows.length < total ? `, the first ${number(rows.length)}` : "";
  const box = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, make("table", {}, head, body));
  return make("div", {}, make("h2", { text: title }), make("p", { class: "quiet", text: total ? `${number(total)}${some}` : "none" }), ...(total ? [box] : []));
}

// ---- keys ------------------------------------------------------------------------------------

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (at("help-box").open || event.target.matches("input, select, textarea")) return;
  if (event.key === "?") { help(); event.preventDefault(); return; }
  if (!at("shortcuts").checked) return;
  const key = event.key.toLowerCase();
  const label = about.classes.findIndex((entry) => entry.key === key);
  if (key === "u") undo();
  else if (key === "s") skip();
  else if (key === "/" && !at("finder").hidden) at("find").focus();
  else if (label >= 0) settle(label);
  else return;
  event.preventDefault();
}
function help() {
  at("help-box").showModal();
}

async function begin() {
  about = await ask("api/about");
  document.title = `Review ${about.run}`;
  at("run").textContent = about.run;
  at("who").replaceChildren("as ", isolated(about.who), `, model ${about.method} ${about.model.slice(0, 8)}`);
  about.annotators.forEach((entry, index) =>
    at("annotator").append(make("option", { value: index, text: `${entry.name} (${count(entry.labels, "label")})` })));
  at("annotator").disabled = !about.knowsWhoSaidWhat;
  about.classes.forEach((entry, index) => at("class").append(make("option", { value: index, text: entry.name })));
  const keys = about.classes.map((entry) => entry.key).sort();
  at("finder").hidden = Boolean(keys[0]);
  at("help-classes").replaceChildren(...(keys[0]
    ? [make("kbd", { text: keys[0] }), " to ", make("kbd", { text: keys[keys.length - 1] })]
    : [make("kbd", { text: "/" }), " and type"]));
  if (!keys[0]) at("help-decide").textContent = "a part of the class, then Enter; arrows choose; Esc leaves the box, and the other keys work";
  at("help-file").replaceChildren("Decisions are in ", isolated(about.decisions), ".");
  at("notes").hidden = !about.notes.length;
  at("notes").querySelector("summary").textContent = count(about.notes.length, "note") + " on this run";
  at("notes").querySelector("ul").replaceChildren(...about.notes.map((note) => isolated(note, "li")));

  document.addEventListener("keydown", onKey);
  at("find").addEventListener("keydown", inFinder);
  at("find").addEventListener("input", narrow);
  at("undo").addEventListener("click", undo);
  at("skip").addEventListener("click", skip);
  at("help").addEventListener("click", help);
  at("refit").addEventListener("click", startRefit);
  at("export").addEventListener("click", (event) => { if (!view || !view.decisions) event.preventDefault(); });
  for (const id of ["items", "annotator", "class"]) {
    // with a mouse the choice is made at once, and the next key is for a class; with keys one walks through the list
    at(id).addEventListener("pointerdown", () => { byPointer = true; });
    at(id).addEventListener("keydown", () => { byPointer = false; });
    at(id).addEventListener("change", () => { if (byPointer) at(id).blur(); if (!waiting) refresh(); });
  }
  at("shortcuts").checked = localStorage.getItem("crowdfuse-keys") !== "off";
  at("shortcuts").addEventListener("change", () =>
    localStorage.setItem("crowdfuse-keys", at("shortcuts").checked ? "on" : "off"));
  document.addEventListener("visibilitychange", lookAround);
  await refresh();
  setInterval(lookAround, 2000);
  lookAtRefit();
}
begin().catch((error) => complain(error.message));

const form = document.getElementById("choose");
const note = document.getElementById("note");
const answer = document.getElementById("answer");
const tables = document.getElementById("tables");
const fields = ["model", "on", "gib", "ram", "drive", "context", "fast"];
const first = Object.fromEntries(fields.map((name) => [name, form[name].options[0].value]));
Object.assign(first, { on: "rtx-3060", gib: "64" });
const STANDS_FOR = {
  MODEL: "a name, a repository or a GGUF file",
  CHIP: "such as m4-max",
  CARD: "such as rtx-4060-laptop",
  RAM: "such as 64GiB",
};
const NOT_HELD = { drive: (one) => one, context: (one) => `a context of ${one} tokens`, fast: (one) => `the fastest for ${one}` };
const pieces = {};
const waiting = {};

const isWhole = ({ on }) => known.whole.some((one) => one.key === on);

const place = (chosen) => {
  const whole = known.whole.findIndex((one) => one.key === chosen.on);
  if (whole >= 0) return known.cards.length * known.ram.length * known.gib.length + whole;
  const card = known.cards.findIndex((one) => (one.key || "none") === chosen.on);
  const ram = known.ram.findIndex((one) => one.key === chosen.ram);
  return (card * known.ram.length + ram) * known.gib.length + known.gib.indexOf(Number(chosen.gib));
};

const labelOf = (chosen) => {
  const one = [...known.whole, ...known.cards].find((each) => (each.key || "none") === chosen.on);
  if (isWhole(chosen)) return one.label;
  return `${one.label}, ${chosen.gib} GB of ${known.ram.find((each) => each.key === chosen.ram).label}`;
};

// What asks the same in a terminal. cpu, os: if they were said; alone: whether the computer has its own memory.
const command = ({ model, on, ram, gib, drive, context, fast, cpu = "", os = "", alone = isWhole({ on }) }) => {
  const own = alone ? [on, drive === first.drive ? "" : drive]
    : [on === "none" ? cpu || known.ram.find((one) => one.key === ram).cpu : on, on === "none" ? "" : cpu, ram, `${gib}GiB`, drive];
  const flags = [context, fast].filter(Boolean).map((flag) => ` ${flag}`).join("");
  return `sim recommend ${model} --machine "${[...own, os].filter(Boolean).join(" + ")}"${flags}`;
};

const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};

const take = (name, text) => {
  unpack(text).then(waiting[name].resolve, waiting[name].reject);
  delete waiting[name];
};

const piece = (name) => {
  pieces[name] ??= new Promise((resolve, reject) => {
    waiting[name] = { resolve, reject };
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.onerror = () => reject(new Error("not there"));
    script.onload = () => waiting[name]?.reject(new Error("cut off"));
    document.head.append(script);
  });
  return pieces[name];
};

const make = (name, properties, ...inside) => {
  const one = Object.assign(document.createElement(name), properties);
  one.append(...inside);
  return one;
};

const say = (text, code) => {
  note.hidden = !text;
  note.replaceChildren(make("p", { textContent: text }));
  if (!code) return;
  const button = make("button", { type: "button", textContent: "Copy the line" });
  button.dataset.copy = code;
  const status = make("span", {});
  status.setAttribute("role", "status");
  note.append(make("pre", { tabIndex: 0, textContent: code }), make("p", {}, button, " ", status));
};

// No answer of this page is one to the question: none stays on it.
const refuse = (absent, wanted, remark) => {
  const line = command(wanted);
  const open = Object.entries(STANDS_FOR).filter(([word]) => line.match(`\\b${word}\\b`)).map(([word, what]) => ` ${word}: ${what}.`);
  answer.hidden = tables.hidden = true;
  say(`This page does not hold ${absent.join("; ")}. That says nothing about whether it runs. ` +
    `${remark ? `${remark} ` : ""}In a terminal:${open.join("")}`, line);
};

const failed = (name, chosen) =>
  say(`The answers in data/${name}.js did not load, or are damaged: load the page again. In a terminal:`, command(chosen));

const rowOf = (chosen, label, speed) => {
  const [tokS, range, lo, mid, hi, engine, file] = speed;
  const row = document.createElement("tr");
  const link = Object.assign(document.createElement("a"), { href: hashOf(chosen), textContent: label });
  const name = Object.assign(document.createElement("th"), { scope: "row" });
  name.append(link, Object.assign(document.createElement("small"), { textContent: file ? `${file}; ${engine}` : engine }));
  const cell = Object.assign(document.createElement("td"), { className: "speed-cell" });
  cell.append(Object.assign(document.createElement("b"), { textContent: tokS }));
  cell.append(Object.assign(document.createElement("small"), { textContent: range }));
  const strip = Object.assign(document.createElement("td"), { className: "strip-cell" });
  const bar = Object.assign(document.createElement("span"), { className: "small" });
  const band = document.createElement("i");
  band.style.cssText = `left:${lo}%;width:${hi - lo}%`;
  const middle = document.createElement("i");
  middle.style.cssText = `left:${mid}%`;
  bar.append(band, middle);
  bar.ariaHidden = "true";
  strip.append(bar);
  row.append(name, cell, strip);
  return row;
};

const fill = (table, rows, current) => {
  const head = document.createElement("thead");
  head.innerHTML = '<tr><th scope="col"></th><th scope="col" class="right">tokens a second</th><th scope="col" class="strip-cell">1 to 300</th></tr>';
  head.rows[0].cells[0].textContent = table.id === "models" ? "Model" : "Card or computer";
  const body = document.createElement("tbody");
  const tokS = ({ speed }) => Number(speed[0].replace(",", ""));
  rows.sort((one, other) => tokS(other) - tokS(one));
  for (const { chosen, label, speed } of rows) {
    const row = rowOf(chosen, label, speed);
    if (label === current) row.ariaCurrent = "true";
    body.append(row);
  }
  table.replaceChildren(head, body);
};

const showTables = async (chosen, isLatest) => {
  const speeds = await piece("speeds");
  if (!isLatest()) return;
  const at = place(chosen);
  const every = known.models.map(({ key }) => ({ chosen: { ...chosen, model: key }, label: key, speed: speeds[key][at] }));
  fill(document.getElementById("models"), every.filter(({ speed }) => speed.length), chosen.model);
  const slow = every.filter(({ speed }) => !speed.length).map(({ label }) => label);
  document.getElementById("on-what").textContent = labelOf(chosen);
  document.getElementById("too-slow").textContent = slow.length
    ? `Too large, or less than a token a second: ${slow.join(", ")}.` : "";
  const ram = isWhole(chosen) ? { gib: first.gib, ram: first.ram } : { gib: chosen.gib, ram: chosen.ram };
  const machines = [...known.cards, ...known.whole].map(({ key, label }) => {
    const other = { ...chosen, ...ram, on: key || "none" };
    return { chosen: other, label, speed: speeds[chosen.model][place(other)] };
  });
  const own = [...known.cards, ...known.whole].find(({ key }) => (key || "none") === chosen.on).label;
  const fast = machines.filter(({ speed }) => speed.length);
  const cards = document.getElementById("cards");
  fill(cards, fast, own);
  cards.hidden = !fast.length;
  const type = known.ram.find((one) => one.key === ram.ram).label;
  const files = new Set(fast.map(({ speed }) => speed[6])).size > 1
    ? ". Files differ: a smaller one is taken where the usual one does not run, and may be faster there" : "";
  document.getElementById("with-what").textContent = fast.length
    ? `${chosen.model}; cards with ${ram.gib} GB of ${type}${files}`
    : `${chosen.model} is too large for all of them, with ${ram.gib} GB of ${type}, or gives less than a token a second.`;
  tables.hidden = false;
};

const hashOf = (chosen) => {
  const unused = isWhole(chosen) ? ["gib", "ram"] : [];
  const words = fields.filter((name) => name === "model" || (chosen[name] !== first[name] && !unused.includes(name)));
  return `#${new URLSearchParams(words.map((name) => [name, chosen[name]]))}`;
};

let latest = 0;
const show = async (chosen, { strange = [], wanted = chosen, remark = "", line = "" }) => {
  latest += 1;
  const mine = latest;
  for (const name of fields) form[name].value = chosen[name];
  form.gib.disabled = form.ram.disabled = isWhole(chosen);
  const other = Object.keys(NOT_HELD).filter((name) => chosen[name] !== first[name]);
  const absent = [...strange, ...other.map((name) => NOT_HELD[name](form[name].selectedOptions[0].textContent))];
  if (absent.length) refuse(absent, wanted, remark);
  else {
    say(remark, line);
    try {
      const { lines, cards } = await piece(chosen.model);
      if (mine !== latest) return;
      answer.innerHTML = cards[place(chosen)].map((one) => lines[one]).join("\n");
      answer.hidden = false;
      showButtons(answer);
    } catch {
      delete pieces[chosen.model];
      if (mine !== latest) return;
      answer.hidden = true;
      failed(chosen.model, chosen);
    }
    try {
      await showTables(chosen, () => mine === latest);
    } catch {
      delete pieces.speeds;
      if (mine !== latest) return;
      tables.hidden = true;
      failed("speeds", chosen);
    }
  }
  document.documentElement.dataset.shown = location.hash || hashOf(chosen);
};

const now = () => Object.fromEntries(fields.map((name) => [name, form[name].value]));

// Sentences on what was not said, and the command with what the answer leaves out.
const unsaid = (kept) => (kept.length ? `Not said, so as it was: ${kept.join(", ")}.` : "");
const remarkOn = ({ kept, beside, wanted, taken }) => ({
  remark: [
    taken,
    unsaid(kept),
    beside.length ? `The answer leaves out ${beside.join(", ")}. With it, in a terminal:` : "",
  ].filter(Boolean).join(" "),
  line: beside.length ? command(wanted) : "",
});

let heard = null; // of what was typed, for the answer to it
const read = () => {
  const given = new URLSearchParams(location.hash.slice(1));
  const chosen = { ...first };
  const strange = [];
  const wanted = {};
  const unknown = [];
  for (const [name, value] of given) {
    if (!fields.includes(name)) {
      if (name !== "typed") unknown.push(`“${(value ? `${name}=${value}` : name).slice(0, 60)}”`);
    } else if ([...form[name].options].some((one) => one.value === value)) chosen[name] = value;
    else if (value) {
      strange.push(name === "gib" ? `${value.slice(0, 60)} GB of RAM` : value.slice(0, 60));
      wanted[name] = /^[a-z0-9][\w.:+ -]{0,59}$/i.test(value) ? value : { model: "MODEL", on: "CARD" }[name] ?? first[name];
    }
  }
  const without = unknown.length ? { remark: `This page knows no ${unknown.join(", ")} of the link, and answers without.` } : {};
  const typed = given.get("typed");
  const said = heard;
  heard = null;
  if (typed) {
    form.typed.value = typed;
    const meant = understand(typed, chosen);
    if (meant.strange.length) return show(chosen, { ...meant, remark: unsaid(meant.kept) });
  }
  if (strange.length) return show(chosen, { strange, wanted: { ...chosen, alone: isWhole({ ...chosen, ...wanted }), ...wanted } });
  if (!isWhole(chosen)) return show(chosen, said ?? without);
  const size = known.whole.find((one) => one.key === chosen.on).gib;
  const unused = [
    given.has("gib") && chosen.gib !== String(size) ? `${chosen.gib} GB of RAM` : "",
    given.has("ram") ? known.ram.find((one) => one.key === chosen.ram).label : "",
  ].filter(Boolean);
  for (const name of ["gib", "ram"]) chosen[name] = form[name].value; // for when a card is chosen again
  return show(chosen, unused.length
    ? { remark: `${labelOf(chosen)}, has its own memory, and no other: ${unused.join(", ")} of the link does not count.` } : said ?? without);
};

Object.entries(first).forEach(([name, value]) => { form[name].value = value; });
form.hidden = false;
form.addEventListener("change", ({ target }) => {
  if (target.name === "typed") return;
  location.hash = hashOf(now());
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const before = now();
  const meant = understand(form.typed.value, before);
  const hash = meant.strange.length
    ? `${hashOf(before)}&${new URLSearchParams({ typed: form.typed.value })}` : hashOf(meant.chosen);
  heard = remarkOn(meant);
  if (hash === location.hash) read();
  else location.hash = hash;
});
document.getElementById("link").addEventListener("click", async ({ target }) => {
  const status = target.parentElement.querySelector("[role=status]");
  try {
    await navigator.clipboard.writeText(location.href);
    status.textContent = "Copied.";
  } catch {
    status.textContent = "Copy it from the address above.";
  }
});
addEventListener("hashchange", read);
read();

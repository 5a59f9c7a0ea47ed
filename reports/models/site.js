const known = JSON.parse(document.getElementById("known").textContent);
const form = document.getElementById("choose");
const note = document.getElementById("note");
const answer = document.getElementById("answer");
const fields = ["model", "on", "gib", "ram", "drive", "context", "fast"];
const first = Object.fromEntries(fields.map((name) => [name, form[name].options[0].value]));
Object.assign(first, { on: "rtx-3060", gib: "64" });
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

const command = (chosen) => {
  const drive = isWhole(chosen) && chosen.drive === first.drive ? "" : ` + ${chosen.drive}`;
  const ram = known.ram.find((one) => one.key === chosen.ram);
  const parts = `${chosen.on === "none" ? ram.cpu : chosen.on} + ${chosen.ram} + ${chosen.gib}GiB`;
  const flags = [chosen.context, chosen.fast].filter(Boolean).map((flag) => ` ${flag}`).join("");
  return `sim recommend ${chosen.model} --machine "${isWhole(chosen) ? chosen.on : parts}${drive}"${flags}`;
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

const say = (text, code) => {
  note.hidden = !text;
  note.textContent = text;
  if (code) note.append(Object.assign(document.createElement("code"), { textContent: code }));
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

const showTables = async (chosen) => {
  const speeds = await piece("speeds");
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
  fill(document.getElementById("cards"), fast, own);
  const type = known.ram.find((one) => one.key === ram.ram).label;
  const files = new Set(fast.map(({ speed }) => speed[6])).size > 1
    ? ". Files differ: a smaller one is taken where the usual one does not run, and may be faster there" : "";
  document.getElementById("with-what").textContent = `${chosen.model}; cards with ${ram.gib} GB of ${type}${files}`;
  document.getElementById("tables").hidden = false;
};

const hashOf = (chosen) => {
  const words = fields.filter((name) => chosen[name] !== first[name] || name === "model");
  return `#${new URLSearchParams(words.map((name) => [name, chosen[name]]))}`;
};

let latest = 0;
const show = async (chosen, strange) => {
  latest += 1;
  const mine = latest;
  for (const name of fields) form[name].value = chosen[name];
  form.gib.disabled = form.ram.disabled = isWhole(chosen);
  const other = ["drive", "context", "fast"].filter((name) => chosen[name] !== first[name]);
  const absent = [...strange, ...other.map((name) => form[name].selectedOptions[0].textContent)];
  if (absent.length) {
    say(`This page does not hold ${absent.join(", ")}. That says nothing about whether it runs. Below: ${chosen.model} ` +
      `on ${labelOf(chosen)}, an NVMe drive on PCIe 4, room for 4,096 tokens, made for fast answers. In a terminal:`,
      command(chosen));
  } else say("");
  try {
    const { lines, cards } = await piece(chosen.model);
    if (mine !== latest) return;
    answer.innerHTML = cards[place(chosen)].map((line) => lines[line]).join("\n");
    showButtons(answer);
  } catch {
    delete pieces[chosen.model];
    failed(chosen.model, chosen);
  }
  try {
    await showTables(chosen);
  } catch {
    delete pieces.speeds;
    failed("speeds", chosen);
  }
  document.documentElement.dataset.shown = hashOf(chosen);
};

const read = () => {
  const given = new URLSearchParams(location.hash.slice(1));
  const chosen = { ...first };
  const strange = [];
  for (const [name, value] of given) {
    if (fields.includes(name) && [...form[name].options].some((one) => one.value === value)) chosen[name] = value;
    else strange.push(value.slice(0, 60) || name.slice(0, 60));
  }
  show(chosen, strange);
};

const tokens = (text) => text.toLowerCase().replace(/([a-z])(?=\d)|(\d)(?=[a-z])/g, "$1$2 ").split(/[^a-z0-9.]+/).filter(Boolean);
const SAID = new Set(("a an and at apple amd by card cpu desktop for g gb gib geforce gpu graphics how fast i in intel " +
  "is it laptop mac macbook memory mini my nvidia of on pc radeon ram run runs studio the tokens what will with").split(" "));

const find = (words, options) => {
  let best = null;
  for (const option of options) {
    for (const name of option.words) {
      const wanted = tokens(name);
      for (let at = 0; at + wanted.length <= words.length; at += 1) {
        if (wanted.length > (best?.length ?? 0) && wanted.every((word, i) => words[at + i] === word)) {
          best = { option, at, length: wanted.length };
        }
      }
    }
  }
  if (best) words.splice(best.at, best.length);
  return best?.option;
};

const understand = (text) => {
  const words = tokens(text);
  const chosen = { ...Object.fromEntries(fields.map((name) => [name, form[name].value])) };
  const model = find(words, known.models);
  if (model) chosen.model = model.key;
  const card = find(words, known.cards);
  const chip = card ? undefined : find(words, known.whole);
  const type = words.findIndex((word, i) => word === "ddr" && words[i + 1]);
  if (type >= 0) {
    const ram = known.ram.find((one) => tokens(one.label)[1] === words[type + 1]);
    if (ram) {
      chosen.ram = ram.key;
      words.splice(type, 2);
    }
  }
  const size = words.findIndex((word, i) => /^\d+$/.test(word) && ["gb", "gib", "g"].includes(words[i + 1]));
  const gib = size >= 0 ? Number(words.splice(size, 2)[0]) : undefined;
  if (card) chosen.on = card.key || "none";
  if (gib !== undefined && !chip) {
    if (known.gib.includes(gib)) chosen.gib = String(gib);
    else words.push(`${gib} GB of RAM`);
  }
  if (chip) {
    const same = known.whole.filter((one) => one.words[0] === chip.words[0]);
    const fits = same.find((one) => gib === undefined ? same.length === 1 : one.gib === gib);
    if (fits) chosen.on = fits.key;
    else words.push(`${chip.words[0]} with ${gib === undefined ? "an unknown size of memory" : `${gib} GB`}`);
  }
  return { chosen, strange: words.filter((word) => !SAID.has(word)) };
};

form.hidden = false;
form.addEventListener("change", ({ target }) => {
  if (target.name === "typed") return;
  location.hash = hashOf(Object.fromEntries(fields.map((name) => [name, form[name].value])));
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const { chosen, strange } = understand(form.typed.value);
  if (strange.length) {
    say(`This page does not hold “${strange.join(" ")}”. That says nothing about whether it runs: choose from the lists, or ask in a terminal: sim recommend`);
  } else if (hashOf(chosen) === location.hash) read();
  else location.hash = hashOf(chosen);
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

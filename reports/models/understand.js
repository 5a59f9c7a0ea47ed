const known = JSON.parse(document.getElementById("known").textContent);
const MAKERS = new Set(["nvidia", "geforce", "amd", "radeon", "intel", "apple"]);
const SAID = new Set(("a an and answers at bit build by can card chat computer core cpu desktop do does dual edition fast for from g " +
  "gaming gb get gguf gib good gpu graphics has have home how i in installed instruct is it just kit llama.cpp lm m.2 machine memory mhz " +
  "mini much my new nvme of ok old ollama on only or pc per please plus prompt ram rig run running runs second server setup " +
  "processor speed ssd studio system the thinking to tok tokens total unified use using vram what which will with wd work workstation x").split(" "));
const OFTEN = { single: 1, one: 1, dual: 2, two: 2, triple: 3, three: 3, quad: 4, four: 4, six: 6, eight: 8, twelve: 12 };
const RATE = "2133|2400|2666|2933|3000|3200|3466|3600|3733|4800|5200|5600|6000|6200|7200|8000"; // no card is called so
const CPU = new RegExp(
  "\\b(?:core )?(?:i[3579]|ultra [3579]|ryzen(?! ai max)(?: ai)?(?: [3579])?(?: pro)?|threadripper(?: pro)?|epyc|xeon(?: gold| silver)?)\\b" +
  "(?:[ -]*(?![2-5]0[5-9]0\\b|\\d{4} xt|\\d+ ?gi?b\\b)(?:[ew]\\d?-)?\\d{3,5}[a-z]{0,2}(?:3d)?(?: v\\d)?\\b)?|" +
  "\\b(?:r[579] )?\\d{4,5}(?:x3d|x|kf|ks|k|f|g|hx|hs|h|u)\\b");
const LAPTOP = new RegExp(
  `laptop|notebook|\\bmobile\\b|\\b(?:(?:asus|msi|acer|hp|lenovo) )?(?:${known.laptops})(?: (?:pro|slim|gaming|\\d{1,2}[ix]?(?! ?gi?b))\\b)*`);
const DDR = new RegExp(
  `\\b(lp)?ddr ?(\\d)x?(?:-(\\d{4,5})\\b| ?(\\d{4,5})(?= ?m(?:hz|t))| (${RATE})\\b(?! ?xt))?(?: ?(?:mhz|mt\\/?s))?`);
const EDITION = new RegExp( // makers of cards and of memory, and what they call theirs
  "\\b(?:asus dual|(?:asus|msi|gigabyte|zotac|evga|palit|gainward|inno3d|pny|sapphire|xfx|powercolor|asrock)" +
  "(?: (?:tuf|rog|strix|aorus|gaming|dual|nitro\\+?|pulse))*)(?= (?:nvidia |amd |geforce |radeon )*(?:(?:rtx|gtx|rx|arc) ?)?[a-z]?\\d{3,4}\\b)|" +
  "\\b(?:ventus|trinity|shadow|suprim|windforce|eagle|ftw3|nitro\\+?|pulse|hellhound|red devil|founders|gaming(?= (?:x|oc|trio)\\b)|trio|oc|fe)\\b(?: ?[23]x\\b)?|" +
  "\\b(?:corsair |g\\.?skill |kingston |crucial |patriot |hyperx )*(?:vengeance|dominator|ripjaws|trident z\\d?|flare x\\d?|fury|ballistix|viper)" +
  "(?: (?:lpx|pro|rgb|neo|royal|beast|renegade|impact|v|s5|steel|venom))*\\b", "g");
const REPOSITORY = /(?:https?:\/\/)?(?:huggingface\.co\/|hf\.co\/)?([\w.-]+\/[\w.-]*gguf)\b(:[\w.-]*\w)?/i;
const everyCard = [...known.cards, ...known.others.cards];

const tokens = (text) => text.toLowerCase().replace(/([a-z])(?=\d)|(\d)(?=[a-z])/g, "$1$2 ").split(/[^a-z0-9.]+/)
  .map((one) => one.replace(/^\.+|\.+$/g, "")).filter((one) => one && !MAKERS.has(one));

// Words of models' names that people write as one, gptoss, and the two that it stands for.
const pairs = new Map([...known.models, ...known.others.models].flatMap(({ words }) => words.map(tokens)).flatMap((words) =>
  words.slice(1).map((word, at) => [words[at] + word, [words[at], word]])).filter(([both]) => /^[a-z]{5,}$/.test(both)));

const spaced = (words) => words.join(" ").replace(/(\d) b\b/g, "$1b");

// The option with the longest name among the words, and where it stood; the name is taken out.
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
  return best;
};

// The models that the words may mean: those whose names have most of them, in their order, from the first on.
const findModels = (words) => {
  let best = { length: 0, exact: false, keys: new Set() };
  for (const { key, words: names } of [...known.models, ...known.others.models]) {
    for (const wanted of names.map(tokens)) {
      for (let at = 0; at < words.length; at += 1) {
        if (words[at] !== wanted[0]) continue;
        let length = 0;
        for (let next = 0; (next = wanted.indexOf(words[at + length] ?? "", next) + 1); ) length += 1;
        const exact = length === wanted.length;
        if (length > best.length || (length === best.length && exact && !best.exact)) best = { at, length, exact, keys: new Set() };
        if (length === best.length && exact === best.exact) best.keys.add(key);
      }
    }
  }
  if (!best.length) return null;
  const [next, after] = words.slice(best.at + best.length);
  const otherSize = /^[\d.]+$/.test(next) && (after === "b" || (!best.exact && Number(next) < 8 && after !== "x")); // qwen3.6 27b is none of them
  const said = words.splice(best.at, best.length + (otherSize ? 1 + (after === "b") : 0));
  return { keys: otherSize ? [] : [...best.keys], said: spaced(said) };
};

// Words as they stand in a text, if they stand there together.
const asTyped = (text, said) => text.match(new RegExp(tokens(said).join("[^a-z0-9]*").replaceAll(".", "\\."), "i"))?.[0] ?? said;

const whichOf = ({ keys, said }) => (keys.length ? `“${said}”, which may be ${keys.slice(0, 4).join(", ")}` : `“${said}”`);

// What stands behind a name and makes it another one.
const tailAt = (words, at) => {
  let length = 0;
  while (["ti", "super", "xt", "xtx", "gre", "max", "ultra", "pro", "d", "m"].includes(words[at + length])) length += 1;
  return words.splice(at, length).map((word) => `-${word}`).join("");
};

// Graphics cards, each with its number: 2x 3090, dual 3090, 3090 x2, two 3090s.
const takeCards = (words) => {
  const cards = [];
  for (let found; (found = find(words, everyCard)); ) {
    const { at, option } = found;
    const tail = tailAt(words, at);
    if (words[at] === "s") words.splice(at, 1);
    const often = (word) => OFTEN[word] ?? (/^[2-8]$/.test(word) ? Number(word) : 0);
    let number = 1;
    if (words[at - 1] === "x" && often(words[at - 2])) number = often(words.splice(at - 2, 2)[0]);
    else if (often(words[at - 1])) number = often(words.splice(at - 1, 1)[0]);
    else if (words[at] === "x" && often(words[at + 1])) number = often(words.splice(at, 2)[1]);
    cards.push({ card: option, number, tail });
  }
  return cards;
};

const takeSizes = (words) => {
  const sizes = [];
  for (let at = words.length - 1; at > 0; at -= 1) {
    if (/^(?:gi?b|g)$/.test(words[at]) && /^\d+$/.test(words[at - 1])) sizes.unshift(Number(words.splice(at - 1, 2)[0]));
  }
  const bare = words.findIndex((word, at) => /^\d+$/.test(word) && word >= 8 && word <= 1024 &&
    words[at + 1] !== "b" && words[at - 1] !== "x");
  if (!sizes.length && bare >= 0) sizes.push(Number(words.splice(bare, 1)[0]));
  return sizes;
};

const nameOf = ({ label }) => label.replace(/, \d+ GB( of .*)?$/, "");
const stem = (key) => key.replace(/-\d+gb$|-laptop.*$/, "");
const kinOf = (card, gib) => everyCard.find((one) => one.gib === gib && stem(one.key) === stem(card.key) &&
  one.key.includes("laptop") === card.key.includes("laptop"));

const listed = (sizes) => sizes.map((size) => `${size} GB`);

// The size in GB that is sold, of what a system says: it keeps some of it.
const sold = (gib) => {
  const next = [...Array(12).keys()].flatMap((n) => [2 ** n, 1.5 * 2 ** n]).find((size) => size >= gib) ?? gib;
  return next - gib <= 0.05 * next ? next : Math.round(gib);
};

// What stands between the names: words that are left, and what the others say.
const listen = (text) => {
  const [address, repository, file = ""] = text.match(REPOSITORY) ?? ["", null];
  let rest = ` ${text.replace(address, () => `${repository?.split("/")[1] ?? ""} ${file} `).toLowerCase()} `
    .replace(/\((?:r|tm)\)|[®™]/g, "").replace(/\(?\b\d+(?:[.,]\d+)? ?gi?b usable\b\)?/g, " ").replace(EDITION, " ")
    .replace(/\b(\d+)[.,](\d+) ?(?=gi?b\b)/g, (_, whole, part) => `${sold(Number(`${whole}.${part}`))} `)
    .replace(/\b(\d{4,6}) ?mi?b\b/g, (_, mib) => `${sold(mib / 1024)} gb`)
    .replace(/(\d(?:\.\d+)?) ?tb (?=(?:of )?(?:ram|memory|l?p?ddr))/g, (_, number) => `${number * 1024} gb `)
    .replace(/\b(\d{1,2}) ?[x×*] ?(\d+) ?(?=gi?b?\b)/g, (_, number, each) => `${number * each} `)
    .replace(/\b([24]0[678]0)s\b/g, "$1 super").replace(/(\d) ?gigs?\b/g, "$1 gb");
  const take = (pattern) => {
    const found = rest.match(pattern);
    if (found) rest = rest.replace(found[0], " ");
    return found;
  };
  const mac = take(/\bmac ?books?(?: pro| air)?|\bmac (?:mini|studio|pro)\b|\bimac\b|\bmac\b|(?<=\bm\d )air\b/);
  const laptop = take(LAPTOP) && !mac;
  const ddr = take(DDR);
  const rate = !ddr && take(new RegExp(`\\b(${RATE}) ?(?:mhz|mt\\/?s)\\b`))?.[1];
  const channels = take(/\b(\w+)[ -]channels?\b/)?.[1];
  const windows = take(/\bwin(?:dows)?(?: ?1[01])?(?: pro| home)?\b/);
  const linux = take(/\b(?:linux|ubuntu|debian|fedora|arch|mint|manjaro|nixos|proxmox|unraid|truenas|wsl2?)\b(?: ?\d\d\.\d\d)?/);
  const isDual = take(/\b(?:dual|two|2 ?[x×])(?= (?:intel |amd )*(?:xeon|epyc)\b)/);
  const cpu = take(CPU)?.[0].trim() ?? "";
  const quant = take(/\b(?:(?:ud-)?i?q\d(?:_[a-z0-9]+)*|mxfp4|bf16|f16|fp8)\b/)?.[0];
  const vram = take(/\b(\d+) ?g(?:i?b)? (?:of )?vram\b|\bvram:? ?(\d+) ?g(?:i?b)?\b/);
  const sata = take(/\bsata\b(?! ?hdd)/);
  const generation = take(/\b(?:pcie|gen) ?([345])(?:\.0)?(?: ?x4)?\b/);
  const context = take(/\b(\d+)( ?k)? (?:tokens? of )?(?:context|ctx)\b|\b(?:context|ctx)(?: of| size|:|=)? ?(\d+)( ?k)?\b/);
  for (const ignored of [/\bcl ?\d\d\b/, /\b\d(?:\.\d+)? ?ghz\b/, /\b\d+[ -]cores?(?: [cg]pu)?\b/, /\bdual[ -]channel\b/,
    /\bmac ?os\b/, /\b\d+(?:\.\d+)? ?tb\b/, /\b(?:1[2-9]|[2-9]\d|\d{3})\d ?gb +(?=(?:m\.2 )?(?:nvme|ssd|hdd|hard))/]) take(ignored);
  const disk = take(/\b(?:sata )?(?:hdd|hard[ -]?(?:disk|drive))\b/) && !sata && !generation && !/\b(?:ssd|nvme)\b/.test(rest);
  return {
    text, mac, laptop, quant, repository: repository && `${repository}${file}`,
    ddr: ddr ? { text: ddr[0].trim(), label: ddr[1] ? "" : `DDR${ddr[2]}`, rate: ddr[3] ?? ddr[4] ?? ddr[5] }
      : rate && { label: rate < 4800 ? "DDR4" : "DDR5", rate },
    channels: OFTEN[channels] ?? (Number(channels) || 2),
    context: context && (context[1] ?? context[3]) * (context[2] ?? context[4] ? 1024 : 1),
    os: windows ? "windows" : linux ? "linux" : "",
    cpu: /\d{3}/.test(cpu) ? `${isDual ? "2x " : ""}${cpu}` : "",
    vram: vram && Number(vram[1] ?? vram[2]),
    drive: disk ? "hdd" : sata ? "sata-ssd" : generation ? `nvme-gen${generation[1]}` : null,
    words: tokens(rest).flatMap((word) => pairs.get(word) ?? word),
  };
};

const takeModel = (said, meant) => {
  const model = findModels(said.words);
  const [key] = model?.keys.length === 1 ? model.keys : [];
  const { repository } = said;
  const held = known.models.find((one) => one.key === (model || repository ? key : meant.chosen.model));
  if (!model && !repository) meant.kept.push(held.key);
  else if (held) meant.chosen.model = key;
  else meant.strange.push(key ?? (model ? whichOf(model) : repository));
  if (model && held && model.said !== spaced(tokens(key))) meant.taken = `“${asTyped(said.text, model.said)}” is taken as ${key}.`;
  const other = said.quant && ![said.quant, `${said.quant}_k_m`].includes(held?.file) ? said.quant : "";
  if (other) meant.strange.push(held?.file === "" ? `${other} for every computer` : other);
  meant.wanted.model = repository ?? `${model ? key ?? "MODEL" : held.key}${other && `:${other}`}`;
  return model ?? repository;
};

// A computer with one memory for all. chip: undefined for a Mac without its name.
const takeWhole = (chip, variant, sizes, said, meant) => {
  const [gib, ...others] = sizes;
  const same = known.whole.filter((one) => one.part === chip?.part && !variant);
  const fits = gib === undefined ? (chip?.key === meant.chosen.on || same.length === 1) && chip : same.find((one) => one.gib === gib);
  const name = chip ? `${chip.part}${variant}` : "CHIP";
  meant.wanted.on = fits ? fits.key : `${name} + ${gib === undefined ? "RAM" : `${gib}GiB`}`;
  meant.wanted.alone = true;
  if (fits) meant.chosen.on = fits.key;
  else if (!chip) meant.strange.push("a Mac without its chip");
  else meant.strange.push(`${nameOf(chip)}${variant} ${gib === undefined ? "without the size of its memory" : `with ${gib} GB`}`);
  meant.strange.push(...listed(others));
  if (said.os && !chip?.mac) meant.wanted.os = said.os;
};

const takeLaptop = (card) => everyCard.find(({ key }) => key === `${stem(card.key)}-laptop`) ??
  { ...card, key: `${card.key}-laptop`, label: `${card.label} in a laptop` };

// The cards, of which the page holds one; their own memory is taken from the sizes.
const placeCards = (cards, sizes, { laptop, vram, ddr }, meant) => {
  for (const each of cards) {
    if (laptop) each.card = takeLaptop(each.card);
    const own = sizes.findIndex((gib) => kinOf(each.card, gib) && (sizes.length > 1 || (!ddr && !known.gib.includes(gib))));
    const gib = vram ?? (own >= 0 ? sizes.splice(own, 1)[0] : each.card.gib);
    const kin = kinOf(each.card, gib);
    if (vram && !kin) meant.strange.push(`${each.card.label} with ${gib} GB`);
    if (gib !== each.card.gib && kin) each.card = kin;
  }
  if (!cards.length) return;
  const [{ card, number, tail }] = cards;
  const named = (of) => cards.map((each) => `${each.number > 1 ? `${each.number}x ` : ""}${of(each.card)}${each.tail}`).join(" + ");
  meant.wanted.on = named(({ key }) => key || "none");
  if (cards.length > 1 || number > 1) meant.strange.push(`${named(({ label }) => label)}: it holds one card`);
  else if (tail || !known.cards.includes(card)) meant.strange.push(`${card.label}${tail}`);
  else meant.chosen.on = card.key || "none";
};

const takeMemory = (sizes, said, meant) => {
  const { chosen, wanted, strange, kept, beside } = meant;
  const type = known.ram.find(({ label }) => label === said.ddr?.label);
  if (type) chosen.ram = type.key;
  else if (said.ddr) strange.push(said.ddr.text);
  else kept.push(known.ram.find(({ key }) => key === chosen.ram).label);
  const [held] = known.ram.filter(({ key }) => key === chosen.ram);
  const rate = (type && said.ddr.rate) ?? held.key.match(/-(\d+)x/)[1];
  if (said.channels !== 2) strange.push(`RAM in ${said.channels} channel${said.channels > 1 ? "s" : ""}`);
  else if (!held.key.includes(`-${rate}x`)) beside.push(`${held.label}-${rate}`);
  wanted.ram = `${held.label.toLowerCase()}-${rate}x${said.channels}`;
  const [gib, ...others] = sizes;
  if (gib === undefined) kept.push(`${chosen.gib} GB of RAM`);
  else if (known.gib.includes(gib)) chosen.gib = String(gib);
  else strange.push(`${(wanted.gib = gib)} GB of RAM`);
  strange.push(...listed(others));
};

// The drive and the context: options of the form, or what the command alone knows.
const takeOptions = ({ drive, context }, named, { chosen, wanted, strange, beside }) => {
  if (named) {
    wanted.drive = named.key;
    (named.sata ? strange : beside).push(named.label);
  }
  const options = { drive, context: context && (context === 4096 ? "" : `--context ${context}`) };
  for (const [name, value] of Object.entries(options)) {
    if (value === null || (named && name === "drive")) continue;
    if ([...form[name].options].some((one) => one.value === value)) chosen[name] = value;
    else strange.push(name === "drive" ? "a hard disk" : NOT_HELD.context(context.toLocaleString("en")));
    wanted[name] = value;
  }
};

// A computer of which nothing is known: its words, unless they may be the model's.
const takeUnknown = (words, model, sizes, { ddr }, { wanted }) => {
  const isSaid = (word) => !SAID.has(word);
  const named = words.slice(words.findIndex(isSaid), words.findLastIndex(isSaid) + 1).join(" ");
  const type = known.ram.find(({ label }) => label === ddr?.label);
  wanted.on = [model ? named : "CARD", type?.key, sizes[0] && `${sizes[0]}GiB`].filter(Boolean).join(" + ");
  wanted.alone = true;
};

const takeCpu = ({ cpu, ddr, os }, { chosen, wanted, strange, beside }) => {
  const own = known.ram.find(({ key }) => key === chosen.ram).cpu;
  if (cpu && !ddr) wanted.ram = ""; // the command guesses what goes with the CPU
  if (cpu && chosen.on !== "none") beside.push(cpu);
  else if (cpu && tokens(cpu).at(-1) !== tokens(own).at(-1)) strange.push(cpu);
  Object.assign(wanted, { cpu, os });
};

// What a text means beside what was chosen before. chosen: of this page; wanted: for the command; strange: what this
// page does not hold; kept: what was not said; beside: what an answer of this page leaves out; taken: a remark on a name.
const understand = (text, before) => {
  const meant = { chosen: { ...before }, wanted: {}, strange: [], kept: [], beside: [], taken: "" };
  const { chosen, wanted, strange, kept, beside } = meant;
  const said = listen(text);
  const { words, mac, laptop } = said;
  const model = takeModel(said, meant);
  const cards = takeCards(words);
  const found = cards.length ? null : find(words, [...known.whole, ...known.others.chips]);
  const variant = found ? tailAt(words, found.at) : "";
  const drive = find(words, known.drives)?.option;
  const sizes = takeSizes(words);
  const left = spaced(words.filter((word) => !SAID.has(word)));
  const isStrange = /[a-z]{2}/.test(left);
  if (!model && isStrange) {
    kept.pop();
    wanted.model = "MODEL";
  }
  let chip = found?.option;
  if (!chip && !cards.length && mac) {
    const macs = known.whole.filter((one) => one.mac && one.gib === sizes[0]);
    if (macs.length === 1) [chip] = macs;
  }
  takeOptions(said, drive, meant);
  if (isStrange && !found && !cards.length && !mac && !laptop && !said.cpu) takeUnknown(words, model, sizes, said, meant);
  else {
    if (!chip && !cards.length && !mac) {
      kept.push(nameOf({ label: labelOf(before) }));
      chip = known.whole.find((one) => one.key === before.on);
    }
    if (chip || (mac && !cards.length)) takeWhole(chip, variant, sizes, said, meant);
    else {
      placeCards(cards, sizes, said, meant);
      takeMemory(sizes, said, meant);
      takeCpu(said, meant);
      if (laptop && !cards.length) {
        strange.push("a laptop without its graphics card");
        wanted.on = "CARD";
      }
    }
  }
  if (wanted.os) beside.push(wanted.os === "linux" ? "Linux" : "Windows");
  if (left) strange.push(`“${left}”`);
  return { ...meant, wanted: { ...chosen, ...wanted } };
};

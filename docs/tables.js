// Long tables: a field above that keeps the rows with all of its words, and headings that sort.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 50) continue;
  table.classList.add("long");
  const rows = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];

  const label = document.createElement("label");
  const field = document.createElement("input");
  const shown = document.createElement("output");
  field.type = "search";
  label.append("Rows with all of these words: ", field, " ", shown);
  table.before(label);

  // What a machine's name stands for is found, too: "RTX 3060 12GB".
  const plain = (text) => text.toLowerCase().replace(/(\d) (gi?b)\b/g, "$1$2");
  const meant = new Map();
  for (const other of document.querySelectorAll("table")) {
    const [name, what] = other.tHead ? other.tHead.rows[0].cells : [];
    if (other === table || !what || name.textContent !== "machine" || what.textContent !== "what") continue;
    for (const row of other.tBodies[0].rows) meant.set(row.cells[0].textContent, row.cells[1].textContent);
  }
  const found = new Map(rows.map((row) => [row, plain(`${row.textContent} ${meant.get(row.cells[0].textContent) ?? ""}`)]));

  function filter() {
    const words = plain(field.value).split(/\s+/);
    for (const row of rows) {
      const text = found.get(row);
      row.hidden = !words.every((word) => text.includes(word));
    }
    shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  }
  field.addEventListener("input", () => {
    filter();
    history.replaceState(null, "", `#rows=${encodeURIComponent(field.value)}`);
  });
  function asked() {
    if (location.hash.startsWith("#rows=")) field.value = decodeURIComponent(location.hash.slice(6));
    filter();
  }
  addEventListener("hashchange", asked);
  asked();

  headings.forEach((heading, column) => {
    const text = (row) => row.cells[column].textContent.trim();
    const number = (row) => parseFloat(text(row).replaceAll(",", ""));
    const numbers = rows.every((row) => !text(row) || !isNaN(number(row)));
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const before = heading.getAttribute("aria-sort");
      const down = before ? before === "ascending" : numbers;
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (one, other) => (numbers ? number(one) - number(other) : text(one).localeCompare(text(other)));
      body.append(...rows.sort((one, other) => (down ? order(other, one) : order(one, other))));
    });
  });
}

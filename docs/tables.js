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

  function filter() {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
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

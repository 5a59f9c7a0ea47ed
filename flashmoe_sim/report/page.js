// Draws the figures of the page, and again when its reader turns to the dark or to the light.
{ // a block: the library has names of its own
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const shown = new Map();

  // A theme whose legends fit the figure.
  function fitted(theme, figure) {
    return figure.clientWidth < 480 ? { ...theme, legend: { ...theme.legend, columns: 2 } } : theme;
  }

  // Names in a legend that choose lines are buttons for the keyboard too, and the page says so.
  function operable(figure) {
    const names = figure.querySelectorAll('[class*="_legend_labels"] text');
    for (const name of names) {
      name.setAttribute("tabindex", "0");
      name.setAttribute("role", "button");
      name.addEventListener("keydown", event => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        name.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      });
    }
    if (names.length && !figure.querySelector(".hint")) {
      const hint = document.createElement("p");
      hint.className = "hint";
      hint.textContent = "Click a name to see it alone, and others to add them; a second click takes one away.";
      figure.querySelector(".chart").before(hint);
    }
  }

  async function draw(figure) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    shown.get(figure)?.finalize();
    figure.classList.add("drawn"); // before, so that the chart has a width
    try {
      shown.set(figure, await vegaEmbed(figure.querySelector(".chart"), spec, {
        ast: true, // expressions are interpreted: no eval
        actions: false,
        config: fitted(themes[dark.matches ? "dark" : "light"], figure),
        renderer: "svg",
        tooltip: { theme: dark.matches ? "dark" : "light" },
      }));
      operable(figure);
    } catch (error) {
      figure.classList.remove("drawn"); // the picture stays
      console.error(error);
    }
  }

  async function drawAll() {
    for (const figure of document.querySelectorAll("figure[id]")) await draw(figure);
    document.documentElement.dataset.drawn = dark.matches ? "dark" : "light";
  }

  dark.addEventListener("change", drawAll);
  drawAll();
}

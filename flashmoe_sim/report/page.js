// Draws the figures of the page, and again when its reader turns to the dark or to the light.
{ // a block: the library has names of its own
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const shown = new Map();

  async function draw(figure) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    shown.get(figure)?.finalize();
    figure.classList.add("drawn"); // before, so that the chart has a width
    try {
      shown.set(figure, await vegaEmbed(figure.querySelector(".chart"), spec, {
        ast: true, // expressions are interpreted: no eval
        actions: false,
        config: themes[dark.matches ? "dark" : "light"],
        renderer: "svg",
        tooltip: { theme: dark.matches ? "dark" : "light" },
      }));
    } catch (error) {
      figure.classList.remove("drawn"); // the picture stays
      console.error(error);
    }
  }

  async function drawAll() {
    for (const figure of document.querySelectorAll("figure")) await draw(figure);
    document.documentElement.dataset.drawn = dark.matches ? "dark" : "light";
  }

  dark.addEventListener("change", drawAll);
  drawAll();
}

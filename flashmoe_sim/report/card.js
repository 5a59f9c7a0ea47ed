const showButtons = (root) => {
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = false;
};
document.addEventListener("click", async ({ target }) => {
  const button = target.closest("[data-copy]");
  if (!button) return;
  const status = button.parentElement.querySelector("[role=status]");
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    status.textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(button.parentElement.previousElementSibling);
    status.textContent = "Selected: copy it by hand.";
  }
});
showButtons(document);

for (const button of document.querySelectorAll("[data-copy]")) {
  const status = button.parentElement.querySelector("[role=status]");
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      status.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(button.parentElement.previousElementSibling);
      status.textContent = "Selected: copy it by hand.";
    }
  });
}

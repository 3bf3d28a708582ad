"use strict";
// Every table gets a button that copies it as tab-separated text; without scripts there is simply no button.
function textOf(table) {
  const lines = Array.from(table.rows, (row) =>
    Array.from(row.cells, (cell) => {
      const number = cell.querySelector("data");
      return number ? number.value : cell.innerText.replace(/\s+/g, " ").trim();
    }).join("\t"));
  return lines.join("\n") + "\n";
}
function select(table) {
  const range = document.createRange();
  range.selectNode(table);
  const selection = window.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}
for (const table of document.querySelectorAll("table")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy the table: " + table.caption.innerText);
  button.addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(textOf(table));
    } catch {
      select(table);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  table.closest("figure").prepend(button);
}
// Paper has no way to unfold.
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    part.dataset.folded = "";
  }
});
window.addEventListener("afterprint", () => {
  for (const part of document.querySelectorAll("details[data-folded]")) {
    part.open = false;
    delete part.dataset.folded;
  }
});

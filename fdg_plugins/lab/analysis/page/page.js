// SPDX-License-Identifier: Apache-2.0
"use strict";
// A click on a heading sorts the rows of each group by its column: numbers from the highest, words from A, then back.
const words = new Intl.Collator("en", { numeric: true });
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, place = head.cellIndex, isNumber = head.classList.contains("number");
    const was = head.getAttribute("aria-sort");
    const now = was ? { ascending: "descending", descending: "ascending" }[was] : isNumber ? "descending" : "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", now);
    const sign = now === "ascending" ? 1 : -1;
    const text = row => row.cells[place].textContent;
    const number = row => parseFloat(text(row).replaceAll(",", ""));
    const compare = (one, other) => {
      if (!isNumber) return sign * words.compare(text(one), text(other));
      const [a, b] = [number(one), number(other)];
      return isNaN(a) || isNaN(b) ? isNaN(a) - isNaN(b) : sign * (a - b);
    };
    for (const body of head.closest("table").tBodies) body.append(...[...body.rows].sort(compare));
  });
}

"use strict";
(() => {
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  const table = document.getElementById("annotator-table");
  if (table) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const rows = [...body.rows].map((row) => ({ row, keys: [...row.cells].map((cell) => cell.dataset.v ?? cell.textContent.trim()), text: row.textContent.toLowerCase() }));
    const sort = (column, direction) => {
      const isNumber = heads[column].dataset.kind === "number";
      const order = (a, b) => {
        const x = a.keys[column], y = b.keys[column];
        if (x === "" || y === "") return (x === "") - (y === "");
        return direction * (isNumber ? x - y : compare(x, y));
      };
      body.append(...[...rows].sort(order).map((entry) => entry.row));
      heads.forEach((head, index) => head.setAttribute("aria-sort", index !== column ? "none" : direction > 0 ? "ascending" : "descending"));
    };
    heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const first = head.dataset.kind === "number" ? -1 : 1;
      sort(column, now === "ascending" ? -1 : now === "descending" ? 1 : first);
    }));
    const search = document.getElementById("annotator-search"), count = document.getElementById("annotator-count");
    const filter = () => {
      const wanted = search.value.trim().toLowerCase();
      let shown = 0;
      for (const { row, text } of rows) {
        row.hidden = !text.includes(wanted);
        shown += !row.hidden;
      }
      count.textContent = shown.toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " shown";
    };
    search.addEventListener("input", filter);
    document.getElementById("annotator-find").hidden = false;
    filter();
  }
  const open = (hash) => {
    const place = hash.length > 1 && document.getElementById(hash.slice(1));
    if (place && place.tagName === "DETAILS") {
      place.open = true;
      place.scrollIntoView();
      place.querySelector("summary").focus();
    }
  };
  const picture = document.getElementById("picture");
  document.addEventListener("click", (event) => {
    const small = event.target.closest?.(".zoom");
    if (small) {
      picture.querySelector("div").replaceChildren(small.querySelector("img").cloneNode());
      document.getElementById("picture-name").textContent = small.getAttribute("aria-label").replace("Enlarge the", "The");
      picture.showModal();
    }
    if (event.target === picture) picture.close(); // a click beside the picture
    const link = event.target.closest?.('a[href^="#annotator-"]');
    if (link) {
      event.preventDefault();
      open(link.getAttribute("href"));
    }
  });
  addEventListener("hashchange", () => open(location.hash));
  open(location.hash);
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((part) => (part.open = true));
  });
  addEventListener("afterprint", () => closed.forEach((part) => (part.open = false)));
})();

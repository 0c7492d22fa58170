// Tables sort by the column that is clicked; empty cells stay last. Long tables have a field that filters rows.
document.querySelectorAll("table.sortable").forEach((table) => {
  const body = table.tBodies[0];
  table.querySelectorAll("thead button").forEach((button) => {
    const head = button.closest("th");
    button.addEventListener("click", () => {
      const first = head.classList.contains("num") ? "descending" : "ascending";
      const other = first === "descending" ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      table.querySelectorAll("th[aria-sort]").forEach((th) => th.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const value = (row) => row.cells[head.cellIndex].dataset.v ?? row.cells[head.cellIndex].textContent;
      const compare = (a, b) => {
        const x = value(a), y = value(b);
        if (x === "" || y === "") return (x === "") - (y === "");
        return sign * (head.classList.contains("num") ? x - y : x.localeCompare(y));
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
});
document.querySelectorAll("input[data-filter]").forEach((input) => {
  const body = document.getElementById(input.dataset.filter).tBodies[0];
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  });
});

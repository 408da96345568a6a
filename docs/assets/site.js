// What the theme leaves out for people who do not use a mouse: a name for the search, and focus for wide tables.
addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (table.scrollWidth > table.clientWidth) {
      table.tabIndex = 0;
      table.setAttribute("role", "group");
      table.setAttribute("aria-label", "A table that scrolls sideways");
    }
  }
});

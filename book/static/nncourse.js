/* Paper is white: what is printed from a dark page is printed light. */
let theme = null;
addEventListener("beforeprint", () => {
  theme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
addEventListener("afterprint", () => {
  if (theme) document.documentElement.dataset.theme = theme;
});

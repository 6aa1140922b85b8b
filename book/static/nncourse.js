// Paper is white: what is printed from a dark page is printed light.
let theme = null;
addEventListener("beforeprint", () => {
  theme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
addEventListener("afterprint", () => {
  if (theme) document.documentElement.dataset.theme = theme;
});

// ---- widgets

// Draw a widget in its place, with the model that stands for Python: see nnclassroom/widgets/alone.
function enliven(place) {
  const { css, make } = nncourseLive[place.dataset.script];
  const { drawn, mind, standIn } = make();
  if (!document.querySelector(`style[data-of="${place.dataset.script}"]`)) {
    const style = document.createElement("style");
    style.dataset.of = place.dataset.script;
    style.textContent = css;
    document.head.append(style);
  }
  drawn.render({ model: standIn(nncourseStates[place.dataset.state], mind), el: place });
}

// ---- figures: a tap shows one large that the page makes small

function large(figure) {
  const dialog = document.createElement("dialog");
  dialog.className = "nncourse-large";
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = nncourseSays.CLOSE;
  const copy = figure.cloneNode();
  for (const name of ["tabindex", "role", "title", "aria-haspopup"]) copy.removeAttribute(name);
  const room = document.createElement("div");
  room.tabIndex = 0;
  room.append(copy);
  dialog.setAttribute("aria-label", figure.alt);
  dialog.append(close, room);
  document.body.append(dialog);
  dialog.addEventListener("close", () => (dialog.remove(), figure.focus()));
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.showModal();
}

function measureFigure(figure) {
  const small = figure.naturalWidth > 1.1 * figure.clientWidth;
  figure.classList.toggle("nncourse-small", small);
  if (!small) return ["tabindex", "role", "title", "aria-haspopup"].forEach((name) => figure.removeAttribute(name));
  figure.tabIndex = 0;
  figure.title = nncourseSays.ENLARGE;
  figure.setAttribute("role", "button");
  figure.setAttribute("aria-haspopup", "dialog");
}

// ---- what is wider than the page scrolls sideways: its edge fades where more of it is

const WIDE = ".bd-article :is(div.math, .pst-scrollable-table-container, .text_html, pre, .wide)";

function measureWide(box) {
  const more = box.scrollWidth - box.clientWidth;
  const wide = more > 1 && getComputedStyle(box).overflowX !== "visible";
  box.classList.toggle("nncourse-more-left", wide && box.scrollLeft > 1);
  box.classList.toggle("nncourse-more-right", wide && box.scrollLeft < more - 1);
  if (wide && !box.hasAttribute("tabindex")) {
    box.tabIndex = 0; // for the arrow keys
    box.title = nncourseSays.MOVE_SIDEWAYS;
  }
}

addEventListener("DOMContentLoaded", () => {
  // Widgets look for the theme's changes at the body.
  const follow = () => (document.body.dataset.shown = document.documentElement.dataset.theme);
  new MutationObserver(follow).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  follow();
  document.querySelectorAll(".nncourse-live").forEach(enliven);

  const figures = [...document.querySelectorAll(".bd-article img.nncourse-figure")];
  for (const figure of figures) {
    const open = () => figure.classList.contains("nncourse-small") && large(figure);
    figure.addEventListener("click", open);
    figure.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      open();
    });
    figure.addEventListener("load", () => measureFigure(figure));
  }
  const boxes = [...document.querySelectorAll(WIDE)];
  boxes.forEach((box) => box.addEventListener("scroll", () => measureWide(box), { passive: true }));
  const resized = new ResizeObserver((seen) => {
    for (const { target } of seen) target.matches("img") ? measureFigure(target) : measureWide(target);
  });
  [...figures, ...boxes].forEach((each) => resized.observe(each)); // and when what was folded is opened
});

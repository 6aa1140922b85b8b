// The pad of digit_pad.py, after the text of widget.js: a pen, a keyboard cursor, and bars for what Python answers.

const CELLS = 28; // steps of the keyboard cursor across the pad
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const HELP =
  "Draw with the mouse or a finger. By keyboard: arrow keys move the cursor, space lowers and lifts the pen, Delete clears.";

// Ink along a straight line; where lines cross, the darker one counts.
function stroke(ink, side, [radius, soft], [x0, y0], [x1, y1]) {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const length = dx * dx + dy * dy;
  const reach = radius + soft;
  const within = (value) => Math.max(0, Math.min(side - 1, Math.floor(value)));
  for (let row = within(Math.min(y0, y1) - reach); row <= within(Math.max(y0, y1) + reach); row++) {
    for (let column = within(Math.min(x0, x1) - reach); column <= within(Math.max(x0, x1) + reach); column++) {
      const [x, y] = [column + 0.5 - x0, row + 0.5 - y0];
      const share = length ? Math.max(0, Math.min(1, (x * dx + y * dy) / length)) : 0;
      const distance = Math.hypot(x - share * dx, y - share * dy);
      const value = 255 * Math.max(0, Math.min(1, (radius + soft / 2 - distance) / soft));
      ink[row * side + column] = Math.max(ink[row * side + column], value);
    }
  }
}

// Grey values, row by row, onto a canvas of that many pixels.
function show(canvas, values, side) {
  const image = new ImageData(side, side);
  for (let i = 0; i < side * side; i++) {
    image.data.fill(values[i] ?? 0, 4 * i, 4 * i + 3);
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function bytes(view) {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

function bars(parent, classes) {
  const table = element("div", "bars", parent);
  return classes.map((name) => {
    const label = element("span", "", table, name);
    const bar = element("div", "bar", table);
    return { label, bar, fill: element("div", "", bar), number: element("span", "number", table) };
  });
}

function render({ model, el }) {
  const side = model.get("side");
  const ink = new Uint8ClampedArray(side * side);
  const cursor = { x: CELLS / 2, y: CELLS / 2, down: false };
  let last = null; // where the mouse's pen is; null while it is up

  el.classList.add("nncourse-pad");
  const across = element("div", "across", el);
  const left = element("div", "", across);
  const paper = element("canvas", "paper", left);
  const middle = element("div", "", across);
  element("p", "", middle, "What the network sees");
  const seen = element("canvas", "seen", middle);
  const clear = element("button", "clear", middle, "Clear");
  const right = element("div", "", across);
  element("p", "", right, "How likely it thinks each digit is");
  const rows = bars(right, model.get("classes"));
  const place = element("p", "place", el);
  const words = element("p", "words", el);
  element("p", "help", el, HELP);

  paper.width = paper.height = side;
  seen.width = seen.height = model.get("seen_side");
  paper.tabIndex = 0;
  paper.setAttribute("role", "application");
  paper.setAttribute("aria-label", "Pad to draw a digit on. " + HELP);
  paper.setAttribute("data-lm-suppress-shortcuts", "true"); // the notebook leaves the arrow keys to the pad
  seen.setAttribute("role", "img");
  clear.title = "Erase the drawing";
  words.setAttribute("role", "status"); // screen readers announce it
  place.setAttribute("aria-live", "polite");

  const width = side / CELLS;
  const here = () => [(cursor.x + 0.5) * width, (cursor.y + 0.5) * width];

  function drawPaper() {
    show(paper, ink, side);
    if (document.activeElement !== paper) return;
    const pen = paper.getContext("2d");
    pen.strokeStyle = cursor.down ? "#ff9800" : "#4fc3f7";
    pen.strokeRect(cursor.x * width + 0.5, cursor.y * width + 0.5, width - 1, width - 1);
  }

  function changed() {
    drawPaper();
    model.set("ink", new DataView(ink.slice().buffer)); // ipywidgets sends the next one when this one is answered
    model.save_changes();
  }

  function wipe() {
    ink.fill(0);
    cursor.down = false;
    changed();
    say();
  }

  function at(event) {
    const box = paper.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * side, ((event.clientY - box.top) / box.height) * side];
  }

  function line(from, to) {
    stroke(ink, side, model.get("pen"), from, to);
  }

  paper.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    paper.setPointerCapture(event.pointerId);
    last = at(event);
    line(last, last);
    changed();
  });
  paper.addEventListener("pointermove", (event) => {
    if (!last) return;
    const between = event.getCoalescedEvents?.() ?? [];
    for (const point of between.length ? between : [event]) {
      line(last, at(point));
      last = at(point);
    }
    changed();
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    paper.addEventListener(kind, () => {
      last = null;
      say();
    });
  }

  function say() {
    if (last || cursor.down) return; // not while somebody draws: at the end of the stroke
    words.textContent = model.get("words");
  }

  function tell() {
    const pen = cursor.down ? "down" : "up";
    place.textContent = `Cursor: row ${cursor.y + 1}, column ${cursor.x + 1} of ${CELLS}; pen ${pen}.`;
  }

  paper.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = KEYS[event.key];
    const from = here();
    if (move) {
      cursor.x = Math.max(0, Math.min(CELLS - 1, cursor.x + move[0]));
      cursor.y = Math.max(0, Math.min(CELLS - 1, cursor.y + move[1]));
    } else if (event.key === " ") {
      cursor.down = !cursor.down;
    } else if (event.key === "Delete" || event.key === "Backspace") {
      wipe();
    } else {
      return; // Tab and all others do what they always do
    }
    event.preventDefault();
    event.stopPropagation();
    tell();
    if (cursor.down) {
      line(from, here());
      changed();
    } else {
      drawPaper();
      say();
    }
  });
  paper.addEventListener("focus", () => (tell(), drawPaper()));
  paper.addEventListener("blur", () => {
    cursor.down = false;
    place.textContent = "";
    drawPaper();
    say();
  });
  clear.addEventListener("click", wipe);

  function answered() {
    const shares = model.get("shares");
    const most = Math.max(...shares);
    rows.forEach(({ label, bar, fill, number }, place) => {
      const share = shares[place] ?? 0;
      fill.style.width = `${100 * share}%`;
      number.textContent = shares.length ? `${(100 * share).toFixed(1)} %` : "";
      for (const part of [label, bar, number]) part.classList.toggle("most", share > 0 && share === most);
    });
    show(seen, bytes(model.get("seen")), seen.width);
    seen.setAttribute("aria-label", "What the network sees: " + model.get("words"));
    say();
  }

  model.on("change:words change:shares change:seen", answered);
  if (model.get("ink").byteLength === ink.length) ink.set(bytes(model.get("ink"))); // shown a second time
  drawPaper();
  answered();
}

export default { render };

// What the widgets share: colours of the page, plots on a canvas, controls, and the messages to Python.
// Python appends a widget's own file to this text. One that widget.py describes ends with
//   export default widget({ height: 330, draw({ pen, theme, width, given, frame }) { … } });

// ---- numbers from Python

// A tree of objects and lists, with each array in it as { shape, values }.
function unpacked(tree) {
  if (Array.isArray(tree)) return tree.map(unpacked);
  if (!tree || typeof tree !== "object") return tree;
  if (tree.bytes && tree.shape) {
    const { buffer, byteOffset, byteLength } = tree.bytes;
    const bytes = buffer.slice(byteOffset, byteOffset + byteLength);
    return { shape: tree.shape, values: tree.type === "uint8" ? new Uint8Array(bytes) : new Float32Array(bytes) };
  }
  return Object.fromEntries(Object.entries(tree).map(([name, part]) => [name, unpacked(part)]));
}

// One column of an array with rows.
function column({ shape, values }, number) {
  return Array.from({ length: shape[0] }, (_, row) => values[row * shape[1] + number]);
}

// A number with at most `digits` digits, a power of ten only if it is tiny or huge, and a true minus sign.
function written(value, digits = 3) {
  const number = Number(Number(value).toPrecision(digits));
  const large = Math.abs(number);
  const text = large && (large < 1e-4 || large >= 1e6) ? number.toExponential() : String(number);
  return text.replace("e+", "e").replace(/-/g, "−");
}

// ---- colours

const LIGHT = { blue: "#1f6fb4", orange: "#cc5a00", green: "#217a2b", red: "#c62828", purple: "#7b4fb0" };
const DARK = { blue: "#6db3f2", orange: "#ffa657", green: "#7ccf86", red: "#ff8078", purple: "#c5a3f0" };

// A colour in any notation as [red, green, blue].
function parts(colour) {
  const pen = (parts.pen ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true }));
  pen.fillStyle = "#fff";
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

// A mixture of two colours: `share` of the way from the first to the second.
function between(one, other, share) {
  const to = parts(other);
  return `rgb(${parts(one).map((value, i) => Math.round(value + share * (to[i] - value)))})`;
}

// The colours of the page: JupyterLab's, or those of a white page. `ramp(v)`, v from 0 to 1, goes from blue over the
// page's own colour to orange, as [red, green, blue].
function themeOf(element) {
  const style = getComputedStyle(element);
  const read = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  const paper = read("--jp-layout-color0", "#ffffff");
  const [red, green, blue] = parts(paper);
  const dark = 0.299 * red + 0.587 * green + 0.114 * blue < 128;
  const ink = dark ? "#e4e4e4" : "#222222";
  const colours = dark ? DARK : LIGHT;
  const ends = [colours.blue, paper, colours.orange].map(parts);
  const strength = dark ? 0.5 : 0.38;
  const ramp = (v) => {
    const share = Math.min(1, Math.max(0, v)) * 2 - 1;
    const end = share < 0 ? ends[0] : ends[2];
    return ends[1].map((value, i) => value + strength * Math.abs(share) * (end[i] - value));
  };
  return {
    dark,
    paper,
    ink,
    soft: between(paper, ink, 0.72),
    faint: between(paper, ink, 0.16),
    colours,
    ramp,
    font: read("--jp-ui-font-family", "sans-serif"),
  };
}

// ---- plots

const MARKS = {
  o: (pen, r) => pen.arc(0, 0, r, 0, 2 * Math.PI),
  s: (pen, r) => pen.rect(-0.9 * r, -0.9 * r, 1.8 * r, 1.8 * r),
  "^": (pen, r) => corners(pen, [1.2 * r, 1.2 * r, 1.2 * r]),
  "*": (pen, r) => corners(pen, Array.from({ length: 10 }, (_, i) => (i % 2 ? 0.45 * r : 1.2 * r))),
};

// A polygon, clockwise from the top, whose corners have these distances from its middle.
function corners(pen, distances) {
  distances.forEach((far, i) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * i) / distances.length;
    pen.lineTo(far * Math.cos(angle), far * Math.sin(angle));
  });
  pen.closePath();
}

// A mark at a place of the canvas, filled unless hollow.
function mark(pen, kind, x, y, { size = 4, colour, edge, hollow = false, width = 1.2 }) {
  pen.save();
  pen.translate(x, y);
  pen.beginPath();
  MARKS[kind](pen, size);
  pen.lineWidth = width;
  if (!hollow) {
    pen.fillStyle = colour;
    pen.fill();
  }
  if (hollow || edge) {
    pen.strokeStyle = hollow ? colour : edge;
    pen.stroke();
  }
  pen.restore();
}

// Text at a place of the canvas, rotated by `turn` quarter turns.
function write(pen, theme, text, x, y, { size = 12, colour, align = "left", base = "alphabetic", bold, turn = 0 } = {}) {
  pen.save();
  pen.translate(x, y);
  pen.rotate((turn * Math.PI) / 2);
  pen.font = `${bold ? "bold " : ""}${size}px ${theme.font}`;
  pen.fillStyle = colour ?? theme.ink;
  pen.textAlign = align;
  pen.textBaseline = base;
  pen.fillText(text, 0, 0);
  pen.restore();
}

// The numbers at the ticks of an axis.
function ticks([low, high], log, most = 6) {
  if (log) {
    const base = log === true ? 10 : log;
    const power = (value) => Math.log(value) / Math.log(base);
    const first = Math.ceil(power(low) - 1e-9);
    const last = Math.floor(power(high) + 1e-9);
    const every = Math.max(1, Math.ceil((last - first + 1) / most));
    const found = [];
    for (let p = first; p <= last; p += every) {
      found.push(base ** p);
      if (base === 10 && last - first < 2) found.push(2 * base ** p, 5 * base ** p);
    }
    if (base === 10 && last - first < 2) found.push(2 * base ** (first - 1), 5 * base ** (first - 1));
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  }
  const rough = (high - low) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * unit).find((size) => size >= rough * 0.999);
  const count = Math.floor((high - low) / step + 1e-6) + 1;
  const first = Math.ceil(low / step - 1e-6);
  return Array.from({ length: count }, (_, i) => (first + i) * step).filter((v) => v <= high + 1e-6 * step);
}

// Axes and their labels in a box { left, top, width, height } of the canvas. x and y are { from, to, label, log, ticks,
// names }: log is true or a base; ticks are places or their number; names are written instead of numbers.
// `square` makes a unit equally long on both axes.
class Plot {
  constructor(pen, theme, box, { x, y, title = "", square = false, grid = true, margins = {} }) {
    Object.assign(this, { pen, theme, x, y });
    const { left = 54, right = 12, top = title ? 24 : 10, bottom = 40 } = margins;
    this.left = box.left + left;
    this.top = box.top + top;
    this.width = box.width - left - right;
    this.height = box.height - top - bottom;
    if (square) {
      const unit = Math.min(this.width / (x.to - x.from), this.height / (y.to - y.from));
      this.width = unit * (x.to - x.from);
      this.height = unit * (y.to - y.from);
    }
    this.X = scale(x, this.left, this.left + this.width);
    this.Y = scale(y, this.top + this.height, this.top);
    this.axes(title, grid);
  }

  axes(title, grid) {
    const { pen, theme, left, top, width, height } = this;
    const places = (axis, most) =>
      Array.isArray(axis.ticks) ? axis.ticks : ticks([axis.from, axis.to], axis.log, axis.ticks ?? most);
    const name = (axis, value, i) => axis.names?.[i] ?? written(value, 4);
    pen.lineWidth = 1;
    pen.strokeStyle = theme.faint;
    places(this.x, Math.max(2, Math.floor(width / 60))).forEach((value, i) => {
      const at = this.X(value);
      if (grid) segment(pen, at, top, at, top + height);
      write(pen, theme, name(this.x, value, i), at, top + height + 15, { align: "center", colour: theme.soft });
    });
    places(this.y, Math.max(2, Math.floor(height / 40))).forEach((value, i) => {
      const at = this.Y(value);
      if (grid) segment(pen, left, at, left + width, at);
      write(pen, theme, name(this.y, value, i), left - 6, at, { align: "right", base: "middle", colour: theme.soft });
    });
    this.frame();
    if (title) write(pen, theme, title, left + width / 2, top - 8, { align: "center" });
    const middle = left + width / 2;
    if (this.x.label) write(pen, theme, this.x.label, middle, top + height + 34, { align: "center" });
    if (this.y.label) write(pen, theme, this.y.label, left - 42, top + height / 2, { align: "center", turn: -1 });
  }

  frame() {
    this.pen.strokeStyle = this.theme.soft;
    this.pen.lineWidth = 1;
    this.pen.strokeRect(this.left, this.top, this.width, this.height);
  }

  // Draw, clipped to the axes.
  inside(draw) {
    this.pen.save();
    this.pen.beginPath();
    this.pen.rect(this.left, this.top, this.width, this.height);
    this.pen.clip();
    draw();
    this.pen.restore();
  }

  // A line through points, with a gap where a coordinate is not finite. Every `every`-th point has a mark.
  line(xs, ys, { colour, width = 1.6, dash = [], marks, every = 1, size = 3.5 }) {
    const { pen } = this;
    this.inside(() => {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.lineJoin = "round";
      pen.setLineDash(dash);
      pen.beginPath();
      let down = false;
      for (let i = 0; i < xs.length; i++) {
        const [x, y] = [this.X(xs[i]), this.Y(ys[i])];
        const there = Number.isFinite(x) && Number.isFinite(y);
        if (there) down ? pen.lineTo(far(x), far(y)) : pen.moveTo(far(x), far(y));
        down = there;
      }
      pen.stroke();
      pen.setLineDash([]);
      if (marks) {
        for (let i = 0; i < xs.length; i += every) this.at(marks, xs[i], ys[i], { colour, size });
      }
    });
  }

  points(kind, xs, ys, style) {
    this.inside(() => xs.forEach((x, i) => this.at(kind, x, ys[i], style)));
  }

  at(kind, x, y, style) {
    const place = [this.X(x), this.Y(y)];
    if (place.every(Number.isFinite)) mark(this.pen, kind, ...place, style);
  }

  // A vertical or a horizontal line through the whole plot.
  across(axis, value, style) {
    const ends = (side) => [side.from, side.to];
    if (axis === "x") this.line([value, value], ends(this.y), style);
    else this.line(ends(this.x), [value, value], style);
  }

  // A grid of colours over the whole plot. `colour(v)` is [red, green, blue]; the first row is the lowest.
  grid({ shape, values }, colour) {
    const [rows, columns] = shape;
    const image = imageOf(shape, values, colour);
    const { pen } = this;
    this.inside(() => {
      pen.translate(this.left, this.top + this.height);
      pen.scale(this.width / columns, -this.height / rows);
      pen.drawImage(image, 0, 0);
    });
    this.frame();
  }

  text(text, x, y, style) {
    write(this.pen, this.theme, text, this.X(x), this.Y(y), style);
  }

  // An arrow from one point to another.
  arrow([x0, y0], [x1, y1], colour) {
    const { pen } = this;
    const [a, b, c, d] = [this.X(x0), this.Y(y0), this.X(x1), this.Y(y1)];
    const angle = Math.atan2(d - b, c - a);
    this.inside(() => {
      pen.strokeStyle = pen.fillStyle = colour;
      pen.lineWidth = 2;
      segment(pen, a, b, c, d);
      pen.beginPath();
      pen.moveTo(c, d);
      for (const side of [-0.45, 0.45]) pen.lineTo(c - 11 * Math.cos(angle + side), d - 11 * Math.sin(angle + side));
      pen.closePath();
      pen.fill();
    });
  }
}

const NARROW = 520; // pixels: in less, plots stand one below the other

// Two plots side by side, each of half the width; on a phone one below the other, and what legend() writes below both.
function twoPlots(pen, theme, width, height, left, right) {
  const narrow = width < NARROW;
  const box = { top: 0, left: 0, width: narrow ? width : width / 2, height };
  const next = narrow ? { ...box, top: height } : { ...box, left: width / 2 };
  if (narrow) pen.lower = height;
  return [new Plot(pen, theme, box, left), new Plot(pen, theme, next, right)];
}

// An image with one pixel for each number.
function imageOf([rows, columns], values, colour) {
  const canvas = new OffscreenCanvas(columns, rows);
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(columns, rows);
  const known = values instanceof Uint8Array ? Array.from({ length: 256 }, (_, v) => colour(v / 255)) : null;
  for (let i = 0; i < rows * columns; i++) {
    const rgb = known ? known[values[i]] : colour(values[i]);
    for (let part = 0; part < 3; part++) image.data[4 * i + part] = rgb[part];
    image.data[4 * i + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

// The function from the numbers of an axis to pixels.
function scale({ from, to, log }, start, end) {
  const along = log ? Math.log : (value) => value;
  const [low, high] = [along(from), along(to)];
  return (value) => start + ((along(value) - low) / (high - low)) * (end - start);
}

// Limit a coordinate: canvases draw lines to places too far away inexactly.
function far(pixels) {
  return Math.min(1e5, Math.max(-1e5, pixels));
}

function segment(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

// A legend, broken into lines of at most `width`; entries are { label, colour, marks, dash, width, size, hollow, box, alone }.
function legend(pen, theme, entries, left, top, width) {
  let [x, y] = [left, top + pen.lower];
  pen.font = `12px ${theme.font}`;
  for (const entry of entries) {
    const wide = 34 + pen.measureText(entry.label).width + 16;
    if (x > left && x + wide > Math.min(left + width, pen.wide)) [x, y] = [left, y + 18];
    const { colour } = entry;
    if (entry.box) {
      pen.fillStyle = colour;
      pen.fillRect(x + 8, y - 6, 16, 12);
    } else {
      if (!entry.alone) {
        pen.strokeStyle = colour;
        pen.lineWidth = entry.width ?? 1.6;
        pen.setLineDash(entry.dash ?? []);
        segment(pen, x + 2, y, x + 28, y);
        pen.setLineDash([]);
      }
      if (entry.marks) mark(pen, entry.marks, x + 15, y, { size: entry.size ?? 4, colour, hollow: entry.hollow });
    }
    write(pen, theme, entry.label, x + 34, y, { base: "middle" });
    x += wide;
    pen.font = `12px ${theme.font}`;
  }
  pen.bottom = Math.max(pen.bottom, y + 10);
}

// ---- elements

let made = 0;

// A unique id. A counter is not enough: each widget of the page runs this text anew.
function newId() {
  return `nncourse-${Math.random().toString(36).slice(2)}-${++made}`;
}

function element(kind, className, parent, text = "") {
  const node = document.createElement(kind);
  if (className) node.className = className;
  node.textContent = text;
  parent?.append(node);
  return node;
}

// Each kind of control: (its part of the page, its description, send(value), means) -> { show(value), focusable }
const CONTROLS = {
  slider(place, about, send) {
    const { low, high, step, log } = about;
    const along = (value) => (log ? Math.log(value) / Math.log(log) : value);
    const at = (place) => (log === 2 ? Math.round(2 ** place) : log ? Number((10 ** place).toPrecision(3)) : place);
    const decimals = (String(step).split(".")[1] ?? "").length;
    const text = (value) =>
      log ? written(value, log === 2 ? 6 : 3) : Number(value).toFixed(decimals).replace("-", "−");
    const head = element("div", "head", place);
    const range = Object.assign(element("input", "range"), { type: "range", id: newId() });
    const label = element("label", "", head, about.label);
    label.htmlFor = range.id;
    const field = Object.assign(element("input", "field", head), { type: "text", inputMode: "decimal" });
    field.setAttribute("aria-label", `${about.label}, typed`);
    const track = element("div", "track", place);
    element("span", "end", track, written(low, 5));
    track.append(range);
    element("span", "end", track, written(high, 5));
    Object.assign(range, { min: along(low), max: along(high), step });
    describe(place, range, `${about.tip}. From ${written(low, 5)} to ${written(high, 5)}.`);
    const show = (value) => {
      if (document.activeElement !== range || Math.abs(Number(range.value) - along(value)) > step) {
        range.value = along(value);
      }
      range.setAttribute("aria-valuetext", text(value));
      if (document.activeElement !== field) field.value = text(value);
    };
    const take = (value) => (show(value), send(value));
    range.addEventListener("input", () => take(Math.min(high, Math.max(low, at(Number(range.value))))));
    field.addEventListener("change", () => {
      const typed = Number(field.value.replace("−", "-").replace(",", "."));
      field.blur();
      if (field.value.trim() === "" || !Number.isFinite(typed)) return show(Number(field.dataset.value));
      const whole = Number.isInteger(step);
      take(Math.min(high, Math.max(low, whole ? Math.round(typed) : typed)));
    });
    field.addEventListener("keydown", (event) => event.key === "Enter" && field.blur());
    return { show: (value) => ((field.dataset.value = value), show(value)), focusable: [range, field] };
  },

  menu(place, about, send) {
    const head = element("div", "head", place);
    const label = element("label", "", head, about.label);
    const select = element("select", "", place);
    select.id = label.htmlFor = newId();
    for (const [value, words] of about.options) element("option", "", select, words).value = value;
    describe(place, select, `${about.tip}.`);
    select.addEventListener("change", () => send(select.value));
    return { show: (value) => (select.value = value), focusable: [select] };
  },

  button(place, about, send, { press }) {
    const button = element("button", "", place, about.label);
    button.type = "button";
    describe(place, button, `${about.tip}.`);
    button.addEventListener("click", () => press(about.name));
    return { focusable: [button] };
  },

  // Moves a slider one step at a time. The button's text says what it will do, the text beside it what happens now.
  play(place, about, send, { move, get, onClose }) {
    const { low, high } = about.moves;
    const names = [about.label, "One step", "Start again"];
    const [play, one, again] = names.map((name) => Object.assign(element("button", "", place, name), { type: "button" }));
    const now = element("span", "now", place, "Paused");
    let timer = null;
    const pause = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = about.label;
      now.textContent = "Paused";
    };
    const turn = () => {
      if (get().pending) return; // Python has not answered yet
      if (get().value < high) move(get().value + 1);
      if (get().value >= high) pause();
    };
    play.addEventListener("click", () => {
      if (timer) return pause();
      if (get().value >= high) move(low);
      timer = setInterval(turn, 60);
      play.textContent = "Pause";
      now.textContent = "Playing";
    });
    one.addEventListener("click", () => (pause(), move(Math.min(high, get().value + 1))));
    again.addEventListener("click", () => (pause(), move(low)));
    onClose(pause);
    return { focusable: [play, one, again] };
  },
};

// What a control does and its limits, as a tooltip and for screen readers.
function describe(place, node, words) {
  const text = words.replace(/\.\./g, ".").replace(/^\.\s*/, "");
  place.title = text;
  const hidden = element("span", "unseen", place, text);
  hidden.id = newId();
  node.setAttribute("aria-describedby", hidden.id);
}

// ---- the widget

const REST = 400; // screen readers are told after so many milliseconds without a change
const UNDER_WAY = 4; // most unanswered messages to Python; 1 if it takes longer than SLOW seconds for an answer
const SLOW = 0.02;
const PATIENCE = 3000; // milliseconds after which an answer is considered lost

const WIDEST = 960; // pixels
const BESIDE = 900; // from so many pixels on the controls stand beside the picture, so that both are in view

// A widget for anywidget. `height` is that of the picture in pixels, or a function of its width and of what was given; the
// picture grows where a legend ends below. draw() draws a frame. A picture that cannot be narrower than `least` scrolls.
function widget({ height, draw, least = 0 }) {
  function render({ model, el }) {
    el.classList.add("nncourse-drawn");
    const closing = [];
    const listen = (event, handler) => {
      model.on(event, handler);
      closing.push(() => model.off(event, handler));
    };
    let values = { ...model.get("values") };

    // Messages to Python. A few may be under way, since the round trip takes longer than computing and drawing.
    // Of the values that must wait, only the newest are kept.
    const view = `${Date.now()} ${Math.random()}`;
    let [sent, answered, sentAt, waits] = [0, 0, 0, false];
    const transmit = () => {
      const most = model.get("turn")[2] < SLOW ? UNDER_WAY : 1;
      waits = sent - answered >= most && performance.now() - sentAt < PATIENCE;
      if (waits) return;
      sentAt = performance.now();
      model.send({ values, turn: [view, ++sent] });
    };
    const send = (name, value) => {
      values = { ...values, [name]: value };
      controls[name]?.show?.(value);
      transmit();
    };
    const press = (name) => model.send({ pressed: name });
    listen("change:turn", () => {
      const [who, number] = model.get("turn");
      if (who !== view) return;
      answered = number;
      if (waits) transmit();
    });

    // controls
    const panel = element("div", "controls", el);
    const controls = {};
    const known = Object.fromEntries(model.get("controls").map((about) => [about.name, about]));
    for (const about of model.get("controls")) {
      const place = element("div", `control ${about.kind}`, panel);
      place.dataset.name = about.name;
      const target = about.plays;
      const means = {
        press,
        onClose: (end) => closing.push(end),
        move: (value) => send(target, value),
        get: () => ({ value: values[target], pending: sent > answered }),
      };
      const part = CONTROLS[about.kind](place, { ...about, moves: known[target] }, (v) => send(about.name, v), means);
      controls[about.name] = part;
      for (const node of part.focusable) node.setAttribute("data-lm-suppress-shortcuts", "true");
    }
    const showValues = () => {
      for (const [name, part] of Object.entries(controls)) if (name in values) part.show?.(values[name]);
    };

    // the picture, and words
    const main = element("div", "main", el);
    const canvas = element("canvas", "picture", least ? element("div", "wide", main) : main);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", model.get("caption"));
    const shown = element("p", "words", main); // changes with every frame; screen readers hear `aloud`
    const aloud = element("p", "unseen", main);
    shown.setAttribute("aria-hidden", "true");
    aloud.setAttribute("role", "status");
    aloud.setAttribute("aria-live", "polite");
    element("p", "caption", main, model.get("caption"));

    const given = unpacked(model.get("given"));
    let frame = unpacked(model.get("frame"));
    let due = false;
    let frames = 0;
    let rest = null;
    let needed = 0; // the height, where the last picture ended below

    const paint = () => {
      due = false;
      if (el.clientWidth < 10) return; // not on the page yet, where it has no colours either
      const theme = themeOf(el);
      el.classList.toggle("beside", el.clientWidth >= BESIDE);
      const wide = Math.min(WIDEST, Math.max(least, main.clientWidth));
      const high = Math.round(Math.max(needed, typeof height === "function" ? height(wide, given) : height));
      const dots = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(wide * dots) || canvas.height !== Math.round(high * dots)) {
        canvas.width = Math.round(wide * dots);
        canvas.height = Math.round(high * dots);
        canvas.style.width = `${wide}px`;
        canvas.style.height = `${high}px`;
      }
      const pen = canvas.getContext("2d");
      pen.setTransform(dots, 0, 0, dots, 0, 0);
      pen.fillStyle = theme.paper;
      pen.fillRect(0, 0, wide, high);
      Object.assign(pen, { lower: 0, bottom: 0, wide });
      draw({ pen, theme, width: wide, given, frame });
      if (pen.bottom > high) {
        needed = pen.bottom;
        return paint();
      }
      el.dataset.frames = ++frames;
    };
    const soon = () => {
      if (due) return;
      due = true;
      requestAnimationFrame(paint);
    };
    const say = () => {
      shown.textContent = model.get("words");
      clearTimeout(rest);
      rest = setTimeout(() => (aloud.textContent = model.get("words")), REST);
    };

    listen("change:frame", () => {
      frame = unpacked(model.get("frame"));
      soon();
    });
    listen("change:words", say);
    listen("change:values", () => {
      if (sent > answered || waits) return; // an older value than the control's
      values = { ...model.get("values") };
      showValues();
    });

    // the page's size and theme
    const resized = new ResizeObserver(() => ((needed = 0), soon())); // also when it comes onto the page
    resized.observe(el);
    const recoloured = new MutationObserver(soon);
    recoloured.observe(document.body, { attributes: true });
    const preferred = window.matchMedia("(prefers-color-scheme: dark)");
    const otherwise = () => setTimeout(soon, 0);
    preferred.addEventListener("change", otherwise);
    closing.push(
      () => resized.disconnect(),
      () => recoloured.disconnect(),
      () => preferred.removeEventListener("change", otherwise),
      () => clearTimeout(rest),
    );

    showValues();
    say();
    soon();
    // ipykernel hands a message to the thread that answered the previous one. At first that is the thread that runs
    // cells, where a message waits for the running cell. The answer to this message comes from the widgets' own thread.
    transmit();
    return () => closing.forEach((end) => end());
  }
  return { render };
}

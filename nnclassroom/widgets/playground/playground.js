// The playground in the browser, after the text of widget.js: it draws the arrays that Python sends (frames.py), and
// sends commands back. Everything about the network is computed in Python.

const CLASSES = [["blue", "o"], ["orange", "^"], ["green", "s"]]; // colour and mark; low is blue, high is orange
const PALE = 0.6; // strength of the colours of the plane; points have 1
const ACKNOWLEDGE = 4; // Python is told which frame was drawn, once in so many frames
const WORDS_EVERY = 200; // milliseconds between two texts while it trains
const NET_HEAD = 46, MOST_SIDE = 38, LEAST_SIDE = 17; // pixels: above the neurons; a neuron's picture
const HINT =
  "Point at a neuron, or move to it with Tab and the arrow keys, to see it enlarged, with its weights. Click an input to use it or leave it out.";

// An element that can have the focus; the notebook does not handle its keys.
function focusable(kind, className, parent, text = "") {
  const made = element(kind, className, parent, text);
  made.setAttribute("data-lm-suppress-shortcuts", "true");
  return made;
}

function button(className, parent, text, name, press) {
  const made = focusable("button", className, parent, text);
  made.type = "button";
  if (name) made.setAttribute("aria-label", name);
  made.addEventListener("click", press);
  return made;
}

// Set text or an attribute only if it changes: otherwise the page would be laid out anew with every frame.
function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function attribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

// ---- pictures

// A colour as a pixel of an image: red, green, blue and alpha in the order of memory.
function pixel(colour) {
  const [red, green, blue] = colour.map(Math.round);
  return new Uint32Array(new Uint8ClampedArray([red, green, blue, 255]).buffer)[0];
}

// The pixels of a byte from 0 (all blue) over the page's own ground to 255 (all orange).
function palette(theme, strength = 1) {
  const [ground, blue, orange] = [theme.paper, theme.colours.blue, theme.colours.orange].map(parts);
  return Uint32Array.from({ length: 256 }, (_, byte) => {
    const value = Math.max(-1, (byte - 128) / 127);
    const end = value < 0 ? blue : orange;
    return pixel(ground.map((part, i) => part + strength * Math.abs(value) * (end[i] - part)));
  });
}

// Bytes as a picture; Python's first row is the lowest.
function paint(canvas, side, values, start, pixels) {
  if (canvas.width !== side) canvas.width = canvas.height = side;
  canvas.pen ??= canvas.getContext("2d");
  if (canvas.image?.width !== side) canvas.image = canvas.pen.createImageData(side, side);
  const to = new Uint32Array(canvas.image.data.buffer);
  for (let row = 0, from = start; row < side; row++) {
    for (let at = (side - 1 - row) * side, end = at + side; at < end; at++, from++) to[at] = pixels(values, from);
  }
  canvas.pen.putImageData(canvas.image, 0, 0);
}

// The colour of the likeliest class at a place, paler if other classes are likely too.
function likeliest(classes, steps) {
  const even = 255 / classes;
  return (plane, place) => {
    let [best, most, rest] = [0, 0, 255];
    for (let other = 1; other < classes; other++) {
      const share = plane[place * (classes - 1) + other - 1];
      rest -= share;
      if (share > most) {
        best = other;
        most = share;
      }
    }
    if (rest > most) {
      best = 0;
      most = rest;
    }
    return steps[best][Math.max(0, Math.round((255 * (most - even)) / (255 - even)))];
  };
}

function classSteps(theme) {
  const ground = parts(theme.paper);
  return CLASSES.map(([name]) => {
    const colour = parts(theme.colours[name]);
    const at = (i) => pixel(ground.map((part, j) => part + ((PALE * i) / 255) * (colour[j] - part)));
    return Uint32Array.from({ length: 256 }, (_, i) => at(i));
  });
}

// A cleared canvas whose unit is the CSS pixel.
function fresh(canvas, wide, high) {
  const dots = window.devicePixelRatio || 1;
  const size = [Math.round(wide * dots), Math.round(high * dots)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const pen = canvas.getContext("2d");
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, wide, high);
  return pen;
}

// Axes and points on a canvas of their own, since they stay while the network trains.
function pointsLayer(scene, theme, wide, high) {
  const canvas = document.createElement("canvas");
  const pen = fresh(canvas, wide, high);
  const [x0, x1, y0, y1] = scene.extent;
  const margins = { left: 32, right: 2, top: 2, bottom: 20 };
  const box = { left: 0, top: 0, width: wide, height: high };
  const plot = new Plot(pen, theme, box, { x: { from: x0, to: x1 }, y: { from: y0, to: y1 }, grid: false, margins });
  const { shape, values } = scene.points;
  for (const training of [true, false]) {
    for (let i = 0; i < shape[0]; i++) {
      if (i < scene.training !== training) continue;
      const [name, kind] = CLASSES[scene.labels.values[i]];
      const style = training
        ? { colour: theme.colours[name], edge: theme.paper, width: 0.7, size: 3.2 }
        : { colour: theme.paper, edge: between(theme.colours[name], theme.ink, 0.3), width: 1.2, size: 3 };
      plot.at(kind, values[2 * i], values[2 * i + 1], style);
    }
  }
  write(pen, theme, "x1", wide - 4, high - 24, { align: "right", bold: true });
  write(pen, theme, "x2", plot.left + 4, 14, { bold: true });
  return { canvas, plot };
}

function drawPlane(canvas, picture, { canvas: points, plot }, wide, high) {
  const pen = fresh(canvas, wide, high);
  pen.imageSmoothingEnabled = true;
  pen.drawImage(picture, plot.left, plot.top, plot.width, plot.height);
  pen.drawImage(points, 0, 0, wide, high);
}

function drawCosts(canvas, history, theme, wide, high, names) {
  const pen = fresh(canvas, wide, high);
  const [epochs, training, held] = [0, 1, 2].map((number) => column(history, number));
  const costs = [...training, ...held].filter((cost) => Number.isFinite(cost) && cost > 0);
  const low = costs.length ? 0.9 * Math.min(...costs) : 0.1;
  const y = { from: low, to: Math.max(1.1 * Math.max(...costs, 0), 2 * low), log: true };
  const places = ticks([y.from, y.to], true, 4);
  y.ticks = places.length > 5 ? places.filter((cost) => Math.abs(Math.log10(cost) % 1) < 1e-6) : places;
  const margins = { left: 40, right: 58, top: 4, bottom: 20 };
  const box = { left: 0, top: 0, width: wide, height: high };
  const x = { from: 0, to: Math.max(1, epochs.at(-1)), ticks: 3 };
  const plot = new Plot(pen, theme, box, { x, y, margins });
  const { blue, orange } = theme.colours;
  plot.line(epochs, held, { colour: orange, dash: [5, 3], width: 1.8 });
  plot.line(epochs, training, { colour: blue, width: 1.8 });
  write(pen, theme, names[2], wide - 2, high - 5, { colour: theme.soft, align: "right" });
  const ends = [training, held].map((values) => Math.min(Math.max(plot.Y(values.at(-1)) || 0, 12), high - 28));
  if (Math.abs(ends[0] - ends[1]) < 13) { // the names would cover each other
    const [middle, up] = [(ends[0] + ends[1]) / 2, ends[0] <= ends[1] ? -7 : 7];
    [ends[0], ends[1]] = [middle + up, middle - up];
  }
  write(pen, theme, names[0], wide - 54, ends[0], { colour: blue, base: "middle" });
  write(pen, theme, names[1], wide - 54, ends[1], { colour: orange, base: "middle" });
}

// ---- controls

function control(about, parent, send) {
  const box = element("label", "control " + about.kind, parent);
  box.title = about.tip;
  const name = element("span", "name", box, about.label);
  if (about.kind === "menu") {
    const menu = focusable("select", "", box);
    about.options.forEach(([, words]) => element("option", "", menu, words));
    menu.setAttribute("aria-label", about.label);
    menu.addEventListener("change", () => send(about.name, about.options[menu.selectedIndex][0]));
    return (value) => (menu.selectedIndex = about.options.findIndex(([option]) => option === value));
  }
  const field = focusable("input", "", box);
  field.setAttribute("aria-label", about.label);
  if (about.kind === "tick") {
    field.type = "checkbox";
    field.addEventListener("change", () => send(about.name, field.checked));
    return (value) => (field.checked = value);
  }
  field.type = "range";
  Object.assign(field, { min: 0, max: about.values.length - 1, step: 1 });
  const readout = element("output", "", name);
  const say = () => {
    readout.textContent = about.values[field.value];
    field.setAttribute("aria-valuetext", about.values[field.value]); // the value, not the notch
  };
  let turned = -Infinity; // time of the last input: an answer to an earlier one must not move the handle back
  field.addEventListener("input", () => {
    turned = performance.now();
    say();
    send(about.name, about.values[field.value]);
  });
  return (value) => {
    if (performance.now() - turned < 400) return;
    const place = about.values.findIndex((other) => Math.abs(other - value) < 1e-9);
    if (place >= 0) field.value = place;
    say();
  };
}

// ---- the network

// The places of the neurons. The inputs are level 0: all features, used or not.
function layout(scene, wide, high, small) {
  const inputs = small ? scene.chosen : scene.features;
  const counts = [inputs.length, ...scene.sizes.slice(1)];
  const head = small ? 20 : NET_HEAD;
  const room = high - head;
  const side = Math.max(LEAST_SIDE, Math.min(MOST_SIDE, Math.floor(room / Math.max(...counts)) - 5));
  const [first, last] = [small ? 46 : 78, wide - side / 2 - 4];
  const columns = counts.map((count, level) => {
    const x = first + ((last - first) * level) / (counts.length - 1);
    const pitch = Math.min(side + 12, room / count);
    const top = head + (room - pitch * count) / 2;
    return Array.from({ length: count }, (_, number) => ({ x, y: top + pitch * (number + 0.5) }));
  });
  return { inputs, side, columns };
}

// The weights of each layer: W[to * inputs + from] and b[to].
function layersOf(scene, weights) {
  let at = 0;
  return scene.sizes.slice(1).map((to, layer) => {
    const from = scene.sizes[layer];
    const W = weights.subarray(at, (at += to * from));
    return { from, to, W, b: weights.subarray(at, (at += to)) };
  });
}

function drawLinks(canvas, scene, place, weights, shown, theme, wide, high) {
  const pen = fresh(canvas, wide, high);
  const layers = layersOf(scene, weights);
  let most = 1e-6;
  for (const { W } of layers) for (const weight of W) if (Math.abs(weight) > most) most = Math.abs(weight);
  const labels = [];
  layers.forEach(({ from, to, W }, layer) => {
    for (let i = 0; i < to; i++) {
      const own = shown && shown.level === layer + 1 && shown.number === i;
      for (let j = 0; j < from; j++) {
        const weight = W[i * from + j];
        const number = layer ? j : place.inputs.indexOf(scene.chosen[j]);
        const [start, end] = [place.columns[layer][number], place.columns[layer + 1][i]];
        const leaves = shown && shown.level === layer && shown.number === number;
        pen.globalAlpha = !shown || own || leaves ? 0.9 : 0.12;
        pen.strokeStyle = weight > 0 ? theme.colours.orange : theme.colours.blue;
        pen.lineWidth = 0.25 + (3.5 * Math.abs(weight)) / most;
        const [x0, x1] = [start.x + place.side / 2, end.x - place.side / 2];
        pen.beginPath();
        pen.moveTo(x0, start.y);
        pen.bezierCurveTo((x0 + x1) / 2, start.y, (x0 + x1) / 2, end.y, x1, end.y);
        pen.stroke();
        if (own) labels.push([written(weight), x0 + 4, start.y]);
      }
    }
  });
  pen.globalAlpha = 1;
  pen.font = `11px ${theme.font}`;
  for (const [text, x, y] of labels) {
    pen.fillStyle = theme.paper;
    pen.fillRect(x - 2, y - 7, pen.measureText(text).width + 4, 14);
    write(pen, theme, text, x, y, { size: 11, base: "middle" });
  }
}

// The formula of a neuron with its numbers.
function formula(scene, weights, ranges, { level, number }) {
  const { from, W, b } = layersOf(scene, weights)[level - 1];
  const names = level === 1 ? scene.chosen : Array.from({ length: from }, (_, j) => `a${j + 1}`);
  let terms = "";
  for (let j = 0; j < from; j++) {
    const weight = W[number * from + j];
    const sign = weight < 0 ? (terms ? " − " : "−") : terms ? " + " : "";
    terms += sign + written(Math.abs(weight)) + "·" + names[j];
  }
  terms += (b[number] < 0 ? " − " : " + ") + written(Math.abs(b[number]));
  const before = sum(scene.sizes.slice(1, level));
  const [low, high] = ranges.subarray(2 * (before + number), 2 * (before + number) + 2);
  const whose = level > 1 ? `, where a1, a2, … are the neurons of layer ${level - 1}` : "";
  const activation = scene.activations[level - 1];
  return `${activation}(${terms})${whose}. Here from ${written(low)} to ${written(high)}.`;
}

// ---- the widget

function render({ model, el }) {
  const small = model.get("form") === "small";
  const limits = model.get("limits");
  const root = element("div", "nncourse-playground" + (small ? " small" : ""), el);
  root.setAttribute("role", "region");
  root.setAttribute("aria-label", "Playground: a network that learns");

  // Commands: at each frame the newest value of each name is sent.
  const waiting = new Map();
  function send(name, value = null) {
    if (!waiting.size) requestAnimationFrame(() => {
      for (const [name, value] of waiting) model.send({ name, value });
      waiting.clear();
    });
    waiting.set(name, value);
  }
  const now = (name, value = null) => model.send({ name, value });
  now("hello"); // after the answer, messages do not wait for a running cell: see obey() in __init__.py

  const bar = element("div", "bar", root);
  const start = button("main", bar, "Start", "", () => now("start"));
  const pause = button("main", bar, "Pause", "", () => now("pause"));
  if (!small) button("", bar, "Step", "", () => now("step")).title = "Pause, and train on one batch";
  const reset = button("", bar, "Reset", "", () => ((ran = false), now("reset")));
  start.title = "Train until you press Pause";
  pause.title = "Stop training, and keep the network";
  reset.title = "Begin again with new weights from the seed";
  const status = element("p", "words", bar);
  status.setAttribute("role", "status");

  const settings = element("div", "settings", root);
  const turn = (name, value) => (name === "neurons" ? send("resize", [0, value]) : send(name, value));
  const setters = model.get("controls").map((about) => [about.name, control(about, settings, turn)]);

  const main = element("div", "main", root);
  const net = element("div", "net", main);
  net.setAttribute("role", "group");
  net.setAttribute("aria-label", "The network. Arrow keys move between neurons, Delete removes one.");
  const links = element("canvas", "links", net);
  links.setAttribute("aria-hidden", "true");
  const side = element("div", "side", main);
  const title = element("p", "title", side);
  const plane = element("canvas", "plane", side);
  const costTitle = element("p", "title", side, small ? "Cost: how wrong the network is" : "Cost");
  const costs = element("canvas", "costs", side);
  for (const canvas of [plane, costs]) canvas.setAttribute("role", "img");
  const foot = element("div", "foot", root);
  const detail = element("p", "detail", foot, HINT);
  detail.id = "playground-detail-" + Math.random().toString(36).slice(2);
  const remove = button("", foot, "Remove this neuron", "", () => removeShown());
  remove.addEventListener("pointerdown", (event) => event.preventDefault()); // keep the focus on the neuron
  remove.hidden = true;

  const curves = small ? ["seen", "not seen", "rounds"] : ["training", "held out", "epochs"];
  const picture = document.createElement("canvas");
  let scene = null, place = null, frame = null, points = null;
  let [theme, says, pale, steps] = [null, null, null, null];
  let over = null, focused = null; // the neurons with the mouse and with the keyboard's focus
  let stop = null; // the neuron that Tab focuses
  let [settled, ran] = ["", false]; // the settings shown; whether it has run since Reset: before, Pause is not pressed
  let drawn = 0, acknowledged = 0, saidAt = 0, planned = false, alive = true;
  const nodes = new Map(); // "level,number" -> its button, with canvas
  const heads = new Map();

  const key = ({ level, number }) => `${level},${number}`;
  const shown = () => over ?? focused;

  function lookAt() {
    const at = shown();
    send("look", at && at.level ? [at.level, at.number] : null);
    plan();
  }

  function removeShown() {
    const at = focused;
    if (!at || !at.level || at.level >= scene.sizes.length - 1) return;
    if (scene.sizes[at.level] === 1) say(`Layer ${at.level} has one neuron left: remove the layer instead.`);
    else now("remove", [at.level - 1, at.number]);
  }

  function say(text) {
    attribute(status, "aria-live", "polite");
    status.textContent = text;
    saidAt = performance.now() + 3000; // long enough to be read
  }

  function node(at) {
    if (nodes.has(key(at))) return nodes.get(key(at));
    const made = button("neuron", net, "", "", () => {
      made.focus();
      if (!at.level && !small) toggle(at.number);
    });
    made.picture = element("canvas", "", made);
    made.at = at;
    made.tabIndex = -1;
    made.setAttribute("aria-describedby", detail.id);
    made.addEventListener("pointerenter", () => ((over = at), lookAt()));
    made.addEventListener("pointerleave", () => ((over = null), lookAt()));
    made.addEventListener("focus", () => {
      focused = stop = at;
      roving();
      describe();
      lookAt();
    });
    made.addEventListener("blur", () => ((focused = null), lookAt()));
    made.addEventListener("keydown", move);
    nodes.set(key(at), made);
    return made;
  }

  function toggle(number) {
    const name = scene.features[number];
    const chosen = scene.features.filter((other) => (other === name) !== scene.chosen.includes(other));
    if (chosen.length) now("features", chosen);
    else say("At least one input must stay.");
  }

  function move(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { level, number } = event.currentTarget.at;
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (steps) {
      const column = place.columns[level + steps[0]];
      if (column) {
        const beside = steps[0] ? Math.round(((number + 0.5) / place.columns[level].length) * column.length - 0.5) : number + steps[1];
        nodes.get(key({ level: level + steps[0], number: Math.max(0, Math.min(column.length - 1, beside)) }))?.focus();
      }
    } else if ((event.key === "Delete" || event.key === "Backspace") && !small) removeShown();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function roving() {
    if (!stop || !nodes.has(key(stop))) stop = { level: 0, number: 0 };
    for (const [name, made] of nodes) made.tabIndex = name === key(stop) ? 0 : -1;
  }

  // The heads of the columns, with + and −.
  function head(level, text, last) {
    if (!heads.has(level)) {
      const box = element("div", "head", net);
      const words = element("span", "", box);
      const row = element("div", "row", box);
      const resize = (step) => () => {
        const count = scene.sizes[level] + step;
        if (count > limits.neurons) return say(`A layer has at most ${limits.neurons} neurons.`);
        if (count < 1) return say(`Layer ${level} has one neuron left: remove the layer instead.`);
        now("resize", [level - 1, count]);
      };
      const less = button("step", row, "−", `Remove a neuron from layer ${level}`, resize(-1));
      const count = element("span", "count", row);
      const more = button("step", row, "+", `Add a neuron to layer ${level}`, resize(1));
      heads.set(level, { box, words, row, less, count, more });
    }
    const { box, words, row, less, count, more } = heads.get(level);
    words.textContent = text;
    row.hidden = small || !level || last;
    count.textContent = scene.sizes[level];
    less.classList.toggle("off", scene.sizes[level] <= 1);
    more.classList.toggle("off", scene.sizes[level] >= limits.neurons);
    return box;
  }

  const layers = element("div", "layers", null);
  if (!small) {
    bar.after(layers);
    main.before(layers);
    element("span", "", layers, "Hidden layers");
  }
  const fewer = button("step", layers, "−", "Remove the last hidden layer", () =>
    scene.sizes.length > 2 ? now("remove_layer") : say("There is no hidden layer left."));
  const layerCount = element("span", "count", layers);
  const another = button("step", layers, "+", "Add a hidden layer", () =>
    scene.sizes.length - 2 < limits.layers ? now("add_layer") : say(`There are at most ${limits.layers} hidden layers.`));
  element("span", "limits", layers, `At most ${limits.layers} layers of ${limits.neurons} neurons.`);
  const signs = element("span", "limits", layers, "Pictures and lines: ");
  for (const [colour, words] of [["blue", "− blue"], ["orange", "+ orange"]]) {
    element("i", colour, signs);
    signs.append(words + " ");
  }

  function newScene() {
    const sent = unpacked(model.get("scene"));
    if (!sent.sizes) return;
    scene = sent;
    points = null;
    arrange();
  }

  // Place every neuron; a neuron that stays keeps the keyboard's focus.
  function arrange() {
    if (!scene) return;
    const [wide, high] = [net.clientWidth, net.clientHeight];
    place = layout(scene, wide, high, small);
    const wanted = new Set();
    const lost = focused;
    place.columns.forEach((column, level) => {
      const last = level === place.columns.length - 1;
      let title = `layer ${level}`;
      if (!level) title = "inputs";
      else if (last) title = "output";
      else if (small) title = "neurons";
      const box = head(level, title, last);
      box.style.left = `${column[0].x}px`;
      column.forEach(({ x, y }, number) => {
        const made = node({ level, number });
        wanted.add(key({ level, number }));
        made.style.left = `${x - place.side / 2}px`;
        made.style.top = `${y - place.side / 2}px`;
        made.style.width = made.style.height = `${place.side}px`;
        made.dataset.label = level ? "" : place.inputs[number];
        const used = level || scene.chosen.includes(place.inputs[number]);
        made.classList.toggle("unused", !used);
        if (level) {
          made.removeAttribute("aria-pressed");
          made.setAttribute("aria-label", last ? `Output ${number + 1}` : `Layer ${level}, neuron ${number + 1}`);
        } else {
          if (!small) made.setAttribute("aria-pressed", String(used));
          made.setAttribute("aria-label", `Input ${place.inputs[number]}`);
        }
      });
    });
    for (const [level, { box }] of heads) if (level >= place.columns.length) (box.remove(), heads.delete(level));
    for (const [name, made] of nodes) {
      if (!wanted.has(name)) (made.remove(), nodes.delete(name));
    }
    if (over && !nodes.has(key(over))) over = null;
    if (lost && !nodes.has(key(lost))) {
      const level = Math.min(lost.level, place.columns.length - 1);
      nodes.get(key({ level, number: Math.min(lost.number, place.columns[level].length - 1) }))?.focus();
    }
    roving();
    const inputs = place.inputs.map((name) => scene.features.indexOf(name));
    paintInputs(inputs);
    layerCount.textContent = scene.sizes.length - 2;
    fewer.classList.toggle("off", scene.sizes.length <= 2);
    another.classList.toggle("off", scene.sizes.length - 2 >= limits.layers);
  }

  // One of many small pictures.
  function paintSmall(canvas, { values }, number, pixels = says) {
    paint(canvas, scene.small, values, number * scene.small * scene.small, pixels);
  }

  function paintInputs(inputs) {
    inputs.forEach((feature, number) => paintSmall(nodes.get(key({ level: 0, number })).picture, scene.pictures, feature));
  }

  function describe() {
    const at = shown();
    let [text, removable] = [HINT, false];
    if (at && scene && frame?.weights) {
      if (!at.level) {
        const name = place.inputs[at.number];
        const used = scene.chosen.includes(name);
        text = `Input ${name}: ${used ? "the first layer sees it." : "not used."}`;
        if (!small) text += used ? " Click to leave it out." : " Click to use it.";
      } else {
        const last = at.level === scene.sizes.length - 1;
        const name = last ? "Output" : `Layer ${at.level}, neuron ${at.number + 1}`;
        text = `${name}: ${formula(scene, frame.weights.values, frame.ranges.values, at)}`;
        removable = !last && focused !== null;
      }
    } else if (small) text = "Each small picture shows what one neuron makes of the plane. Point at one to see it enlarged.";
    put(detail, text);
    if (remove.hidden !== (small || !removable)) remove.hidden = small || !removable;
  }

  function drawLarge() {
    const at = shown();
    if (at && !at.level) {
      paintSmall(picture, scene.pictures, scene.features.indexOf(place.inputs[at.number]), pale);
      put(title, `Input ${place.inputs[at.number]} over the plane`);
    } else if (at) {
      if (frame.look[0] === at.level && frame.look[1] === at.number) paint(picture, scene.grid, frame.large.values, 0, pale);
      else paintSmall(picture, frame.neurons, sum(scene.sizes.slice(1, at.level)) + at.number, pale); // until that comes
      const last = at.level === scene.sizes.length - 1;
      put(title, last ? `Output ${at.number + 1}` : `What neuron ${at.number + 1} of layer ${at.level} computes`);
    } else {
      paint(picture, scene.grid, frame.plane.values, 0, likeliest(scene.classes, steps));
      put(title, small ? "What the network says (hollow: points not seen)" : "The class at each place (hollow: held out)");
    }
  }

  function draw() {
    planned = false;
    if (!alive) return;
    frame = unpacked(model.get("frame"));
    tell(model.get("state"));
    const neurons = scene ? sum(scene.sizes.slice(1)) : 0;
    if (!frame.plane || frame.ranges.shape[0] !== neurons || net.clientWidth === 0) return;
    let number = 0;
    for (let level = 1; level < scene.sizes.length; level++) {
      for (let own = 0; own < scene.sizes[level]; own++) {
        paintSmall(nodes.get(key({ level, number: own })).picture, frame.neurons, number++);
      }
    }
    drawLinks(links, scene, place, frame.weights.values, shown(), theme, net.clientWidth, net.clientHeight);
    drawLarge();
    points ??= pointsLayer(scene, theme, plane.clientWidth, plane.clientHeight);
    drawPlane(plane, picture, points, plane.clientWidth, plane.clientHeight);
    drawCosts(costs, frame.history, theme, costs.clientWidth, costs.clientHeight, curves);
    describe();
    if (frame.number !== root.last) root.dataset.frames = ++drawn;
    root.last = frame.number;
    if (frame.number - acknowledged >= ACKNOWLEDGE || frame.number < acknowledged) {
      acknowledged = frame.number;
      model.send({ name: "seen", value: frame.number });
    }
  }

  // Describe the two pictures for screen readers.
  function name() {
    if (!frame?.history) return;
    const [cost, held] = frame.history.values.slice(-2);
    attribute(plane, "aria-label", `${title.textContent}. ${Math.round(100 * frame.right)} % of the held-out points are right.`);
    attribute(costs, "aria-label", `Cost over the ${curves[2]}, now ${written(cost)} (${curves[0]}) and ${written(held)} (${curves[1]}).`);
  }

  // Update words, buttons and controls to Python's state.
  function tell(state) {
    attribute(start, "aria-pressed", String(state.running));
    attribute(pause, "aria-pressed", String((ran ||= state.running) && !state.running));
    root.classList.toggle("running", state.running);
    const time = performance.now();
    if (state.aloud || !state.running || time - saidAt > WORDS_EVERY) {
      if (time < saidAt) return void setTimeout(plan, saidAt - time);
      saidAt = time;
      attribute(status, "aria-live", state.aloud ? "polite" : "off");
      put(status, state.words);
      name();
    }
    const settings = JSON.stringify(state.settings);
    if (settings === settled) return;
    for (const [name, set] of setters) set(name === "neurons" ? state.settings.hidden[0] : state.settings[name]);
    settled = settings;
  }

  function plan() {
    if (!planned) requestAnimationFrame(draw);
    planned = true;
  }

  model.on("change:scene", newScene);
  model.on("change:frame change:state", plan);
  const watcher = new ResizeObserver(() => recolour()); // also when it comes onto the page: before, it has no colours
  watcher.observe(net);
  const recolour = () => {
    theme = themeOf(root);
    [says, pale] = [palette(theme), palette(theme, PALE + 0.1)].map((pixels) => (values, at) => pixels[values[at]]);
    [steps, points] = [classSteps(theme), null];
    for (const name of ["blue", "orange"]) root.style.setProperty(`--${name}`, theme.colours[name]);
    arrange();
    plan();
  };
  const themes = new MutationObserver(() => (recolour(), setTimeout(recolour, 500))); // its colours may come late
  themes.observe(document.body, { attributes: true });
  recolour();
  newScene();
  plan();
  return () => {
    alive = false;
    watcher.disconnect();
    themes.disconnect();
    model.off("change:scene", newScene);
    model.off("change:frame change:state", plan);
  };
}

export default { render };

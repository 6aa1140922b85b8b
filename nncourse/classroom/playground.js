// The playground in the browser. Python sends arrays (playground_frames.py); here they are drawn, and commands are sent
// back. Nothing is computed here that the network computes.

const BLUE = [31, 119, 180], ORANGE = [255, 127, 14], GREEN = [44, 160, 44]; // classes 0, 1, 2; low and high
const CLASSES = [BLUE, ORANGE, GREEN];
const PALE = 0.6; // how much of its colour the plane has; points have all
const ACKNOWLEDGE = 4; // every so many frames Python is told which was drawn
const WORDS_EVERY = 200; // milliseconds between two texts while it trains
const NET_HEAD = 46, MOST_SIDE = 38, LEAST_SIDE = 17; // pixels: above the neurons; a neuron's picture
const HINT =
  "Point at a neuron, or move to it with Tab and the arrow keys: it is shown large, with its weights. Click an input to use it or not.";

function element(kind, className, parent, text = "") {
  const made = document.createElement(kind);
  made.className = className;
  made.textContent = text;
  parent?.append(made);
  return made;
}

function button(className, parent, text, name, press) {
  const made = element("button", className, parent, text);
  made.type = "button";
  if (name) made.setAttribute("aria-label", name);
  made.addEventListener("click", press);
  return made;
}

const bytes = (view) => (view ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array());
const floats = (view) => (view ? new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)) : new Float32Array());
const short = (number) => Number(number.toPrecision(3)).toString().replace("-", "−");
const css = (colour, alpha = 1) => `rgba(${colour.map(Math.round).join(",")},${alpha})`;
const mix = (from, to, share) => from.map((value, i) => value + share * (to[i] - value));

// ---- colours: the page's own ground and ink, so that the picture is light or dark as the page is

function parsed(colour, otherwise) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = otherwise;
  pen.fillStyle = colour.trim() || otherwise;
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

function theme(style) {
  const ground = parsed(style.getPropertyValue("--jp-layout-color0"), "#fff");
  const says = Array.from({ length: 256 }, (_, byte) => {
    const value = (byte - 128) / 127;
    return mix(ground, value < 0 ? BLUE : ORANGE, Math.min(1, Math.abs(value)));
  });
  return { ground, ink: parsed(style.getPropertyValue("--jp-ui-font-color0"), "#222"), says };
}

// ---- pictures

function paint(canvas, side, colourAt) {
  if (canvas.width !== side) canvas.width = canvas.height = side;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(side, side);
  for (let row = 0, from = 0; row < side; row++) {
    let to = 4 * (side - 1 - row) * side; // Python's first row is the lowest
    for (let column = 0; column < side; column++, from++, to += 4) {
      const colour = colourAt(from);
      image.data[to] = colour[0];
      image.data[to + 1] = colour[1];
      image.data[to + 2] = colour[2];
      image.data[to + 3] = 255;
    }
  }
  pen.putImageData(image, 0, 0);
}

// The colour of the likeliest class, paler where the classes share the place.
function shares(plane, classes, { ground }) {
  const steps = CLASSES.map((colour) => Array.from({ length: 256 }, (_, i) => mix(ground, colour, (PALE * i) / 255)));
  return (place) => {
    let [best, most, rest] = [0, 0, 255];
    for (let other = 1; other < classes; other++) {
      const share = plane[place * (classes - 1) + other - 1];
      rest -= share;
      if (share > most) [best, most] = [other, share];
    }
    if (rest > most) [best, most] = [0, rest];
    const sure = (most - 255 / classes) / (255 - 255 / classes);
    return steps[best][Math.max(0, Math.round(255 * sure))];
  };
}

// A canvas whose unit is the CSS pixel, wiped.
function fresh(canvas, wide, high) {
  const scale = window.devicePixelRatio || 1;
  const size = [Math.round(wide * scale), Math.round(high * scale)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, wide, high);
  pen.font = "11px sans-serif";
  return pen;
}

function mark(pen, label, x, y, radius) {
  pen.beginPath();
  if (label === 0) pen.arc(x, y, radius, 0, 2 * Math.PI);
  else if (label === 2) pen.rect(x - radius, y - radius, 2 * radius, 2 * radius);
  else {
    pen.moveTo(x, y - 1.2 * radius);
    pen.lineTo(x + 1.1 * radius, y + 0.8 * radius);
    pen.lineTo(x - 1.1 * radius, y + 0.8 * radius);
    pen.closePath();
  }
  pen.fill();
  pen.stroke();
}

// 1, 2 or 5 times a power of ten: about `count` of them fit into the range.
function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Number(at.toPrecision(6)));
  return found;
}

function drawPlane(canvas, picture, scene, look, wide) {
  const [left, foot] = [26, 16];
  const side = wide - left - 2;
  const pen = fresh(canvas, wide, side + foot + 2);
  const [x0, x1, y0, y1] = scene.extent;
  const across = (x) => left + ((x - x0) / (x1 - x0)) * side;
  const up = (y) => ((y1 - y) / (y1 - y0)) * side;
  pen.imageSmoothingEnabled = true;
  pen.imageSmoothingQuality = "high";
  pen.drawImage(picture, left, 0, side, side);
  const points = scene.at;
  for (const training of [true, false]) {
    for (let i = 0; i < scene.kinds.length; i++) {
      if (i < scene.training !== training) continue;
      const colour = CLASSES[scene.kinds[i]];
      pen.fillStyle = training ? css(colour) : css(look.ground);
      pen.strokeStyle = training ? css(look.ground) : css(mix(colour, look.ink, 0.25));
      pen.lineWidth = training ? 0.7 : 1.1;
      mark(pen, scene.kinds[i], across(points[2 * i]), up(points[2 * i + 1]), 3);
    }
  }
  pen.fillStyle = css(look.ink);
  pen.textAlign = "center";
  for (const x of ticks(x0, x1, 4)) pen.fillText(short(x), across(x), side + 12);
  pen.fillText("x1", left + side - 6, side + 12);
  pen.textAlign = "right";
  for (const y of ticks(y0, y1, 4)) if (up(y) > 16) pen.fillText(short(y), left - 4, up(y) + 4);
  pen.fillText("x2", left - 4, 10);
}

function drawCosts(canvas, history, look, wide, high) {
  const pen = fresh(canvas, wide, high);
  const count = history.length / 3;
  const costs = [];
  for (let i = 0; i < count; i++) {
    for (const cost of [history[3 * i + 1], history[3 * i + 2]]) if (Number.isFinite(cost) && cost > 0) costs.push(cost);
  }
  const [left, foot, top, right] = [38, 16, 6, 66];
  let [low, high10] = [Infinity, -Infinity];
  for (const cost of costs) [low, high10] = [Math.min(low, cost), Math.max(high10, cost)];
  if (!costs.length) [low, high10] = [0.1, 1];
  low = Math.log10(low) - 0.05;
  high10 = Math.max(Math.log10(high10) + 0.05, low + 0.3);
  const last = Math.max(1, history[3 * count - 3] || 0);
  const across = (epoch) => left + (epoch / last) * (wide - left - right);
  const up = (cost) => top + ((high10 - Math.log10(cost)) / (high10 - low)) * (high - top - foot);
  pen.strokeStyle = css(look.ink, 0.15);
  pen.fillStyle = css(look.ink);
  pen.textAlign = "right";
  const factors = high10 - low > 1.5 ? [1] : [1, 2, 5];
  for (let power = Math.floor(low); power <= high10; power++) {
    for (const factor of factors) {
      const cost = factor * 10 ** power;
      if (Math.log10(cost) < low || Math.log10(cost) > high10) continue;
      pen.beginPath();
      pen.moveTo(left, up(cost));
      pen.lineTo(wide - right, up(cost));
      pen.stroke();
      pen.fillText(Number(cost.toPrecision(2)), left - 5, up(cost) + 4);
    }
  }
  pen.textAlign = "center";
  for (const epoch of ticks(0, last, 4)) if (across(epoch) < wide - right - 10) pen.fillText(short(epoch), across(epoch), high - 3);
  pen.fillText("epoch", wide - right + 4, high - 3);
  const ends = [];
  for (const [column, colour, dash] of [[1, BLUE, []], [2, ORANGE, [5, 3]]]) {
    pen.strokeStyle = css(colour);
    pen.lineWidth = 1.8;
    pen.setLineDash(dash);
    pen.beginPath();
    let end = null;
    for (let i = 0; i < count; i++) {
      const cost = history[3 * i + column];
      if (!(cost > 0) || !Number.isFinite(cost)) continue;
      end = up(cost);
      if (i) pen.lineTo(across(history[3 * i]), end);
      else pen.moveTo(across(history[3 * i]), end);
    }
    pen.stroke();
    ends.push(end ?? top);
  }
  pen.setLineDash([]);
  pen.textAlign = "left";
  const apart = Math.abs(ends[0] - ends[1]) < 12; // the two names would cover each other
  const middle = Math.min(Math.max((ends[0] + ends[1]) / 2, top + 10), high - foot - 8);
  const heights = apart ? (ends[0] <= ends[1] ? [middle - 6, middle + 7] : [middle + 7, middle - 6]) : ends;
  ["training", "held out"].forEach((name, i) => {
    pen.fillStyle = css(mix(i ? ORANGE : BLUE, look.ink, 0.25));
    pen.fillText(name, wide - right + 5, heights[i] + 4);
  });
}

// ---- controls

function control(about, parent, send) {
  const box = element("label", "control " + about.kind, parent);
  box.title = about.tip;
  const name = element("span", "name", box, about.label);
  if (about.kind === "menu") {
    const menu = element("select", "", box);
    about.options.forEach(([, words]) => element("option", "", menu, words));
    menu.setAttribute("aria-label", about.label);
    menu.addEventListener("change", () => send(about.name, about.options[menu.selectedIndex][0]));
    return (value) => (menu.selectedIndex = about.options.findIndex(([option]) => option === value));
  }
  const field = element("input", "", box);
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
  let turned = -Infinity; // when: an answer to what was sent before must not move the handle back
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

// Where the neurons stand: the inputs are level 0, all features among them, used or not.
function layout(scene, wide, high, small) {
  const inputs = small ? scene.chosen : scene.features;
  const counts = [inputs.length, ...scene.sizes.slice(1)];
  const room = high - NET_HEAD;
  const side = Math.max(LEAST_SIDE, Math.min(MOST_SIDE, Math.floor(room / Math.max(...counts)) - 5));
  const [first, last] = [small ? 46 : 78, wide - side / 2 - 4];
  const columns = counts.map((count, level) => {
    const x = first + ((last - first) * level) / (counts.length - 1);
    const pitch = Math.min(side + 12, room / count);
    const top = NET_HEAD + (room - pitch * count) / 2;
    return Array.from({ length: count }, (_, number) => ({ x, y: top + pitch * (number + 0.5) }));
  });
  return { inputs, side, columns };
}

// The weights of each layer: W[to * inputs + from] and b[to].
function parts(scene, weights) {
  let at = 0;
  return scene.sizes.slice(1).map((to, layer) => {
    const from = scene.sizes[layer];
    const W = weights.subarray(at, (at += to * from));
    return { from, to, W, b: weights.subarray(at, (at += to)) };
  });
}

function drawLinks(canvas, scene, place, weights, shown, look, wide, high) {
  const pen = fresh(canvas, wide, high);
  const layers = parts(scene, weights);
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
        const alpha = !shown || own || leaves ? 0.9 : 0.12;
        pen.strokeStyle = css(weight > 0 ? ORANGE : BLUE, alpha);
        pen.lineWidth = 0.25 + (3.5 * Math.abs(weight)) / most;
        const [x0, x1] = [start.x + place.side / 2, end.x - place.side / 2];
        pen.beginPath();
        pen.moveTo(x0, start.y);
        pen.bezierCurveTo((x0 + x1) / 2, start.y, (x0 + x1) / 2, end.y, x1, end.y);
        pen.stroke();
        if (own) labels.push([short(weight), x0 + 4, start.y]);
      }
    }
  });
  for (const [text, x, y] of labels) {
    const width = pen.measureText(text).width;
    pen.fillStyle = css(look.ground, 0.85);
    pen.fillRect(x - 2, y - 7, width + 4, 14);
    pen.fillStyle = css(look.ink);
    pen.fillText(text, x, y + 4);
  }
}

// What a neuron computes, with its numbers.
function formula(scene, weights, ranges, { level, number }) {
  const { from, W, b } = parts(scene, weights)[level - 1];
  const names = level === 1 ? scene.chosen : Array.from({ length: from }, (_, j) => `a${j + 1}`);
  let sum = "";
  for (let j = 0; j < from; j++) {
    const weight = W[number * from + j];
    const sign = weight < 0 ? (sum ? " − " : "−") : sum ? " + " : "";
    sum += sign + short(Math.abs(weight)) + "·" + names[j];
  }
  sum += (b[number] < 0 ? " − " : " + ") + short(Math.abs(b[number]));
  const before = scene.sizes.slice(1, level).reduce((total, size) => total + size, 0);
  const [low, high] = ranges.subarray(2 * (before + number), 2 * (before + number) + 2);
  const whose = level > 1 ? `, where a1, a2, … are the neurons of layer ${level - 1}` : "";
  const activation = scene.activations[level - 1];
  return `${activation}(${sum})${whose}. Here from ${short(low)} to ${short(high)}.`;
}

// ---- the widget

function render({ model, el }) {
  const small = model.get("form") === "small";
  const limits = model.get("limits");
  const root = element("div", "nncourse-playground" + (small ? " small" : ""), el);
  root.setAttribute("data-lm-suppress-shortcuts", "true"); // the notebook leaves the keys to the widget
  root.setAttribute("role", "region");
  root.setAttribute("aria-label", "Playground: a network that learns");

  // Commands: of each name only the newest value is sent, once a frame.
  const waiting = new Map();
  function send(name, value = null) {
    if (!waiting.size) requestAnimationFrame(() => {
      for (const [name, value] of waiting) model.send({ name, value });
      waiting.clear();
    });
    waiting.set(name, value);
  }
  const now = (name, value = null) => model.send({ name, value });

  const bar = element("div", "bar", root);
  const start = button("main", bar, "Start", "", () => now("start"));
  const pause = button("main", bar, "Pause", "", () => now("pause"));
  if (!small) button("", bar, "Step", "", () => now("step")).title = "Pause, and train on one batch";
  const reset = button("", bar, "Reset", "", () => now("reset"));
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
  remove.addEventListener("pointerdown", (event) => event.preventDefault()); // the neuron keeps the focus
  remove.hidden = true;

  const picture = document.createElement("canvas");
  let scene = null, place = null, look = null, ground = "";
  let over = null, focused = null; // neurons: what the mouse points at, and where the keyboard is
  let stop = null; // the neuron to which Tab goes
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
    status.setAttribute("aria-live", "polite");
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
    else say("At least one input stays.");
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
  const legend = element("span", "limits", layers, "Pictures and lines: ");
  for (const [colour, words] of [[BLUE, "− blue"], [ORANGE, "+ orange"]]) {
    const patch = element("i", "", legend);
    patch.style.background = css(colour);
    legend.append(words + " ");
  }

  function newScene() {
    const sent = model.get("scene");
    if (!sent.sizes) return;
    scene = { ...sent, at: floats(sent.points), kinds: bytes(sent.labels), small: bytes(sent.pictures), side: sent.small };
    arrange();
  }

  // Place every neuron; those that stay keep the keyboard's focus.
  function arrange() {
    if (!scene) return;
    const [wide, high] = [net.clientWidth, net.clientHeight];
    place = layout(scene, wide, high, small);
    const wanted = new Set();
    const lost = focused;
    place.columns.forEach((column, level) => {
      const last = level === place.columns.length - 1;
      const box = head(level, level ? (last ? "output" : `layer ${level}`) : "inputs", last);
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
    if (look) paintInputs(inputs);
    layerCount.textContent = scene.sizes.length - 2;
    fewer.classList.toggle("off", scene.sizes.length <= 2);
    another.classList.toggle("off", scene.sizes.length - 2 >= limits.layers);
  }

  function paintInputs(inputs) {
    const size = scene.side * scene.side;
    inputs.forEach((feature, number) =>
      paint(nodes.get(key({ level: 0, number })).picture, scene.side, (i) => look.says[scene.small[feature * size + i]]));
  }

  function describe() {
    const at = shown();
    const frame = model.get("frame");
    let [text, removable] = [HINT, false];
    if (at && scene && frame.weights) {
      if (!at.level) {
        const name = place.inputs[at.number];
        const used = scene.chosen.includes(name);
        text = `Input ${name}: ${used ? "the first layer sees it." : "not used."}`;
        if (!small) text += used ? " Click to leave it out." : " Click to use it.";
      } else {
        const last = at.level === scene.sizes.length - 1;
        const name = last ? "Output" : `Layer ${at.level}, neuron ${at.number + 1}`;
        text = `${name}: ${formula(scene, floats(frame.weights), floats(frame.ranges), at)}`;
        removable = !last && focused !== null;
      }
    } else if (small) text = "Each small picture shows what one neuron makes of the plane. Point at one to see it large.";
    detail.textContent = text;
    remove.hidden = small || !removable;
  }

  function drawLarge(frame) {
    const at = shown();
    if (at && !at.level) {
      const feature = scene.features.indexOf(place.inputs[at.number]);
      const size = scene.side * scene.side;
      paint(picture, scene.side, (i) => look.says[scene.small[feature * size + i]]);
      title.textContent = `Input ${place.inputs[at.number]} over the plane`;
    } else if (at) {
      const large = frame.look[0] === at.level && frame.look[1] === at.number;
      if (large) {
        const values = bytes(frame.large);
        paint(picture, scene.grid, (i) => look.says[values[i]]);
      } else { // the sharp one is on its way
        const before = scene.sizes.slice(1, at.level).reduce((total, size) => total + size, 0) + at.number;
        const [values, size] = [bytes(frame.neurons), scene.side * scene.side];
        paint(picture, scene.side, (i) => look.says[values[before * size + i]]);
      }
      const last = at.level === scene.sizes.length - 1;
      title.textContent = last ? `Output ${at.number + 1}` : `What neuron ${at.number + 1} of layer ${at.level} computes`;
    } else {
      paint(picture, scene.grid, shares(bytes(frame.plane), scene.classes, look));
      title.textContent = small ? "What the network says of each place" : "The class at each place (hollow: held out)";
    }
  }

  function draw() {
    planned = false;
    if (!alive) return;
    const [frame, state] = [model.get("frame"), model.get("state")];
    const style = getComputedStyle(root);
    const colours = style.getPropertyValue("--jp-layout-color0") + style.getPropertyValue("--jp-ui-font-color0");
    if (!look || colours !== ground) {
      look = theme(style);
      ground = colours;
      if (scene) arrange();
    }
    tell(state);
    if (!scene || !frame.plane || net.clientWidth === 0) return;
    const size = scene.side * scene.side;
    const values = bytes(frame.neurons);
    const all = scene.sizes.slice(1).reduce((total, count) => total + count, 0);
    if (values.length === all * size) {
      let from = 0;
      scene.sizes.slice(1).forEach((count, layer) => {
        for (let number = 0; number < count; number++, from += size) {
          paint(nodes.get(key({ level: layer + 1, number })).picture, scene.side, (i) => look.says[values[from + i]]);
        }
      });
      drawLinks(links, scene, place, floats(frame.weights), shown(), look, net.clientWidth, net.clientHeight);
      drawLarge(frame);
      drawPlane(plane, picture, scene, look, plane.clientWidth);
    }
    const history = floats(frame.history);
    drawCosts(costs, history, look, costs.clientWidth, costs.clientHeight);
    const [cost, held] = history.slice(-2);
    plane.setAttribute("aria-label", `${title.textContent}. ${Math.round(100 * frame.right)} % of the held-out points are right.`);
    costs.setAttribute("aria-label", `Cost over the epochs, now ${short(cost)} in training and ${short(held)} held out.`);
    describe();
    if (frame.number !== root.frameShown) root.dataset.drawn = ++drawn;
    root.frameShown = frame.number;
    if (frame.number - acknowledged >= ACKNOWLEDGE || frame.number < acknowledged) {
      acknowledged = frame.number;
      model.send({ name: "seen", value: frame.number });
    }
  }

  // Words, buttons and controls as Python has them.
  function tell(state) {
    start.setAttribute("aria-pressed", String(state.running));
    pause.setAttribute("aria-pressed", String(!state.running));
    root.classList.toggle("running", state.running);
    const time = performance.now();
    if (state.aloud || !state.running || time - saidAt > WORDS_EVERY) {
      if (time < saidAt) return void setTimeout(plan, saidAt - time);
      saidAt = time;
      status.setAttribute("aria-live", state.aloud ? "polite" : "off");
      if (status.textContent !== state.words) status.textContent = state.words;
    }
    for (const [name, set] of setters) set(name === "neurons" ? state.settings.hidden[0] : state.settings[name]);
  }

  function plan() {
    if (!planned) requestAnimationFrame(draw);
    planned = true;
  }

  model.on("change:scene", newScene);
  model.on("change:frame change:state", plan);
  const watcher = new ResizeObserver(() => (arrange(), plan()));
  watcher.observe(net);
  const themes = new MutationObserver(() => (plan(), setTimeout(plan, 500)));
  themes.observe(document.body, { attributes: true });
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

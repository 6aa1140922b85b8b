// The playground's network, trained by the page: what engine.py, frames.py and loop.py do. `points` has the points of each
// data set without noise, and the noise of each; `hidden` says in Python's words that a control does not exist here.

const AT_ONCE = ["learning_rate", "l2", "batch_size", "speed"];
const NEW_LAYER = 4; // neurons in a layer that is added
const MOST_POINTS = 400; // of a cost curve
const SLICE = 12; // milliseconds of training between two frames
const BEHIND = 0.1; // seconds of delayed training that may be caught up
const LEAKS = 0.01;
const SERVED = { cost: ["binary_cross_entropy", "mse"], activation: ["tanh", "sigmoid", "relu", "leaky_relu"] };
const UNSERVED = ["backend", "mine", "samples", "seed"]; // what only Python can change

const RUNNING = { label: "Running" };
const PAUSED = { label: "Paused" };

const ACTIVATIONS = { // the function of z, and its slope by a
  tanh: [Math.tanh, (a) => 1 - a * a],
  sigmoid: [(z) => 1 / (1 + Math.exp(-z)), (a) => a * (1 - a)],
  relu: [(z) => Math.max(0, z), (a) => (a > 0 ? 1 : 0)],
  leaky_relu: [(z) => (z > 0 ? z : LEAKS * z), (a) => (a > 0 ? 1 : LEAKS)],
};

const FEATURES = {
  "x1": (x1) => x1,
  "x2": (x1, x2) => x2,
  "x1²": (x1) => x1 * x1,
  "x2²": (x1, x2) => x2 * x2,
  "x1·x2": (x1, x2) => x1 * x2,
  "sin πx1": (x1) => Math.sin(Math.PI * x1),
  "sin πx2": (x1, x2) => Math.sin(Math.PI * x2),
};

// Random numbers from 0 to 1, the same for the same seed.
function randomOf(seed) {
  let state = (seed * 0x9e3779b1 + 0x85ebca6b) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// ---- the network: layers { from, to, W, b, activation }

function layersFor(sizes, activation, random) {
  return sizes.slice(1).map((to, i) => {
    const from = sizes[i];
    const bound = Math.sqrt(6 / (from + to));
    const W = Float32Array.from({ length: from * to }, () => bound * (2 * random() - 1));
    return { from, to, W, b: new Float32Array(to), activation: i === sizes.length - 2 ? "sigmoid" : activation };
  });
}

// The activations of each layer for rows (n × inputs), the rows themselves first.
function forwardOf(layers, rows, count) {
  const all = [rows];
  for (const { from, to, W, b, activation } of layers) {
    const [below, here, act] = [all.at(-1), new Float32Array(count * to), ACTIVATIONS[activation][0]];
    for (let n = 0; n < count; n++) {
      for (let i = 0; i < to; i++) {
        let sum = b[i];
        for (let j = 0; j < from; j++) sum += W[i * from + j] * below[n * from + j];
        here[n * to + i] = act(sum);
      }
    }
    all.push(here);
  }
  return all;
}

// One step of gradient descent on a batch.
function stepOf(layers, rows, targets, count, { cost, learning_rate: rate, l2 }) {
  const all = forwardOf(layers, rows, count);
  let delta = all.at(-1).map((a, i) => (a - targets[i]) * (cost === "mse" ? a * (1 - a) : 1));
  for (let l = layers.length - 1; l >= 0; l--) {
    const { from, to, W, b } = layers[l];
    const below = all[l];
    const slope = l ? ACTIVATIONS[layers[l - 1].activation][1] : null;
    const lower = l ? new Float32Array(count * from) : null;
    const [dW, db] = [new Float32Array(W.length), new Float32Array(to)];
    for (let n = 0; n < count; n++) {
      for (let i = 0; i < to; i++) {
        const own = delta[n * to + i];
        db[i] += own;
        for (let j = 0; j < from; j++) {
          dW[i * from + j] += own * below[n * from + j];
          if (lower) lower[n * from + j] += own * W[i * from + j];
        }
      }
    }
    if (lower) delta = lower.map((value, i) => value * slope(below[i]));
    for (let i = 0; i < W.length; i++) W[i] -= rate * (dW[i] / count + l2 * W[i]);
    for (let i = 0; i < to; i++) b[i] -= rate * (db[i] / count + l2 * b[i]);
  }
}

function costOf(outputs, targets, count, cost) {
  let sum = 0;
  outputs.forEach((a, i) => {
    if (cost === "mse") sum += (a - targets[i]) ** 2 / 2;
    else sum -= Math.log(Math.max(1e-7, targets[i] ? a : 1 - a));
  });
  return sum / count;
}

// ---- the engine

class Engine {
  constructor(settings, points, scene) {
    const { clean, noise, labels, training } = points[settings.data];
    this.settings = settings;
    this.scene = scene;
    this.labels = labels.values;
    this.training = training;
    this.points = clean.values.map((value, i) => value + settings.noise * noise.values[i]);
    this.classes = Math.max(...this.labels) + 1;
    this.outputs = this.classes === 2 ? 1 : this.classes;
    const sides = [0, 1].map((side) => Array.from(this.points).filter((_, i) => i % 2 === side && i < 2 * training));
    const every = [0, 1].map((side) => Array.from(this.points).filter((_, i) => i % 2 === side));
    this.low = every.map((values, i) => Math.min(...values, ...sides[i]) - 0.2);
    this.high = every.map((values, i) => Math.max(...values, ...sides[i]) + 0.2);
    this.random = randomOf(settings.seed);
    this.layers = this.fresh(settings);
    [this.epoch, this.done, this.history] = [0, 0, []];
    this.feed();
    this.measure();
  }

  get sizes() {
    return [this.settings.features.length, ...this.settings.hidden, this.outputs];
  }

  fresh({ features, hidden, activation }) {
    return layersFor([features.length, ...hidden, this.outputs], activation, this.random);
  }

  // Both sets as the chosen features, with targets.
  feed() {
    const count = this.labels.length;
    const target = (label) =>
      this.outputs === 1 ? [label] : Array.from({ length: this.outputs }, (_, i) => Number(i === label));
    const of = (from, to) => ({
      count: to - from,
      rows: this.featuresOf(this.points.subarray(2 * from, 2 * to)),
      targets: Float32Array.from(Array.from(this.labels.subarray(from, to)).flatMap(target)),
    });
    this.sets = [of(0, this.training), of(this.training, count)];
    this.plane = this.featuresOf(placesOf(this));
    if (this.done) this.shuffle();
  }

  featuresOf(places) {
    const chosen = this.settings.features.map((name) => FEATURES[name]);
    const rows = new Float32Array((places.length / 2) * chosen.length);
    for (let n = 0; n < places.length / 2; n++) {
      chosen.forEach((feature, i) => (rows[n * chosen.length + i] = feature(places[2 * n], places[2 * n + 1])));
    }
    return rows;
  }

  shuffle() {
    this.order = [...this.sets[0].targets.keys()].slice(0, this.training);
    for (let i = this.order.length - 1; i > 0; i--) {
      const other = Math.floor(this.random() * (i + 1));
      [this.order[i], this.order[other]] = [this.order[other], this.order[i]];
    }
  }

  get progress() {
    return this.epoch + this.done / this.training;
  }

  step() {
    if (this.done === 0) this.shuffle();
    const chosen = this.order.slice(this.done, this.done + this.settings.batch_size);
    const [{ rows, targets }, inputs] = [this.sets[0], this.settings.features.length];
    const picked = (from, wide) => joined(chosen.map((n) => from.subarray(n * wide, (n + 1) * wide)), Float32Array);
    stepOf(this.layers, picked(rows, inputs), picked(targets, this.outputs), chosen.length, this.settings);
    this.done += this.settings.batch_size;
    if (this.done >= this.training) [this.epoch, this.done] = [this.epoch + 1, 0];
  }

  train(epochs) {
    const [end, last] = [performance.now() + SLICE, this.progress + epochs];
    while (this.progress < last - 1e-9 && performance.now() < end) this.step();
  }

  outputsOf({ rows, count }) {
    return forwardOf(this.layers, rows, count).at(-1);
  }

  measure() {
    const costs = this.sets.map((set) => costOf(this.outputsOf(set), set.targets, set.count, this.settings.cost));
    this.history.push([this.progress, ...costs]);
    if (this.history.length > MOST_POINTS) this.history = this.history.filter((_, i, all) => i % 2 === 0 || i === all.length - 1);
  }

  // The share of the held-out points that are classified correctly.
  right() {
    const outputs = this.outputsOf(this.sets[1]);
    const said = (n) => {
      if (this.outputs === 1) return outputs[n] > 0.5 ? 1 : 0;
      const own = outputs.subarray(n * this.outputs, (n + 1) * this.outputs);
      return own.indexOf(Math.max(...own));
    };
    const labels = this.labels.subarray(this.training);
    return labels.filter((label, n) => said(n) === label).length / labels.length;
  }

  // Another shape. Each level of `levels` is { was, numbers }: what it was before, and which of its neurons stay.
  rebuild(changes, levels) {
    const old = this.layers;
    this.settings = { ...this.settings, ...changes };
    this.layers = this.fresh(this.settings);
    this.layers.forEach((layer, l) => {
      const [below, here] = [levels[l], levels[l + 1]];
      if (below.was === null || here.was !== below.was + 1) return;
      const before = old[below.was];
      here.numbers.forEach((row, i) => {
        if (row === null) return;
        layer.b[i] = before.b[row];
        below.numbers.forEach((place, j) => {
          layer.W[i * layer.from + j] = place === null ? 0 : before.W[row * before.from + place];
        });
      });
    });
    this.feed();
    this.measure();
  }

  levels() {
    return this.sizes.map((size, was) => ({ was, numbers: [...new Array(size).keys()] }));
  }

  resize(layer, keeps) {
    const [hidden, levels] = [[...this.settings.hidden], this.levels()];
    hidden[layer] = keeps.length;
    levels[layer + 1].numbers = keeps;
    this.rebuild({ hidden }, levels);
  }

  get words() {
    const [, cost, held] = this.history.at(-1).map((value) => general(value, 4));
    const batch = this.done ? ` and ${this.done} samples` : "";
    const right = percent(this.right());
    return `epoch ${this.epoch}${batch}, cost ${cost} in training, ${held} held out, ${right} of the held-out points right`;
  }

  get plainWords() {
    const right = percent(this.right());
    return `round ${this.epoch}. Of the points that it has never seen, it gets ${right} right`;
  }
}

const SHAPES = {
  resize: (engine, [layer, count]) => {
    const size = engine.settings.hidden[layer];
    engine.resize(layer, Array.from({ length: count }, (_, i) => (i < size ? i : null)));
  },
  remove: (engine, [layer, neuron]) => {
    engine.resize(layer, [...new Array(engine.settings.hidden[layer]).keys()].filter((number) => number !== neuron));
  },
  add_layer: (engine) => {
    const levels = engine.levels();
    const added = { was: null, numbers: new Array(NEW_LAYER).fill(null) };
    engine.rebuild({ hidden: [...engine.settings.hidden, NEW_LAYER] }, [...levels.slice(0, -1), added, levels.at(-1)]);
  },
  remove_layer: (engine) => {
    const levels = engine.levels();
    engine.rebuild({ hidden: engine.settings.hidden.slice(0, -1) }, [...levels.slice(0, -2), levels.at(-1)]);
  },
  features: (engine, names) => {
    const before = engine.settings.features;
    const features = Object.keys(FEATURES).filter((name) => names.includes(name));
    const numbers = features.map((name) => (before.includes(name) ? before.indexOf(name) : null));
    engine.rebuild({ features }, [{ was: 0, numbers }, ...engine.levels().slice(1)]);
  },
};

// ---- what the browser draws

function rangeOf(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

// Values as bytes: 128 is the middle of the activation's range. Of one without limits the ends are the largest value.
function bytesOf(values, activation, [low, high]) {
  const middle = activation === "sigmoid" ? 0.5 : 0;
  let half = activation === "sigmoid" ? 0.5 : 1;
  if (!["sigmoid", "tanh"].includes(activation)) half = Math.max(1e-6, -low, high);
  const bytes = new Uint8Array(values.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = 128 + 127 * Math.max(-1, Math.min(1, (values[i] - middle) / half));
  return bytes;
}

function placesOf({ low, high, scene }) {
  const [across, up] = [0, 1].map((i) => numbers(scene.grid, low[i], high[i]));
  return Float32Array.from(up.flatMap((y) => across.flatMap((x) => [x, y])));
}

// Every third number of a large picture, as a small one.
function thinnedOf(large, grid, small) {
  const every = grid / small;
  const from = Math.floor(every / 2);
  const thin = new Float32Array(small * small);
  for (let i = 0; i < thin.length; i++) thin[i] = large[(from + every * Math.floor(i / small)) * grid + from + every * (i % small)];
  return thin;
}

function joined(parts, kind = Uint8Array) {
  const all = new kind(sum(parts.map((part) => part.length)));
  parts.reduce((place, part) => (all.set(part, place), place + part.length), 0);
  return all;
}

function sceneOf(engine) {
  const { grid, small } = engine.scene;
  const places = placesOf(engine);
  const pictures = Object.values(FEATURES).map((feature) => {
    const values = Float32Array.from({ length: grid * grid }, (_, n) => feature(places[2 * n], places[2 * n + 1]));
    return bytesOf(thinnedOf(values, grid, small), "", rangeOf(values));
  });
  const count = engine.labels.length;
  return {
    ...engine.scene,
    sizes: engine.sizes,
    activations: engine.layers.map(({ activation }) => activation),
    chosen: engine.settings.features,
    pictures: array(joined(pictures), pictures.length, small * small),
    extent: [engine.low[0], engine.high[0], engine.low[1], engine.high[1]],
    classes: engine.classes,
    points: array(engine.points, count, 2),
    labels: array(engine.labels),
    training: engine.training,
  };
}

function frameOf(engine, look) {
  const { grid, small } = engine.scene;
  const count = grid * grid;
  const all = forwardOf(engine.layers, engine.plane, count).slice(1);
  const columnOf = (level, number) => {
    const [from, wide, values] = [all[level], engine.layers[level].to, new Float32Array(count)];
    for (let n = 0; n < count; n++) values[n] = from[n * wide + number];
    return values;
  };
  const [neurons, ranges] = [[], []];
  engine.layers.forEach(({ to, activation }, level) => {
    for (let number = 0; number < to; number++) {
      const values = columnOf(level, number);
      const ends = rangeOf(values);
      neurons.push(bytesOf(thinnedOf(values, grid, small), activation, ends));
      ranges.push(...ends);
    }
  });
  const own = look && look[0] < engine.sizes.length && look[1] < engine.sizes[look[0]];
  const column = own ? columnOf(look[0] - 1, look[1]) : new Float32Array(0);
  const large = bytesOf(column, own ? engine.layers[look[0] - 1].activation : "", rangeOf(column));
  return {
    plane: array(sharesOf(all.at(-1), engine.outputs), count, engine.classes - 1),
    neurons: array(joined(neurons), neurons.length, small * small),
    ranges: array(ranges, neurons.length, 2),
    weights: array(joined(engine.layers.flatMap(({ W, b }) => [W, b]), Float32Array)),
    history: array(engine.history.flat(), engine.history.length, 3),
    right: engine.right(),
    epoch: engine.epoch,
    look: own ? look : [],
    large: array(large),
  };
}

// The share of class 1, 2, … at each place, as bytes; class 0 is the rest.
function sharesOf(outputs, count) {
  if (count === 1) return new Uint8Array(outputs.map((value) => 255 * value));
  const shares = new Uint8Array((outputs.length / count) * (count - 1));
  for (let n = 0; n < outputs.length / count; n++) {
    let sum = 0;
    for (let i = 0; i < count; i++) sum += outputs[n * count + i] + 1e-6;
    for (let i = 1; i < count; i++) shares[n * (count - 1) + i - 1] = (255 * (outputs[n * count + i] + 1e-6)) / sum;
  }
  return shares;
}

// ---- the mind: obeys commands, trains between two pictures of the page

const mind = (model) => {
  const points = unpacked(model.get("points"));
  const small = model.get("form") === "small";
  const first = model.get("scene");
  let settings = { ...model.get("state").settings, mine: false };
  let [engine, look, running, number, shape, aloud] = [null, null, false, 0, "", true];
  let pace = { due: 0, since: 0 };
  model.set("controls", model.get("controls").filter(({ name }) => !UNSERVED.includes(name)).map((about) => {
    const known = SERVED[about.name];
    return known ? { ...about, options: about.options.filter(([value]) => known.includes(value)) } : about;
  }));

  function show() {
    if (running) engine.measure();
    let said = small ? engine.plainWords : engine.words;
    if (!Number.isFinite(engine.history.at(-1)[1])) {
      [running, aloud] = [false, true];
      said += `. The cost is no longer a number: take a learning rate below ${general(settings.learning_rate)} and press Reset`;
    }
    const words = `${(running ? RUNNING : PAUSED).label}: ${said}.`;
    const now = { frame: { ...frameOf(engine, look), number: ++number }, state: { running, words, aloud, settings } };
    const own = JSON.stringify([settings.data, settings.noise, engine.sizes, settings.features, settings.activation]);
    if (own !== shape) now.scene = sceneOf(engine);
    [shape, aloud] = [own, false];
    model.tell(now);
  }

  function begin() {
    engine = new Engine(settings, points, first);
    pace = { due: 0, since: performance.now() };
  }

  function turn() {
    if (!running) return;
    const now = performance.now();
    const { speed } = settings;
    const seconds = (now - pace.since) / 1000;
    pace.since = now;
    if (speed) {
      pace.due = Math.min(Math.max(pace.due, engine.progress - BEHIND * speed) + seconds * speed, engine.progress + Math.max(BEHIND, seconds) * speed);
      engine.train(Math.max(0, pace.due - engine.progress));
    } else engine.train(Infinity);
    show();
    requestAnimationFrame(turn);
  }

  function receive({ name, value }) {
    if (name === "seen" || name === "hello") return;
    aloud ||= name !== "look";
    const was = running;
    if (name === "look") look = value;
    else if (name === "start" || name === "pause") {
      running = name === "start";
      pace = { due: engine.progress, since: performance.now() };
    } else if (name === "step") {
      running = false;
      engine.step();
      engine.measure();
    } else if (name === "reset") begin();
    else if (SHAPES[name]) {
      SHAPES[name](engine, value);
      settings = engine.settings;
    } else {
      settings = { ...settings, [name]: value };
      if (AT_ONCE.includes(name)) engine.settings = settings;
      else begin();
    }
    if (running && !was) requestAnimationFrame(turn);
    else if (!running) show();
  }

  begin();
  queueMicrotask(show); // after the widget has begun to listen
  return { receive, saved() {} };
};

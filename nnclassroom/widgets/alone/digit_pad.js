// The answers of digit_pad.pad(): `reader` has the network's layers, `form` how its images were made.

const mind = (model) => {
  const reader = unpacked(model.get("reader"));
  const classes = model.get("classes");
  const answer = () => {
    due = false;
    const side = model.get("side");
    const ink = bytes(model.get("ink"));
    if (!ink.some(Boolean)) return model.tell({ seen: new Uint8Array(0), shares: [], words: reader.first });
    const image = imageOfInk(ink, side, model.get("seen_side"), reader.form);
    const shares = read(image.map((value) => (value - reader.offset) / reader.factor), reader);
    const [one, other] = shares.map((share, i) => [share, classes[i]]).sort((a, b) => b[0] - a[0]);
    const [likely, second] = [percent(one[0]), percent(other[0])];
    const words = `The network says ${one[1]} (${likely}), then ${other[1]} (${second}).`;
    model.tell({ seen: Uint8Array.from(image, (value) => 255 * value), shares, words });
  };
  let due = false;
  const saved = () => {
    if (!due) requestAnimationFrame(answer); // once a picture of the page, however often the pen moves
    due = true;
  };
  return { receive() {}, saved };
};

// The drawing cut out, scaled to a box, and moved so that its centre of mass is in the middle, as as_image() does.
function imageOfInk(ink, side, size, { box, centre }) {
  const lines = [...new Array(side).keys()];
  const rows = lines.filter((row) => lines.some((i) => ink[row * side + i]));
  const columns = lines.filter((column) => lines.some((i) => ink[i * side + column]));
  const [top, left] = [rows[0], columns[0]];
  const [high, wide] = [rows.at(-1) - top + 1, columns.at(-1) - left + 1];
  const [height, width] = [high, wide].map((length) => Math.max(1, Math.round((box * length) / Math.max(high, wide))));
  // First along the rows, then down the columns.
  const across = resized(wide, width);
  const down = resized(high, height);
  const lying = numbersOf(high, width, (row, i) => weighted(across[i], (j) => ink[(top + row) * side + left + j]));
  const small = numbersOf(height, width, (i, column) => weighted(down[i], (j) => lying[j * width + column]));
  const total = small.reduce((sum, value) => sum + value, 0);
  const middle = (of) => small.reduce((sum, value, i) => sum + value * (of(i) + 0.5), 0) / total;
  const place = (mean, length) => Math.min(size - length, Math.max(0, Math.round(centre - mean)));
  const [y, x] = [place(middle((i) => Math.floor(i / width)), height), place(middle((i) => i % width), width)];
  const most = Math.max(...small);
  const image = new Float32Array(size * size);
  small.forEach((value, i) => (image[(y + Math.floor(i / width)) * size + x + (i % width)] = value / most));
  return image;
}

const numbersOf = (rows, columns, value) =>
  Array.from({ length: rows * columns }, (_, i) => value(Math.floor(i / columns), i % columns));
const weighted = (weights, value) => weights.reduce((sum, [place, weight]) => sum + weight * value(place), 0);

// For each of `to` pixels the places among `from` pixels with their weights: triangles, wider where it shrinks.
function resized(from, to) {
  const scale = from / to;
  const reach = Math.max(1, scale);
  return Array.from({ length: to }, (_, i) => {
    const centre = (i + 0.5) * scale;
    const first = Math.max(0, Math.floor(centre - reach + 0.5));
    const last = Math.min(from, Math.floor(centre + reach + 0.5));
    const found = [];
    for (let place = first; place < last; place++) {
      found.push([place, Math.max(0, 1 - Math.abs((place + 0.5 - centre) / reach))]);
    }
    const sum = found.reduce((total, [, weight]) => total + weight, 0);
    return found.map(([place, weight]) => [place, weight / sum]);
  });
}

// The network's answer to one image of one channel.
function read(image, { layers }) {
  let A = { values: image, channels: 1, side: Math.sqrt(image.length) };
  for (const layer of layers) A = LAYERS[layer.kind](A, layer);
  return Array.from(A.values);
}

const LAYERS = {
  convolution({ values, channels, side }, { W, b, before }) {
    const [filters, , k] = W.shape;
    const made = new Float32Array(filters * side * side);
    for (let o = 0; o < filters; o++) {
      for (let row = 0; row < side; row++) {
        for (let line = 0; line < side; line++) {
          let sum = b.values[o];
          for (let c = 0; c < channels; c++) {
            for (let i = Math.max(0, before - row); i < k && row + i - before < side; i++) {
              for (let j = Math.max(0, before - line); j < k && line + j - before < side; j++) {
                const pixel = values[(c * side + row + i - before) * side + line + j - before];
                sum += W.values[((o * channels + c) * k + i) * k + j] * pixel;
              }
            }
          }
          made[(o * side + row) * side + line] = Math.max(0, sum);
        }
      }
    }
    return { values: made, channels: filters, side };
  },

  pool({ values, channels, side }, { size }) {
    const less = Math.floor(side / size);
    const made = new Float32Array(channels * less * less).fill(-Infinity);
    for (let place = 0; place < values.length; place++) {
      const c = Math.floor(place / (side * side));
      const row = Math.floor(place / side) % side;
      const to = (c * less + Math.floor(row / size)) * less + Math.floor((place % side) / size);
      made[to] = Math.max(made[to], values[place]);
    }
    return { values: made, channels, side: less };
  },

  flatten: (A) => A,

  dense({ values }, { W, b, activation }) {
    const [outputs, inputs] = W.shape;
    const sums = Array.from({ length: outputs }, (_, i) => {
      let sum = b.values[i];
      for (let j = 0; j < inputs; j++) sum += W.values[i * inputs + j] * values[j];
      return sum;
    });
    if (activation === "relu") return { values: sums.map((sum) => Math.max(0, sum)) };
    const powers = sums.map((sum) => Math.exp(sum - Math.max(...sums)));
    const total = powers.reduce((sum, power) => sum + power, 0);
    return { values: powers.map((power) => power / total) };
  },
};

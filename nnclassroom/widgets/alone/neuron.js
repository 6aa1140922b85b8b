// The answers of simple.neuron().

const SIDE = 120; // numbers along each side of the plane

const mind = answering(({ w1, w2, b, activation }, { X, y, low, high }) => {
  const z = (x1, x2) => w1 * x1 + w2 * x2 + b;
  const step = (sum) => (sum > 0 ? 1 : 0);
  const output = activation === "step" ? step : (sum) => 1 / (1 + Math.exp(-sum));
  const [across, up] = [0, 1].map((i) => numbers(SIDE, low[i], high[i]));
  const plane = Uint8Array.from(up.flatMap((x2) => across.map((x1) => 255 * output(z(x1, x2)))));
  const [x1, x2] = [column(X, 0), column(X, 1)];
  const wrong = Uint8Array.from(y.values, (label, i) => step(z(x1[i], x2[i])) !== label);
  const count = wrong.reduce((sum, one) => sum + one, 0);
  const words =
    `z = ${general(w1)}·x1 ${general(w2, 6, true)}·x2 ${general(b, 6, true)}. ` +
    `${count} of ${wrong.length} points are on the wrong side.`;
  return [{ plane: array(plane, SIDE, SIDE), wrong: array(wrong), ...lineOf([w1, w2], b, low, high) }, words];
});

// Two points of the line z = 0 beyond the plane, and the arrow w, from the middle of what the plane shows of it; {} if w is 0.
function lineOf(w, b, low, high) {
  const square = w[0] ** 2 + w[1] ** 2;
  if (!square) return {};
  const middle = [0, 1].map((i) => (low[i] + high[i]) / 2);
  const far = Math.hypot(high[0] - low[0], high[1] - low[1]) / Math.sqrt(square);
  const distance = (w[0] * middle[0] + w[1] * middle[1] + b) / square;
  const nearest = middle.map((value, i) => value - distance * w[i]);
  const along = [-w[1] * far, w[0] * far];
  const ends = [-1, 1].flatMap((side) => nearest.map((value, i) => value + side * along[i]));
  const borders = [0, 1].map((i) => [low[i], high[i]].map((border) => (border - nearest[i]) / along[i]));
  const from = Math.max(...borders.map((pair) => Math.min(...pair)));
  const to = Math.min(...borders.map((pair) => Math.max(...pair)));
  const foot = nearest.map((value, i) => value + ((from + to) / 2) * along[i]);
  const arrow = from < to ? { foot, tip: foot.map((value, i) => value + 0.3 * w[i]) } : {};
  return { line: array(ends, 2, 2), ...arrow };
}

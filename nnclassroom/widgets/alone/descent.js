// The answers of simple.descent().

const HIGHEST = 1e6; // a descent stops if the cost exceeds this
const SURFACES = {
  bowl: [(x, y) => (x ** 2 + 10 * y ** 2) / 2, (x, y) => [x, 10 * y]],
  "two valleys": [
    (x, y) => (x ** 2 - 1) ** 2 + 0.3 * x + y ** 2 + 0.31,
    (x, y) => [4 * x * (x ** 2 - 1) + 0.3, 2 * y],
  ],
};

const mind = answering(({ surface, rate, steps, w1, w2 }) => {
  const [cost, gradient] = SURFACES[surface];
  const path = [[w1, w2]];
  while (path.length <= steps && cost(...path.at(-1)) < HIGHEST) {
    const [now, slope] = [path.at(-1), gradient(...path.at(-1))];
    path.push(now.map((value, i) => value - rate * slope[i]));
  }
  const costs = path.map((point) => cost(...point));
  const [first, last, end] = [costs[0], costs.at(-1), path.at(-1)];
  const [ended, wide, high] = [last, ...end].map((value) => general(value, 3));
  const place = `w1 = ${wide}, w2 = ${high}`;
  let words = `Cost ${general(first, 3)} at the start, ${ended} after ${path.length - 1} steps, at ${place}.`;
  if (last > first) {
    const half = path.slice(Math.floor(path.length / 2));
    const lengths = half.slice(1).map((point, i) => Math.hypot(point[0] - half[i][0], point[1] - half[i][1]));
    const grows = lengths.slice(1).every((length, i) => length > lengths[i]);
    words += grows
      ? " It diverges: each step leaps further than the one before."
      : " It ends higher than it began, and does not settle.";
    words += " Take a smaller learning rate.";
  }
  if (path.length <= steps) words += ` Above a cost of ${grouped(HIGHEST)} no further step is taken.`;
  const frame = { surface, path: array(path.flat(), path.length, 2), costs: array(costs), limits: decades(costs), steps };
  return [frame, words];
});

// The ends of a logarithmic axis: 1, 2 or 5 times a power of ten, a factor 10 apart or more.
function decades(costs) {
  const known = costs.filter((cost) => Number.isFinite(cost) && cost > 1e-30);
  const [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [1, 1];
  const marks = numbers(63, -31, 31).flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** Math.round(power)));
  const bottom = marks.findLast((mark) => mark <= low);
  return [bottom, Math.max(10 * bottom, marks.find((mark) => mark >= high))];
}

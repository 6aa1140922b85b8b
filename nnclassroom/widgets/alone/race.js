// The answers of race.race(), with the kernels of the course.

const TOO_HIGH = 1e6; // a descent stops if the cost exceeds this
const DOWN = 0.01; // a cost below this counts as arrived
const STEEP = 50;
const VALLEYS = {
  straight: [(x, y) => (x ** 2 + STEEP * y ** 2) / 2, (x, y) => [x, STEEP * y]],
  bent: [
    (x, y) => ((1 - x) ** 2 + 10 * (y + 1 - x ** 2) ** 2) / 2,
    (x, y) => [x - 1 - 20 * x * (y + 1 - x ** 2), 10 * (y + 1 - x ** 2)],
  ],
};

// Each moves the weights w by the gradient g, and keeps what it remembers. float32, as the kernels.
const f32 = Math.fround;
const plain = (rate) => (w, g) => w.map((value, i) => value - f32(f32(rate) * g[i]));

function momentum(rate, stays) {
  let V = [0, 0];
  return (w, g) => {
    V = V.map((value, i) => f32(f32(f32(stays) * value) + g[i]));
    return w.map((value, i) => value - f32(f32(rate) * V[i]));
  };
}

function adam(rate) {
  let [M, V, steps] = [[0, 0], [0, 0], 0];
  return (w, g) => {
    steps += 1;
    M = M.map((value, i) => f32(0.9 * value + 0.1 * g[i]));
    V = V.map((value, i) => f32(0.999 * value + 0.001 * g[i] ** 2));
    const [c1, c2] = [1 - 0.9 ** steps, 1 - 0.999 ** steps];
    return w.map((value, i) => value - (rate * (M[i] / c1)) / (Math.sqrt(V[i] / c2) + 1e-8));
  };
}

const mind = answering((values, given) => {
  const { valley, rate, momentum: stays, adam_rate, w1, w2 } = values;
  const at = Math.round(values.at);
  const racers = { plain: plain(rate), momentum: momentum(rate, stays), Adam: adam(adam_rate) };
  const races = {};
  for (const [name, move] of Object.entries(racers)) races[name] = descend(VALLEYS[valley], [w1, w2], move, given.steps);
  const shown = Object.entries(races).map(([name, { path, costs }]) => {
    const seen = path.slice(0, at + 1);
    return [name, { path: array(seen.flat(), seen.length, 2), costs: array(costs.slice(0, at + 1)) }];
  });
  const frame = { valley: Object.keys(VALLEYS).indexOf(valley), races: Object.fromEntries(shown) };
  return [frame, saidOf(races, at, given)];
});

function descend([cost, gradient], start, move, steps) {
  const path = [start.map(f32)];
  while (path.length <= steps && cost(...path.at(-1)) < TOO_HIGH) {
    path.push(move(path.at(-1), gradient(...path.at(-1)).map(f32)).map(f32));
  }
  return { path, costs: path.map((point) => cost(...point)) };
}

// The first step after which the cost stays below DOWN; -1 if there is none.
function arrival(costs, steps) {
  const last = costs.findLastIndex((cost) => !(cost < DOWN));
  return costs.length === steps + 1 && last < steps ? last + 1 : -1;
}

function saidOf(races, step, { labels, steps }) {
  const [costs, arrivals] = [[], []];
  for (const [racer, race] of Object.entries(races)) {
    const name = labels[racer];
    const now = race.costs[step];
    const out = step >= race.costs.length || !(now <= Math.max(race.costs[0], 1) * 10);
    costs.push(out ? `${name} has leapt out of the valley` : `${name} ${general(now, 2)}`);
    const came = arrival(race.costs, steps);
    arrivals.push(came >= 0 ? `${name} after ${came} steps` : `${name} not in ${steps} steps`);
  }
  const [now, then] = [costs.join(", "), arrivals.join(", ")];
  return `Step ${step}. Cost: ${now}. To stay below ${DOWN}: ${then}.`;
}

// The answers of downpour.downpour(). `problem` has X, y, the lowest place and cost, the curvatures, and the generator's
// state: the random numbers are those of Python.

const BATCH = 8;
const TOO_HIGH = 1e3; // training stops if the cost exceeds this
const STYLES = { alone: { label: "Alone" }, synchronous: { label: "Synchronous" }, Downpour: { label: "Downpour" } };
const WHOLE = (1n << 128n) - 1n;
const FACTOR = 0x2360ed051fc65da44385df649fccf645n;

// NumPy's PCG64: rows from 0 to 255, and uniform numbers.
function generator([state, increment]) {
  let now = BigInt(state);
  let kept = null; // the upper half of the last 64 bits
  const next = () => {
    now = (now * FACTOR + BigInt(increment)) & WHOLE;
    const mixed = BigInt.asUintN(64, (now >> 64n) ^ now);
    const turn = now >> 122n;
    return BigInt.asUintN(64, (mixed >> turn) | (mixed << (64n - turn)));
  };
  return {
    row() {
      if (kept !== null) {
        const row = kept;
        kept = null;
        return row;
      }
      const bits = next();
      kept = Number(bits >> 56n);
      return Number((bits >> 24n) & 255n);
    },
    uniform: (low, high) => low + (high - low) * (Number(next() >> 11n) / 2 ** 53),
  };
}

// Least squares, with a fresh generator.
function problemOf({ X, y, best, least, curvatures, seed }) {
  const features = best.length;
  const random = generator(seed);
  return {
    start: new Array(features).fill(0),
    cost: (w) => least + w.reduce((sum, value, i) => sum + curvatures[i] * (value - best[i]) ** 2, 0) / 2,
    // The mean gradient of so many workers, each with a batch of random rows.
    gradient(w, workers = 1) {
      const sum = new Array(features).fill(0);
      for (let i = 0; i < workers * BATCH; i++) {
        const from = random.row() * features;
        const residual = w.reduce((total, value, j) => total + value * X[from + j], 0) - y[from / features];
        for (let j = 0; j < features; j++) sum[j] += residual * X[from + j];
      }
      return sum.map((value) => value / (workers * BATCH));
    },
    seconds: () => random.uniform(0.95, 1.05), // of a quick worker for one gradient
  };
}

const moved = (w, rate, gradient) => w.map((value, i) => value - rate * gradient[i]);

// One update per round, which takes as long as its slowest worker.
function synchronous(problem, slow, rate, until) {
  let w = problem.start;
  const course = [[0, problem.cost(w), 0]];
  const round = () => Math.max(...slow.map((times) => times * problem.seconds()));
  let time = round();
  while (time < until && course.at(-1)[1] < TOO_HIGH) {
    w = moved(w, rate, problem.gradient(w, slow.length));
    course.push([time, problem.cost(w), 0]);
    time += round();
  }
  return course;
}

// The worker that is ready next pushes its gradient and fetches the parameters.
function asynchronous(problem, slow, rate, until) {
  let w = problem.start;
  const course = [[0, problem.cost(w), 0]];
  const workers = slow.map((times) => ({ times, ready: times * problem.seconds(), fetched: w, version: 0 }));
  const next = () => workers.reduce((first, other) => (other.ready < first.ready ? other : first));
  for (let own = next(); own.ready < until && course.at(-1)[1] < TOO_HIGH; own = next()) {
    w = moved(w, rate, problem.gradient(own.fetched));
    course.push([own.ready, problem.cost(w), course.length - 1 - own.version]);
    Object.assign(own, { fetched: w, version: course.length - 1, ready: own.ready + own.times * problem.seconds() });
  }
  return course;
}

const mind = (model) => {
  const { X, y, ...rest } = unpacked(model.get("problem"));
  const problem = { X: X.values, y: y.values, ...rest };
  return answering(({ workers, slowness, rate }, { until }) => {
    const slow = [...new Array(workers - 1).fill(1), slowness];
    const courses = {
      alone: synchronous(problemOf(problem), [1], rate, until),
      synchronous: synchronous(problemOf(problem), slow, rate, until),
      Downpour: asynchronous(problemOf(problem), slow, rate, until),
    };
    const curves = {};
    for (const [name, course] of Object.entries(courses)) {
      curves[name] = { times: array(course.map(([time]) => time)), costs: array(course.map(([, cost]) => cost)) };
    }
    return [{ curves }, toldOf(courses)];
  })(model);
};

function toldOf(courses) {
  const stale = courses.Downpour.slice(1).map(([, , updates]) => updates);
  const mean = general(stale.reduce((sum, updates) => sum + updates, 0) / stale.length, 2);
  const said = [`Downpour's gradients are stale by ${mean} updates on average, at most by ${Math.max(...stale)}.`];
  for (const [key, course] of Object.entries(courses)) {
    const name = STYLES[key].label;
    const count = course.length - 1;
    const costs = course.map(([, cost]) => cost);
    if (costs.at(-1) > costs[0]) {
      said.push(`${name} diverges: take a smaller rate.`);
      continue;
    }
    const end = costs.slice(-Math.max(1, Math.floor(costs.length / 10))); // it fluctuates
    const cost = general(end.reduce((sum, value) => sum + value, 0) / end.length, 2);
    said.push(count === 1 ? `${name}: 1 update, cost ${cost} at the end.` : `${name}: ${count} updates, cost ${cost} at the end.`);
  }
  return said.join(" ");
}

// The answers of laws.laws(). `networks` has seconds per sample and bytes of the gradient, by name.

const mind = (model) => answering((values) => answerOf(values, model.get("networks")))(model);

function answerOf({ network, p, devices, latency, bandwidth, batch }, networks) {
  const [each, size] = networks[network];
  const counts = [...numbers(11, 0, 10).map((power) => 2 ** Math.round(power)).filter((count) => count < devices), devices];
  const message = (bytes) => latency * 1e-6 + bytes / (bandwidth * 1e9);
  const exchange = counts.map((count) =>
    count === 1
      ? 0
      : Math.min(
          2 * (count - 1) * message(size), // through a root
          2 * Math.ceil(Math.log2(count)) * message(size), // in a tree
          2 * (count - 1) * message(size / count), // in a ring
        ),
  );
  const alone = batch * each;
  const amdahl = counts.map((count) => 1 / (1 - p + p / count));
  const gustafson = counts.map((count) => 1 - p + p * count);
  const strong = amdahl.map((speedup, i) => alone / (alone / speedup + exchange[i]));
  const weak = gustafson.map((speedup, i) => (speedup * alone) / (alone + exchange[i]));
  const curves = { devices: counts, strong, weak, amdahl, gustafson, exchange };
  const frame = Object.fromEntries(Object.entries(curves).map(([name, curve]) => [name, array(curve)]));
  return [{ ...frame, alone }, wordsOf(curves, alone)];
}

function wordsOf({ devices, strong, weak, amdahl, gustafson, exchange }, alone) {
  const [count, fast, wide] = [devices, strong, weak].map((curve) => curve.at(-1));
  const [lone, most, least] = [duration(alone), times(amdahl.at(-1)), times(gustafson.at(-1))];
  if (count === 1) return `1 device: there is nothing to gain. It computes a batch in ${lone}.`;
  const said = [
    both(
      `${count} devices. Strong: ${times(fast)} times as fast, efficiency ${share(fast / count)}`,
      `Amdahl alone ${most}.`,
    ),
    both(`Weak: ${times(wide)} times, efficiency ${share(wide / count)}`, `Gustafson alone ${least}.`),
  ];
  const best = strong.indexOf(Math.max(...strong));
  if (best === 0) said.push("Strong scaling: one device alone is fastest.");
  else if (strong[best] > 1.01 * fast) said.push(`Strong scaling is best with ${devices[best]}: ${times(strong[best])} times.`);
  const takes = duration(exchange.at(-1));
  said.push(both(`One device computes a batch in ${lone}`, `an exchange takes ${takes}.`));
  return said.join(" ");
}

const both = (...parts) => parts.join("; ");
const times = (speedup) => (speedup < 999 ? general(speedup, 3) : grouped(speedup));
const share = (efficiency) => percent(efficiency, efficiency > 0.1 ? 0 : 1);

// A time with three digits and a unit.
function duration(seconds) {
  const units = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
  const [unit, size] = units.find(([, size]) => seconds >= size) ?? units[3];
  const value = seconds / size;
  return `${value >= 100 ? grouped(value) : general(value, 3)} ${unit}`;
}

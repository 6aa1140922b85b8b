// The picture of downpour.downpour(): the cost over the updates, and over the time.

const TRAININGS = {
  alone: { colour: "blue", marks: "o", dash: [2, 3], label: "alone" },
  synchronous: { colour: "orange", marks: "s", dash: [7, 4], label: "synchronous" },
  Downpour: { colour: "green", marks: "^", dash: [], label: "Downpour" },
};

export default widget({
  height: 330,
  draw({ pen, theme, width, given, frame }) {
    const [low, high] = given.costs;
    const y = { from: low, to: high, label: "cost", log: true };
    const axes = (to, label) => ({ x: { from: 0, to, label }, y });
    const first = axes(given.updates, "updates of the parameters");
    const second = axes(given.until, "time, in gradients of a quick worker");
    const [updates, times] = twoPlots(pen, theme, width, 305, first, second);
    const entries = [];
    for (const [name, curve] of Object.entries(frame.curves)) {
      const { colour, marks, dash, label } = TRAININGS[name];
      const seen = [...curve.costs.values].map((cost) => Math.min(high, Math.max(low, cost)));
      const style = { colour: theme.colours[colour], marks, dash, size: 3.5 };
      for (const [plot, x, end] of [
        [updates, [...seen.keys()], given.updates],
        [times, curve.times.values, given.until],
      ]) {
        const shown = x.filter((place) => place <= end).length;
        plot.line(x, seen, { ...style, every: Math.max(1, Math.floor(shown / 12)) });
      }
      entries.push({ label, colour: theme.colours[colour], marks, dash });
    }
    legend(pen, theme, entries, 48, 318, width);
  },
});

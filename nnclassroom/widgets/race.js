// The picture of race.race(): three paths on lines of equal cost, and their costs.

const RACERS = { plain: ["blue", "o"], momentum: ["orange", "s"], Adam: ["green", "^"] };

export default widget({
  height: 335,
  draw({ pen, theme, width, given, frame }) {
    const axis = ([from, to], label) => ({ from, to, label });
    const plane = {
      x: axis(given.x, "weight w1"),
      y: axis(given.y, "weight w2"),
      title: "Lines of equal cost, and the paths",
      grid: false,
    };
    const curves = {
      x: { from: -3, to: given.steps + 3, label: "step", ticks: [0, 25, 50, 75, 100, 125, 150] },
      y: { ...axis(given.costs), label: "cost", log: true },
      title: "Cost after each step",
      margins: { left: 62 },
    };
    const [map, costs] = twoPlots(pen, theme, width, 310, plane, curves);
    const lines = given.maps[frame.valley];
    map.line(column(lines, 0), column(lines, 1), { colour: theme.soft, width: 0.6 });
    map.at("*", ...given.lowest[frame.valley], { colour: theme.ink, size: 8 });
    const entries = [];
    for (const [name, { path, costs: all }] of Object.entries(frame.races)) {
      const [colour, marks] = [theme.colours[RACERS[name][0]], RACERS[name][1]];
      const [x, y] = [column(path, 0), column(path, 1)];
      const seen = [...all.values].map((cost) => Math.max(cost, given.costs[0]));
      const last = seen.length - 1;
      const head = { colour, edge: theme.ink, size: 6 };
      map.line(x, y, { colour, marks, size: 2.5 });
      map.points(marks, [x[last]], [y[last]], head);
      costs.line([...seen.keys()], seen, { colour, marks, every: 10 });
      costs.points(marks, [last], [seen[last]], head);
      entries.push({ label: given.labels[name], colour, marks });
    }
    entries.push({ label: "lowest place", colour: theme.ink, marks: "*", alone: true, size: 8 });
    legend(pen, theme, entries, 48, 324, width);
  },
});

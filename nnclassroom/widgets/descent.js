// The picture of widgets.descent(): the path on lines of equal cost, and the cost after each step.

export default widget({
  height: 340,
  draw({ pen, theme, width, given, frame }) {
    const { blue } = theme.colours;
    const [x, y] = [column(frame.path, 0), column(frame.path, 1)];
    const axis = ([from, to], label) => ({ from, to, label });
    const plane = {
      x: axis(given.x, "weight w1"),
      y: axis(given.y, "weight w2"),
      title: "Lines of equal cost, and the path",
      grid: false,
    };
    const curves = {
      x: { from: 0, to: Math.max(2, frame.steps), label: "step" },
      y: { ...axis(frame.limits), label: "cost", log: true },
      title: "Cost after each step",
      margins: { left: 60 },
    };
    const [map, costs] = twoPlots(pen, theme, width, 312, plane, curves);
    const lines = given.maps[frame.surface];
    map.line(column(lines, 0), column(lines, 1), { colour: theme.soft, width: 0.7 });
    const path = { colour: blue, marks: "o" };
    map.line(x, y, path);
    map.points("*", x.slice(0, 1), y.slice(0, 1), { colour: theme.ink, size: 8 });
    const { values } = frame.costs;
    costs.line([...values.keys()], values, path);
    const entries = [
      { label: "start", colour: theme.ink, marks: "*", alone: true, size: 8 },
      { label: "after each step", colour: blue, marks: "o" },
      { label: "equal cost", colour: theme.soft, width: 0.7 },
    ];
    legend(pen, theme, entries, 48, 328, width);
  },
});

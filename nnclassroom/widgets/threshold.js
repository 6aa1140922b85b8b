// The picture of widgets.threshold(): the scores of both classes, the confusion matrix, and precision against recall.

const NAMES = [
  ["true negative", "false positive"],
  ["false negative", "true positive"],
];

export default widget({
  height: 330,
  draw({ pen, theme, width, given, frame }) {
    const { blue, orange, green } = theme.colours;
    // On a phone three pictures stand one below the other, else side by side.
    const narrow = width < NARROW;
    const [first, second] = narrow ? [width, 0] : [0.4 * width, 0.69 * width];
    const below = (picture) => (narrow ? { left: 0, top: 320 * picture + 30, width, height: 300 } : box);
    const bins = given.bins.values;
    const [from, to] = [bins[0], bins[bins.length - 1]];
    const box = { top: 0, height: 300 };
    const most = Math.max(...given.shares.flatMap(({ values }) => [...values]));
    const scores = new Plot(pen, theme, { ...box, left: 0, width: first }, {
      x: { from, to, label: "score: the network's output" },
      y: { from: 0, to: 1.06 * most || 1, label: "share of the class, %" },
    });
    given.shares.forEach(({ values }, label) => bars(scores, bins, values, [blue, orange][label], label));
    scores.across("x", frame.threshold, { colour: theme.ink, dash: [6, 4], width: 2 });
    const entries = [
      { label: `class 0 (${given.sizes[0]} samples)`, colour: blue, box: true },
      { label: `class 1 (${given.sizes[1]})`, colour: orange, box: true },
      { label: `threshold ${frame.threshold.toFixed(2)}`, colour: theme.ink, dash: [6, 4], width: 2 },
    ];
    legend(pen, theme, entries, 20, 306, width);
    matrix(pen, theme, { ...box, left: first, width: second - first, ...below(1) }, frame.M);
    const curve = new Plot(pen, theme, { ...box, left: second, width: width - second, ...below(2) }, {
      x: { from: -0.03, to: 1.03, label: "recall (class 1)", ticks: [0, 0.5, 1] },
      y: { from: -0.03, to: 1.05, label: "precision (class 1)", ticks: [0, 0.25, 0.5, 0.75, 1] },
    });
    curve.line(column(given.curve, 0), column(given.curve, 1), { colour: green, width: 2 });
    curve.points("o", [frame.recall], [frame.precision], { colour: theme.ink, size: 6 });
    const dot = { label: `F1 ${frame.f1.toFixed(3)}`, colour: theme.ink, marks: "o", alone: true, size: 6 };
    legend(pen, theme, [dot], second + 48, below(2).top + 306, width - second);
  },
});

// Half-transparent bars; bars of the second class also have an outline, to distinguish them.
function bars(plot, edges, heights, colour, outlined) {
  const { pen } = plot;
  plot.inside(() => {
    heights.forEach((height, i) => {
      const [left, right, top] = [plot.X(edges[i]), plot.X(edges[i + 1]), plot.Y(height)];
      pen.globalAlpha = 0.5;
      pen.fillStyle = colour;
      pen.fillRect(left, top, right - left, plot.Y(0) - top);
      pen.globalAlpha = 1;
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      if (outlined && height > 0) pen.strokeRect(left, top, right - left, plot.Y(0) - top);
    });
  });
}

// The four counts, darker for more samples.
function matrix(pen, theme, box, counts) {
  const cells = { from: 0, to: 2, ticks: [0.5, 1.5], names: ["0", "1"] };
  const place = { ...box, top: box.top + 40, height: Math.min(240, box.width) };
  const plot = new Plot(pen, theme, place, {
    x: { ...cells, label: "predicted class" },
    y: { ...cells, names: ["1", "0"], label: "true class" },
    grid: false,
  });
  const most = Math.max(1, ...counts.flat());
  counts.forEach((row, i) =>
    row.forEach((count, j) => {
      const [left, top] = [plot.X(j), plot.Y(2 - i)];
      const [wide, high] = [plot.width / 2, plot.height / 2];
      const shade = 0.75 * (count / most);
      pen.fillStyle = between(theme.paper, theme.colours.blue, shade);
      pen.fillRect(left, top, wide, high);
      const colour = shade > 0.45 ? theme.paper : theme.ink;
      const middle = left + wide / 2;
      write(pen, theme, count.toLocaleString("en"), middle, top + high / 2 - 12, { align: "center", bold: true, size: 14, colour });
      NAMES[i][j].split(" ").forEach((word, line) => {
        write(pen, theme, word, middle, top + high / 2 + 6 + 14 * line, { align: "center", size: 11, colour });
      });
    }),
  );
  plot.frame();
}

// The picture of widgets.neuron(): the plane of the two inputs, the neuron's line, and the points of two classes.

const CLASSES = [
  ["blue", "o"],
  ["orange", "^"],
];

export default widget({
  height: 370,
  draw({ pen, theme, width, given, frame }) {
    const { low, high, X, y } = given;
    const { colours, paper, ink } = theme;
    const axes = (name, i) => ({ from: low[i], to: high[i], label: name });
    const narrow = width < NARROW; // then what explains the colours stands below
    const box = { left: 0, top: 0, width: narrow ? width : Math.min(width - 190, 560), height: 370 };
    const plot = new Plot(pen, theme, box, { x: axes("input x1", 0), y: axes("input x2", 1), square: true, grid: false });
    plot.grid(frame.plane, theme.ramp);
    const [x1, x2] = [column(X, 0), column(X, 1)];
    const wrong = frame.wrong.values;
    CLASSES.forEach(([colour, kind], label) => {
      const own = [...x1.keys()].filter((i) => y.values[i] === label);
      const style = { colour: colours[colour], edge: paper, size: 5 };
      plot.points(kind, own.map((i) => x1[i]), own.map((i) => x2[i]), style);
    });
    const circled = [...x1.keys()].filter((i) => wrong[i]);
    const circle = { colour: colours.red, hollow: true, size: 8, width: 2 };
    plot.points("o", circled.map((i) => x1[i]), circled.map((i) => x2[i]), circle);
    if (frame.line) {
      plot.line(column(frame.line, 0), column(frame.line, 1), { colour: ink, width: 2 });
    }
    if (frame.foot) {
      plot.arrow(frame.foot, frame.tip, ink);
      plot.text("w", ...frame.tip, { bold: true, size: 14 });
    }

    const entries = [
      { label: "class 0", colour: colours.blue, marks: "o", alone: true, size: 5 },
      { label: "class 1", colour: colours.orange, marks: "^", alone: true, size: 5 },
      { label: `wrong side: ${circled.length}`, colour: colours.red, marks: "o", hollow: true, alone: true, size: 8 },
      { label: "z = 0", colour: ink, width: 2 },
    ];
    if (narrow) return legend(pen, theme, entries, 48, plot.top + plot.height + 52, width - 48);
    const left = plot.left + plot.width + 24;
    scaleOfOutputs(pen, theme, { left, top: plot.top, width: 16, height: 150 });
    entries.forEach((entry, i) => legend(pen, theme, [entry], left - 8, plot.top + 180 + 24 * i, 200));
  },
});

// Which colour stands for which output.
function scaleOfOutputs(pen, theme, { left, top, width, height }) {
  for (let i = 0; i < height; i++) {
    pen.fillStyle = `rgb(${theme.ramp(1 - i / height)})`;
    pen.fillRect(left, top + i, width, 1.5);
  }
  pen.strokeStyle = theme.soft;
  pen.strokeRect(left, top, width, height);
  for (const value of [0, 0.5, 1]) {
    const at = top + height * (1 - value);
    write(pen, theme, String(value), left + 22, at, { base: "middle", colour: theme.soft });
  }
  write(pen, theme, "output a of the neuron", left + 60, top + height / 2, { align: "center", turn: -1 });
}

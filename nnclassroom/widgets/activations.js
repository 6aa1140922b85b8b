// The picture of widgets.activations(): the function with its tangent, and beside it the derivative.

export default widget({
  height: 320,
  draw({ pen, theme, width, given, frame }) {
    const { blue, red } = theme.colours;
    const { name, z, value, slope } = frame;
    const { values, shape } = given.curves[name];
    const count = shape[1];
    const [curve, slopes] = [values.subarray(0, count), values.subarray(count)];
    const x = { from: -5, to: 5, label: "weighted sum z" };
    const room = (numbers) => {
      const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
      return { from: low - 0.06 * (high - low || 1), to: high + 0.06 * (high - low || 1) };
    };
    const first = { x, y: { ...room(curve), label: "activation a = σ(z)" } };
    const second = { x, y: { ...room(slopes), label: "slope σ'(z)" } };
    const [left, right] = twoPlots(pen, theme, width, 292, first, second);
    left.line(given.z.values, curve, { colour: blue, width: 2 });
    left.line(column(frame.tangent, 0), column(frame.tangent, 1), { colour: red, dash: [6, 4] });
    left.points("o", [z], [value], { colour: red, size: 5 });
    right.line(given.z.values, slopes, { colour: blue, width: 2 });
    right.across("x", z, { colour: theme.soft, dash: [2, 3], width: 1 });
    right.points("o", [z], [slope], { colour: red, size: 5 });
    const half = width / 2;
    const entries = [
      { label: name, colour: blue },
      { label: `tangent at z = ${written(z)}`, colour: red, dash: [6, 4], marks: "o" },
    ];
    const own = [{ label: `slope ${written(slope)}`, colour: red, marks: "o", alone: true }];
    if (width < NARROW) return legend(pen, theme, [...entries, ...own], 48, 308, width - 48);
    legend(pen, theme, entries, 48, 308, half);
    legend(pen, theme, own, half + 48, 308, half);
  },
});

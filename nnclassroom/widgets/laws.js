// The picture of laws.laws(): speedup and efficiency over the number of devices.

export default widget({
  height: 345,
  draw({ pen, theme, width, frame }) {
    const { blue, orange } = theme.colours;
    const devices = [...frame.devices.values];
    const most = Math.max(2, devices[devices.length - 1]);
    const lowest = Math.min(...frame.strong.values);
    const x = { from: 0.9, to: 1.1 * most, label: "devices K", log: 2 };
    const speed = { from: Math.min(0.5, lowest / 1.2), to: 1.3 * most, label: "speedup", log: 2 };
    const share = { from: 0, to: 1.08, label: "efficiency, speedup / K", ticks: [0, 0.2, 0.4, 0.6, 0.8, 1] };
    const [left, right] = twoPlots(pen, theme, width, 305, { x, y: speed }, { x, y: share });
    const ideal = { colour: theme.faint, width: 4 };
    left.line(devices, devices, ideal);
    right.line(devices, devices.map(() => 1), ideal);
    const lines = [
      { label: "strong scaling", values: frame.strong.values, colour: blue, marks: "o" },
      { label: "Amdahl", values: frame.amdahl.values, colour: blue, dash: [7, 4] },
      { label: "weak scaling", values: frame.weak.values, colour: orange, marks: "s" },
      { label: "Gustafson", values: frame.gustafson.values, colour: orange, dash: [7, 4] },
    ];
    for (const { values, ...style } of lines) {
      left.line(devices, values, style);
      right.line(devices, devices.map((count, i) => values[i] / count), style);
    }
    legend(pen, theme, [{ label: "ideal", ...ideal }, ...lines], 48, 322, width);
  },
});

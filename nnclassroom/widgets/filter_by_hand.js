// The picture of filter_by_hand.widget(): the image with the filter on it, the products, and the output so far.

export default widget({
  least: 560,
  height: (width, { size }) => Math.min(1.15, (width - 8) / size[0]) * size[1] + 8,
  draw({ pen, theme, width, given, frame }) {
    const [wide] = given.size;
    const cell = given.cell;
    const size = Math.min(1.15, (width - 8) / wide);
    const { blue, orange, red } = theme.colours;
    pen.translate(4, 0);
    pen.scale(size, size);
    for (const box of frame.boxes) {
      const [left, top, across, down] = [box.x + 1, box.y + 1, box.wide - 2, cell - 2];
      pen.fillStyle = between(theme.paper, box.share < 0 ? orange : blue, Math.abs(box.share));
      pen.fillRect(left, top, across, down);
      pen.strokeStyle = box.framed ? red : theme.soft;
      pen.lineWidth = box.framed ? 3 : 1;
      pen.setLineDash(box.dashed ? [3, 3] : []);
      pen.strokeRect(left, top, across, down);
      pen.setLineDash([]);
      const middle = box.x + box.wide / 2 - (box.small ? 5 : 0);
      write(pen, theme, box.text, middle, box.y + 25, { size: 15, align: "center" });
      if (box.small) write(pen, theme, box.small, box.x + box.wide - 4, box.y + cell - 5, { size: 10, align: "right" });
    }
    const [x, y, side] = frame.window;
    pen.strokeStyle = red;
    pen.lineWidth = 3;
    pen.strokeRect(x, y, side, side);
    for (const [left, base, title] of frame.titles) write(pen, theme, title, left, base, { size: 13 });
  },
});

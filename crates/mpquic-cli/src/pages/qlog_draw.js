// Draws a log: one chart for what every path carried, and one for each path.
const BIN = 2;
const HEIGHT = { overview: 150, strip: 20, packets: 96, window: 84, rtt: 72, axis: 20, gap: 12 };

// The part of a log that is shown, as places on a canvas.
class View {
  constructor(log, width) {
    this.log = log;
    this.left = width < 560 ? 70 : 78;
    this.right = width - 10;
    this.bins = Math.max(1, Math.floor((this.right - this.left) / BIN));
    this.set(0, log.end);
  }
  set(from, to) {
    this.from = from;
    this.to = Math.max(to, from + 0.001);
    // Behind the last event that is shown.
    this.end = this.to + 1e-6;
    this.perBin = (this.to - this.from) / this.bins;
  }
  x(t) { return this.left + ((t - this.from) / (this.to - this.from)) * this.bins * BIN; }
  t(x) { return this.from + ((x - this.left) / (this.bins * BIN)) * (this.to - this.from); }
  bin(t) { return Math.min(this.bins - 1, Math.max(0, Math.floor((t - this.from) / this.perBin))); }
  // What stands for so many bytes in a bin.
  amount(value) { return this.perBin >= 2 ? rate((value * 1000) / this.perBin) : bytes(value); }
  amountTop(value) {
    if (this.perBin < 2) return roundUpBytes(value);
    const factor = 8000 / this.perBin;
    return roundUp(value * factor) / factor;
  }
}

// Bytes of packets in each bin, by fate.
function binned(view, packets) {
  const sums = [0, 1, 2, 3].map(() => new Float64Array(view.bins));
  const copies = new Uint32Array(view.bins);
  const [t, size, fate, copy] = [packets.t.values, packets.size.values, packets.fate.values, packets.copy.values];
  const end = packets.t.first(view.end);
  for (let index = packets.t.first(view.from); index < end; index += 1) {
    const bin = view.bin(t[index]);
    sums[fate[index]][bin] += size[index];
    copies[bin] += copy[index];
  }
  const total = new Float64Array(view.bins);
  for (const sum of sums) for (let bin = 0; bin < view.bins; bin += 1) total[bin] += sum[bin];
  return { sums, total, copies };
}

function largest(values, least = 0) {
  let most = least;
  for (const value of values) if (value > most) most = value;
  return most;
}

function label(context, text, x, y, align = "right", fill = "--dim") {
  context.textAlign = align;
  context.fillStyle = colour(fill);
  context.fillText(text, x, y);
}

function line(context, x0, y0, x1, y1, stroke, dash = []) {
  context.strokeStyle = stroke;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.setLineDash([]);
}

// Times below a chart, and lines up through it.
function timeAxis(context, view, top, bottom) {
  const wanted = Math.max(3, Math.floor((view.right - view.left) / 110));
  const step = roundUp((view.to - view.from) / wanted);
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = Math.round(view.x(t)) + 0.5;
    line(context, x, top, x, bottom, colour("--grid"));
    const text = time(t, step);
    const half = context.measureText(text).width / 2;
    label(context, text, Math.min(Math.max(x, view.left + half), view.right - half), bottom + 11, "center");
  }
}

// Names a lane and the top of its axis.
function gutter(context, view, top, bottom, name, most) {
  label(context, most, view.left - 6, top + 6);
  label(context, name, view.left - 6, (top + bottom) / 2 + 6, "right", "--text");
  line(context, view.left, bottom + 0.5, view.right, bottom + 0.5, colour("--line"));
}

// Stacked columns that stand on (or hang from) a line; `layers` are bytes per bin, colour and opacity.
function columns(context, view, base, height, most, layers) {
  const direction = height < 0 ? 1 : -1;
  const floor = new Float64Array(view.bins);
  for (const { values, fill, alpha, least = 1 } of layers) {
    context.fillStyle = fill;
    context.globalAlpha = alpha;
    for (let bin = 0; bin < view.bins; bin += 1) {
      if (values[bin] === 0) continue;
      const size = Math.max(least, (values[bin] / most) * Math.abs(height));
      const from = base + direction * floor[bin];
      context.fillRect(view.left + bin * BIN, direction < 0 ? from - size : from, BIN, size);
      floor[bin] += size;
    }
  }
  context.globalAlpha = 1;
}

// The samples of a series as dots; those of a bin are one, from the least to the most.
function dots(context, view, { t, v }, bottom, height, most, fill) {
  context.fillStyle = fill;
  context.globalAlpha = 0.45;
  const end = t.first(view.end);
  for (let index = t.first(view.from); index < end; ) {
    const bin = view.bin(t.values[index]);
    let [low, high] = [Infinity, 0];
    for (; index < end && view.bin(t.values[index]) === bin; index += 1) {
      [low, high] = [Math.min(low, v.values[index]), Math.max(high, v.values[index])];
    }
    const size = Math.max(2, ((high - low) / most) * height);
    context.fillRect(view.left + bin * BIN, bottom - Math.min(1, high / most) * height, BIN, size);
  }
  context.globalAlpha = 1;
}

// A series as a line; where a bin has several samples it covers them all, so that a peak is seen at any scale. A value
// holds until the next one.
function series(context, view, { t, v }, bottom, height, most, stroke, style) {
  const y = (value) => bottom - (Math.min(value, most) / most) * height;
  let index = Math.max(0, t.first(view.from) - 1);
  const end = t.first(view.end);
  if (t.length === 0 || t.values[index] > view.to) return;
  context.strokeStyle = stroke;
  context.fillStyle = stroke;
  context.globalAlpha = style.alpha ?? 1;
  context.lineWidth = 1.5;
  let x = Math.max(view.left, view.x(t.values[index]));
  let last = y(v.values[index]);
  context.beginPath();
  context.moveTo(x, last);
  const started = x;
  for (index += 1; index < end; ) {
    const bin = view.bin(t.values[index]);
    const before = last;
    let [low, high] = [Infinity, -Infinity];
    for (; index < end && view.bin(t.values[index]) === bin; index += 1) {
      const place = y(v.values[index]);
      [low, high, last] = [Math.min(low, place), Math.max(high, place), place];
    }
    const next = view.left + bin * BIN;
    context.lineTo(next, before);
    context.lineTo(next, low);
    if (high > low) context.lineTo(next, high);
    context.lineTo(next, last);
    x = next;
  }
  context.lineTo(Math.min(view.right, Math.max(x, view.x(Math.min(view.to, view.log.end)))), last);
  if (style.fill) {
    context.lineTo(view.right, bottom);
    context.lineTo(started, bottom);
    context.closePath();
    context.fill();
  } else {
    context.stroke();
  }
  context.globalAlpha = 1;
  context.lineWidth = 1;
}

function most({ t, v }, view) {
  let top = 0;
  const end = t.first(view.end);
  for (let index = Math.max(0, t.first(view.from) - 1); index < end; index += 1) top = Math.max(top, v.values[index]);
  return top;
}

// Marks and as many of their names as there is room for; the important ones first.
function marks(context, view, list, top, bottom) {
  const seen = list.filter(({ t }) => t >= view.from && t <= view.to);
  const important = (mark) => (mark.kind === "minor" ? 0 : 1);
  const ordered = seen.map((mark, index) => ({ mark, index })).sort((a, b) => important(b.mark) - important(a.mark) || a.index - b.index);
  const taken = [];
  const drawn = new Set();
  for (const { mark } of ordered) {
    const x = Math.round(view.x(mark.t)) + 0.5;
    const stroke = colour(mark.kind === "bad" ? "--c3" : "--dim");
    const place = `${x}${mark.kind}`;
    if (!drawn.has(place)) {
      drawn.add(place);
      if (mark.kind !== "minor") line(context, x, top + 13, x, bottom, stroke, [3, 3]);
      context.fillStyle = stroke;
      context.fillRect(x - 1, top + 11, 2, mark.kind === "minor" ? 4 : 7);
    }
    const text = mark.text.length > 34 ? `${mark.text.slice(0, 33)}…` : mark.text;
    const width = context.measureText(text).width;
    const from = Math.min(x - 2, view.right - width);
    if (from < view.left - 4 || taken.some(([a, b]) => from < b + 8 && from + width > a - 8)) continue;
    taken.push([from, from + width]);
    label(context, text, from, top + 5, "left", mark.kind === "bad" ? "--c3" : "--dim");
  }
}

// Which path took the packets: upwards what was sent, downwards what arrived.
function drawOverview(canvas, view, paths) {
  const { context, height } = prepare(canvas, HEIGHT.strip + HEIGHT.overview + HEIGHT.axis);
  const [top, bottom] = [HEIGHT.strip, height - HEIGHT.axis];
  timeAxis(context, view, top, bottom);
  const both = ["sent", "received"].map((way) => paths.map((path) => binned(view, path[way])));
  const tops = both.map((bins) => {
    const sum = new Float64Array(view.bins);
    for (const { total } of bins) for (let bin = 0; bin < view.bins; bin += 1) sum[bin] += total[bin];
    return largest(sum);
  });
  const scale = view.amountTop(Math.max(...tops, 1));
  const parts = tops.map((value) => Math.max(value / scale, 0.12));
  const room = bottom - top;
  const middle = Math.round(top + (room * parts[0]) / (parts[0] + parts[1]));
  const unit = room / (parts[0] + parts[1]);
  const layers = (bins) => bins.map(({ total }, index) => ({ values: total, fill: colour(colourName(paths[index].index)), alpha: 0.85 }));
  columns(context, view, middle, unit, scale, layers(both[0]));
  columns(context, view, middle + 1, -unit, scale, layers(both[1]));
  line(context, view.left, middle + 0.5, view.right, middle + 0.5, colour("--text"));
  context.fillStyle = colour("--text");
  both[0].forEach(({ copies }) => copies.forEach((n, bin) => { if (n > 0) context.fillRect(view.left + bin * BIN, middle - 3, BIN, 3); }));
  for (const [place, part, name] of [[(top + middle) / 2, parts[0], "sent"], [(middle + bottom) / 2, parts[1], "received"]]) {
    if (part * unit > 12) label(context, name, view.left - 6, place, "right", "--text");
  }
  const [way, edge] = tops[0] >= tops[1] ? [0, top + 6] : [1, bottom - 6];
  if (tops[way] > 0) label(context, view.amount(parts[way] * scale), view.left - 6, edge);
  marks(context, view, view.log.marks, 0, bottom);
}

// The lanes of one path, from the top down.
function lanes() {
  let y = HEIGHT.strip;
  const next = (name) => {
    const lane = { top: y, bottom: y + HEIGHT[name] };
    y += HEIGHT[name] + HEIGHT.gap;
    return lane;
  };
  return { packets: next("packets"), window: next("window"), rtt: next("rtt"), height: y - HEIGHT.gap + HEIGHT.axis };
}

function drawPath(canvas, view, path) {
  const { packets, window, rtt, height } = lanes();
  const { context } = prepare(canvas, height);
  const own = colour(colourName(path.index));
  timeAxis(context, view, packets.top, height - HEIGHT.axis);
  drawPackets(context, view, path, packets, own);
  const top = roundUpBytes(Math.max(most(path.flight, view), most(path.window, view)));
  gutter(context, view, window.top, window.bottom, "window", path.window.t.length + path.flight.t.length ? bytes(top) : "not logged");
  series(context, view, path.flight, window.bottom, HEIGHT.window, top, own, { fill: true, alpha: 0.35 });
  series(context, view, path.window, window.bottom, HEIGHT.window, top, own, {});
  const slow = roundUp(Math.max(most(path.latest, view), most(path.rtt, view)));
  gutter(context, view, rtt.top, rtt.bottom, "RTT", path.rtt.t.length + path.latest.t.length ? time(slow, slow) : "not logged");
  dots(context, view, path.latest, rtt.bottom, HEIGHT.rtt, slow, own);
  series(context, view, path.rtt, rtt.bottom, HEIGHT.rtt, slow, own, {});
  marks(context, view, path.marks, 0, rtt.bottom);
}

// Packets sent upwards by what became of them, those received downwards.
function drawPackets(context, view, path, lane, own) {
  const [sent, received] = [binned(view, path.sent), binned(view, path.received)];
  const tops = [largest(sent.total), largest(received.total)];
  const scale = view.amountTop(Math.max(...tops, 1));
  const parts = tops.map((value) => Math.max(value / scale, 0.12));
  const unit = (lane.bottom - lane.top) / (parts[0] + parts[1]);
  const middle = Math.round(lane.top + parts[0] * unit);
  columns(context, view, middle, unit, scale, [
    { values: sent.sums[FATE.acked], fill: own, alpha: 0.85 },
    { values: sent.sums[FATE.open], fill: own, alpha: 0.35 },
    { values: sent.sums[FATE.late], fill: colour("--c3"), alpha: 0.45 },
    { values: sent.sums[FATE.lost], fill: colour("--c3"), alpha: 1, least: 3 },
  ]);
  columns(context, view, middle + 1, -unit, scale, [{ values: received.total, fill: own, alpha: 0.55 }]);
  line(context, view.left, middle + 0.5, view.right, middle + 0.5, colour("--text"));
  const spots = [[(lane.top + middle) / 2, parts[0], "sent"], [(middle + lane.bottom) / 2, parts[1], "received"]];
  for (const [place, part, name] of spots) if (part * unit > 12) label(context, name, view.left - 6, place, "right", "--text");
  const [way, edge] = tops[0] >= tops[1] ? [0, lane.top + 4] : [1, lane.bottom - 4];
  if (tops[way] > 0) label(context, view.amount(parts[way] * scale), view.left - 6, edge);
}

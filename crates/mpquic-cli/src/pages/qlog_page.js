// The page: which log is shown, which part of it, and what is under the pointer.
const page = { logs: [], log: undefined, view: undefined, charts: [], pointer: undefined, wanted: false };

function say(text, isBad = false) {
  byId("said").textContent = text;
  byId("said").className = isBad ? "warning" : "";
}

function add(logs) {
  for (const log of logs) {
    page.logs.push(log);
    byId("logs").append(element("option", log.side ? `${log.name} (${log.side})` : log.name));
  }
  byId("which").hidden = page.logs.length < 2;
  byId("logs").selectedIndex = page.logs.length - logs.length;
  show(page.logs[page.logs.length - logs.length]);
}

function show(log) {
  page.log = log;
  byId("log").hidden = false;
  page.view = new View(log, byId("charts").clientWidth);
  describe(log);
  const charts = byId("charts");
  charts.replaceChildren();
  page.charts = [];
  const chart = (title, path) => {
    const figure = element("figure");
    const canvas = element("canvas", undefined, { tabindex: "0", role: "img", "aria-label": title });
    figure.append(element("figcaption", title), canvas);
    charts.append(figure);
    page.charts.push({ figure, canvas, path });
    listen(canvas, path);
  };
  chart("Which path took the packets: bytes sent upwards, bytes received downwards; the dots on the line are data that were under way on another path as well");
  for (const path of log.paths.values()) chart(`Path ${path.id}, ${path.address || log.started || "addresses not logged"}`, path);
  redraw();
}

// What is told in words: sums, notes, and what happened to paths.
function describe(log) {
  const paths = [...log.paths.values()];
  byId("notes").replaceChildren(...log.notes.map((note) => element("li", note)));
  const all = { sent: 0, received: 0 };
  for (const path of paths) for (const way of ["sent", "received"]) all[way] += path[way].bytes;
  byId("sums").textContent = `${log.title ? `${log.title}: ` : ""}${count(log.count)} events in ${time(log.end, 1)}; `
    + `${bytes(all.sent)} sent, ${bytes(all.received)} received over ${paths.length} ${paths.length === 1 ? "path" : "paths"}`;
  byId("paths").replaceChildren(...paths.map((path) => row(path, all)));
  const told = [...log.marks.map((mark) => ["", mark]), ...paths.flatMap((path) => path.marks.map((mark) => [`path ${path.id}`, mark]))];
  const events = told.filter(([, mark]) => mark.kind !== "minor").sort((a, b) => a[1].t - b[1].t);
  const left = paths.reduce((sum, path) => sum + path.marksLeft, 0);
  byId("events").replaceChildren(...events.slice(0, 500).map(([who, mark]) => {
    const line = element("tr", undefined, mark.kind === "bad" ? { class: "bad" } : {});
    line.append(element("td", time(mark.t, 0.1)), element("td", who), element("td", mark.text));
    return line;
  }));
  byId("told").hidden = events.length === 0;
  byId("more").textContent = events.length > 500 || left > 0 ? `${count(Math.max(0, events.length - 500) + left)} more are not listed` : "";
}

// A path's line in the table; its name hides and shows it.
function row(path, all) {
  const line = element("tr");
  const name = element("button", undefined, { "aria-pressed": "true", title: "hide or show this path" });
  const swatch = element("span", undefined, { class: "dot" });
  swatch.style.background = `var(${colourName(path.index)})`;
  name.append(swatch, `path ${path.id}`);
  name.addEventListener("click", () => {
    path.shown = !path.shown;
    name.setAttribute("aria-pressed", String(path.shown));
    redraw();
  });
  const head = element("th");
  head.append(name);
  const { sent, received } = path;
  line.append(head, ...[
    path.address || page.log?.started || "",
    `${bytes(sent.bytes)} (${share(sent.bytes, all.sent)})`,
    `${bytes(received.bytes)} (${share(received.bytes, all.received)})`,
    count(sent.t.length), count(path.acked),
    path.lost ? `${count(path.lost)} (${share(path.lost, sent.t.length)})` : "0",
    count(path.copies), count(path.dropped),
  ].map((text) => element("td", text)));
  return line;
}

function redraw() {
  if (page.wanted) return;
  page.wanted = true;
  requestAnimationFrame(() => {
    page.wanted = false;
    const { log, charts } = page;
    if (!log) return;
    const { from, to } = page.view;
    const width = byId("charts").clientWidth;
    page.view = new View(log, width);
    page.view.set(from, to);
    const shown = [...log.paths.values()].filter((path) => path.shown);
    for (const { figure, canvas, path } of charts) {
      figure.hidden = path !== undefined && !path.shown;
      if (figure.hidden) continue;
      if (path) drawPath(canvas, page.view, path);
      else drawOverview(canvas, page.view, shown);
      drawPointer(canvas);
    }
    byId("part").textContent = `${time(from, page.view.perBin)} to ${time(to, page.view.perBin)}`;
  });
}

// A line at the pointer, in every chart, or the part that is being chosen.
function drawPointer(canvas) {
  const { pointer, view } = page;
  if (!pointer) return;
  const context = canvas.getContext("2d");
  const height = canvas.clientHeight - HEIGHT.axis;
  if (pointer.start !== undefined) {
    const [a, b] = [view.x(pointer.start), pointer.x].sort((a, b) => a - b);
    context.globalAlpha = 0.15;
    context.fillStyle = colour("--text");
    context.fillRect(a, HEIGHT.strip, b - a, height - HEIGHT.strip);
    context.globalAlpha = 1;
  }
  line(context, pointer.x, HEIGHT.strip, pointer.x, height, colour("--text"));
}

// Shows a part, within the log.
function zoom(from, to) {
  const { log } = page;
  const length = Math.min(Math.max(to - from, 0.01), Math.max(log.end, 0.01));
  const start = Math.min(Math.max(from, 0), Math.max(0, log.end - length));
  page.view.set(start, start + length);
  redraw();
}

function zoomBy(factor, around) {
  const { from, to } = page.view;
  const middle = around ?? (from + to) / 2;
  zoom(middle - (middle - from) * factor, middle + (to - middle) * factor);
}

function move(part) {
  const { from, to } = page.view;
  zoom(from + part * (to - from), to + part * (to - from));
}

const STEPS = {
  "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2), 0: () => zoom(0, page.log.end),
  ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25),
};

function listen(canvas, path) {
  const place = (event) => {
    const x = event.clientX - canvas.getBoundingClientRect().left;
    return Math.min(Math.max(x, page.view.left), page.view.right);
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    canvas.setPointerCapture(event.pointerId);
    page.pointer = { x: place(event), start: page.view.t(place(event)) };
  });
  canvas.addEventListener("pointermove", (event) => {
    page.pointer = { ...page.pointer, x: place(event) };
    explain(event, path);
    redraw();
  });
  canvas.addEventListener("pointerup", () => {
    const { x, start } = page.pointer ?? {};
    if (start === undefined) return;
    page.pointer = { x };
    const ends = [start, page.view.t(x)].sort((a, b) => a - b);
    if (Math.abs(page.view.x(start) - x) > 4) zoom(...ends);
    redraw();
  });
  const leave = () => {
    page.pointer = undefined;
    byId("readout").hidden = true;
    redraw();
  };
  for (const name of ["pointerleave", "pointercancel"]) canvas.addEventListener(name, leave);
  canvas.addEventListener("dblclick", STEPS[0]);
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey) zoomBy(event.deltaY > 0 ? 1.25 : 0.8, page.view.t(place(event)));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(Math.sign(event.deltaX || event.deltaY) * 0.1);
    else return;
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    step();
  });
}

// The packets in the bin under the pointer, from the first to before the last.
function under(packets) {
  const { view, pointer } = page;
  const start = view.from + view.bin(view.t(pointer.x)) * view.perBin;
  return [packets.t.first(start), packets.t.first(start + view.perBin)];
}

// In which order paths took the packets of a bin. Those that leave in one go have one time.
function order(paths) {
  const taken = [];
  for (const path of paths) {
    const [first, end] = under(path.sent);
    for (let index = first; index < end; index += 1) taken.push([path.sent.order.values[index], path.id]);
  }
  taken.sort((a, b) => a[0] - b[0]);
  const runs = [];
  for (const [, id] of taken) {
    const last = runs[runs.length - 1];
    if (last?.id === id) last.length += 1;
    else runs.push({ id, length: 1 });
  }
  if (runs.length < 2) return [];
  const said = runs.slice(0, 24).map(({ id, length }) => (length > 1 ? `${id} (${length})` : `${id}`));
  return [`sent in this order, path and packets: ${said.join(", ")}${runs.length > 24 ? ", and so on" : ""}`];
}

// The packets of a bin in words; all that there is to say if they are few.
function packetsIn(packets, way) {
  const [first, end] = under(packets);
  if (end === first) return [];
  if (end - first <= 3) return Array.from({ length: end - first }, (_, at) => onePacket(packets, first + at, way));
  let [sum, lost] = [0, 0];
  for (let index = first; index < end; index += 1) {
    sum += packets.size.values[index];
    if (packets.fate.values[index] >= FATE.lost) lost += 1;
  }
  return [`${way} ${count(end - first)} packets, ${bytes(sum)}${lost ? `, ${count(lost)} of them declared lost` : ""}`];
}

function onePacket(packets, index, way) {
  const number = packets.number.values[index];
  const words = page.log.words[packets.words.values[index]];
  const since = time(packets.done.values[index] - packets.t.values[index], 0.001);
  const fate = way === "sent" ? [", no answer", `, acknowledged after ${since}`, `, lost after ${since}`, `, declared lost, but acknowledged after ${since}`][packets.fate.values[index]] : "";
  const copy = packets.copy.values[index] ? ", under way elsewhere as well" : "";
  return `${way} ${Number.isFinite(number) ? `#${number} ` : ""}(${count(packets.size.values[index])} B, ${words})${fate}${copy}`;
}

function explain(event, only) {
  const { view, pointer, log } = page;
  const t = view.t(pointer.x);
  const lines = [time(t, view.perBin)];
  for (const path of log.paths.values()) {
    if (!path.shown || (only && only !== path)) continue;
    const told = [...packetsIn(path.sent, "sent"), ...packetsIn(path.received, "received")];
    if (only) {
      const [window, flight, rtt, latest] = ["window", "flight", "rtt", "latest"].map((name) => path[name].at(t));
      if (window !== undefined || flight !== undefined) told.push(`in flight ${flight === undefined ? "?" : bytes(flight)} of ${window === undefined ? "?" : bytes(window)}`);
      if (rtt !== undefined || latest !== undefined) told.push(`RTT ${rtt === undefined ? "?" : time(rtt)}, the latest ${latest === undefined ? "?" : time(latest)}`);
    }
    lines.push(...told.map((text) => (only ? text : `path ${path.id}: ${text}`)));
  }
  if (!only) lines.push(...order([...log.paths.values()].filter((path) => path.shown)));
  const near = (mark) => Math.abs(view.x(mark.t) - pointer.x) < 4;
  lines.push(...(only ? only.marks : log.marks).filter(near).slice(0, 6).map((mark) => `${time(mark.t, 0.1)}: ${mark.text}`));
  const readout = byId("readout");
  readout.replaceChildren(...lines.map((text) => element("div", text)));
  readout.hidden = false;
  const { width, height } = readout.getBoundingClientRect();
  const x = event.clientX + 14 + width > innerWidth ? event.clientX - width - 14 : event.clientX + 14;
  readout.style.left = `${Math.max(4, x)}px`;
  readout.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 4))}px`;
}

async function open(files) {
  for (const file of files) {
    try {
      say(`reading ${file.name}`);
      add(await readFile(file, (part) => say(`reading ${file.name}: ${Math.round(part * 100)} %`)));
      say("");
    } catch (error) {
      say(`${file.name}: ${error.message}`, true);
      return;
    }
  }
}

function begin() {
  byId("file").addEventListener("change", (event) => open(event.target.files));
  byId("logs").addEventListener("change", (event) => show(page.logs[event.target.selectedIndex]));
  for (const button of document.querySelectorAll("[data-step]")) button.addEventListener("click", () => STEPS[button.dataset.step]());
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    open(event.dataTransfer.files);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(redraw).observe(byId("charts"));
  const embedded = [];
  for (const script of document.querySelectorAll('script[type="application/qlog+json-seq"]')) {
    const reader = new Reader(script.dataset.name);
    try {
      reader.push(script.textContent);
      embedded.push(reader.finish());
    } catch (error) {
      say(`${script.dataset.name}: ${error.message}`, true);
    }
    script.remove();
  }
  if (embedded.length > 0) {
    add(embedded);
    byId("logs").selectedIndex = 0;
    show(embedded[0]);
  }
}
begin();

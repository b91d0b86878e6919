// Asks the server once a second how its paths are, and remembers two minutes of it.
const MEMORY = 120;
const PERIOD = 1000;
const known = new Map();
let lastAnswer;

// Takes in how a connection is now.
function look(connection, now) {
  const before = known.get(connection.number);
  const paths = new Map();
  for (const path of connection.paths) {
    const old = before?.paths.get(path.id);
    const seconds = old ? (now - old.at) / 1000 : 0;
    const since = (name) => (old && seconds > 0 ? Math.max(0, path[name] - old.path[name]) / seconds : 0);
    const rates = { sent: since("bytes_sent"), received: since("bytes_received"), lost: since("lost"), packets: since("packets_sent") };
    const samples = [...(old?.samples ?? []), { at: now, carried: rates.sent + rates.received, rtt: path.rtt_ms }].slice(-MEMORY);
    paths.set(path.id, { path, at: now, rates, samples });
  }
  known.set(connection.number, { paths, shown: before?.shown });
}

function show(answer, now) {
  const numbers = new Set(answer.connections.map((connection) => connection.number));
  for (const number of known.keys()) {
    if (numbers.has(number)) continue;
    known.get(number).shown?.section.remove();
    known.delete(number);
  }
  for (const connection of answer.connections) look(connection, now);
  const left = answer.open - answer.connections.length;
  byId("said").textContent = `${count(answer.open)} open ${answer.open === 1 ? "connection" : "connections"}`
    + `${left > 0 ? `; the ${count(answer.connections.length)} that have carried most are shown` : ""}, at ${new Date(now).toLocaleTimeString()}`;
  byId("said").className = "";
  for (const { number } of answer.connections) showConnection(number, known.get(number), now);
}

// A connection's part of the page.
function frame(number) {
  const section = element("section");
  const head = element("tr");
  head.append(...["", "from", "to", "state", "sent", "received", "share", "RTT", "in flight of window", "lost"].map((name) => element("th", name)));
  const [table, top, body, wide] = ["table", "thead", "tbody", "div"].map((tag) => element(tag));
  top.append(head);
  table.className = "numbers";
  table.append(top, body);
  wide.className = "wide";
  wide.append(table);
  const charts = element("div", undefined, { class: "charts" });
  const [carried, rtt] = ["carried", "round trips"].map((name) => {
    const figure = element("figure");
    const canvas = element("canvas", undefined, { role: "img", "aria-label": `${name} of connection ${number}` });
    figure.append(canvas);
    charts.append(figure);
    return canvas;
  });
  section.append(element("h3", `Connection ${number}`), wide, charts);
  byId("connections").append(section);
  return { section, body, carried, rtt };
}

function showConnection(number, connection, now) {
  connection.shown ??= frame(number);
  const { body, carried, rtt } = connection.shown;
  const paths = [...connection.paths.values()];
  const all = paths.reduce((sum, { rates }) => sum + rates.sent + rates.received, 0);
  body.replaceChildren(...paths.map(({ path, rates }) => {
    const line = element("tr");
    const name = element("th");
    const dot = element("span", undefined, { class: "dot" });
    dot.style.background = `var(${colourName(path.id)})`;
    name.append(dot, `path ${path.id}`);
    const lost = path.lost ? `${count(path.lost)} (${share(path.lost, path.packets_sent)})` : "0";
    const now = all > 0 ? share(rates.sent + rates.received, all) : "";
    line.append(name, ...[
      path.local, path.network, path.state, rate(rates.sent), rate(rates.received), now, time(path.rtt_ms, 0.01),
      `${bytes(path.in_flight)} of ${bytes(path.window)}`, lost,
    ].map((text, index) => element("td", text, index === 2 && path.state === "suspect" ? { class: "bad" } : {})));
    return line;
  }));
  drawCarried(carried, paths, now);
  drawRtt(rtt, paths, now);
}

// The axes of a chart of the last two minutes.
function begin(canvas, top) {
  const { context, width, height } = prepare(canvas, 130);
  const [left, right, bottom] = [6, width - 6, height - 18];
  context.fillStyle = colour("--dim");
  context.textAlign = "left";
  context.fillText(top, left, 7);
  for (const [seconds, align] of [[0, "right"], [60, "center"], [120, "left"]]) {
    const x = right - (seconds / 120) * (right - left);
    context.textAlign = align;
    context.fillText(seconds === 0 ? "now" : `${seconds} s ago`, x, height - 8);
    context.fillStyle = colour("--grid");
    context.fillRect(Math.round(x), 16, 1, bottom - 16);
    context.fillStyle = colour("--dim");
  }
  const x = (at, now) => Math.max(left, right - ((now - at) / (MEMORY * PERIOD)) * (right - left));
  return { context, x, left, right, bottom, height: bottom - 16 };
}

// What each path carried, one upon the other.
function drawCarried(canvas, paths, now) {
  const sums = new Map();
  for (const { samples } of paths) for (const { at, carried } of samples) sums.set(at, (sums.get(at) ?? 0) + carried);
  const top = roundUp(Math.max(...sums.values(), 125) * 8) / 8;
  const { context, x, left, right, bottom, height } = begin(canvas, `carried, up to ${rate(top)}`);
  const floor = new Map();
  const width = Math.max(1, (right - left) / MEMORY);
  for (const { path, samples } of paths) {
    context.fillStyle = colour(colourName(path.id));
    context.globalAlpha = 0.85;
    for (const { at, carried } of samples) {
      const size = (carried / top) * height;
      const under = floor.get(at) ?? 0;
      context.fillRect(x(at, now) - width, bottom - under - size, width + 0.5, size);
      floor.set(at, under + size);
    }
  }
  context.globalAlpha = 1;
}

function drawRtt(canvas, paths, now) {
  const top = roundUp(Math.max(...paths.flatMap(({ samples }) => samples.map(({ rtt }) => rtt)), 0.1));
  const { context, x, bottom, height } = begin(canvas, `round trips, up to ${time(top, top)}`);
  for (const { path, samples } of paths) {
    context.strokeStyle = colour(colourName(path.id));
    context.lineWidth = 1.6;
    context.beginPath();
    for (const { at, rtt } of samples) context.lineTo(x(at, now), bottom - (rtt / top) * height);
    context.stroke();
  }
}

async function ask() {
  try {
    const answer = await fetch("paths.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    lastAnswer = Date.now();
    show(await answer.json(), lastAnswer);
  } catch (error) {
    const since = lastAnswer ? ` since ${new Date(lastAnswer).toLocaleTimeString()}` : "";
    byId("said").textContent = `no answer${since} (${error.message}); trying again`;
    byId("said").className = "warning";
  }
  setTimeout(ask, PERIOD);
}
ask();

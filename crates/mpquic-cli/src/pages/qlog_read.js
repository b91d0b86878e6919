// Reads a qlog: a JSON text sequence (.sqlog, RFC 7464), or one object with `traces` (.qlog). All that the page
// shows of it is kept in columns, so that a million packets are some tens of megabytes.
const LIMITS = {
  packets: 4_000_000, points: 4_000_000, paths: 64, marks: 2_000, words: 2_000, notes: 50, line: 8 << 20, whole: 256 << 20,
  copies: 2_000_000,
};
const FATE = { open: 0, acked: 1, lost: 2, late: 3 };

// Numbers that grow by one at a time.
class Column {
  constructor(Type) {
    this.values = new Type(64);
    this.length = 0;
  }
  push(value) {
    if (this.length === this.values.length) {
      const larger = new this.values.constructor(this.length * 2);
      larger.set(this.values);
      this.values = larger;
    }
    this.values[this.length] = value;
    this.length += 1;
  }
  // The first index whose value is not below; the values do not fall.
  first(value) {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.values[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

class Series {
  constructor() {
    this.t = new Column(Float64Array);
    this.v = new Column(Float64Array);
  }
  push(t, v) {
    this.t.push(t);
    this.v.push(v);
  }
  // The value that holds at a time.
  at(t) {
    let index = this.t.first(t);
    if (index === this.t.length || this.t.values[index] > t) index -= 1;
    return index < 0 ? undefined : this.v.values[index];
  }
}

class Packets {
  constructor() {
    this.t = new Column(Float64Array);
    this.size = new Column(Uint32Array);
    this.number = new Column(Float64Array);
    this.words = new Column(Uint16Array);
    this.fate = new Column(Uint8Array);
    this.done = new Column(Float64Array);
    // 1 if it carries what was sent on another path before and is not known to be lost there.
    this.copy = new Column(Uint8Array);
    // How many packets the log had before, on any path.
    this.order = new Column(Uint32Array);
    this.bytes = 0;
  }
  push(t, size, number, words, order, copy) {
    this.t.push(t);
    this.size.push(size);
    this.number.push(number);
    this.words.push(words);
    this.fate.push(FATE.open);
    this.done.push(t);
    this.copy.push(copy ? 1 : 0);
    this.order.push(order);
    this.bytes += size;
    return this.t.length - 1;
  }
}

// A packet number space: finds the packets that are acknowledged, and passes over those that were.
class Space {
  constructor() {
    this.number = new Column(Float64Array);
    this.index = new Column(Uint32Array);
    this.next = new Column(Uint32Array);
  }
  add(number, index) {
    const { length } = this.number;
    if (length > 0 && number <= this.number.values[length - 1]) return;
    this.number.push(number);
    this.index.push(index);
    this.next.push(length);
  }
  // The first at or behind this place that is not acknowledged.
  open(place) {
    const next = this.next.values;
    let end = place;
    while (end < this.next.length && next[end] !== end) end = next[end];
    while (place < end) [next[place], place] = [end, next[place]];
    return end;
  }
  acknowledge(low, high, done) {
    for (let place = this.open(this.number.first(low)); place < this.number.length; place = this.open(place)) {
      if (this.number.values[place] > high) return;
      this.next.values[place] = place + 1;
      done(this.index.values[place]);
    }
  }
  find(number) {
    const place = this.number.first(number);
    return place < this.number.length && this.number.values[place] === number ? this.index.values[place] : undefined;
  }
}

class Path {
  constructor(id, index) {
    Object.assign(this, { id, index, shown: true, address: "", marks: [], marksLeft: 0, silent: false });
    this.sent = new Packets();
    this.received = new Packets();
    this.spaces = new Map();
    [this.window, this.flight, this.rtt, this.latest] = [1, 2, 3, 4].map(() => new Series());
    Object.assign(this, { acked: 0, lost: 0, copies: 0, dropped: 0 });
  }
  space(type) {
    const name = type === "initial" || type === "handshake" ? type : "data";
    if (!this.spaces.has(name)) this.spaces.set(name, new Space());
    return this.spaces.get(name);
  }
  mark(t, text, kind = "") {
    if (this.marks.length < LIMITS.marks) this.marks.push({ t, text, kind });
    else this.marksLeft += 1;
  }
}

class Log {
  constructor(name) {
    Object.assign(this, { name, side: "", title: "", notes: [], marks: [], count: 0, start: 0, end: 0 });
    Object.assign(this, { last: undefined, first: undefined, format: "", words: [""], packets: 0, points: 0 });
    this.paths = new Map();
    this.wordIndex = new Map([["", 0]]);
    this.noted = new Set();
    this.streams = new Map();
    this.copies = 0;
  }
  note(text) {
    if (this.noted.has(text) || this.noted.size === LIMITS.notes) return;
    this.noted.add(text);
    this.notes.push(text);
  }
  mark(t, text, kind) {
    if (this.marks.length < LIMITS.marks) this.marks.push({ t, text, kind });
  }
  path(id) {
    id = Number.isInteger(id) && id >= 0 ? id : 0;
    if (!this.paths.has(id)) {
      if (this.paths.size === LIMITS.paths) {
        this.note(`only the first ${LIMITS.paths} paths are shown`);
        return undefined;
      }
      this.paths.set(id, new Path(id, this.paths.size));
    }
    return this.paths.get(id);
  }
  // The words for a packet's frames; there are few that differ.
  wordsOf(type, frames) {
    const names = new Map();
    for (const frame of Array.isArray(frames) ? frames.slice(0, 64) : []) {
      const name = String(frame?.frame_type ?? "?").slice(0, 40);
      names.set(name, (names.get(name) || 0) + 1);
    }
    const list = [...names].slice(0, 8).map(([name, n]) => (n > 1 ? `${n} ${name}` : name));
    const text = `${String(type ?? "").slice(0, 20)}: ${list.join(", ")}`;
    let index = this.wordIndex.get(text);
    if (index === undefined) {
      if (this.words.length >= LIMITS.words) return 0;
      index = this.words.push(text) - 1;
      this.wordIndex.set(text, index);
    }
    return index;
  }
  head(record) {
    const trace = record.trace ?? record;
    const common = trace.common_fields ?? {};
    this.side = String(trace.vantage_point?.type ?? trace.vantage_point?.name ?? "");
    this.title = String(record.title ?? trace.title ?? "");
    this.format = String(common.time_format ?? record.time_format ?? "");
    this.common = common;
  }
  // Milliseconds since the first event.
  time(record) {
    const said = Number(record.time);
    if (!Number.isFinite(said)) return undefined;
    let now = said;
    if (/previous|delta/.test(this.format)) now = (this.last ?? 0) + said;
    this.last = now;
    this.first ??= now;
    return Math.max(now - this.first, this.end);
  }
  event(record) {
    const t = this.time(record);
    if (t === undefined || typeof record.name !== "string") return;
    this.end = Math.max(this.end, t);
    this.count += 1;
    const name = record.name.slice(record.name.indexOf(":") + 1);
    const data = record.data;
    if (typeof data !== "object" || data === null) return;
    const tuple = String(record.tuple ?? data.tuple_id ?? "");
    const id = data.header?.path_id ?? data.path_id ?? (/^\d+/.test(tuple) ? parseInt(tuple, 10) : 0);
    if (Object.hasOwn(EVENTS, name)) EVENTS[name].call(this, t, data, id, tuple);
  }
  // Whether a packet's stream data were sent on another path; and takes note of it.
  isCopy(path, index, frames) {
    let is = false;
    for (const frame of Array.isArray(frames) ? frames : []) {
      if (frame?.frame_type !== "stream") continue;
      if (!this.streams.has(frame.stream_id) && this.copies < LIMITS.copies) this.streams.set(frame.stream_id, new Map());
      const sent = this.streams.get(frame.stream_id);
      if (!sent) continue;
      const before = sent.get(frame.offset);
      if (before && before.path !== path) is ||= before.path.sent.fate.values[before.index] !== FATE.lost;
      if (before || this.copies < LIMITS.copies) {
        if (!before) this.copies += 1;
        sent.set(frame.offset, { path, index });
      }
    }
    return is;
  }
  acknowledge(t, path, type, ranges) {
    const { sent } = path;
    for (const range of Array.isArray(ranges) ? ranges : []) {
      if (!Array.isArray(range)) continue;
      const [low, high] = [Number(range[0]), Number(range[range.length - 1])];
      path.space(type).acknowledge(low, high, (index) => {
        const was = sent.fate.values[index];
        sent.fate.values[index] = was === FATE.lost ? FATE.late : FATE.acked;
        sent.done.values[index] = t;
        path.acked += 1;
      });
    }
  }
  finish() {
    this.streams = new Map();
    const paths = [...this.paths.values()].sort((a, b) => a.id - b.id);
    paths.forEach((path, index) => { path.index = index; });
    this.paths = new Map(paths.map((path) => [path.id, path]));
    if (this.count === 0) this.note("no event is in it");
    return this;
  }
}

const address = (end) => {
  if (!end) return "?";
  const ip = end.ip_v4 ?? (end.ip_v6 === undefined ? undefined : `[${end.ip_v6}]`);
  return ip === undefined ? "?" : `${ip}${end.port_v4 ?? end.port_v6 ? `:${end.port_v4 ?? end.port_v6}` : ""}`;
};
const quote = (text) => String(text).slice(0, 200);

// What each event means; `this` is the log.
const EVENTS = {
  packet_sent(t, data, id) {
    const path = this.path(id);
    if (!path || !this.room()) return;
    const { header = {}, raw = {} } = data;
    const number = Number(header.packet_number);
    const copy = this.isCopy(path, path.sent.t.length, data.frames);
    const words = this.wordsOf(header.packet_type, data.frames);
    const index = path.sent.push(t, Number(raw.length) || 0, number, words, this.packets, copy);
    if (copy) path.copies += 1;
    if (Number.isFinite(number)) path.space(header.packet_type).add(number, index);
    this.frames(t, data.frames, "");
  },
  packet_received(t, data, id) {
    const path = this.path(id);
    if (!path || !this.room()) return;
    const { header = {}, raw = {} } = data;
    const words = this.wordsOf(header.packet_type, data.frames);
    path.received.push(t, Number(raw.length) || 0, Number(header.packet_number), words, this.packets, false);
    for (const frame of Array.isArray(data.frames) ? data.frames : []) {
      const type = frame?.frame_type;
      if (type !== "ack" && type !== "path_ack") continue;
      const about = type === "path_ack" ? this.path(frame.path_id) : path;
      if (about) this.acknowledge(t, about, type === "ack" ? header.packet_type : "1RTT", frame.acked_ranges);
    }
    this.frames(t, data.frames, "peer: ");
  },
  packet_lost(t, data, id) {
    const path = this.path(id);
    if (!path) return;
    path.lost += 1;
    const index = path.space(data.header?.packet_type).find(Number(data.header?.packet_number));
    if (index === undefined || path.sent.fate.values[index] !== FATE.open) return;
    path.sent.fate.values[index] = FATE.lost;
    path.sent.done.values[index] = t;
  },
  packet_dropped(t, data, id) {
    const path = this.path(id);
    if (path) path.dropped += 1;
  },
  recovery_metrics_updated(t, data, id) {
    const path = this.path(id);
    if (!path) return;
    const named = [["congestion_window", "window"], ["bytes_in_flight", "flight"], ["smoothed_rtt", "rtt"], ["latest_rtt", "latest"]];
    for (const [name, series] of named) {
      if (!Number.isFinite(data[name])) continue;
      if (this.points === LIMITS.points) return this.note("the rest of the measurements is left out: there are too many");
      this.points += 1;
      path[series].push(t, data[name]);
    }
    if (data.pto_count > 0) path.mark(t, `probe timeout ${data.pto_count}`, "minor");
  },
  tuple_assigned(t, data, id, tuple) {
    const path = this.path(id);
    if (!path) return;
    const between = `${address(data.tuple_local)} to ${address(data.tuple_remote)}`;
    path.mark(t, path.address ? `moved: ${between}` : "opened");
    path.address = between;
  },
  path_updated(t, data, id) {
    const path = this.path(id);
    const why = data.error === undefined ? "" : ` (${quote(data.error)}${data.initiator === "remote" ? ", by the peer" : ""})`;
    const change = quote(data.change);
    const kind = /^(suspect|abandoned)$/.test(change) ? "bad" : /^peer_/.test(change) ? "minor" : "";
    path?.mark(t, change.replace("_", " ") + why, kind);
  },
  mtu_updated(t, data, id) { this.path(id)?.mark(t, `MTU ${quote(data.new)}`, "minor"); },
  ecn_state_updated(t, data, id) { this.path(id)?.mark(t, `ECN ${quote(data.new)}`, "minor"); },
  careful_resume_phase_updated(t, data, id) { this.path(id)?.mark(t, `resume: ${quote(data.new)}`, "minor"); },
  congestion_state_updated(t, data, id) { this.path(id)?.mark(t, quote(data.new), "minor"); },
  connection_started(t, data) {
    const path = this.path(0);
    if (path && !path.address && data.local) this.started = `${address(data.local)} to ${address(data.remote)}`;
  },
  connection_closed(t, data) {
    const said = [data.trigger, data.connection_error ?? data.connection_code, data.reason].filter((word) => word !== undefined && word !== "");
    this.mark(t, `closed: ${quote(said.join(", "))}`, "bad");
  },
  warning(t, data) { this.note(quote(data.message)); },
};
EVENTS.metrics_updated = EVENTS.recovery_metrics_updated;

// False once there are more packets than can be shown.
Log.prototype.room = function room() {
  if (this.packets < LIMITS.packets) {
    this.packets += 1;
    return true;
  }
  this.note(`only the first ${count(LIMITS.packets)} packets are shown`);
  return false;
};

const FRAMES = new Map([["path_status_backup", "backup"], ["path_status_available", "available"], ["path_abandon", "PATH_ABANDON"]]);

// What frames say of paths, where no event does.
Log.prototype.frames = function frames(t, list, who) {
  for (const frame of Array.isArray(list) ? list : []) {
    const named = FRAMES.get(frame?.frame_type);
    if (named) this.path(frame.path_id)?.mark(t, who + named, "minor");
    if (frame?.frame_type === "connection_close") {
      this.mark(t, `${who}CONNECTION_CLOSE ${quote(frame.reason ?? frame.error ?? "")}`.trim(), "bad");
    }
  }
};

// Takes pieces of a text sequence, and makes a log of its records.
class Reader {
  constructor(name) {
    this.log = new Log(name);
    Object.assign(this, { rest: "", line: 0, begun: false, wrong: "", contained: false });
  }
  push(piece) {
    const lines = (this.rest + piece).split("\n");
    this.rest = lines.pop();
    for (const line of lines) this.take(line);
    if (this.rest.length > LIMITS.line && !this.contained) throw new Error(`line ${this.line + 1} is longer than ${bytes(LIMITS.line)}`);
  }
  take(line) {
    this.line += 1;
    const text = line.replaceAll("\u001e", "").trim();
    if (text === "") return;
    if (this.wrong) throw new Error(this.wrong);
    let record;
    try {
      record = JSON.parse(text);
    } catch (error) {
      // The last line may be cut short.
      this.wrong = `line ${this.line} is damaged: ${error.message}`;
      return;
    }
    if (typeof record !== "object" || record === null) throw new Error(`line ${this.line} is no object`);
    if (!this.begun) {
      this.begun = true;
      this.log.head(record);
      if (record.name === undefined) return;
    }
    this.log.event(record);
  }
  finish() {
    if (this.rest.trim()) this.take(this.rest);
    if (this.wrong) {
      if (!this.begun) throw new Error(`no qlog: ${this.wrong}`);
      this.log.note(`the last line is cut short`);
    }
    if (!this.begun) throw new Error("no qlog: it is empty");
    return this.log.finish();
  }
}

// The logs of one object with traces.
function contained(name, text) {
  let whole;
  try {
    whole = JSON.parse(text);
  } catch (error) {
    throw new Error(`no qlog: ${error.message}; a .qlog is one JSON object, a .sqlog has one in each line`);
  }
  const traces = Array.isArray(whole?.traces) ? whole.traces : [];
  if (traces.length === 0) throw new Error("no qlog: it has no `traces`");
  return traces.map((trace, index) => {
    const log = new Log(traces.length > 1 ? `${name} ${index + 1}` : name);
    log.head(trace ?? {});
    for (const event of Array.isArray(trace?.events) ? trace.events : []) if (event) log.event(event);
    return log.finish();
  });
}

// Whether a file that begins like this has a record in each line.
function isSequence(start) {
  if (start.startsWith("\u001e")) return true;
  try {
    return JSON.parse(start.split("\n", 1)[0]).traces === undefined;
  } catch {
    return false;
  }
}

// The logs of a file that the user chose; `progress` hears how far it is.
async function readFile(file, progress) {
  if (!isSequence(await file.slice(0, 1 << 16).text())) {
    if (file.size > LIMITS.whole) throw new Error(`${bytes(file.size)} in one object; ${bytes(LIMITS.whole)} is the most`);
    return contained(file.name, await file.text());
  }
  const reader = new Reader(file.name);
  const source = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let done = 0;
  for (;;) {
    const piece = await source.read();
    if (piece.done) return [reader.finish()];
    reader.push(piece.value);
    done += piece.value.length;
    progress(done / file.size);
  }
}

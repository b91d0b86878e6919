"use strict";
// What both pages need: elements, canvases, words for figures, scales. Text is only ever set as text, never as markup.
const byId = (id) => document.getElementById(id);

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// Paths have these colours of the style, in this order; c3 is for losses.
const COLOURS = ["--c0", "--c1", "--c2", "--c4", "--c5", "--c6", "--c7"];
const colourName = (index) => COLOURS[index % COLOURS.length];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A canvas as sharp as the screen, cleared, in units of the page.
function prepare(canvas, height) {
  const width = canvas.clientWidth;
  const ratio = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  return { context, width, height };
}

function scaled(value, units, step) {
  let unit = 0;
  while (value >= step * 0.9995 && unit + 1 < units.length) {
    value /= step;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${Number(value.toFixed(digits))} ${units[unit]}`;
}
const bytes = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const rate = (bytesPerSecond) => scaled(bytesPerSecond * 8, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], 1000);
const count = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u2009");
const share = (part, whole) => `${Number(((100 * part) / Math.max(whole, 1e-9)).toFixed(1))} %`;

// Milliseconds; `grain` is what the reader can tell apart.
function time(milliseconds, grain = 0.001) {
  const size = Math.abs(milliseconds);
  if (size >= 1000 || (size === 0 && grain >= 1000)) {
    const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(grain / 1000))));
    return `${(milliseconds / 1000).toFixed(digits)} s`;
  }
  const digits = Math.min(3, Math.max(0, Math.ceil(-Math.log10(grain))));
  return `${milliseconds.toFixed(digits)} ms`;
}

// 1, 2 or 5 times a power of ten: the smallest that is not below.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 2, 5, 10].find((factor) => factor * power >= value * 0.999999);
  return (factor || 10) * power;
}

// An axis that ends at a multiple of 1024 where figures are bytes.
function roundUpBytes(value) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(value, 1)) / Math.log(1024)));
  const rounded = roundUp(value / unit);
  return (rounded >= 1000 ? 1024 : rounded) * unit;
}

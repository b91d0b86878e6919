// A name in a legend hides and shows its contender in all charts of its section; while the pointer is on it,
// the others are faint.
for (const button of document.querySelectorAll(".legend button")) {
  const others = () => button.closest("section").querySelectorAll("[data-s]");
  const mine = (part) => part.dataset.s === button.dataset.s;
  button.addEventListener("click", () => {
    const hidden = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(hidden === false));
    for (const part of others()) if (mine(part)) part.classList.toggle("off", hidden);
  });
  const faint = (is) => {
    for (const part of others()) part.classList.toggle("faint", is ? mine(part) === false : false);
  };
  button.addEventListener("pointerenter", () => faint(true));
  button.addEventListener("pointerleave", () => faint(false));
}
// Where the pointer is in a chart, the values there.
for (const chart of document.querySelectorAll("svg[data-x]")) {
  const [left, right, low, high, log] = chart.dataset.x.split(" ").map(Number);
  const [bottom, top, least, most, logY] = chart.dataset.y.split(" ").map(Number);
  const value = (from, to, a, b, isLog, at) => {
    const share = (at - from) / (to - from);
    return isLog ? a * (b / a) ** share : a + (b - a) * share;
  };
  const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
  text.setAttribute("class", "readout");
  text.setAttribute("y", "9");
  chart.append(text);
  chart.addEventListener("pointermove", (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
    const inside = point.x >= left ? (right >= point.x ? bottom >= point.y : false) : false;
    const show = (number) => Number(number.toPrecision(3));
    text.setAttribute("x", left + 4);
    text.textContent = inside
      ? show(value(left, right, low, high, log, point.x)) + " | " + show(value(bottom, top, least, most, logY, point.y))
      : "";
  });
  chart.addEventListener("pointerleave", () => { text.textContent = ""; });
}

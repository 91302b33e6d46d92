"use strict";
// The table of rows, and pictures of the chosen one. Names and texts come from outside: they are set as text, only ever.

const data = JSON.parse(document.getElementById("data").textContent);
const INTERVAL_NOTE = "Thin bars and ±: 95 % intervals. Hatched: the interval includes 0.";
const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key === "style") Object.assign(made.style, value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function drawn(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

// Numbers with some digits that count, as in figures and in Python: dasp.formatting.
function number(value, { signed = false, digits = 3 } = {}) {
  if (value === null || value === undefined || !isFinite(value)) return "missing";
  const size = Math.abs(value), near = Number(size.toPrecision(digits));
  let text;
  if (size === 0) text = "0";
  else if (near >= 10 ** digits && near < 1e6) text = size.toFixed(0);
  else if (near < 1e-4 || near >= 1e6) text = size.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e").replace("e-", "e−");
  else text = String(near);
  return (value < 0 ? "−" : signed && size > 0 ? "+" : "") + text;
}

function within(value, half) {
  if (half === null || half === undefined) return number(value, { signed: true });
  if (!half || !value) return `${number(value, { signed: true })} ± ${number(half, { digits: 2 })}`;
  const digits = Math.floor(Math.log10(Math.abs(value))) - Math.floor(Math.log10(half)) + 2;
  const shown = digits > 0 ? number(value, { signed: true, digits: Math.min(digits, 4) }) : "0";
  return `${shown} ± ${number(half, { digits: 2 })}`;
}

// A long name may go on in the next line behind one of these.
const breakable = (name) => name.split(/(?<=[_./:-])/).flatMap((part) => [document.createElement("wbr"), part]).slice(1);

// The largest of many, or 0. (Math.max takes no more arguments than there is room for.)
const largest = (numbers) => numbers.reduce((most, one) => Math.max(most, one), 0);

const unsure = (value, half) => half > 0 && Math.abs(value) <= half;
const percent = (fraction) => `${(100 * fraction).toFixed(2)}%`;

// Red where a value raises the output, blue where it lowers it; black text can be read on all of it.
const SCALE = [[67, 147, 195], [146, 197, 222], [209, 229, 240], [247, 247, 247], [253, 219, 199], [244, 165, 130], [225, 120, 98]];

function mixed(scale, fraction) {
  const place = Math.max(0, Math.min(1, fraction)) * (scale.length - 1), low = Math.min(Math.floor(place), scale.length - 2);
  return `rgb(${scale[low].map((part, i) => Math.round(part + (place - low) * (scale[low + 1][i] - part))).join(",")})`;
}

const shade = (fraction) => mixed(SCALE, (fraction + 1) / 2);

// The waterfall of one row: from the base value, by what every player adds, to base + values.

function label(part) {
  return typeof part[0] === "number" ? data.players[part[0]] : part[0];
}

function waterfall(row) {
  if (row.total === null || row.base === null || row.parts.some((part) => part[1] === null)) {
    return element("p", { class: "warning" }, "Some values of this row are not finite, so they cannot be drawn.");
  }
  const parts = row.parts.map((part) => ({ name: label(part), value: part[1], half: part[2], data: part[3] }));
  if (row.others) parts.push({ name: `${row.others[0].toLocaleString("en")} others`, value: row.others[1], half: row.others[2], data: "" });
  let end = row.total;
  const total = end, reach = [row.base, total];
  for (const part of parts) {  // the largest on top, where the bars end
    part.end = end;
    part.start = end - part.value;
    reach.push(part.start, part.end, part.end - (part.half || 0), part.end + (part.half || 0));
    end = part.start;
  }
  const low = Math.min(...reach), span = Math.max(...reach) - low || Math.abs(low) || 1;
  const place = (x) => percent(0.02 + 0.96 * (x - low) / span);
  const line = (name, detail, track, told, kind) => element("tr", { class: kind },
    element("th", { scope: "row" }, element("bdi", {}, ...breakable(name)), detail ? element("span", { class: "data" }, " = ", element("bdi", {}, detail)) : null),
    element("td", { class: "wide" }, track), element("td", { class: "number" }, told));
  const marks = () => [row.base, total].map((x) => element("span", { class: "mark", style: { left: place(x) } }));
  const lines = parts.map((part) => {
    const kind = `bar ${part.value >= 0 ? "up" : "down"}${unsure(part.value, part.half) ? " unsure" : ""}`;
    const [from, to] = [Math.min(part.start, part.end), Math.max(part.start, part.end)];
    const track = element("div", { class: "track" }, ...marks(),
      element("span", { class: kind, style: { left: place(from), width: percent(0.96 * (to - from) / span) } }));
    if (part.half) track.append(element("span", { class: "whisker", style: { left: place(part.end - part.half), width: percent(0.96 * 2 * part.half / span) } }));
    return line(part.name, part.data, track, within(part.value, part.half || null), "");
  });
  const ends = (name, x) => line(name, "", element("div", { class: "track" }, ...marks()), number(x, { digits: 4 }), "ends");
  const known = row.parts.some((part) => part[2] !== null), exact = row.parts.every((part) => part[2] === 0);
  return element("div", {},
    element("table", { class: "bars", "aria-label": "What every input adds, from the base value to the output" },
      element("tbody", {}, ends(Math.abs(row.gap) < 1e-3 * (Math.abs(total - row.base) || 1) ? "prediction" : "base + values", total), ...lines, ends("base value", row.base))),
    element("p", { class: "note" }, 
      exact ? "The values are exact." : !known ? "No error bars: this method does not know its errors." : INTERVAL_NOTE,
      !exact && known && row.others ? " The interval of all others together takes their errors as independent." : null));
}

// The largest interactions of two players in one row, from the line of 0.

function couples(row) {
  if (!row.pairs) return element("p", { class: "note" }, "The interactions of pairs of inputs are not known of this row.");
  if (!row.pairs.length) return element("p", { class: "note" }, "No two inputs interact in this row.");
  const reach = largest(row.pairs.map(([, , value, half]) => Math.abs(value) + (half || 0))) || 1;
  const place = (x) => percent(0.5 + 0.48 * x / reach), known = row.pairs.some((pair) => pair[3]);
  const lines = row.pairs.map(([one, other, value, half]) => {
    const kind = `bar ${value >= 0 ? "up" : "down"}${unsure(value, half) ? " unsure" : ""}`;
    const track = element("div", { class: "track" }, element("span", { class: "mark", style: { left: "50%" } }),
      element("span", { class: kind, style: { left: place(Math.min(value, 0)), width: percent(0.48 * Math.abs(value) / reach) } }));
    if (half) track.append(element("span", { class: "whisker", style: { left: place(value - half), width: percent(0.96 * half / reach) } }));
    return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, ...breakable(data.pairs[one])), " × ", element("bdi", {}, ...breakable(data.pairs[other]))),
      element("td", { class: "wide" }, track), element("td", { class: "number" }, within(value, half || null)));
  });
  return element("div", {}, element("h4", {}, "Which pairs interact"),
    element("table", { class: "bars pairs", "aria-label": "The largest interactions of two inputs in this row" }, element("tbody", {}, ...lines)),
    element("p", { class: "note" }, "Right of the line, two inputs add more together than each by itself; left of it, less. ", known ? INTERVAL_NOTE : "The values are exact."));
}

// Pictures of one row, by what rows are.

const PICTURES = {
  table: (row) => row.map ? element("div", {}, element("h4", {}, "Input ", element("bdi", {}, row.of)), PICTURES.image(row)) : null,

  image(row) {
    const views = [["image", "The image"], ["map", "Values: red raises, blue lowers the output"], ["overlay", "Values over the image"]];
    const shown = views.filter(([name]) => row[name]).map(([name, words]) => element("figure", {},
      element("img", { src: row[name], alt: words }), element("figcaption", {}, words)));
    return element("div", {}, element("div", { class: "views" }, ...shown),
      element("p", { class: "note" }, `−${number(row.limit)} `, element("span", { class: "key diverging" }), ` +${number(row.limit)}: the values, with 0 in the middle.`));
  },

  text(row) {
    const limit = largest(row.values.map(Math.abs)) || 1;
    const spaced = row.pieces.some((piece) => piece !== piece.trim());
    const told = element("p", { class: "told", dir: "auto" });
    row.pieces.forEach((piece, i) => {
      const half = row.halves ? row.halves[i] : null;
      const doubt = unsure(row.values[i], half);
      const look = doubt ? `piece unsure ${row.values[i] > 0 ? "up" : "down"}` : "piece";
      told.append(element("span", { class: look, style: { background: doubt ? "#ffffff" : shade(row.values[i] / limit) },
        title: within(row.values[i], half) + (doubt ? ", uncertain" : "") }, piece), spaced ? "" : " ");
    });
    return element("div", {}, told, element("p", { class: "note" },
      "Red raises the output, blue lowers it; the darkest colour is ", number(limit), ". Dashed frames, and no colour: the 95 % interval includes 0."));
  },

  sequence(row) {
    const step = 16, height = 150;
    const ends = (sign) => largest(row.values.map((value, i) => sign * value + (row.halves ? row.halves[i] : 0)));
    const reach = ends(1) + ends(-1) || 1, unit = (height - 8) / reach, middle = 4 + ends(1) * unit;
    const colours = { A: "#1c7c4a", C: "#0072b2", G: "#9a6700", T: "#b33a00", N: "#555555" };
    const width = step * row.letters.length + 10;
    const svg = drawn("svg", { width, height: height + 20, viewBox: `0 0 ${width} ${height + 20}`, role: "img",
      "aria-label": `The sequence ${row.letters}, every letter as high as its value.` });
    [...row.letters].forEach((letter, i) => {
      const value = row.values[i], size = Math.abs(value) * unit, x = 5 + step * i;
      if (size > 0.3) {  // a letter is 11 high at this size
        const scale = `translate(${x + step / 2} ${middle}) scale(1 ${(value < 0 ? -1 : 1) * size / 11})`;
        svg.append(drawn("text", { transform: scale, "text-anchor": "middle", "font-size": 16, textLength: step - 3, lengthAdjust: "spacingAndGlyphs", "font-family": "monospace", "font-weight": 700, fill: colours[letter] || "#555555" }, letter));
      }
      if (row.halves && row.halves[i]) {
        const [top, bottom] = [value + row.halves[i], value - row.halves[i]].map((y) => middle - y * unit);
        svg.append(drawn("line", { x1: x + step - 1.5, x2: x + step - 1.5, y1: top, y2: bottom, stroke: "#555555", "stroke-width": 1 }));
      }
      if ((i + 1) % 10 === 0) svg.append(drawn("text", { x: x + step / 2, y: height + 14, "text-anchor": "middle", "font-size": 11, fill: "#444444" }, String(i + 1)));
    });
    svg.append(drawn("line", { x1: 0, x2: width, y1: middle, y2: middle, stroke: "#888888" }));
    return element("div", {}, element("div", { class: "drawing scroll", tabindex: 0, role: "region", "aria-label": "Sequence" }, svg),
      element("p", { class: "note" }, "Four channels are taken for A, C, G and T, in this order. A letter above the line raises the output, one below it (upside down) lowers it. Thin lines: 95 % intervals."));
  },

  series(row) {
    const width = 640, band = 90, channels = row.channels;
    const steps = largest(row.windows.map((one) => one[1])) + 1;
    const limit = largest(row.windows.map((one) => Math.abs(one[3]))) || 1;
    const height = band * channels;
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": "The series over the shades of its windows." });
    const x = (step) => step / steps * width;
    for (const [first, last, own, value, half] of row.windows) {
      for (const channel of own) {
        const shown = drawn("rect", { x: x(first), y: band * channel + 2, width: Math.max(x(last + 1) - x(first), 0.5), height: band - 4, fill: shade(value / limit) });
        shown.append(drawn("title", {}, `steps ${first} to ${last}: ${within(value, half)}`));
        svg.append(shown);
      }
    }
    (row.lines || []).forEach((line, channel) => {
      const there = line.filter((y) => y !== null), low = there.reduce((a, b) => Math.min(a, b), Infinity);
      const span = largest(there.map((y) => y - low)) || 1;
      const points = line.map((y, i) => y === null ? null : `${x(i + 0.5)},${band * (channel + 1) - 8 - (y - low) / span * (band - 16)}`);
      svg.append(drawn("polyline", { points: points.filter(Boolean).join(" "), fill: "none", stroke: "#000000", "stroke-width": 1.5 }));
    });
    return element("div", {}, element("div", { class: "drawing" }, svg),
      element("p", { class: "note" }, `Red windows raise the output, blue ones lower it; the darkest has ${number(limit)}. ${channels > 1 ? "A band is a channel." : ""}`));
  },
};

// The beginning of a text, on one line.
function shortened(text) {
  const line = text.slice(0, 200).split(/\s+/).join(" ").trim();
  return line.length > 120 ? `${line.slice(0, 118).replace(/\s\S*$/, "")} …` : line;
}

// The table: filter, sort, pages, and choosing a row.

const COLUMNS = [
  ["id", "Row", (row) => row.id],
  ["text", "Text", (row) => row.text],
  ["target", "Output", (row) => data.outputs[row.target]],
  ["prediction", "Prediction", (row) => number(row.prediction, { digits: 4 })],
  ["error", "Largest ±", (row) => number(row.error, { digits: 2 })],
  ["evaluations", "Evaluations", (row) => row.evaluations.toLocaleString("en")],
  ["missed", "Tolerance", (row) => row.missed ? "missed" : "met"],
];
const WORDS = new Set(["id", "text", "target"]);  // columns of words
const outputs = new Set(data.rows.map((row) => row.target)).size;
for (const row of data.rows) if (row.pieces) row.text = shortened(row.pieces.join(""));
const differ = (name) => new Set(data.rows.map((row) => row[name])).size > 1;
const told = { target: outputs > 1, error: data.rows.some((row) => row.error), evaluations: differ("evaluations"), missed: differ("missed") };  // which columns say anything
const columns = COLUMNS.filter(([name]) => data.rows[0][name] !== undefined && told[name] !== false);

const state = { sort: null, down: false, page: 0, chosen: null, shown: data.rows.map((_, i) => i) };
const find = document.getElementById("find"), target = document.getElementById("target"), missed = document.getElementById("missed");
const size = document.getElementById("size"), table = document.getElementById("table"), card = document.getElementById("card");
const back = document.getElementById("back"), on = document.getElementById("on");
const [head, body] = [table.tHead, table.tBodies[0]];
const whole = data.rows.map((row) => (row.pieces ? `${row.id} ${row.pieces.join("")}` : row.id).toLowerCase());

function compare(one, other) {
  if (one === other) return 0;
  if (one === null) return 1;
  if (other === null) return -1;
  if (typeof one === "string") return one.localeCompare(other, "en", { numeric: true });
  return one < other ? -1 : 1;
}

function arrange() {
  const wanted = find.value.trim().toLowerCase();
  state.shown = data.rows.map((_, i) => i).filter((i) => whole[i].includes(wanted)
    && (!target || !target.value || String(data.rows[i].target) === target.value)
    && (!missed || !missed.checked || data.rows[i].missed));
  if (state.sort) state.shown.sort((a, b) => (state.down ? -1 : 1) * compare(data.rows[a][state.sort], data.rows[b][state.sort]) || a - b);
  state.page = 0;
  show();
  draw();
}

const pages = () => Math.max(1, Math.ceil(state.shown.length / size.value));

function show() {
  for (const cell of head.rows[0].cells) {
    const own = cell.dataset.name === state.sort;
    cell.setAttribute("aria-sort", own ? (state.down ? "descending" : "ascending") : "none");
  }
  const start = state.page * size.value, own = state.shown.slice(start, start + Number(size.value));
  const focused = own.includes(state.chosen) ? state.chosen : own[0];
  body.replaceChildren(...own.map((i) => {
    const cells = columns.map(([name, , told]) => element("td", { class: name === "id" ? "id" : `${WORDS.has(name) ? "words" : "number"} ${name}` },
      WORDS.has(name) ? element("bdi", {}, told(data.rows[i])) : told(data.rows[i])));
    return element("tr", { "data-row": i, tabindex: i === focused ? 0 : -1, "aria-selected": i === state.chosen }, ...cells);
  }));
  const last = Math.min(start + own.length, state.shown.length);
  document.getElementById("where").textContent = own.length
    ? `${(start + 1).toLocaleString("en")} to ${last.toLocaleString("en")} of ${state.shown.length.toLocaleString("en")}` : "no row fits";
  back.setAttribute("aria-disabled", state.page === 0);  // and not disabled, which would lose the keyboard's place
  on.setAttribute("aria-disabled", state.page >= pages() - 1);
}

function turn(step) {
  state.page = Math.max(0, Math.min(pages() - 1, state.page + step));
  show();
}

function choose(i, { focus = false, move = false } = {}) {
  state.chosen = i;
  const place = state.shown.indexOf(i);
  if (place >= 0) state.page = Math.floor(place / size.value);
  show();
  const row = data.rows[i];
  const answer = [`The ${data.compares ? "difference of the two outputs" : "model’s output"} is ${number(row.prediction, { digits: 4 })}`];
  if (outputs > 1 || data.compares) answer.push(` (${data.outputs[row.target] === String(row.target) ? "output " : ""}${data.outputs[row.target]})`);
  answer.push(`; with all ${data.kind === "text" ? "pieces" : "inputs"} absent it is ${number(row.base, { digits: 4 })}.`);
  const facts = [];
  if (row.evaluations) facts.push(`The model was evaluated ${row.evaluations.toLocaleString("en")} times for this row.`);
  if (row.gap !== null && Math.abs(row.gap) > 1e-3 * Math.abs(row.total - row.base)) facts.push(`The values miss what they should add up to by ${number(Math.abs(row.gap), { digits: 2 })}.`);
  card.replaceChildren(...[element("h3", {}, "Row ", element("bdi", {}, row.id)),
    element("p", {}, answer.join("")),
    row.missed ? element("p", { class: "warning" }, "This row did not reach the tolerance that was asked for.") : null,
    row.sentences ? element("div", {}, element("h4", {}, "By sentences"), waterfall({ ...row, others: null, ...row.sentences })) : null,
    row.sentences ? element("h4", {}, "By sentences, and the words of those that are divided") : null,
    PICTURES[data.kind](row),
    row.parts ? waterfall(row) : null,
    data.pairs.length ? couples(row) : null,
    facts.length ? element("p", { class: "note" }, facts.join(" ")) : null].filter(Boolean));
  card.scrollTop = 0;
  if (focus) body.querySelector(`[data-row="${i}"]`)?.focus();
  if (move && matchMedia("(max-width: 60rem)").matches) card.scrollIntoView({ block: "start" });
  document.getElementById("chosen").textContent = `Row ${row.id}: ${answer.join("")}`;
  try { history.replaceState(null, "", `#row=${encodeURIComponent(row.id)}`); } catch { /* in a frame that may not */ }
}

head.append(element("tr", {}, ...columns.map(([name, title]) =>
  element("th", { scope: "col", class: `${WORDS.has(name) ? "" : "number"} ${name}`, "data-name": name }, element("button", { type: "button" }, title)))));
head.addEventListener("click", (event) => {
  const cell = event.target.closest("th");
  if (!cell) return;
  state.down = state.sort === cell.dataset.name ? !state.down : cell.dataset.name !== "id";
  state.sort = cell.dataset.name;
  arrange();
});
for (const control of [find, target, missed]) control?.addEventListener("input", arrange);
size.addEventListener("input", () => { state.page = 0; show(); });
back.addEventListener("click", () => turn(-1));
on.addEventListener("click", () => turn(1));
body.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (row) choose(Number(row.dataset.row), { focus: true, move: true });
});
body.addEventListener("keydown", (event) => {
  const place = state.shown.indexOf(Number(event.target.closest("tr")?.dataset.row));
  const step = { ArrowDown: 1, ArrowUp: -1, Enter: 0, " ": 0, PageDown: Number(size.value), PageUp: -Number(size.value) }[event.key];
  if (place < 0 || step === undefined) return;
  event.preventDefault();
  const next = state.shown[Math.max(0, Math.min(state.shown.length - 1, place + step))];
  choose(next, { focus: true, move: event.key === "Enter" });
});

// Swarms: the values of some rows as dots on a canvas, a line for each player.

const dark = matchMedia("(prefers-color-scheme: dark)");
const SCALES = {  // cividis from low to high, as far as it can be seen on the page
  light: [[0, 32, 76], [65, 77, 107], [124, 123, 120], [170, 148, 80], [214, 168, 0]],
  dark: [[74, 116, 214], [118, 137, 190], [158, 156, 148], [203, 188, 110], [255, 233, 69]],
};

const ranked = (rank) => mixed(SCALES[dark.matches && !printing ? "dark" : "light"], rank / 100);
let printing = false;

const swarms = data.swarm.map((line) => ({ ...line, canvas: element("canvas", { class: "swarm", role: "img", "aria-label": line.said }), dots: [] }));
const every = data.swarm.flatMap((line) => line.values.filter((value) => value !== null));
const [lowest, highest] = [-largest(every.map((value) => -value)), largest(every)];

// Round numbers between the ends, as far apart as there is room for their digits.
function ticks(low, high, room) {
  const most = Math.max(2, Math.floor(room / 70)), rough = (high - low) / most || 1, ten = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * ten).find((one) => one >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) found.push(i * step);
  return found;
}

const scaled = (width) => (value) => 8 + (width - 16) * (value - lowest) / (highest - lowest || 1);
const axis = drawn("svg", { class: "axis", "aria-hidden": "true" });

function draw() {
  swarms.forEach(swarm);
  const width = axis.clientWidth;
  if (!width) return;
  axis.replaceChildren(...ticks(lowest, highest, width).flatMap((value) => {
    const x = scaled(width)(value), anchor = x < 24 ? "start" : x > width - 24 ? "end" : "middle";
    return [drawn("line", { x1: x, x2: x, y1: 0, y2: 5 }), drawn("text", { x: anchor === "middle" ? x : anchor === "end" ? width : 0, y: 18, "text-anchor": anchor }, number(value, { signed: true }))];
  }), drawn("line", { x1: 8, x2: width - 8, y1: 0.5, y2: 0.5 }));
}

function swarm(line) {
  const { canvas } = line, sharp = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width) return;
  canvas.width = width * sharp;
  canvas.height = height * sharp;
  const pen = canvas.getContext("2d"), look = getComputedStyle(document.documentElement), radius = 2.6;
  pen.scale(sharp, sharp);
  const x = scaled(width);
  pen.strokeStyle = look.getPropertyValue("--strong");
  pen.beginPath();
  pen.moveTo(x(0), 0);
  pen.lineTo(x(0), height);
  pen.stroke();
  const fits = (i) => line.values[i] !== null && (!target || !target.value || String(data.rows[line.rows[i]].target) === target.value);
  const layers = new Map(), bins = line.values.map((value, i) => fits(i) ? Math.round(x(value) / (1.6 * radius)) : null);
  for (const bin of bins) if (bin !== null) layers.set(bin, (layers.get(bin) || 0) + 1);
  const most = largest([1, ...layers.values()]);
  const lift = Math.min(1.6 * radius, (height / 2 - radius - 1) / Math.max(1, Math.floor(most / 2)));
  layers.clear();
  line.dots = [];
  line.values.forEach((value, i) => {
    if (!fits(i)) return;
    const rank = layers.get(bins[i]) || 0;
    layers.set(bins[i], rank + 1);
    const y = height / 2 + Math.ceil(rank / 2) * (rank % 2 ? 1 : -1) * lift;
    const coloured = line.ranks && line.ranks[i] !== null;  // else the data is missing, or no number
    const colour = coloured ? ranked(line.ranks[i]) : look.getPropertyValue("--neutral");
    pen.beginPath();
    pen.arc(x(value), y, radius, 0, 2 * Math.PI);
    pen.strokeStyle = coloured ? look.getPropertyValue("--strong") : colour;
    pen.lineWidth = 0.6;
    if (line.unsure[i]) { pen.strokeStyle = colour; pen.lineWidth = 1.2; } else { pen.fillStyle = colour; pen.fill(); }
    pen.stroke();
    line.dots.push([x(value), y, line.rows[i]]);
  });
}

document.getElementById("swarms")?.append(...swarms.map((line) => element("tr", {},
  element("th", { scope: "row" }, element("bdi", {}, ...breakable(data.players[line.player]))), element("td", { class: "wide" }, line.canvas), element("td", { class: "number" }))),
  element("tr", { class: "scale" }, element("th", { scope: "row" }, data.compares ? "adds to the difference" : "adds to the output"), element("td", { class: "wide" }, axis), element("td", { class: "number" })));
for (const line of swarms) {
  line.canvas.addEventListener("click", (event) => {
    const near = line.dots.map(([x, y, i]) => [Math.hypot(x - event.offsetX, y - event.offsetY), i]).sort((a, b) => a[0] - b[0])[0];
    if (!near) return;
    if (!state.shown.includes(near[1])) { find.value = ""; if (target) target.value = ""; if (missed) missed.checked = false; arrange(); }
    choose(near[1], { focus: true, move: true });
  });
}
addEventListener("resize", draw);
addEventListener("beforeprint", () => { printing = true; draw(); });
addEventListener("afterprint", () => { printing = false; draw(); });
dark.addEventListener("change", draw);
draw();

// The profile: the mean |value| of every place of a sequence or series.

const profile = document.getElementById("profile");
if (profile) {
  const step = Math.max(6, Math.min(60, (profile.clientWidth - 12) / data.profile.length)), height = 140, width = step * data.profile.length + 10;
  const most = largest(data.profile.map(([mean, half]) => mean + half)) || 1;
  const svg = drawn("svg", { width, height: height + 18, viewBox: `0 0 ${width} ${height + 18}`, "aria-hidden": "true" });
  data.profile.forEach(([mean, half], i) => {
    const x = 5 + step * i, y = (value) => height - Math.max(0, value) / most * (height - 8);
    const own = drawn("rect", { x: x + 0.5, y: y(mean), width: step - 1, height: height - y(mean), fill: "#6b7380" });
    own.append(drawn("title", {}, `${i + 1}: ${within(mean, half).replace("+", "")}`));
    svg.append(own, drawn("line", { x1: x + step / 2, x2: x + step / 2, y1: y(mean - half), y2: y(mean + half), stroke: "#000000" }));
    if ((i + 1) % (data.profile.length > 30 ? 10 : 1) === 0) svg.append(drawn("text", { x: x + step / 2, y: height + 14, "text-anchor": "middle", "font-size": 11, fill: "#333333" }, String(i + 1)));
  });
  profile.append(svg);
}

// The row that the address names, or the first.

function asked() {
  const id = (location.hash.match(/^#row=(.*)$/) || [])[1] || "";
  try { return data.rows.findIndex((row) => row.id === decodeURIComponent(id)); } catch { return -1; }
}

arrange();
choose(Math.max(0, asked()));
addEventListener("hashchange", () => { if (asked() >= 0) choose(asked()); });

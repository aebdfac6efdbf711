// The status page of a router. It reads /status.json every two seconds and shows it.
//
// Everything that comes from the fleet, such as names of workers, becomes text nodes. No HTML is
// made from strings.
"use strict";

const INTERVAL_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const PARTS = [
  ["tokenize", "tokenize_us"], ["route", "route_us"], ["pull", "pull_us"], ["queue", "queue_us"],
  ["prefill", "prefill_us"], ["transfer", "transfer_us"], ["admit", "admit_us"], ["decode", "decode_us"],
];
const BLOCKS = [["owned", "owned"], ["in transfers", "in_flight"], ["in steps", "step"], ["cached", "cached"]];

const opened = new Set();  // keys of the details that are open
let paused = false;

// Returns an element with these attributes. Children are elements or texts.
function make(name, attributes = {}, ...children) {
  const out = name === "svg" || name === "rect" ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) out.setAttribute(key, value);
  out.append(...children);
  return out;
}

function number(value) {
  return Number(value).toLocaleString("en");
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let left = Number(value);
  let unit = 0;
  for (; left >= 1024 && unit < units.length - 1; ++unit) left /= 1024;
  return `${left.toFixed(left < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

function milliseconds(us) {
  return `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms`;
}

function share(part, whole) {
  return whole > 0 ? `${Math.round(100 * part / whole)} %` : "–";
}

function figures(list) {
  return list.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));
}

// A bar of parts: [class number, size], over `whole`. An empty text: the bar is only decoration.
function bar(parts, whole, text) {
  const spoken = text === "" ? {"aria-hidden": "true"} : {role: "img", "aria-label": text};
  const out = make("svg", {viewBox: "0 0 1000 10", preserveAspectRatio: "none", ...spoken});
  let begin = 0;
  for (const [color, size] of parts) {
    const width = whole > 0 ? Math.max(0, Math.min(1000 - begin, 1000 * size / whole)) : 0;
    if (width > 0) out.append(make("rect", {class: `c${color}`, x: begin, y: 0, width, height: 10}));
    begin += width;
  }
  return out;
}

// A part of the page that can be opened. It stays open when the page is drawn again.
function foldable(key, summary, inside) {
  const out = make("details", {}, make("summary", {"data-key": key}, ...summary), make("div", {class: "inside"}, ...inside));
  out.open = opened.has(key);
  out.addEventListener("toggle", () => {
    if (out.open) opened.add(key); else opened.delete(key);
  });
  return out;
}

function worker(status) {
  const pool = status.pool;
  const bad = status.state !== "usable" || status.error !== "";
  const blocks = BLOCKS.map(([, field], i) => [i, pool[field]]);
  const used = `${share(pool.total - pool.free - pool.evictable, pool.total)} of ${number(pool.total)} blocks in use`;
  const summary = [
    make("strong", {}, status.id), " ", make("span", {class: "soft"}, status.role), " ",
    make("span", {class: bad ? "state bad" : "state"}, status.state),
    make("span", {class: "line"}, `${status.running} running, ${status.waiting} waiting, ${used}`),
    bar(blocks, pool.total, BLOCKS.map(([name, field]) => `${name}: ${pool[field]}`).join(", ")),
  ];
  const hits = status.hits;
  const list = [
    ["Address", status.address], ["Wait for KV", number(status.waiting_for_kv)], ["Transfers", number(status.transfers)],
    ["Prompt tokens/s", number(Math.round(status.prefill_tokens_per_second))],
    ["Generated tokens/s", number(Math.round(status.decode_tokens_per_second))],
    ...BLOCKS.map(([name, field]) => [`Blocks ${name}`, number(pool[field])]),
    ["Blocks free", number(pool.free)], ["Blocks evictable", number(pool.evictable)],
    ["Size of the pool", bytes(pool.total * pool.bytes_per_block)],
    ["Prompts with a hit", share(hits.hits, hits.lookups)], ["Tokens from the cache", share(hits.hit_tokens, hits.lookup_tokens)],
    ["Evicted blocks", number(pool.evicted)], ["Nodes of its tree", number(status.tree_nodes)],
    ["Units in the index", status.followed ? number(status.index_units) : `${number(status.index_units)}, not followed`],
    ["Prompt chunks", `${number(status.chunks.entries)} cached, ${number(status.chunks.sleeping)} asleep`],
    ["Preemptions", number(status.preemptions)], ["Resident memory", bytes(status.resident_bytes)],
  ];
  const inside = [make("dl", {class: "figures"}, ...figures(list))];
  if (status.error !== "") inside.unshift(make("p", {class: "trouble"}, status.error));
  return foldable(`worker ${status.id}`, summary, inside);
}

function request(entry, longest) {
  const parts = PARTS.map(([, field], i) => [i, entry.parts[field]]);
  const where = entry.prefill_worker === "" ? entry.decode_worker : `${entry.prefill_worker} → ${entry.decode_worker}`;
  const summary = [
    make("strong", {}, milliseconds(entry.total_us)), ` ${entry.code}, ${number(entry.prompt_tokens)} + ${number(entry.output_tokens)} tokens `,
    make("span", {class: "soft"}, entry.id),
    bar(parts, longest, PARTS.map(([name, field]) => `${name} ${milliseconds(entry.parts[field])}`).join(", ")),
  ];
  const list = [
    ["API", entry.endpoint], ["Ended", `${number(Math.round(entry.age_ms / 1000))} s ago`], ["Workers", where],
    ["First token", entry.first_token_us > 0 ? milliseconds(entry.first_token_us) : "none"],
    ["Cached tokens", number(entry.cached_tokens)],
    ...PARTS.map(([name, field]) => [name, milliseconds(entry.parts[field])]),
  ];
  return foldable(`request ${entry.id} ${entry.number}`, summary, [make("dl", {class: "figures"}, ...figures(list))]);
}

function treeNode(node) {
  const text = `${number(node.units)} units, ${number(node.prompts)} ${node.prompts === 1 ? "prompt" : "prompts"}, ` +
      `${number(node.workers)} ${node.workers === 1 ? "worker" : "workers"} `;
  const shown = [text, make("span", {class: "soft"}, node.hash)];
  if (node.children.length === 0) return make("li", {}, ...shown);
  return make("li", {}, foldable(`node ${node.hash}`, shown, [make("ul", {}, ...node.children.map(treeNode))]));
}

function show(status) {
  const focused = document.activeElement && document.activeElement.getAttribute("data-key");
  const fill = (id, children) => document.getElementById(id).replaceChildren(...children);
  const workers = status.workers;
  const summary = `${status.ready ? "Ready" : "Not ready"}: ${status.model || "no model yet"}, ` +
      `${number(status.workers_total)} workers, routing policy ${status.policy}`;
  const line = document.getElementById("summary");
  if (line.textContent !== summary) line.textContent = summary;  // screen readers announce changes
  const sum = (of) => workers.reduce((total, one) => total + of(one), 0);
  const requests = status.requests;
  fill("requests", figures([
    ["In flight", number(requests.active)], ["Wait for a token", number(requests.waiting)],
    ["Queued on workers", number(sum((one) => one.waiting))], ["Running on workers", number(sum((one) => one.running))],
    ["Since the start", number(requests.total)], ["Failed", number(requests.failed)],
    ["Rejected", number(requests.rejected)], ["Cancelled", number(requests.cancelled)],
    ["Tokens from caches", share(sum((one) => one.hits.hit_tokens), sum((one) => one.hits.lookup_tokens))],
    ["Units in the index", number(status.index.units)], ["Memory of the index", bytes(status.index.bytes)],
    ["Gaps in events", number(status.index.gaps)],
  ]));
  document.getElementById("workers-note").textContent =
      workers.length < status.workers_total ? `The first ${workers.length} of ${number(status.workers_total)} workers.` : "";
  fill("workers", workers.length === 0 ? [make("p", {}, "No worker is registered.")] : workers.map(worker));
  const longest = Math.max(1, ...status.recent.map((entry) => entry.total_us));
  fill("recent", status.recent.length === 0 ? [make("p", {}, "No request has ended yet.")]
                                            : status.recent.map((entry) => request(entry, longest)));
  fill("tree", status.tree.length === 0 ? [make("li", {}, "No prompt is long enough yet.")] : status.tree.map(treeNode));
  if (focused) {
    for (const one of document.querySelectorAll("[data-key]")) {
      if (one.getAttribute("data-key") === focused) one.focus({preventScroll: true});
    }
  }
}

async function refresh() {
  const trouble = document.getElementById("trouble");
  try {
    const answer = await fetch("/status.json", {cache: "no-store"});
    if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
    show(await answer.json());
    trouble.hidden = true;
  } catch (error) {
    trouble.textContent = `The router does not answer: ${error.message}`;
    trouble.hidden = false;
  }
}

async function run() {
  if (!paused && !document.hidden) await refresh();
  setTimeout(run, INTERVAL_MS);
}

document.getElementById("legend").append(...PARTS.map(
    ([name], i) => make("li", {}, bar([[i, 1]], 1, ""), name)));
document.getElementById("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.currentTarget.setAttribute("aria-pressed", String(paused));
  event.currentTarget.textContent = paused ? "Go on" : "Pause";
});
run();

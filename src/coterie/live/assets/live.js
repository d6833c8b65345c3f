"use strict";
(() => {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const token = new URLSearchParams(location.search).get("t") || "";
  const ask = (path, more = {}) => `${path}?${new URLSearchParams({ t: token, ...more })}`;
  const element = (name, text = "", kind = "") => {
    const made = document.createElement(name);
    made.textContent = text;  // whatever a client is called, it stays text
    if (kind) made.className = kind;
    return made;
  };
  const percent = (share) => (share == null ? "–" : `${(100 * share).toFixed(1)} %`);
  const bytes = (n) => {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let i = 0;
    for (; n >= 1000 && i < 4; i++) n /= 1000;
    return `${i ? n.toFixed(1) : n} ${units[i]}`;
  };
  const span = (s) => (s < 60 ? `${Math.round(s)} s` : s < 3600 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`);

  // Light and dark, as the report has them.
  const remembered = () => { try { return localStorage.getItem("coterie-theme"); } catch { return null; } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const wanted = () => remembered() || (system.matches ? "dark" : "light");
  root.dataset.theme = wanted();

  // Charts: what was drawn last, so that another theme needs no request.
  const plotly = new Promise((ready) => {
    if (window.Plotly) ready();
    else document.querySelector('script[src^="/plotly.js"]').addEventListener("load", ready);
  });
  let themes = null;
  const specs = new Map();
  let drawing = Promise.resolve();  // one chart at a time: Plotly forgets whom it interrupts
  const draw = (figure, spec) => (drawing = drawing.catch(() => {}).then(() => drawn(figure, spec)));
  const drawn = async (figure, spec) => {
    const plot = figure.querySelector(".plot");
    const old = figure.querySelector(".absent");
    if (spec.absent) {
      if (specs.has(figure)) Plotly.purge(plot);
      specs.delete(figure);
      if (old) old.textContent = spec.absent;
      else figure.append(element("p", spec.absent, "absent"));
      return;
    }
    if (old) old.remove();
    specs.set(figure, spec);
    await plotly;
    const layout = { ...spec.layout, template: themes[root.dataset.theme] };
    await Plotly.react(plot, spec.data, layout, { displayModeBar: false, responsive: true });
    plot.dataset.drawn = "yes";
  };
  const dress = () => {
    root.dataset.theme = wanted();
    for (const [figure, spec] of specs) draw(figure, spec);
  };
  system.addEventListener("change", dress);
  $("theme").addEventListener("click", () => {
    try { localStorage.setItem("coterie-theme", root.dataset.theme === "dark" ? "light" : "dark"); } catch { return; }
    dress();
  });

  // Clients: one cell each.
  let about = { clients: [] };
  let chosen = null;
  let left_out = new Set();
  const people = () => {
    const grid = $("grid");
    grid.style.setProperty("--cell", about.clients.length > 300 ? "14px" : about.clients.length > 60 ? "20px" : "30px");
    while (grid.children.length > about.clients.length) grid.lastChild.remove();
    about.clients.forEach((name, i) => {
      let cell = grid.children[i];
      if (!cell) {
        cell = grid.appendChild(element("button"));
        cell.type = "button";
        cell.addEventListener("click", () => choose(i));
      }
      const held = about.held[i];
      const share = about.accuracy[i];
      const strength = share == null ? 8 : 12 + 88 * share ** 1.5;
      cell.style.background = `color-mix(in srgb, ${about.colours[held]} ${strength.toFixed(0)}%, var(--card))`;
      cell.classList.toggle("rejected", left_out.has(name));
      cell.classList.toggle("chosen", i === chosen);
      const where = held < 0 ? "no model yet" : { personal: "a model of its own", shared: "the shared model" }[about.kind] || `cluster ${held}`;
      cell.title = `${name}: ${where}, ${percent(share)}`;
      cell.setAttribute("aria-label", cell.title);
    });
    const counts = new Map();
    for (const held of about.held) counts.set(held, (counts.get(held) || 0) + 1);
    $("legend").replaceChildren(...(about.kind !== "clustered" ? [] : [...counts].sort((a, b) => a[0] - b[0]).map(([held, count]) => {
      const line = element("span", `${held < 0 ? "no model yet" : `cluster ${held}`}: ${count}`);
      const mark = element("i");
      mark.style.background = about.colours[held];
      line.prepend(mark);
      return line;
    })));
  };
  const choose = async (i) => {
    chosen = i;
    people();
    $("one").hidden = i === null;
    if (i === null) return;
    const name = about.clients[i];
    $("who").textContent = `Client ${name}`;
    const hers = events.filter((e) => e.client === name || (Array.isArray(e.clients) && e.clients.includes(name))).slice(-20).reverse();
    $("hers").replaceChildren(...hers.map(line));
    try {
      const answer = await fetch(ask("/client", { i }));
      if (answer.ok && chosen === i) await draw($("one"), await answer.json());
    } catch { /* the next round asks again */ }
  };
  $("close").addEventListener("click", () => choose(null));

  // Figures: one request at a time, and pauses that grow with the work.
  let due = false, busy = false;
  const refresh = async () => {
    due = true;
    if (busy) return;
    busy = true;
    while (due) {
      due = false;
      const began = performance.now();
      try {
        const found = await (await fetch(ask("/figures"))).json();
        if (found.busy) due = true;
        else {
          about = found.about;
          themes = about.themes;
          $("method").textContent = `· ${about.method}`;
          people();
          for (const figure of document.querySelectorAll("figure[data-chart]")) {
            await draw(figure, found.charts[figure.dataset.chart]);
          }
          if (chosen !== null) await choose(chosen);
          root.dataset.round = $("round").dataset.at || "";
        }
      } catch { break; }
      await new Promise((next) => setTimeout(next, Math.min(4000, Math.max(600, 5 * (performance.now() - began)))));
    }
    busy = false;
  };

  // Events.
  const events = [];
  const sent = new Map();  // round -> bytes: a resumed run repeats rounds
  let seconds = [];
  let resumed = null, state = "waiting";
  const behind = (e) => e.absent ? ` of ${e.clients} clients (${e.absent} absent)` : "";
  const words = (e) => {
    if (e.event === "round") {
      const parts = [`${e.round}/${e.rounds}`];
      if (e.accuracy != null) parts.push(`accuracy ${percent(e.accuracy)}${behind(e)}`, `worst ${percent(e.worst)}`);
      if (e.clusters > 1) parts.push(`${e.clusters} clusters`);
      return [...parts, `${e.seconds.toFixed(2)} s`].join("  ");
    }
    if (e.event === "rejected") return `round ${e.round}: client ${e.client} was left out, ${e.why}`;
    if (e.event === "alone") return `round ${e.round}: ${e.task} one by one, which is slower, for ${e.clients.join(", ")}: ${e.why}`;
    if (e.event === "unplaced") return `round ${e.round}: without a model yet: ${e.clients.join(", ")}`;
    if (e.event === "start") return `${e.method.split("(")[0]}, ${e.clients} clients, ${e.rounds} rounds`;
    if (e.event === "resume") return `goes on after round ${e.round} of ${e.rounds}`;
    if (e.event === "done") return `after ${span(e.seconds)}`;
    return e.text || JSON.stringify(e);
  };
  const line = (e) => {
    const made = element("li", "", e.event);
    const when = element("time", e.time ? new Date(1000 * e.time).toLocaleTimeString([], { hourCycle: "h23" }) : "");
    made.append(when, element("span", e.event), element("span", words(e)));
    return made;
  };
  const wanting = () => new Set([...document.querySelectorAll(".filters input:checked")].map((box) => box.value));
  const kinds = new Set(["round", "warning", "rejected"]);
  const feed = () => {
    const shown = wanting();
    const kept = events.filter((e) => shown.has(kinds.has(e.event) ? e.event : "other"));
    $("feed").replaceChildren(...kept.slice(-300).reverse().map(line));
  };
  for (const box of document.querySelectorAll(".filters input")) box.addEventListener("change", feed);

  const header = () => {
    const at = events.findLast((e) => e.rounds !== undefined);
    if (at) {
      $("round").textContent = `round ${at.round}/${at.rounds}`;
      $("round").dataset.at = at.round;
      const share = at.rounds ? Math.round((100 * at.round) / at.rounds) : 100;
      const bar = document.querySelector(".bar");
      bar.setAttribute("aria-valuenow", share);
      bar.firstElementChild.style.width = `${share}%`;
      const recent = [...seconds.slice(-10)].sort((a, b) => a - b);
      const each = recent[recent.length >> 1];
      const open = at.rounds - at.round;
      $("left").textContent = state === "running" && each && open ? `about ${span(each * open)} left` : "";
    }
    const last = events.findLast((e) => e.accuracy !== undefined);
    if (last) {
      $("accuracy").textContent = percent(last.accuracy) + behind(last);
      $("worst").textContent = percent(last.worst);
    }
    if (about.kind && about.kind !== "clustered") $("clusters").textContent = { personal: "own models", shared: "one model" }[about.kind];
    const grouped = events.findLast((e) => e.event === "round" && e.clusters !== undefined);
    if (grouped) $("clusters").textContent = grouped.ari === undefined || grouped.clusters < 2 ? grouped.clusters : `${grouped.clusters} (ARI ${grouped.ari.toFixed(2)})`;
    if (sent.size) $("sent").textContent = bytes([...sent.values()].reduce((a, b) => a + b, 0));
    const label = state === "running" && resumed !== null ? `running, resumed at ${resumed}` : state;
    $("state").textContent = { waiting: "waiting for the run", lost: "connection lost" }[state] || label;
    $("state").dataset.state = state;
    left_out = new Set(events.filter((e) => e.event === "rejected" && at && e.round === at.round).map((e) => e.client));
  };
  // The curve keeps up with the header: events tell the mean, while the rest is asked for.
  const keep_up = () => {
    const figure = document.querySelector('figure[data-chart="accuracy"]');
    const spec = specs.get(figure);
    const mean = spec?.data.find((trace) => trace.name === "mean");
    if (!mean || !window.Plotly) return;
    const more = events.filter((e) => e.event === "round" && e.accuracy != null && e.round > mean.x.at(-1));
    if (!more.length) return;
    mean.x = [...mean.x, ...more.map((e) => e.round)];
    mean.y = [...mean.y, ...more.map((e) => e.accuracy)];
    mean.mode = "lines";
    draw(figure, spec);
  };
  let painting = false;
  const paint = () => {
    if (painting) return;
    painting = true;
    requestAnimationFrame(() => { painting = false; header(); keep_up(); feed(); });
  };
  const hear = (e) => {
    events.push(e);
    if (events.length > 20000) events.splice(0, 5000);
    if (e.event === "start") { sent.clear(); seconds = []; resumed = null; }
    if (e.event === "resume") { resumed = e.round; seconds = []; }
    if (e.event === "round") {
      if (e.round) seconds.push(e.seconds);
      sent.set(e.round, (e.bytes_up || 0) + (e.bytes_down || 0));
    }
  };
  const stream = new EventSource(ask("/events"));
  stream.addEventListener("log", (message) => {
    try { hear(JSON.parse(message.data)); } catch { return; }
    paint();
    setTimeout(refresh, 50);
  });
  stream.addEventListener("again", () => { events.length = 0; sent.clear(); });
  stream.addEventListener("state", (message) => {
    state = JSON.parse(message.data).state;
    paint();
    setTimeout(refresh, 50);
  });
  stream.addEventListener("error", () => {
    if (state === "done") { stream.close(); return; }  // the run is over, and with it its view
    state = "lost";
    paint();
  });
})();

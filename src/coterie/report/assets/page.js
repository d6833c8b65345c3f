"use strict";
(() => {
  const root = document.documentElement;
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const config = { displayModeBar: false, responsive: true };

  const remembered = () => { try { return localStorage.getItem("coterie-theme"); } catch { return null; } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const wanted = () => remembered() || (system.matches ? "dark" : "light");
  root.dataset.theme = wanted();

  const specs = new Map();
  const themed = (layout, name) => ({ ...layout, template: themes[name] });
  const draw = async (figure) => {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    specs.set(figure, spec);
    const plot = figure.querySelector(".plot");
    plot.style.minWidth = `${spec.layout.meta?.least ?? 0}px`; // a narrow page moves it sideways
    await Plotly.newPlot(plot, spec.data, themed(spec.layout, root.dataset.theme), config);
    plot.dataset.drawn = "yes";
  };
  const dress = async () => {
    root.dataset.theme = wanted();
    for (const [figure, spec] of specs) {
      await Plotly.react(figure.querySelector(".plot"), spec.data, themed(spec.layout, root.dataset.theme), config);
    }
  };
  document.getElementById("theme").addEventListener("click", () => {
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("coterie-theme", next); } catch { /* private windows forget */ }
    root.dataset.theme = next;
    for (const [figure, spec] of specs) {
      Plotly.react(figure.querySelector(".plot"), spec.data, themed(spec.layout, next), config);
    }
  });
  system.addEventListener("change", dress);

  // Numbers as they were drawn; labels carry entities because charts understand some HTML.
  const words = (text) => String(text ?? "").replace(/<br>/g, " ")
    .replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  const cell = (value) => {
    const text = typeof value === "number" ? String(value) : words(value);
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  const rows = (trace) => {
    if (trace.type === "sankey") {
      const name = (i) => trace.node.customdata[i];
      return trace.link.value.map((v, i) => [name(trace.link.source[i]), name(trace.link.target[i]), v]);
    }
    const label = (...at) => at.reduce((v, i) => (Array.isArray(v) ? v[i] : undefined), trace.text);
    if (trace.type === "heatmap") {
      return trace.z.flatMap((row, r) => row.map((v, c) => [trace.x[c], label(r, c) ?? trace.y[r], v]));
    }
    return trace.x.map((x, i) => [x, trace.y[i], label(i), Array.isArray(trace.customdata) ? trace.customdata[i] : undefined]);
  };
  const csv = (spec) => {
    const kinds = new Set(spec.data.map((t) => t.type));
    const head = kinds.has("sankey") ? ["from", "to", "clients"]
      : kinds.has("heatmap") ? ["x", "y", "value"] : ["series", "x", "y", "label", "more"];
    const flat = head[0] === "series"
      ? spec.data.filter((t) => t.hoverinfo !== "skip" || t.fill).flatMap((t) => rows(t).map((r) => [t.name, ...r]))
      : spec.data.filter((t) => kinds.has("heatmap") ? t.type === "heatmap" : true).flatMap(rows);
    return [head, ...flat].map((r) => r.map(cell).join(",")).join("\n") + "\n";
  };
  const save = (name, url) => {
    const link = document.createElement("a");
    link.download = name;
    link.href = url;
    link.click();
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-save]");
    if (!button) return;
    const figure = button.closest("figure");
    const spec = specs.get(figure);
    const name = figure.dataset.chart;
    if (button.dataset.save === "csv") {
      const url = URL.createObjectURL(new Blob([csv(spec)], { type: "text/csv" }));
      save(`${name}.csv`, url);
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    } else {
      const plot = figure.querySelector(".plot");
      const size = { width: plot.clientWidth, height: plot.clientHeight };
      const layout = { ...themed(spec.layout, "light"), ...size };
      save(`${name}.svg`, await Plotly.toImage({ data: spec.data, layout }, { format: "svg", ...size }));
    }
  });

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.querySelectorAll("th")];
    const body = table.tBodies[0];
    const value = (row, i) => row.cells[i].dataset.v ?? row.cells[i].textContent;
    heads.forEach((head, i) => {
      if (body.rows[0]?.cells[i].classList.contains("n")) head.classList.add("n");
      head.firstElementChild.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const order = (a, b) => {
          const [x, y] = [value(a, i), value(b, i)];
          if (x === "nan" || y === "nan") return (x === "nan") - (y === "nan");
          const by = x !== "" && y !== "" && !isNaN(x) && !isNaN(y) ? x - y : x.localeCompare(y, undefined, { numeric: true });
          return up ? by : -by;
        };
        body.append(...[...body.rows].sort(order));
      });
    });
  }

  // What is in view is drawn before the page counts as loaded, the rest when there is time for it,
  // or at once when it comes near or the page is printed.
  const waiting = new Set(figures);
  const now = (figure) => {
    if (waiting.delete(figure)) draw(figure);
    if (!waiting.size) root.dataset.ready = "yes";
  };
  const near = (figure) => {
    const box = figure.getBoundingClientRect();
    return box.top < innerHeight && box.bottom > 0;
  };
  // Where charts are will move as they are drawn: look anew after each.
  for (let figure; (figure = [...waiting].find(near)); ) now(figure);
  const seen = new IntersectionObserver(
    (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => now(e.target)),
    { rootMargin: "400px" },
  );
  waiting.forEach((figure) => seen.observe(figure));
  addEventListener("beforeprint", () => [...waiting].forEach(now));
  const later = window.requestIdleCallback ?? ((next) => setTimeout(next, 20));
  const rest = () => {
    for (const figure of waiting) {
      now(figure);
      later(rest);
      return;
    }
  };
  later(rest);
})();

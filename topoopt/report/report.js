"use strict";
// All words and numbers come from the page's data and go in as text, never as markup.
(() => {
  const $ = (query, from = document) => from.querySelector(query);
  const all = (query, from = document) => [...from.querySelectorAll(query)];
  const read = (id) => JSON.parse($(`#${id}`).textContent);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const tip = $("#tip");

  function show(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = clamp(x + 14, 6, innerWidth - box.width - 6);
    const top = y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18;
    tip.style.transform = `translate(${left}px, ${Math.max(top, 6)}px)`;
  }
  function hide() { tip.hidden = true; }

  for (const item of all("[data-tip]")) {
    item.addEventListener("pointermove", (e) => show(item.dataset.tip, e.clientX, e.clientY));
    item.addEventListener("pointerleave", hide);
    item.addEventListener("focus", () => {
      if (!item.matches(":focus-visible")) return;
      const box = item.getBoundingClientRect();
      show(item.dataset.tip, box.left + box.width / 2, box.bottom - 10);
    });
    item.addEventListener("blur", hide);
  }
  addEventListener("keydown", (e) => { if (e.key === "Escape") hide(); });
  addEventListener("scroll", hide, { passive: true });

  // Seconds in the unit that reads best, four digits, as in the rest of the page.
  function time(seconds) {
    for (const [unit, scale] of [["s", 1], ["ms", 1e3], ["us", 1e6], ["ns", 1e9]]) {
      const number = Number((seconds * scale).toPrecision(4));
      if (Math.abs(number) >= 1 || unit === "ns") return number ? `${number} ${unit}` : "0 s";
    }
    return "";
  }

  function dragging(target, start, move) {
    target.addEventListener("pointerdown", (e) => {
      if (e.pointerType !== "mouse" || e.button !== 0) return;
      let last = null;
      const from = e.clientX + e.clientY;
      const moved = (f) => {
        if (last === null && Math.abs(f.clientX + f.clientY - from) < 3) return;
        if (last === null) { last = start(e); hide(); }
        move(f, last);
      };
      const done = () => {
        removeEventListener("pointermove", moved);
        removeEventListener("pointerup", done);
      };
      addEventListener("pointermove", moved);
      addEventListener("pointerup", done);
    });
  }

  function wiring(figure) {
    const data = read("wiring-data");
    const svg = $("svg", figure), stage = $(".stage", figure), readout = $(".readout", figure);
    const info = new Map(data.links.map(([id, from, to, text, rings]) => [id, { from, to, text, rings }]));
    const paths = new Map(all("[data-l]", svg).map((path) => [Number(path.dataset.l), path]));
    const dots = new Map(all("[data-s]", svg).map((dot) => [Number(dot.dataset.s), dot]));
    let view = [0, 0, 1000, 1000], hot = [], server = null, link = -1, pinned = false;

    function light(items) {
      for (const item of hot) item.classList.remove("hot");
      hot = items;
      for (const item of hot) item.classList.add("hot");
      svg.classList.toggle("dim", hot.length > 0);
    }
    function around(id) {
      return [...info].filter(([key, l]) => (l.from === id || l.to === id) && !paths.get(key).classList.contains("off"));
    }
    function pickServer(id) {
      light([dots.get(id), ...around(id).map(([key]) => paths.get(key))]);
      return (readout.textContent = data.servers[id]);
    }
    function pickLink(id) {
      const l = info.get(id);
      light([paths.get(id), dots.get(l.from), dots.get(l.to)]);
      return (readout.textContent = l.text);
    }
    function under(e) {
      // Thin lines are hard to hit: look a few pixels around.
      for (const d of [0, 2, 4]) {
        for (const [x, y] of d ? [[d, 0], [-d, 0], [0, d], [0, -d]] : [[0, 0]]) {
          const found = document.elementFromPoint(e.clientX + x, e.clientY + y);
          if (found && svg.contains(found) && (found.dataset.s || found.dataset.l)) return found.dataset;
        }
      }
      return null;
    }
    function point(e) {
      const found = under(e);
      if (!found) { hide(); if (!pinned) light([]); return null; }
      const text = found.s !== undefined ? pickServer(Number(found.s)) : pickLink(Number(found.l));
      show(text, e.clientX, e.clientY);
      return found;
    }
    svg.addEventListener("pointermove", (e) => { if (e.buttons === 0 && !pinned) point(e); });
    svg.addEventListener("pointerleave", () => { hide(); if (!pinned) light([]); });
    svg.addEventListener("click", (e) => { pinned = false; pinned = point(e) !== null; });

    function filter() {
      const on = new Set(all("[data-ring]:checked", figure).map((box) => Number(box.dataset.ring)));
      for (const [id, l] of info) {
        const keys = l.rings.length ? l.rings.map((r) => Math.min(r, data.toggles)) : [-1];
        paths.get(id).classList.toggle("off", !keys.some((key) => on.has(key)));
      }
    }
    for (const box of all("[data-ring]", figure)) box.addEventListener("change", filter);
    for (const radio of all("[name=colour]", figure)) {
      radio.addEventListener("change", () => { figure.dataset.mode = radio.value; });
    }

    function look() {
      svg.setAttribute("viewBox", view.map((v) => v.toFixed(2)).join(" "));
      svg.classList.toggle("zoomed", view[2] < 1000);
    }
    function zoom(factor, x = view[0] + view[2] / 2, y = view[1] + view[3] / 2) {
      const size = clamp(view[2] * factor, 60, 1000), share = size / view[2];
      view = [x - (x - view[0]) * share, y - (y - view[1]) * share, size, size];
      keep();
    }
    function keep() {
      view[0] = clamp(view[0], 0, 1000 - view[2]);
      view[1] = clamp(view[1], 0, 1000 - view[3]);
      look();
    }
    for (const button of all("[data-zoom]", figure)) {
      button.addEventListener("click", () => {
        if (button.dataset.zoom === "reset") { view = [0, 0, 1000, 1000]; look(); }
        else zoom(button.dataset.zoom === "in" ? 1 / 1.5 : 1.5);
      });
    }
    svg.addEventListener("wheel", (e) => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      const box = svg.getBoundingClientRect(), scale = view[2] / box.width;
      zoom(e.deltaY < 0 ? 1 / 1.25 : 1.25,
        view[0] + (e.clientX - box.left) * scale, view[1] + (e.clientY - box.top) * scale);
    }, { passive: false });
    dragging(svg, (e) => ({ x: e.clientX, y: e.clientY, view: [...view] }), (e, from) => {
      const scale = view[2] / svg.getBoundingClientRect().width;
      view[0] = from.view[0] - (e.clientX - from.x) * scale;
      view[1] = from.view[1] - (e.clientY - from.y) * scale;
      keep();
    });
    stage.addEventListener("keydown", (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (step) {
        const at = server === null ? (step > 0 ? -1 : 0) : data.seats.indexOf(server);
        server = data.seats.at((at + step) % data.seats.length);
        link = -1;
        pickServer(server);
      } else if ((e.key === "ArrowDown" || e.key === "ArrowUp") && server !== null) {
        const links = around(server);
        if (links.length) {
          link = (link + (e.key === "ArrowDown" ? 1 : -1) + links.length) % links.length;
          pickLink(links[link][0]);
        }
      } else if (e.key === "Escape") { pinned = false; server = null; light([]); }
      else return;
      e.preventDefault();
    });
  }

  function traffic(part) {
    const data = read("traffic-data"), readout = $(".readout", part);
    const [left, top, side] = data.frame, count = Math.ceil(data.servers / data.block);
    const cells = {};
    for (const [name, text] of Object.entries(data.cells)) {
      const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
      cells[name] = (at) => data.texts[bytes[2 * at] + 256 * bytes[2 * at + 1]];
    }
    function names(at) {
      if (data.block === 1) return `server ${at}`;
      return `servers ${at * data.block} to ${Math.min((at + 1) * data.block, data.servers) - 1}`;
    }
    function pick(row, column) {
      for (const cursor of all(".cursor", part)) {
        cursor.setAttribute("x", left + (column * side) / count);
        cursor.setAttribute("y", top + (row * side) / count);
        cursor.setAttribute("width", side / count);
        cursor.setAttribute("height", side / count);
      }
      const at = row * count + column;
      const words = Object.entries(cells).map(([name, cell]) => `${name} ${cell(at)}`).join(", ");
      return (readout.textContent = `${names(row)} to ${names(column)}: ${words}`);
    }
    for (const svg of all("svg.map", part)) {
      let at = [0, 0];
      const point = (e) => {
        const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
        const column = Math.floor((((e.clientX - box.left) * scale - left) / side) * count);
        const row = Math.floor((((e.clientY - box.top) * scale - top) / side) * count);
        if (row < 0 || column < 0 || row >= count || column >= count) { hide(); return; }
        at = [row, column];
        show(pick(row, column), e.clientX, e.clientY);
      };
      svg.addEventListener("pointermove", point);
      svg.addEventListener("click", point);
      svg.addEventListener("pointerleave", hide);
      svg.addEventListener("keydown", (e) => {
        const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[e.key];
        if (!step) return;
        e.preventDefault();
        at = at.map((value, i) => clamp(value + step[i], 0, count - 1));
        pick(...at);
      });
    }
  }

  function timeline(figure) {
    const data = read("timeline-data"), readout = $(".readout", figure);
    const box = $(".lanes", figure), axis = $(".axis", figure), lanes = all("[data-lane]", figure);
    const length = data.length;
    let low = 0, high = 1;

    function ticks() {
      const span = (high - low) * length, room = Math.max(2, Math.floor(axis.clientWidth / 90));
      let step = 10 ** Math.floor(Math.log10(span / room));
      for (const factor of [2, 2.5, 2]) { if (span / step > room) step *= factor; }
      const marks = [];
      for (let n = Math.ceil((low * length) / step); n * step <= high * length * (1 + 1e-9); n += 1) {
        const mark = document.createElement("span"), share = (n * step / length - low) / (high - low);
        mark.textContent = time(n * step);
        mark.style.left = `${100 * share}%`;
        mark.style.transform = share < 0.05 ? "none" : share > 0.95 ? "translateX(-100%)" : "translateX(-50%)";
        marks.push(mark);
      }
      axis.replaceChildren(...marks);
    }
    function look() {
      const view = `${low * data.units} 0 ${(high - low) * data.units} 10`;
      for (const lane of lanes) lane.setAttribute("viewBox", view);
      ticks();
    }
    function move(by) {
      const span = high - low;
      low = clamp(low + by * span, 0, 1 - span);
      high = low + span;
      look();
    }
    function zoom(factor, at = (low + high) / 2) {
      const span = clamp((high - low) * factor, 1e-3, 1);
      low = clamp(at - ((at - low) / (high - low)) * span, 0, 1 - span);
      high = low + span;
      look();
    }
    function reset() { low = 0; high = 1; look(); }
    for (const button of all("[data-zoom]", figure)) {
      button.addEventListener("click", () => {
        if (button.dataset.zoom === "reset") reset();
        else zoom(button.dataset.zoom === "in" ? 0.5 : 2);
      });
    }
    const place = (e) => {
      const frame = lanes[0].getBoundingClientRect();
      return { at: low + ((e.clientX - frame.left) / frame.width) * (high - low), pixel: (high - low) / frame.width };
    };
    function find(numbers, from, to) {
      // Segments of a lane are in order: the last that begins before `to`.
      let first = 0, last = numbers.length / 3;
      while (first < last) {
        const middle = (first + last) >> 1;
        if (numbers[3 * middle] <= to) first = middle + 1; else last = middle;
      }
      const at = first - 1;
      return at >= 0 && numbers[3 * at] + numbers[3 * at + 1] >= from ? at : -1;
    }
    function point(e) {
      const lane = e.target.closest("[data-lane]");
      if (!lane) { hide(); return; }
      const [name, numbers] = data.lanes[Number(lane.dataset.lane)];
      const { at, pixel } = place(e), unit = length * 1e9;
      let found = find(numbers, at * unit, at * unit);
      if (found < 0) found = find(numbers, (at - 2 * pixel) * unit, (at + 2 * pixel) * unit);
      if (found < 0) { hide(); return; }
      const start = numbers[3 * found] / 1e9, took = numbers[3 * found + 1] / 1e9;
      const text = `${data.texts[numbers[3 * found + 2]]}: ${time(start)} to ${time(start + took)}, ${time(took)} (${name})`;
      readout.textContent = text;
      show(text, e.clientX, e.clientY);
    }
    box.addEventListener("pointermove", (e) => { if (e.buttons === 0) point(e); });
    box.addEventListener("click", point);
    box.addEventListener("pointerleave", hide);
    box.addEventListener("wheel", (e) => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      zoom(e.deltaY < 0 ? 0.8 : 1.25, clamp(place(e).at, 0, 1));
    }, { passive: false });
    dragging(box, (e) => ({ x: e.clientX, low, high }), (e, from) => {
      const frame = lanes[0].getBoundingClientRect();
      low = from.low;
      high = from.high;
      move((from.x - e.clientX) / frame.width);
    });
    box.addEventListener("keydown", (e) => {
      const act = {
        ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2),
        "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: reset,
      }[e.key];
      if (!act || e.ctrlKey || e.metaKey) return;
      e.preventDefault();
      act();
    });
    new ResizeObserver(ticks).observe(axis);
  }

  for (const [id, start] of [["wiring", wiring], ["traffic", traffic], ["timeline", timeline]]) {
    const part = document.getElementById(id);
    if (part) start(part);
  }
})();

// The page works without this script. With it the table and the details follow the server's events, the links that
// change the view do so in place, and the chosen key has charts. All text comes from the server and is set as text.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const body = byId("keys").tBodies[0];
  const classes = [...byId("keys").tHead.rows[0].cells].map((th) => th.className);
  const columns = classes.map((c) => c.split(" ")[0]);
  const most = 100; // rows in view
  let view = new URLSearchParams(location.search);
  let source, seen; // the stream, and the newest full event
  let retry = 0, typing = 0;
  document.documentElement.classList.add("script");

  // linkTo is the view with some words of its query set, or removed if they are "".
  function linkTo(change) {
    const q = new URLSearchParams(view);
    for (const [name, value] of Object.entries(change)) value === "" ? q.delete(name) : q.set(name, value);
    q.sort();
    return "?" + q;
  }

  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  // ---- the stream

  function live(state, text) {
    byId("live").className = state;
    setText(byId("live"), text);
  }

  function connect() {
    if (source) source.close();
    clearTimeout(retry);
    source = new EventSource("events?" + view);
    source.onmessage = (message) => show(JSON.parse(message.data));
    source.onerror = () => {
      live("off", "not connected");
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      live("off", "not connected: the program has ended, or too many pages are open");
      retry = setTimeout(connect, 5000);
    };
  }

  // go changes the view.
  function go(query, keep) {
    view = new URLSearchParams(query);
    history[keep ? "pushState" : "replaceState"](null, "", "?" + view);
    sorted();
    connect();
  }

  function show(event) {
    live("on", "live");
    document.documentElement.dataset.ticks = 1 + Number(document.documentElement.dataset.ticks || 0);
    if (event.rows) {
      seen = event;
      setText(byId("totals"), event.totals);
      showRows(event);
    } else if (!seen) {
      return;
    }
    showChosen(seen.chosen, event.time);
  }

  // ---- the table

  function showRows(event) {
    const rows = event.rows, end = event.from + rows.length;
    rows.forEach((cells, i) => showRow(body.rows[i] || newRow(), cells));
    while (body.rows.length > rows.length) body.deleteRow(-1);
    const n = (x) => x.toLocaleString("en-US");
    setText(byId("range"), rows.length ? `${n(event.from + 1)} to ${n(end)} of ${n(event.found)}` : "");
    const before = byId("before"), after = byId("after"), empty = byId("empty");
    before.hidden = event.from === 0;
    before.href = linkTo({ from: event.from > most ? String(Math.min(event.from, event.found) - most) : "" });
    after.hidden = end >= event.found;
    after.href = linkTo({ from: String(end) });
    empty.hidden = rows.length > 0;
    if (!rows.length) setText(empty, view.get("q") ? "No key matches." : event.from ? "No more keys." : "No key yet. A key is made by its first call.");
  }

  function newRow() {
    const row = body.insertRow();
    for (const column of columns) {
      const cell = row.insertCell();
      if (column !== "key") continue;
      const link = document.createElement("a");
      link.className = "view";
      link.append(document.createElement("bdi"));
      cell.append(link);
    }
    return row;
  }

  const quiet = new Set(["0", "0 %", "–", "open"]);

  function showRow(row, cells) {
    cells.forEach((text, i) => {
      const cell = row.cells[i];
      const look = quiet.has(text) ? " quiet" : columns[i] === "gate" ? " closed" : "";
      if (cell.className !== classes[i] + look) cell.className = classes[i] + look;
      if (columns[i] !== "key") {
        setText(cell, text);
        return;
      }
      const link = cell.firstChild, href = linkTo({ name: cells[0], key: cells[1] });
      if (link.getAttribute("href") !== href) link.setAttribute("href", href);
      cell.title = text;
      setText(link.firstChild, text);
    });
    row.className = cells[0] === (view.get("name") || "") && cells[1] === (view.get("key") || "") ? "chosen" : "";
  }

  // sorted sets the arrows and the links of the headings, as the server does.
  function sorted() {
    const sort = view.get("sort") || "waiting", column = sort.replace(/^-/, ""), turned = sort[0] === "-";
    [...byId("keys").tHead.rows[0].cells].forEach((th, i) => {
      const here = columns[i] === column;
      const up = (!th.classList.contains("number") || ["tokens", "limit"].includes(columns[i])) !== turned;
      here ? th.setAttribute("aria-sort", up ? "ascending" : "descending") : th.removeAttribute("aria-sort");
      th.firstChild.href = linkTo({ sort: here && !turned ? "-" + columns[i] : columns[i], from: "" });
    });
  }

  // ---- the details

  function showChosen(chosen, time) {
    byId("chosen").hidden = !chosen;
    if (!chosen) return;
    setText(document.querySelector("#chosen .name"), chosen.name);
    setText(byId("chosen-key"), chosen.key);
    setText(byId("why"), chosen.why);
    setText(byId("too-high"), chosen.too_high || "");
    byId("too-high").hidden = !chosen.too_high;
    byId("close").href = linkTo({ name: "", key: "" });
    pairs(byId("facts"), chosen.facts || []);
    pairs(byId("fleet"), chosen.fleet || []);
    byId("fleet-part").hidden = !chosen.fleet;
    lines(byId("limits"), chosen.limits || []);
    lines(byId("learned"), chosen.learned || []);
    lines(byId("flows"), chosen.flows || []);
    for (const controls of document.querySelectorAll(".controls")) {
      controls.hidden = Boolean(chosen.gone);
      for (const input of controls.querySelectorAll("input")) input.value = chosen[input.name];
    }
    byId("charts").hidden = Boolean(chosen.gone);
    if (chosen.point) charts.add(chosen.name + "\n" + chosen.key, time / 1000, chosen.point);
  }

  function pairs(list, facts) {
    facts.forEach(([label, text], i) => {
      let pair = list.children[i];
      if (!pair) {
        pair = document.createElement("div");
        pair.append(document.createElement("dt"), document.createElement("dd"));
        list.append(pair);
      }
      setText(pair.children[0], label);
      setText(pair.children[1], text);
    });
    while (list.children.length > facts.length) list.lastChild.remove();
  }

  function lines(table, rows) {
    table.hidden = !rows.length;
    const into = table.tBodies[0];
    rows.forEach((cells, i) => {
      const row = into.rows[i] || into.insertRow();
      cells.forEach((text, j) => setText(row.cells[j] || row.insertCell(), text));
    });
    while (into.rows.length > rows.length) into.deleteRow(-1);
  }

  // ---- what the reader does

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.view");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(new URL(link.href).search, true);
  });
  addEventListener("popstate", () => {
    view = new URLSearchParams(location.search);
    document.querySelector("#search input[type=search]").value = view.get("q") || "";
    sorted();
    connect();
  });
  const search = byId("search");
  const searchNow = () => go(linkTo({ q: search.elements.q.value, from: "" }));
  search.addEventListener("submit", (event) => {
    event.preventDefault();
    searchNow();
  });
  search.elements.q.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(searchNow, 200);
  });
  for (const form of document.querySelectorAll(".controls form")) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      setText(byId("answer"), "");
      try {
        const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), redirect: "manual" });
        if (answer.type !== "opaqueredirect") setText(byId("answer"), await answer.text());
      } catch (err) {
        setText(byId("answer"), "not sent: " + err.message);
      }
    });
  }

  const charts = throttleCharts(byId("charts"));
  sorted();
  connect();
})();

"use strict";
(function () {
  var data = JSON.parse(document.getElementById("data").textContent);
  var rows = data.rows, chosen = rows, page = 0, column = -1, down = false, open = new Set();
  var body = document.querySelector("#rows tbody"), find = document.getElementById("find"), only = document.getElementById("only");
  var heads = Array.from(document.querySelectorAll("#rows th[data-column]"));

  function duration(s) {
    if (s === null || s === undefined) return "";
    if (s < 9.95) return s.toFixed(1) + " s";
    s = Math.round(s);
    if (s < 60) return s + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + s % 60 + " s";
    if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
    return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
  }
  function scaled(value, base, units) {
    if (value === null || value === undefined) return "";
    var unit = 0;
    while (value >= base && unit < units.length - 1) { value /= base; unit += 1; }
    return (value >= 10 || unit === 0 ? Math.round(value) : value.toFixed(1)) + " " + units[unit];
  }
  function memory(value) { return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]); }
  function size(value) { return scaled(value, 1000, ["B", "kB", "MB", "GB", "TB"]); }
  function cell(line, text, kind) {  // text only: names in a sheet may hold anything
    var made = document.createElement("td");
    made.textContent = text;
    if (kind) made.className = kind;
    line.appendChild(made);
    return made;
  }
  function steps(row) {
    return row[3] + (row[4] ? (row[3] ? ", " : "") + row[4] : "");
  }
  function line(row) {
    var made = document.createElement("tr");
    made.className = "row";
    cell(made, row[0], "name");
    var state = cell(made, "");
    state.appendChild(document.createElement("span")).className = "state " + row[2];
    state.firstChild.textContent = row[2];
    cell(made, steps(row));
    cell(made, row[5] ? row[5] + (row[6] ? " (" + row[6] + " failed)" : "") : "", "number");
    cell(made, row[5] ? duration(row[7]) : "", "number");
    cell(made, row[5] ? duration(row[8]) : "", "number");
    cell(made, memory(row[9]), "number");
    cell(made, row[11] || row[10], "time");
    cell(made, row[12] ? row[12] + " (" + size(row[13]) + ")" : "", "number");
    cell(made, row[14], "name");
    made.addEventListener("click", function () {
      if (String(window.getSelection())) return;
      if (open.has(row)) open.delete(row); else open.add(row);
      show();
    });
    return made;
  }
  function more(row) {
    var made = document.createElement("tr"), inside = document.createElement("td");
    made.className = "more";
    inside.colSpan = heads.length;
    made.appendChild(inside);
    if (!row[15].length) {
      inside.textContent = row[5] ? "Its commands are in trace.tsv." : "No command of it is recorded.";
      return made;
    }
    var table = inside.appendChild(document.createElement("table"));
    var head = table.appendChild(document.createElement("tr"));
    ["step", "item", "state", "tries", "time", "peak memory", "asked for", "host", ""].forEach(function (name) {
      head.appendChild(document.createElement("th")).textContent = name;
    });
    row[15].forEach(function (each) {
      var one = table.appendChild(document.createElement("tr"));
      cell(one, data.labels[each[0]]); cell(one, each[1]); cell(one, each[2], each[2]); cell(one, each[4], "number");
      cell(one, duration(each[5]), "number"); cell(one, memory(each[6]), "number"); cell(one, memory(each[7]), "number");
      cell(one, each[8] || ""); cell(one, each[3]);
    });
    return made;
  }
  function show() {
    var pages = Math.max(1, Math.ceil(chosen.length / data.page));
    page = Math.min(Math.max(page, 0), pages - 1);
    var lines = document.createDocumentFragment();
    chosen.slice(page * data.page, (page + 1) * data.page).forEach(function (row) {
      lines.appendChild(line(row));
      if (open.has(row)) lines.appendChild(more(row));
    });
    body.replaceChildren(lines);
    document.getElementById("where").textContent =
      chosen.length + " of " + rows.length + (pages > 1 ? ", page " + (page + 1) + " of " + pages : "");
    document.getElementById("back").disabled = page === 0;
    document.getElementById("on").disabled = page >= pages - 1;
  }
  function value(row) {
    if (column === 1) return data.states.indexOf(row[2]);
    if (column === 7) return row[11] || row[10];
    return row[[0, 2, 3, 5, 7, 8, 9, 11, 12, 14][column]];
  }
  function choose() {
    var text = find.value.toLowerCase(), state = only.value;
    chosen = rows.filter(function (row) {
      return (!state || row[2] === state) &&
        (!text || (row[0] + "\n" + row[14] + "\n" + row[4]).toLowerCase().indexOf(text) >= 0);
    });
    if (column >= 0) {
      chosen = chosen.slice().sort(function (a, b) {
        var x = value(a), y = value(b);
        if (x === y) return 0;
        if (x === null || x === "") return 1;
        if (y === null || y === "") return -1;
        var order = typeof x === "string" ? x.localeCompare(y, undefined, {numeric: true}) : x - y;
        return down ? -order : order;
      });
    }
    heads.forEach(function (head) {
      if (Number(head.dataset.column) === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    page = 0;
    show();
  }
  function wanted() {  // report.html#state=failed&find=S1&sort=4 can be sent to others
    var given = new URLSearchParams(location.hash.slice(1));
    find.value = given.get("find") || "";
    only.value = given.get("state") || "";
    if (only.selectedIndex < 0) only.value = "";
    column = given.has("sort") ? Math.abs(Number(given.get("sort"))) : -1;
    down = (given.get("sort") || "").charAt(0) === "-";
    if (!(column < heads.length)) column = -1;
    choose();
    if (given.has("open")) { chosen.slice(0, 1).forEach(function (row) { open.add(row); }); show(); }
  }
  heads.forEach(function (head) {
    head.addEventListener("click", function () {
      var own = Number(head.dataset.column);
      down = own === column ? !down : own > 2 && own < 9;
      column = own;
      choose();
    });
  });
  find.addEventListener("input", choose);
  only.addEventListener("change", choose);
  document.getElementById("back").addEventListener("click", function () { page -= 1; show(); });
  document.getElementById("on").addEventListener("click", function () { page += 1; show(); });
  window.addEventListener("hashchange", wanted);
  document.getElementById("tools").hidden = false;
  wanted();
})();

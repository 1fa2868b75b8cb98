"use strict";
// Click a frame to zoom in, "show all" to zoom out, "search" or Ctrl-F to highlight.
(function () {
  var left = 10, whole = 1180, letter = 7;
  var svg = document.documentElement.tagName === "svg" ? document.documentElement : document.querySelector("svg");
  var reset = svg.getElementById("reset"), search = svg.getElementById("search");
  var frames = Array.from(svg.getElementById("frames").children).map(function (g) {
    var rect = g.querySelector("rect");
    return {
      g: g, rect: rect, text: g.querySelector("text"), label: g.querySelector("title").textContent,
      x: +rect.getAttribute("x"), y: +rect.getAttribute("y"), width: +rect.getAttribute("width"),
      fill: rect.getAttribute("fill")
    };
  });
  function show(target) {
    var scale = whole / target.width;
    frames.forEach(function (it) {
      var end = it.x + it.width, above = it.y < target.y;
      var inside = above
        ? it.x <= target.x + 0.01 && target.x + target.width <= end + 0.01
        : target.x - 0.01 <= it.x && end <= target.x + target.width + 0.01;
      it.g.style.display = inside ? "" : "none";
      if (!inside) return;
      var x = above ? left : left + (it.x - target.x) * scale;
      var width = above ? whole : it.width * scale;
      it.g.style.opacity = above ? 0.6 : 1;
      it.rect.setAttribute("x", x);
      it.rect.setAttribute("width", width);
      it.text.setAttribute("x", x + 3);
      var room = Math.floor((width - 6) / letter), label = it.label.split("\n")[0];
      it.text.textContent = label.length <= room ? label : room < 4 ? "" : label.slice(0, room - 2) + "..";
    });
    reset.setAttribute("visibility", target === frames[0] ? "hidden" : "visible");
  }
  function find() {
    var word = window.prompt("Highlight frames that have", "");
    frames.forEach(function (it) {
      var found = word && it.label.toLowerCase().indexOf(word.toLowerCase()) !== -1;
      it.rect.setAttribute("fill", found ? "#d86bd8" : it.fill);
    });
  }
  frames.forEach(function (it) {
    it.g.style.cursor = "pointer";
    it.g.addEventListener("click", function () { show(it); });
  });
  reset.addEventListener("click", function () { show(frames[0]); });
  search.addEventListener("click", find);
  search.setAttribute("visibility", "visible");
  window.addEventListener("keydown", function (key) {
    if (key.key === "f" && (key.ctrlKey || key.metaKey)) { key.preventDefault(); find(); }
    if (key.key === "Escape") show(frames[0]);
  });
})();

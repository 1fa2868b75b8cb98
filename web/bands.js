// The bands of a stacked picture: how high each group stands in each column, and where its name fits.

// By group and column: the sum of it and of all below it.
export function totalsOf(data) {
  const { n, groups } = data;
  const tops = Float64Array.from(data.rest);
  const change = new Float64Array(groups * (n + 1));
  for (let k = 0; k < data.k; k++) {
    change[data.group_of[k] * (n + 1) + data.firsts[k]] += data.sizes[k];
    change[data.group_of[k] * (n + 1) + data.ends[k]] -= data.sizes[k];
  }
  for (let group = 0; group < groups; group++) {
    let sum = 0;
    for (let c = 0; c < n; c++) {
      sum += change[group * (n + 1) + c];
      tops[group * n + c] += sum + (group ? tops[(group - 1) * n + c] : 0);
    }
  }
  return tops;
}

// For each group the place where its band is tallest within `from`..`to` of the axis and `low`..`high` bytes, as far as it
// stays nearly so.
export function bandsOf(data, tops, { from, to, low, high }) {
  const per = (data.to - data.from) / data.n;
  const first = Math.max(0, Math.floor((from - data.from) / per));
  const last = Math.min(data.n, Math.ceil((to - data.from) / per));
  const res = [];
  for (let group = 0; group < data.groups; group++) {
    const bottom = (c) => Math.max(low, group ? tops[(group - 1) * data.n + c] : 0);
    const top = (c) => Math.min(high, tops[group * data.n + c]);
    let best = first;
    for (let c = first; c < last; c++) if (top(best) - bottom(best) < top(c) - bottom(c)) best = c;
    if (last <= first || top(best) <= bottom(best)) continue;
    const room = { from: best, to: best + 1, low: bottom(best), high: top(best) };
    const enough = (c) => Math.min(room.high, top(c)) - Math.max(room.low, bottom(c)) >= (top(best) - bottom(best)) * 0.45;
    const grow = (c) => {
      room.low = Math.max(room.low, bottom(c));
      room.high = Math.min(room.high, top(c));
    };
    while (room.to < last && enough(room.to)) grow(room.to++);
    while (first < room.from && enough(room.from - 1)) grow(--room.from);
    res.push({ group, from: data.from + room.from * per, to: data.from + room.to * per, bottom: room.low, top: room.high });
  }
  return res;
}

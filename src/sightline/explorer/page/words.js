// Numbers and sentences, the same for eyes and for screen readers.

export function percent(share) {
  const value = 100 * share;
  if (!Number.isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 0.01) return "< 0.01 %";
  const digits = Math.abs(value) >= 10 ? 0 : Math.abs(value) >= 1 || value === 0 ? 1 : 2;
  return `${value.toFixed(value === 0 ? 0 : digits)} %`;
}

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size < 0.01 || size >= 10000) ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

/** Of what one head gives the query: the mean distance in patches (or null), and the share on each prefix token. */
export function factsOf(attention, layer, head, prefix) {
  const at = layer * attention.heads + head;
  const shares = prefix.map((name, i) => ({ name, share: attention.prefix[at * prefix.length + i] }));
  const distance = attention.distance?.[layer]?.[head];
  return { distance: Number.isFinite(distance) ? distance : null, shares };
}

function sharesInWords(shares) {
  const said = [];
  const known = shares.find((one) => one.name === "class");
  if (known) said.push(`${percent(known.share)} on the class token`);
  const rest = shares.filter((one) => one !== known);
  if (rest.length === 1) said.push(`${percent(rest[0].share)} on ${rest[0].name}`);
  if (rest.length > 1) said.push(`${percent(rest.reduce((sum, one) => sum + one.share, 0))} on ${rest.length} other prefix tokens`);
  return said;
}

export function queryInWords(query, view) {
  if (query.startsWith("prefix:")) {
    const name = view.prefix[Number(query.slice(7))];
    return name === "class" ? "class token" : name;
  }
  const at = Number(query);
  return `patch row ${Math.floor(at / view.grid[1])} column ${at % view.grid[1]}`;
}

/** Where a query looks, in one sentence. */
export function sentenceOf(query, view, layer, head, facts, off) {
  const said = [];
  if (facts.distance !== null) said.push(`looks ${number(facts.distance)} patches far`);
  said.push(...sharesInWords(facts.shares));
  const what = said.length ? `: ${said.join(", ")}` : "";
  return `${queryInWords(query, view)}, layer ${layer} head ${head}${off ? " (switched off)" : ""}${what}`;
}

export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

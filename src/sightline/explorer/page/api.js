// The server's answers: asked for, checked, and decoded. Nothing else of the page talks to the network.

/** A fault that is shown as its sentence. */
export class Fault extends Error {
  constructor(sentence, answer = {}) {
    super(sentence);
    this.replaced = answer.replaced === true;
    this.gone = answer.gone === true;
  }
}

async function answered(address, options) {
  let response;
  try {
    response = await fetch(address, { cache: "no-store", ...options });
  } catch (fault) {
    if (fault.name === "AbortError") throw fault;
    throw new Fault("The server does not answer. Is sightline explore still at work in its terminal?");
  }
  let answer;
  try {
    answer = await response.json();
  } catch (fault) {
    if (fault.name === "AbortError") throw fault;
    if (response.status === 503) throw new Fault("The server has too much to do; try again in a moment.");
    throw new Fault(`The server's answer (${response.status}) cannot be read.`);
  }
  if (response.ok) return answer;
  const fault = new Fault(answer.error ?? `The server refused this (${response.status}).`, answer);
  fault.gone ||= response.status === 410;
  throw fault;
}

/** Of a running `sightline explore`. */
export class ServerApi {
  constructor() {
    this.frozen = null;
    // Two tabs are two clients: one must not call off what the other waits for.
    this.client = crypto.randomUUID();
  }

  session() {
    return answered("/api/session");
  }

  upload(file) {
    return answered("/api/images", {
      method: "POST",
      headers: { "X-Name": encodeURIComponent(file.name), "Content-Type": "application/octet-stream" },
      body: file,
    });
  }

  thumbnail(image) {
    return `/api/images/${image}/thumbnail.png`;
  }

  view(pane, wanted, signal) {
    const body = JSON.stringify({ client: this.client, pane, ...wanted });
    return answered("/api/views", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
  }

  async picture(view, signal) {
    let response;
    try {
      response = await fetch(`/api/views/${view.view}/picture.png`, { cache: "no-store", signal });
    } catch (fault) {
      if (fault.name === "AbortError") throw fault;
      throw new Fault("The server does not answer. Is sightline explore still at work in its terminal?");
    }
    if (!response.ok) throw new Fault("The picture did not come.", { gone: response.status === 410 });
    return response.blob();
  }

  part(pane, view, path, signal) {
    return answered(`/api/views/${view.view}/${path}`, { signal });
  }
}

export function bytesOf(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

export function floatsOf(text) {
  return new Float32Array(bytesOf(text).buffer);
}

/** The answer with its arrays decoded beside what came. */
export function decoded(raw) {
  const value = { raw, rows: raw.rows, cols: raw.cols };
  if (raw.maps !== undefined) {
    Object.assign(value, { layers: raw.layers, heads: raw.heads, distance: raw.distance });
    value.maps = floatsOf(raw.maps);
    value.prefix = floatsOf(raw.prefix);
  }
  if (raw.visible !== undefined) Object.assign(value, { heads: raw.heads, visible: bytesOf(raw.visible) });
  if (raw.index !== undefined) {
    value.names = raw.names;
    value.index = new Int32Array(bytesOf(raw.index).buffer);
    value.probability = floatsOf(raw.probability);
  }
  if (raw.colours !== undefined) value.colours = bytesOf(raw.colours);
  if (raw.values !== undefined) value.values = floatsOf(raw.values);
  return value;
}

// What answers a widget on a page without Python, after the text of widget.js and the widget's own file. The file behind
// this one ends with `const mind = …`: a function of the model that returns { receive(message), saved() }.

// ---- numbers as Python writes them

// f"{value:.{digits}g}", with `sign` f"{value:+.{digits}g}".
function general(value, digits = 6, sign = false) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf";
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  const power = Number(exponent);
  const bare = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  const size = String(Math.abs(power)).padStart(2, "0");
  const tiny = power < -4 || power >= digits;
  const text = tiny ? `${bare(mantissa)}e${power < 0 ? "-" : "+"}${size}` : bare(value.toFixed(digits - 1 - power));
  return sign && value >= 0 ? `+${text}` : text;
}

// f"{value:,.0f}"
const grouped = (value) => Math.round(value).toLocaleString("en");

// f"{value:.{decimals}%}"
const percent = (value, decimals = 0) => `${(100 * value).toFixed(decimals)}%`;

const numbers = (count, from, to) => Array.from({ length: count }, (_, i) => from + ((to - from) * i) / (count - 1));

// Numbers as an array of this shape, as Python sends one.
function array(values, ...shape) {
  const bytes = values instanceof Uint8Array ? values : Float32Array.from(values);
  return { shape: shape.length ? shape : [bytes.length], type: bytes instanceof Uint8Array ? "uint8" : "float32", bytes };
}

// ---- the model

// A tree whose { base64 } are the bytes that they stand for.
function revived(tree) {
  if (Array.isArray(tree)) return tree.map(revived);
  if (!tree || typeof tree !== "object") return tree;
  if (typeof tree.base64 === "string") return Uint8Array.from(atob(tree.base64), (letter) => letter.charCodeAt(0));
  return Object.fromEntries(Object.entries(tree).map(([name, part]) => [name, revived(part)]));
}

// In place of anywidget's model: the traits that the widget had when the book was made. `mind` answers in Python's place.
function standIn(state, mind) {
  const traits = revived(state);
  const listeners = new Map();
  const every = (events, act) => events.split(" ").forEach(act);
  const model = {
    get: (name) => traits[name],
    set: (name, value) => (traits[name] = value),
    on: (events, handler) =>
      every(events, (event) => listeners.set(event, new Set([...(listeners.get(event) ?? []), handler]))),
    off: (events, handler) => every(events, (event) => listeners.get(event)?.delete(handler)),
    // New values of traits, as Python sends them in one message.
    tell(changes) {
      Object.assign(traits, changes);
      for (const name of Object.keys(changes)) listeners.get(`change:${name}`)?.forEach((handler) => handler());
    },
    send: (message) => own.receive(message),
    save_changes: () => own.saved(),
  };
  const own = mind(model);
  return model;
}

// ---- minds of the widgets that widget.py describes

// answer(values, given) computes [frame, words], as the widget's answer() in Python.
function answering(answer) {
  return (model) => {
    const given = unpacked(model.get("given"));
    return {
      receive({ values, turn }) {
        const start = performance.now();
        const all = { ...model.get("values"), ...values };
        const [frame, words] = answer(all, given);
        model.tell({ turn: [...turn, (performance.now() - start) / 1000], values: all, frame, words });
      },
    };
  };
}

// Looks frames up that were recorded at all positions of all controls. `recorded` has these positions by name, the frames
// in their order, the last control changing first, and for each button the position that it leads to.
function remembering(model) {
  const { positions, frames, pressed } = model.get("recorded");
  const names = Object.keys(positions);
  const nearest = (all, value) =>
    typeof value === "number"
      ? all.reduce((best, other, i) => (Math.abs(other - value) < Math.abs(all[best] - value) ? i : best), 0)
      : all.indexOf(value);
  const placeOf = (values) =>
    names.reduce((place, name) => place * positions[name].length + nearest(positions[name], values[name]), 0);
  const valuesAt = (place) => {
    const values = {};
    for (const name of names.toReversed()) {
      values[name] = positions[name][place % positions[name].length];
      place = Math.floor(place / positions[name].length);
    }
    return values;
  };
  const show = (place, more) => {
    const [frame, words] = frames[place];
    model.tell({ ...more, values: valuesAt(place), frame, words });
  };
  return {
    receive({ values, turn, pressed: button }) {
      if (button) show(pressed[button][placeOf(model.get("values"))]);
      else show(placeOf({ ...model.get("values"), ...values }), { turn: [...turn, 0] });
    },
  };
}

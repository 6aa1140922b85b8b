// Behind alone.js, for a widget whose frames were recorded.

const mind = remembering;

// Causes of the cycles on the critical path, and what units wait for.
const LIGHT = new Set(["memory", "latency", "dispatch", "token", "fill", "fetch"]);
const CAUSES = Object.keys(DATA.causes);
const WAITS = ["work", "memory", "token", "queue", "fetch", "unit", "fill"];
const WAIT_NAMES = {
  work: "work", memory: "main memory", token: "token", queue: "full queue", fetch: "FETCH",
  unit: "own pipeline", fill: "pipeline fills", done: "done",
};

// Loaded into the CDK's command line (see lab/cloud.py). It asks every 5 s whether a stack is complete, and
// has no option for that; in the emulated cloud a stack is complete after a second.
"use strict";

const CDK_POLL_MS = 5000;
const POLL_MS = 250;

const original = globalThis.setTimeout;
const symbols = Object.getOwnPropertySymbols(original);

function setTimeout(act, ms, ...rest) {
  return original(act, ms === CDK_POLL_MS ? POLL_MS : ms, ...rest);
}
for (const each of symbols) setTimeout[each] = original[each]; // what util.promisify looks for
globalThis.setTimeout = setTimeout;

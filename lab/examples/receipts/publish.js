// Publishes each line of its input as an event, and says what became of it. Needs Node alone.
//
//   node publish.js HOST PORT SERVICE < events
//
// It prints `stored DIGEST` or `refused DIGEST REASON` for each line, and ends after the last one.
// The numbers are those of docs/reference/receipts.md.

const net = require("node:net");
const readline = require("node:readline");
const { createHash, randomBytes } = require("node:crypto");

const RECEIPT_MS = Number(process.env.RECEIPT_MS ?? 5_000), LONGEST_MS = 80_000, RECONNECT_MS = 500, KEEPALIVE_S = 30, WINDOW = 200;
const CONNACK = 2, PUBLISH = 3, SUBACK = 9;

const [host, port, service] = process.argv.slice(2);
if (!service) {
  console.error("usage: node publish.js HOST PORT SERVICE < events");
  process.exit(2);
}
const outbox = `eventplane/${service}/outbox`, receipts = `${outbox}/receipts`;
const clientId = `${service}-${randomBytes(4).toString("hex")}`;

const waiting = new Map(); // digest: the payload and its timer, in the order of the input (6)
const lines = readline.createInterface({ input: process.stdin });
let socket, isUp = false, isEnd = false, packetId = 0;

// MQTT 3.1.1: the packets that are needed.

function packet(first, ...parts) {
  const body = Buffer.concat(parts), head = [first];
  for (let left = body.length; ; left >>= 7) {
    head.push(left > 127 ? (left & 127) | 128 : left);
    if (left <= 127) return Buffer.concat([Buffer.from(head), body]);
  }
}

const two = (number) => Buffer.from([number >> 8, number & 255]);
const text = (value) => Buffer.concat([two(Buffer.byteLength(value)), Buffer.from(value)]);
const nextId = () => two((packetId = (packetId % 65_535) + 1));

const connect = () => packet(0x10, text("MQTT"), Buffer.from([4, 2]), two(KEEPALIVE_S), text(clientId));
const subscribe = () => packet(0x82, nextId(), text(receipts), Buffer.from([1]));
const publish = (payload) => packet(0x32, text(outbox), nextId(), payload);

// Calls `take` with the type, flags and body of each whole packet in `data`; returns the rest.
function read(data, take) {
  for (;;) {
    let length = 0, at = 1;
    for (let shift = 0; ; shift += 7) {
      if (at >= data.length) return data;
      length |= (data[at] & 127) << shift;
      if (data[at++] < 128) break;
    }
    if (data.length < at + length) return data;
    take(data[0] >> 4, data[0] & 15, data.subarray(at, at + length));
    data = data.subarray(at + length);
  }
}

// The receipt protocol.

function open() {
  let unread = Buffer.alloc(0);
  socket = net.connect(port, host, () => socket.write(connect()));
  const ping = setInterval(() => isUp && socket.write(packet(0xc0)), (KEEPALIVE_S * 1000) / 2);
  socket.setTimeout(KEEPALIVE_S * 1000, () => socket.destroy()); // not even an answer to a ping
  socket.on("data", (data) => (unread = read(Buffer.concat([unread, data]), take)));
  socket.on("error", () => {}); // "close" follows
  socket.on("close", () => {
    isUp = false;
    clearInterval(ping);
    if (!isDone()) setTimeout(open, RECONNECT_MS); // 8
  });
}

function take(type, flags, body) {
  if (type === CONNACK) {
    if (body[1] !== 0) return refused(clientId, body[1]);
    socket.write(subscribe()); // 1
  } else if (type === SUBACK) {
    if (body[2] >= 128) return refused(receipts, body[2]); // 1
    isUp = true;
    for (const each of waiting.values()) send(each); // 7
  } else if (type === PUBLISH) {
    const qos = (flags >> 1) & 3, payload = body.subarray(2 + body.readUInt16BE(0) + (qos ? 2 : 0));
    takeReceipts(payload);
    if (qos) socket.write(packet(0x40, body.subarray(2 + body.readUInt16BE(0)).subarray(0, 2)));
  }
}

function refused(what, code) {
  console.error(`the broker refuses ${what}: ${code}`);
  socket.destroy(); // 8
}

function send(each) {
  if (!isUp) return;
  socket.write(publish(each.payload)); // 2
  clearTimeout(each.timer);
  each.timer = setTimeout(() => send(each), each.wait); // 4
  each.wait = Math.min(each.wait * 2, LONGEST_MS);
}

function takeReceipts(payload) {
  let found;
  try {
    found = JSON.parse(payload);
  } catch {
    return; // 5
  }
  for (const receipt of Array.isArray(found) ? found : []) {
    const each = waiting.get(receipt?.digest); // not another's, nor one that was reported
    if (!each) continue;
    clearTimeout(each.timer);
    if (receipt.refused === "spool_full") {
      each.timer = setTimeout(() => send(each), each.wait); // 10
      continue;
    }
    waiting.delete(receipt.digest);
    console.log(receipt.refused ? `refused ${receipt.digest} ${receipt.refused}` : `stored ${receipt.digest}`); // 3, 9
  }
  if (!isEnd && waiting.size < WINDOW) lines.resume();
  if (isDone()) socket.end(packet(0xe0));
}

const isDone = () => isEnd && waiting.size === 0;

lines.on("line", (line) => {
  const payload = Buffer.from(line);
  const each = { payload, wait: RECEIPT_MS, timer: undefined };
  waiting.set(createHash("sha256").update(payload).digest("hex"), each);
  send(each);
  if (waiting.size >= WINDOW) lines.pause();
});
lines.on("close", () => {
  isEnd = true;
  if (isDone()) socket.end(packet(0xe0));
});
open();

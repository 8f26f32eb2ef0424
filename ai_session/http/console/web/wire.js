// The protocol for people's programs over one WebSocket a tab. After a loss each stream goes on at its next byte.
const LINE_END = 10, FIRST_DELAY = 100, LONGEST_DELAY = 2000, SIGNED_OUT = 4401, MOST_TYPED = 1 << 16;
const encoder = new TextEncoder(), decoder = new TextDecoder();

export class Wire {
  // on.ready(hello) after each connection, on.event(facts), on.state(word, note): 'live', 'lost' or 'signed-out'
  constructor(token, key, on) {
    Object.assign(this, { token, key, on, delay: FIRST_DELAY, tries: 0, number: 0, waiting: new Map(), streams: new Set(), byNumber: new Map(), gaps: 0, losses: 0 });
    this.open();
  }

  open() {
    const socket = this.socket = new WebSocket(`ws://${location.host}/ws`);
    socket.binaryType = 'arraybuffer';
    socket.onopen = () => this.introduce(socket);
    socket.onclose = ({ code }) => this.lost(code);
  }

  // The port may be another program's by now. Only the console that signed this tab in can say what the nonce calls for;
  // anything else gets neither the token nor a request.
  async introduce(socket) {
    const nonce = crypto.randomUUID(), reply = new Promise(done => { socket.onmessage = ({ data }) => done(data); });
    socket.send(`who ${nonce}`);
    const said = await reply, right = said === await proof(this.key, nonce);
    if (socket.readyState !== WebSocket.OPEN) return; // lost meanwhile, which onclose tells
    if (!right) {
      socket.onclose = null;
      socket.close();
      return this.lost(SIGNED_OUT);
    }
    socket.onmessage = ({ data }) => this.take(data);
    socket.send(this.token);
  }

  lost(code) {
    this.live = false;
    this.losses++;
    this.tries++;
    this.byNumber.clear();
    for (const { reject } of this.waiting.values()) reject(new Refused({ code: 'connection_lost', message: 'the connection was lost' }));
    this.waiting.clear();
    for (const stream of this.streams) stream.number = 0;
    if (code === SIGNED_OUT) return this.on.state('signed-out');
    this.on.state('lost', this.note ?? '');
    setTimeout(() => this.open(), this.delay);
    this.delay = Math.min(this.delay * 2, LONGEST_DELAY);
  }

  take(data) {
    let facts, bytes;
    if (typeof data === 'string') facts = JSON.parse(data);
    else {
      const all = new Uint8Array(data), end = all.indexOf(LINE_END);
      facts = JSON.parse(decoder.decode(all.subarray(0, end)));
      bytes = all.subarray(end + 1);
    }
    if ('ai_session' in facts) return this.greeted(facts);
    if ('event' in facts) return 'stream' in facts ? this.byNumber.get(facts.stream)?.take(facts, bytes) : this.on.event(facts);
    const asked = this.waiting.get(facts.id);
    this.waiting.delete(facts.id);
    if (facts.error && !asked) this.note = facts.error.message;
    if (facts.error) asked?.reject(new Refused(facts.error));
    else asked?.resolve(bytes ? { ...facts.result, bytes } : facts.result);
  }

  greeted(hello) {
    this.live = true;
    [this.delay, this.tries] = [FIRST_DELAY, 0];
    this.note = '';
    this.on.state('live');
    for (const stream of this.streams) stream.begin();
    this.on.ready(hello);
  }

  ask(method, params = {}, bytes) {
    if (!this.live) return Promise.reject(new Refused({ code: 'connection_lost', message: 'the connection was lost' }));
    const id = ++this.number;
    this.send({ id, method, params }, bytes);
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  // A tool's structured answer.
  async call(name, args = {}) {
    const { structured, text, is_error } = await this.ask('call', { name, arguments: args });
    if (is_error) throw new Refused(structured.error ?? { code: 'internal_error', message: text });
    return structured;
  }

  tell(method, params, bytes) { if (this.live) this.send({ method, params }, bytes); }

  // Between the end of a connection and the event that tells of it, what is sent goes nowhere; what was asked is refused then.
  send(request, bytes) {
    if (this.socket.readyState !== WebSocket.OPEN) return undefined;
    if (!bytes) return this.socket.send(JSON.stringify(request));
    const head = encoder.encode(JSON.stringify(request) + '\n'), all = new Uint8Array(head.length + bytes.length);
    all.set(head);
    all.set(bytes, head.length);
    this.socket.send(all);
  }

  // A long text goes in pieces: a message has a size at which the connection would end.
  type(session_id, text) {
    const bytes = encoder.encode(text);
    for (let at = 0; at < bytes.length; at += MOST_TYPED) this.tell('type', { session_id }, bytes.subarray(at, at + MOST_TYPED));
  }

  // sink(facts, bytes, done): done() once it is taken in, which lets more be sent.
  stream(session, sink) {
    const stream = new Stream(this, session, sink);
    this.streams.add(stream);
    if (this.live) stream.begin();
    return stream;
  }
}

async function proof(key, nonce) {
  const hash = { name: 'HMAC', hash: 'SHA-256' }, secret = await crypto.subtle.importKey('raw', encoder.encode(key), hash, false, ['sign']);
  return [...new Uint8Array(await crypto.subtle.sign(hash, secret, encoder.encode(nonce)))].map(byte => byte.toString(16).padStart(2, '0')).join('');
}

class Stream {
  constructor(wire, session, sink) { Object.assign(this, { wire, session, sink, number: 0 }); }

  async begin(from = this.next) {
    const { wire, session } = this;
    try {
      const found = await wire.ask('stream', from === undefined ? { session } : { session, offset: from });
      const other = from !== undefined && (found.rows !== this.rows || found.cols !== this.cols);
      if (this.closed || other) wire.tell('close_stream', { stream: found.stream });
      if (this.closed) return;
      Object.assign(this, { rows: found.rows, cols: found.cols });
      if (other) { // what was printed for another size is not drawn on this one
        this.next = undefined;
        return this.begin();
      }
      this.number = found.stream;
      wire.byNumber.set(found.stream, this);
      this.sink({ event: 'began', ...found }, undefined, () => {});
    } catch (error) {
      // A session that was cut off or is another by now is shown from its present screen on; one that is gone is not.
      if (from !== undefined && error.code === 'invalid_arguments') this.begin(undefined);
    }
  }

  take(facts, bytes = new Uint8Array()) {
    if (facts.event === 'output' && this.next !== undefined && facts.offset !== this.next) this.wire.gaps++;
    if ('next' in facts) this.next = facts.next;
    if ('rows' in facts) Object.assign(this, { rows: facts.rows, cols: facts.cols });
    const { wire, number } = this, { next: offset } = facts;
    this.sink(facts, bytes, () => { if (offset !== undefined && number === this.number) wire.tell('acknowledge', { stream: number, offset }); });
  }

  close() {
    this.closed = true;
    this.wire.streams.delete(this);
    this.wire.byNumber.delete(this.number);
    if (this.number) this.wire.tell('close_stream', { stream: this.number });
  }
}

export class Refused extends Error {
  constructor({ code, message, suggestion = '' }) {
    super(message);
    Object.assign(this, { code, suggestion });
  }
}

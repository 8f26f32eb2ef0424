import assert from "node:assert/strict";
import { test } from "node:test";
import { createApp } from "../src/app.js";

function post(body: string) {
  return { method: "POST", headers: { "content-type": "application/json" }, body };
}

test("it says that it is well", async () => {
  const answer = await createApp().request("/health");
  assert.equal(answer.status, 200);
  assert.deepEqual(await answer.json(), { status: "ok" });
});

test("a note is added, read, and removed", async () => {
  const app = createApp();
  const added = await app.request("/api/notes", post(JSON.stringify({ text: " milk " })));
  assert.equal(added.status, 201);
  const note = (await added.json()) as { id: string; text: string };
  assert.equal(note.text, "milk");

  const read = await app.request(`/api/notes/${note.id}`);
  assert.deepEqual(await read.json(), note);
  const all = (await (await app.request("/api/notes")).json()) as { notes: unknown[] };
  assert.deepEqual(all.notes, [note]);

  assert.equal((await app.request(`/api/notes/${note.id}`, { method: "DELETE" })).status, 204);
  assert.equal((await app.request(`/api/notes/${note.id}`)).status, 404);
});

test("what is no note is refused", async () => {
  for (const body of ["", "[]", "{}", '{"text":1}', '{"text":"  "}', JSON.stringify({ text: "x".repeat(501) })]) {
    const answer = await createApp().request("/api/notes", post(body));
    assert.equal(answer.status, 400, body.slice(0, 20));
  }
});

test("what is not there is said in JSON", async () => {
  const answer = await createApp().request("/nowhere");
  assert.equal(answer.status, 404);
  assert.deepEqual(await answer.json(), { error: "not found" });
});

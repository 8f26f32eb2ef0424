import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { MemoryStore, type Store } from "./store.js";

const MOST_CHARACTERS = 500;

export function createApp(store: Store = new MemoryStore()) {
  const app = new Hono();

  app.get("/", (c) => c.json({ name: "__PROJECT_NAME__", routes: ["/health", "/api/notes"] }));

  app.get("/health", (c) => c.json({ status: "ok" }));

  app.get("/api/notes", async (c) => c.json({ notes: await store.list() }));

  app.post("/api/notes", async (c) => {
    const body: unknown = await c.req.json().catch(() => null);
    const text = typeof body === "object" && body !== null && "text" in body ? body.text : undefined;
    if (typeof text !== "string" || text.trim() === "" || text.length > MOST_CHARACTERS) {
      throw new HTTPException(400, { message: `text must have 1 to ${MOST_CHARACTERS} characters` });
    }
    return c.json(await store.add(text.trim()), 201);
  });

  app.get("/api/notes/:id", async (c) => {
    const note = await store.get(c.req.param("id"));
    return note ? c.json(note) : c.json({ error: "there is no such note" }, 404);
  });

  app.delete("/api/notes/:id", async (c) => {
    const there = await store.remove(c.req.param("id"));
    return there ? c.body(null, 204) : c.json({ error: "there is no such note" }, 404);
  });

  app.notFound((c) => c.json({ error: "not found" }, 404));

  app.onError((error, c) => {
    if (error instanceof HTTPException) {
      return c.json({ error: error.message }, error.status);
    }
    console.error(error);
    return c.json({ error: "internal error" }, 500);
  });

  return app;
}

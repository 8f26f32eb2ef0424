import { serve } from "@hono/node-server";
import { createApp } from "./app.js";

// The same app on Node, for machines of your own.
const port = Number(process.env.PORT ?? 8787);

const server = serve({ fetch: createApp().fetch, port }, (info) => {
  console.log(`http://localhost:${info.port}`);
});

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => server.close());
}

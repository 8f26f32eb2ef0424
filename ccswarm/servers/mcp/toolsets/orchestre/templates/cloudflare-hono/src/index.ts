import { createApp } from "./app.js";

// The entry of the Cloudflare Worker.
export default createApp();

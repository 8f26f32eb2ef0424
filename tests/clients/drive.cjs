// Drives a server with one of the official Node SDKs: a request per line of input, its outcome per line of output.
//     node drive.cjs FOLDER v1|legacy|auto|VERSION command argument...
// FOLDER holds node_modules. The first line out tells what connecting gave. A line {"tool", "arguments"} calls a tool;
// with "abort_on" the call is given up once that file exists.
const fs = require("node:fs");
const path = require("node:path");
const { createInterface } = require("node:readline");
const { createRequire } = require("node:module");

const [folder, variant, command, ...args] = process.argv.slice(2);
const load = createRequire(path.join(folder, "package.json"));

function parts() {
  const v1 = variant === "v1";
  const { Client } = load(v1 ? "@modelcontextprotocol/sdk/client/index.js" : "@modelcontextprotocol/client");
  const stdio = v1 ? "@modelcontextprotocol/sdk/client/stdio.js" : "@modelcontextprotocol/client/stdio";
  const mode = ["legacy", "auto"].includes(variant) ? variant : { pin: variant };
  const client = new Client({ name: "drive", version: "1" }, v1 ? {} : { versionNegotiation: { mode } });
  const transport = new (load(stdio).StdioClientTransport)({ command, args });
  if (v1) transport.setProtocolVersion = (version) => (client.getNegotiatedProtocolVersion = () => version);
  return [client, transport, v1];
}

async function call(client, v1, { tool, arguments: given, abort_on: file }) {
  const controller = new AbortController();
  const watcher = file && fs.watch(path.dirname(file), () => fs.existsSync(file) && controller.abort("enough"));
  const options = { signal: controller.signal };
  const params = { name: tool, arguments: given };
  try {
    return await (v1 ? client.callTool(params, undefined, options) : client.callTool(params, options));
  } finally {
    watcher?.close();
  }
}

async function main() {
  const [client, transport, v1] = parts();
  const say = (outcome) => process.stdout.write(JSON.stringify(outcome) + "\n");
  const faults = [];
  client.onerror = (error) => faults.push(String(error));
  await client.connect(transport);
  const { tools } = await client.listTools();
  say({ version: client.getNegotiatedProtocolVersion(), server: client.getServerVersion(), tools });
  for await (const line of createInterface({ input: process.stdin })) {
    const outcome = await call(client, v1, JSON.parse(line)).catch((error) => ({
      thrown: String(error),
      code: error.code,
    }));
    say({ ...outcome, faults });
  }
  await client.close();
}

main().catch((error) => {
  process.stdout.write(JSON.stringify({ failed: String(error) }) + "\n");
  process.exitCode = 1;
});

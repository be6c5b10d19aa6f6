// Looks at pages in a headless Chromium, as people with and without eyes do: one line of JSON per
// page, with what axe-core finds, what the page asked others for, what it was denied, and how wide
// it is. It is steered through pipes, so that nobody else can.
//
// look.mjs FOLDER: reads a line of JSON per page from standard input:
// {"url", "token", "name", "width", "height", "dark", "keys"}.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const folder = process.argv.at(-1);
const axe = readFileSync(createRequire(process.cwd() + "/").resolve("axe-core/axe.min.js"), "utf8");
const profile = mkdtempSync(join(tmpdir(), "look-"));
const chromium = spawn(
  process.env.CHROMIUM ?? "chromium",
  [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
    `--user-data-dir=${profile}`,
    "about:blank",
  ],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
);

const [, , , to, from] = chromium.stdio;
const waiting = new Map();
let heard = () => {};
let number = 0;
let rest = Buffer.alloc(0);
from.on("data", (bytes) => {
  rest = Buffer.concat([rest, bytes]);
  for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
    const message = JSON.parse(rest.subarray(0, end).toString("utf8"));
    rest = rest.subarray(end + 1);
    if (message.id === undefined) {
      heard(message);
      continue;
    }
    const { resolve, reject } = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.error) reject(new Error(JSON.stringify(message.error)));
    else resolve(message.result);
  }
});

function send(method, params = {}, sessionId = undefined) {
  number += 1;
  const id = number;
  to.write(JSON.stringify({ id, method, params, sessionId }) + "\0");
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

async function look(page) {
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const ask = (method, params) => send(method, params, sessionId);
  const seen = { name: page.name, requests: [], denied: [], status: 0 };
  heard = ({ method, params, sessionId: of }) => {
    if (of !== sessionId) return;
    if (method === "Network.requestWillBeSent") seen.requests.push(params.request.url);
    if (method === "Network.responseReceived" && params.type === "Document") {
      seen.status = params.response.status;
    }
    if (method === "Log.entryAdded" && ["error", "warning"].includes(params.entry.level)) {
      seen.denied.push(params.entry.text);
    }
    if (method === "Page.javascriptDialogOpening") seen.denied.push("a dialogue was opened");
  };
  for (const domain of ["Page", "Network", "Log", "Runtime"]) await ask(`${domain}.enable`);
  if (page.token) {
    const headers = { Authorization: `Bearer ${page.token}` };
    await ask("Network.setExtraHTTPHeaders", { headers });
  }
  await ask("Emulation.setDeviceMetricsOverride", {
    width: page.width ?? 1280,
    height: page.height ?? 900,
    deviceScaleFactor: 1,
    mobile: (page.width ?? 1280) < 600,
  });
  const value = page.dark ? "dark" : "light";
  await ask("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
  await ask("Emulation.setFocusEmulationEnabled", { enabled: true });
  const { errorText } = await ask("Page.navigate", { url: page.url });
  if (errorText) throw new Error(`${page.url}: ${errorText}`);
  const evaluate = async (expression) => {
    const told = await ask("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (told.exceptionDetails) throw new Error(JSON.stringify(told.exceptionDetails));
    return told.result.value;
  };
  // It is there once the answer has begun; the rest is waited for.
  while ((await evaluate("document.readyState")) !== "complete") {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  // By keys alone: what has the focus after each press of the tabulator.
  seen.focused = [];
  for (let press = 0; press < (page.keys ?? 0); press += 1) {
    for (const type of ["keyDown", "keyUp"]) {
      await ask("Input.dispatchKeyEvent", { type, key: "Tab", code: "Tab", windowsVirtualKeyCode: 9 });
    }
    const focus = `(() => {
      const it = document.activeElement;
      const style = getComputedStyle(it);
      const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
      return [it.tagName, (it.textContent || it.name || "").trim().slice(0, 40), ring];
    })()`;
    seen.focused.push(await evaluate(focus));
  }
  await evaluate("document.activeElement.blur()");
  await evaluate(axe + "; true");
  const found = await evaluate(`axe.run(document, { resultTypes: ["violations"] }).then((it) =>
    it.violations.map((rule) => [rule.id, rule.help, rule.nodes.map((node) => node.html)]))`);
  seen.violations = found;
  seen.scripts = await evaluate("document.scripts.length");
  seen.title = await evaluate("document.title");
  seen.text = await evaluate("document.querySelector('main').innerText.slice(0, 4000)");
  seen.overflow = await evaluate(
    "document.documentElement.scrollWidth - document.documentElement.clientWidth",
  );
  const { data } = await ask("Page.captureScreenshot", { format: "png" });
  writeFileSync(join(folder, `${page.name}.png`), Buffer.from(data, "base64"));
  await send("Target.closeTarget", { targetId });
  return seen;
}

const ended = new Promise((resolve) => chromium.on("exit", resolve));
for await (const line of createInterface({ input: process.stdin })) {
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`too late: ${line}`)), 60_000).unref();
  });
  try {
    console.log(JSON.stringify(await Promise.race([look(JSON.parse(line)), late])));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
await send("Browser.close").catch(() => {});
await ended;
rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
process.exit(0);

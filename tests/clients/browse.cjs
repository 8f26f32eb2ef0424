// A browser without a window, driven by lines of JSON: node browse.cjs FOLDER_OF_PACKAGES CHROMIUM URL.
// Each line is {do, ...} and is answered by {text} of the page afterwards, or {failed, text}.
"use strict";
const { createInterface } = require("node:readline");
const { createRequire } = require("node:module");

const SECONDS = 40;
const TRIES = 8;
const [folder, executablePath, url] = process.argv.slice(2);
const puppeteer = createRequire(`${folder}/package.json`)("puppeteer-core");

// In the page: the button, tab or link that says `words` (as a whole line), and can be used.
const pressable = (words) =>
  [...document.querySelectorAll("button, label, a, [role=tab]")]
    .filter((one) => !one.disabled && (one.innerText ?? "").split("\n").some((line) => line.trim() === words))
    .pop();
const field = (words) => {
  const label = [...document.querySelectorAll("label")].find(
    (one) => one.innerText.replace("*", "").trim() === words,
  );
  return label && (label.htmlFor ? document.getElementById(label.htmlFor) : label.querySelector("input, textarea"));
};
const named = (selector) => document.querySelector(selector);
const shows = (words) => words.every((word) => (document.body?.innerText ?? "").includes(word));

const acts = {
  press: async (page, { words }) => (await found(page, pressable, words)).click(),
  pick: async (page, { selector }) => (await found(page, named, selector)).click(),
  fill: async (page, { words, value }) => {
    const input = await found(page, field, words);
    await input.click({ count: 3 });
    await input.type(value);
  },
  // The page may be drawn anew under a click, and then has not heard it.
  open: async (page, { words, shown }) => {
    for (let left = TRIES; left > 0; left -= 1) {
      await (await found(page, pressable, words)).click();
      const seen = page.waitForFunction(shows, { timeout: (SECONDS * 1000) / TRIES }, shown);
      if (await seen.catch(() => left === 1 && Promise.reject(new Error(`no ${shown}`)))) return;
    }
  },
  see: (page, { words }) => found(page, shows, words),
};

const found = (page, look, words) => page.waitForFunction(look, { timeout: SECONDS * 1000 }, words);

(async () => {
  const browser = await puppeteer.launch({
    executablePath,
    headless: "shell",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
  try {
    const page = await browser.newPage();
    await page.setViewport({ width: 1400, height: 1400 });
    await page.goto(url, { waitUntil: "domcontentloaded" });
    const answer = async (more) => {
      const text = await page.evaluate(() => document.body.innerText).catch(() => "");
      process.stdout.write(`${JSON.stringify({ text, url: page.url(), ...more })}\n`);
    };
    await answer({});
    for await (const line of createInterface({ input: process.stdin })) {
      const wanted = JSON.parse(line);
      try {
        await acts[wanted.do](page, wanted);
        await answer({});
      } catch (error) {
        await answer({ failed: String(error) });
      }
    }
  } finally {
    await browser.close();
  }
})();

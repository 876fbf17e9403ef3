// Build the chart library for report.html: one file, with its licence and the hash of what it is built from.
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const SOURCES = ["package.json", "package-lock.json", "echarts.js", "build.js"];
const TARGET = new URL("../runmanager/results/report/templates/", import.meta.url);
const at = (name) => new URL(name, import.meta.url);

const hash = createHash("sha256");
for (const name of SOURCES) hash.update(readFileSync(at(name)));
const { version } = JSON.parse(readFileSync(at("node_modules/echarts/package.json"), "utf8"));
const built = await build({
  entryPoints: [at("echarts.js").pathname],
  bundle: true,
  minify: true,
  write: false,
  format: "iife",
  globalName: "echarts",
  target: "es2020",
  charset: "ascii",
  legalComments: "none",
  define: { "process.env.NODE_ENV": '"production"' },
});
const text = built.outputFiles[0].text;
if (/<\/script|<!--/i.test(text)) throw new Error("the library cannot be part of an HTML page");
const header = `/*! Apache ECharts ${version}, Apache License 2.0; built from web/ ${hash.digest("hex")} */\n`;
writeFileSync(new URL("echarts.js", TARGET), header + text);
const licences = ["LICENSE", "NOTICE"].map((name) => readFileSync(at(`node_modules/echarts/${name}`), "utf8"));
const zrender = readFileSync(at("node_modules/zrender/LICENSE"), "utf8");
writeFileSync(new URL("echarts.LICENSE.txt", TARGET), [...licences, "ZRender, part of Apache ECharts:\n", zrender].join("\n"));

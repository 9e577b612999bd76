import { readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { transformAsync } from "@babel/core"
import { build } from "tsdown"

const SOURCE = new URL("../src/features/web/page/", import.meta.url)

/** Compiles JSX as Solid wants it: for OpenTUI's renderer, or for a browser's DOM. */
export const solid = (preset: { moduleName: string; generate: "universal" | "dom" }, id: RegExp) => ({
  name: `solid-${preset.generate}`,
  transform: {
    filter: { id },
    async handler(code: string, filename: string) {
      const presets = [["babel-preset-solid", preset], "@babel/preset-typescript"]
      const result = await transformAsync(code, { filename, configFile: false, babelrc: false, presets })
      return result?.code ? { code: result.code, map: null, moduleType: "js" as const } : undefined
    },
  },
})

/** Builds the page with all its parts into one HTML file. */
export async function buildPage(target: string): Promise<void> {
  const [bundle] = await build({
    config: false,
    entry: fileURLToPath(new URL("main.tsx", SOURCE)),
    format: "iife",
    platform: "browser",
    target: "es2023",
    minify: true,
    write: false,
    dts: false,
    clean: false,
    logLevel: "warn",
    plugins: [solid({ moduleName: "solid-js/web", generate: "dom" }, /\.tsx$/)],
    deps: { alwaysBundle: () => true, onlyBundle: false },
  })
  const chunk = bundle?.chunks.find((each) => each.type === "chunk" && each.isEntry)
  if (chunk?.type !== "chunk") throw new Error("the page's script was not built")
  const read = (name: string) => readFileSync(new URL(name, SOURCE), "utf8")
  // A function as replacement: `$` stands for itself. A closing tag in a string would end the element.
  const html = read("page.html")
    .replace("/*style*/", () => compact(read("style.css")))
    .replace("/*script*/", () => chunk.code.trim().replaceAll("</script", "<\\/script"))
  writeFileSync(target, html)
}

/** Without comments and indentation. */
const compact = (css: string): string =>
  css
    .replaceAll(/\/\*[\s\S]*?\*\//g, "")
    .replaceAll(/\n\s*/g, "\n")
    .trim()

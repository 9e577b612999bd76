import { tmpdir } from "node:os"
import { afterEach, expect, test } from "vitest"
import { bytesOf, openTerminal, type Terminal } from "../../support/terminal.ts"

let terminal: Terminal | undefined

afterEach(async () => {
  await terminal?.stop()
  terminal = undefined
})

const shell = (script: string, more: Partial<Parameters<typeof openTerminal>[0]> = {}) => {
  const env = { PATH: process.env.PATH, UNSET: undefined }
  terminal = openTerminal({ command: "/bin/sh", args: ["-c", script], cwd: tmpdir(), env, size: [40, 5], ...more })
  return terminal
}

test("the test terminal reads its screen as cells with colours", async () => {
  const screen = shell(String.raw`printf 'a\033[1;38;2;255;0;16mb\033[0m\033[44m日\n'; read -r _`)
  await screen.waitFor("ab日")
  const [row = []] = screen.cells()
  expect(row).toHaveLength(40)
  expect(row[0]).toMatchObject({ text: "a", width: 1, bold: false, foreground: undefined, background: undefined })
  expect(row[1]).toMatchObject({ text: "b", bold: true, foreground: "#ff0010" })
  expect(row[2]).toMatchObject({ text: "日", width: 2, background: 4 })
})

test("the test terminal sends keys as bytes and reports the program's exit", async () => {
  const screen = shell(`read -r word; echo "got $word of $(stty size), \${UNSET-nothing}"; exit 3`)
  await screen.keys("h", "i", "Enter")
  await screen.waitFor("got hi of 5 40, nothing")
  await screen.gone
  expect(screen.exitCode()).toBe(3)
  await expect(screen.waitFor("more")).rejects.toThrow(/ended with 3: the terminal shows more; it shows\s+hi\s+got hi/)
})

test("the test terminal answers a program that asks for its colours", async () => {
  const screen = shell(
    String.raw`stty -echo -icanon; printf '\033]11;?\033\\'; dd bs=1 count=24 2>/dev/null | tr '\033' '^'`,
    {
      colours: { foreground: "#000000", background: "#ffeedd" },
    },
  )
  await screen.waitFor("^]11;rgb:ffff/eeee/dddd")
})

test("the test terminal rejects an unknown key", () => {
  expect(bytesOf("C-x")).toBe("\u0018")
  expect(() => bytesOf("Entre")).toThrow("no such key: Entre")
})

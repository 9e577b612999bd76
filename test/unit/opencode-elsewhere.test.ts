import { expect, test } from "vitest"
import { SessionFolders } from "../../src/opencode/cache.ts"
import { type Peer, peerOf, registerPeer, unregisterEverywhere, unregisterPeer } from "../../src/opencode/connect.ts"
import { commandsIn } from "../../src/opencode/hooks.ts"

test("the folder of each session is known, and so is when its last session leaves a folder", () => {
  const elsewhere = new SessionFolders("/home")
  expect([elsewhere.folderOf("a"), elsewhere.folders()]).toEqual(["/home", []])
  expect(elsewhere.moved("a", "/w")).toBeUndefined()
  expect(elsewhere.moved("b", "/w")).toBeUndefined()
  expect([elsewhere.folderOf("a"), elsewhere.folders()]).toEqual(["/w", ["/w"]])
  elsewhere.recordAsk("q", "/w")
  elsewhere.recordAsk("here", "/home")
  expect([elsewhere.askedIn("q", "below"), elsewhere.askedIn("x", "b"), elsewhere.askedIn("here", "p")]).toEqual([
    "/w",
    "/w",
    undefined,
  ])
  expect(elsewhere.moved("a", "/home")).toBeUndefined()
  expect(elsewhere.moved("b", "/home")).toBe("/w")
  expect(elsewhere.moved("b", "/home")).toBeUndefined()
  expect([elsewhere.folders(), elsewhere.askedIn("q", "below")]).toEqual([[], undefined])
})

test("the instance of a folder is known to the whole process, and only it can leave the folder", () => {
  const [one, other] = [{ tools: {} }, { tools: {} }] as unknown as [Peer, Peer]
  registerPeer("/w", one)
  registerPeer("/v", one)
  unregisterPeer("/w", other)
  expect(peerOf("/w")).toBe(one)
  unregisterPeer("/w", one)
  expect(peerOf("/w")).toBeUndefined()
  unregisterEverywhere(other)
  expect(peerOf("/v")).toBe(one)
  unregisterEverywhere(one)
  expect(peerOf("/v")).toBeUndefined()
})

test.each<[string, string[]]>([
  ["npm test", ["npm test"]],
  ["npm test && rm -rf /", ["npm test && rm -rf /", "npm test", "rm -rf /"]],
  ["a | b; c & d || e\nf", ["a | b; c & d || e\nf", "a", "b", "c", "d", "e", "f"]],
  ['echo "$(rm x)" `id`', ['echo "$(rm x)" `id`', 'echo "', "rm x", '"', "id"]],
  ["(cd a; make)", ["(cd a; make)", "cd a", "make"]],
  ["{ x; }", ["{ x; }", "x"]],
])("permission is asked for each command in %j separately", (line, commands) => {
  expect(commandsIn(line)).toEqual(commands)
})

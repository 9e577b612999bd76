import { expect, test } from "vitest"
import { diffSince } from "../../../src/features/web/opencode/sessions.ts"
import { filesOf } from "../../../src/lib/repository.ts"

const PATCH = `diff --git a/src/a b.ts b/src/a b.ts
index 1..2 100644
--- a/src/a b.ts\t
+++ b/src/a b.ts\t
@@ -1,2 +1,3 @@
 one
--- a comment
+zwei
+++drei
diff --git a/old.ts b/old.ts
deleted file mode 100644
--- a/old.ts
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/one name.ts b/another name.ts
similarity index 100%
rename from one name.ts
rename to another name.ts
diff --git a/pic.png b/pic.png
Binary files a/pic.png and b/pic.png differ
`

test("a patch is split by file, with the lines each file gained and lost", () => {
  expect(filesOf(PATCH).map(({ file, additions, deletions }) => [file, additions, deletions])).toEqual([
    ["src/a b.ts", 2, 1],
    ["old.ts", 0, 1],
    ["another name.ts", 0, 0],
    ["pic.png", 0, 0],
  ])
  expect(filesOf(PATCH)[0]?.patch).toContain("+++drei")
  expect(filesOf("")).toEqual([])
})

test.each([
  [
    'diff --git "a/we\\"ird\\t.txt" "b/we\\"ird\\t.txt"\n--- "a/we\\"ird\\t.txt"\n+++ "b/we\\"ird\\t.txt"\n@@ -1 +1 @@\n-a\n+b\n',
    'we"ird\t.txt',
  ],
  ['diff --git "a/n\\303\\274 \\\\.bin" "b/n\\303\\274 \\\\.bin"\nBinary files differ\n', "nü \\.bin"],
  [
    'diff --git a/old "b/line\\nbreak"\nsimilarity index 100%\nrename from old\nrename to "line\\nbreak"\n',
    "line\nbreak",
  ],
  [
    'diff --git "a/go\\"ne" "b/go\\"ne"\ndeleted file mode 100644\n--- "a/go\\"ne"\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n',
    'go"ne',
  ],
])("a file name that git quotes in a patch is unquoted: %j", (patch, name) => {
  expect(filesOf(patch).map(({ file }) => file)).toEqual([name])
})

test("the changes of a session are requested from OpenCode, and are empty when it fails", async () => {
  const row = { file: "a.ts", patch: "@@", additions: 1, deletions: 2, status: "modified" }
  const client = (answer: object) => ({ session: { diff: async () => answer } }) as never
  expect(await diffSince(client({ data: [row] }), "ses_1", "msg_1")).toEqual([
    { file: "a.ts", patch: "@@", additions: 1, deletions: 2 },
  ])
  expect(await diffSince(client({ error: "no" }), "ses_1", "msg_1")).toEqual([])
})
